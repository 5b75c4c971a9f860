package tugofwar

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	// perSecond writes of both together, over all objects.
	perSecond = 1.0
	// turns on one object in which the writer changes. A rollout's parts write
	// an object a few times in turn and end.
	turns = 10
	// alternating: of the writes of the objects, the share that follows another
	// client's. Two who write by chance have a half.
	alternating = 0.6
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "tug-of-war",
	Title: "Two clients undo each other's changes",
	Doc: `Two controllers that both believe to own a field write it in turn, each time the other's write is shown to them by their watch: a loop as fast as both can write, and each turn is sent to everybody who watches.

**Evidence.** The same objects are written successfully by two clients, at least ten times in turn on one object, one a second and more over all of them; at least 60 % of these writes follow the other's.

**Look-alikes.** Conflicts (409: conflict-storm, one client with itself); a controller and a kubelet that both report to a pod's or deployment's status as it comes up (a few turns, then none); one client that writes without end (no turns).`,
	Detect: detect,
}

type fight struct {
	a, b, resource string
}

type toll struct {
	writes, turned, objects, most int
	sample                        string
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("the requests: who writes what is in the audit log only")
	}
	type object struct{ resource, name string }
	writers := map[object][]string{}
	named := false
	for i := range v.Requests {
		r := &v.Requests[i]
		if r.Code >= 300 || (r.Verb != "update" && r.Verb != "patch") || r.Name == "" {
			continue
		}
		named = true
		// Who writes the status takes nothing back of what another wants.
		o := object{r.Resource, r.Namespace + "/" + r.Name}
		if r.Subresource != "" {
			o.resource += "/" + r.Subresource
		}
		writers[o] = append(writers[o], requests.Agent(r.UserAgent))
	}
	if !named && len(v.TalksOf(func(t *diagnose.Talk) bool { return t.Verb == "update" || t.Verb == "patch" })) > 0 {
		return diagnose.NotAssessed("the names of objects in the audit log")
	}
	fights := map[fight]*toll{}
	for o, ws := range writers {
		changes := 0
		count := map[string]int{}
		for i, w := range ws {
			count[w]++
			if i > 0 && w != ws[i-1] {
				changes++
			}
		}
		if changes < turns || float64(changes) < alternating*float64(len(ws)-1) {
			continue
		}
		var agents []string
		for a := range count {
			agents = append(agents, a)
		}
		slices.SortFunc(agents, func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
		two := []string{agents[0], agents[1]}
		slices.SortFunc(two, func(a, b string) int { return cmp.Or(foreign(b)-foreign(a), cmp.Compare(a, b)) })
		k := fight{two[0], two[1], o.resource}
		t := fights[k]
		if t == nil {
			t = &toll{}
			fights[k] = t
		}
		t.writes += len(ws)
		t.turned += changes
		t.objects++
		if len(ws) > t.most || len(ws) == t.most && o.name < t.sample {
			t.most, t.sample = len(ws), o.name
		}
	}
	var found []diagnose.Finding
	var keys []fight
	for k := range fights {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b fight) int {
		return cmp.Or(cmp.Compare(fights[b].writes, fights[a].writes), cmp.Compare(a.resource, b.resource), cmp.Compare(a.a, b.a), cmp.Compare(a.b, b.b))
	})
	for _, k := range keys {
		if t := fights[k]; float64(t.writes) >= perSecond*v.Span() {
			found = append(found, finding(v, k, t))
		}
	}
	if len(found) == 0 {
		return diagnose.NotThere("no two clients write the same object in turn")
	}
	return diagnose.Found(found...)
}

// foreign is 1 for a client that is no part of the cluster: where its own controllers are
// the other one, the fight is the client's.
func foreign(agent string) int {
	if diagnose.OfCluster(agent) {
		return 0
	}
	return 1
}

func finding(v *diagnose.View, k fight, t *toll) diagnose.Finding {
	f := diagnose.Finding{
		Component: "client:" + k.a, Resource: "lock", Sources: 1,
		Cause:   fmt.Sprintf("%s and %s write the same %s in turn", k.a, k.b, k.resource),
		Summary: fmt.Sprintf("%s and %s undo each other's changes of %s: %.1f writes a second on %d objects, and %d of %d writes follow the other's.", k.a, k.b, k.resource, float64(t.writes)/v.Span(), t.objects, t.turned, t.writes),
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "requests: writes of " + k.resource, Value: float64(t.turned), Text: fmt.Sprintf("%d of %d writes follow the other client's, %d of them on %s alone", t.turned, t.writes, t.most, t.sample)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Decide who owns the field that both write (kubectl get -o yaml --show-managed-fields says which), and let the other leave it alone, or write only where it differs from what it wants. The price: one of %s and %s no longer has its way.", k.a, k.b)},
		RefutedBy: "one of the two switched off, and the other that goes on writing",
	}
	talks := v.TalksOf(func(o *diagnose.Talk) bool {
		return o.Resource == k.resource && (o.Agent == k.a || o.Agent == k.b) && (o.Verb == "update" || o.Verb == "patch")
	})
	if len(talks) > 1 {
		f.Sources = 2
	}
	consumer.Judge(v, &f, talks, "")
	return f
}
