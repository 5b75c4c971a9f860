package diagnose

import (
	"slices"
	"time"

	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/record"
)

// A Parting is the end of a pod that its node has done with: a kubelet deletes
// a pod for good when its containers have ended. What stays from then on is kept
// by finalizers, and by nothing else.
type Parting struct {
	AtMicros   int64 // when the node's request was answered
	GoneMicros int64 // 0: the pod was there until the recording's end
	// Agent is who wrote the pod last in between, by requests.Agent's short form;
	// empty where nobody did.
	Agent string
}

// isParting says whether a request may be a node's that deletes its pod.
func isParting(r *record.Request) bool {
	return r.Verb == "delete" && r.Resource == "pods" && r.Subresource == ""
}

// accountPartings finds the measured pods that their nodes deleted, among the
// requests of the whole recording.
func (v *View) accountPartings(all []record.Request) {
	type key struct{ namespace, name string }
	ofNode := map[string]bool{}
	var at map[key]int // place in v.Partings
	for _, r := range all {
		if !isParting(&r) || r.Code >= 300 || r.DoneMicros == 0 {
			continue
		}
		node, known := ofNode[r.UserAgent]
		if !known {
			node = OfNode(requests.Agent(r.UserAgent))
			ofNode[r.UserAgent] = node
		}
		if !node {
			continue
		}
		if at == nil {
			at = make(map[key]int)
		}
		if _, again := at[key{r.Namespace, r.Name}]; !again {
			at[key{r.Namespace, r.Name}] = len(v.Partings)
			v.Partings = append(v.Partings, Parting{AtMicros: r.DoneMicros})
		}
	}
	if at == nil {
		return
	}
	mine := make([]bool, len(v.Partings)) // a measured pod's
	for _, p := range v.Pods {
		// Another pod may have had the name before, or after.
		i, ok := at[key{p.Namespace, p.Name}]
		if !ok || p.CreatedMicros > v.Partings[i].AtMicros || p.DeletedMicros != 0 && p.DeletedMicros < v.Partings[i].AtMicros-time.Second.Microseconds() {
			continue
		}
		// Without the watch nobody knows when a pod went.
		mine[i], v.Partings[i].GoneMicros = !v.blindAfter(v.Partings[i].AtMicros, p.DeletedMicros), p.DeletedMicros
	}
	for _, r := range all {
		if r.Verb != "patch" && r.Verb != "update" || r.Resource != "pods" || r.Subresource != "" || r.Code >= 300 {
			continue
		}
		i, ok := at[key{r.Namespace, r.Name}]
		if p := &v.Partings[i]; ok && r.ReceivedMicros >= p.AtMicros && (p.GoneMicros == 0 || r.ReceivedMicros <= p.GoneMicros) {
			p.Agent = requests.Agent(r.UserAgent)
		}
	}
	kept := v.Partings[:0]
	for i, p := range v.Partings {
		if mine[i] {
			kept = append(kept, p)
		}
	}
	v.Partings = kept
}

// blindAfter says whether the watch of pods was down at any time from a moment
// until another, or until the recording's end where that is 0.
func (v *View) blindAfter(from, until int64) bool {
	return slices.ContainsFunc(v.Meta.Gaps, func(g record.Gap) bool {
		return blindCollector(g) && (g.End.IsZero() || g.End.UnixMicro() >= from) && (until == 0 || g.Start.UnixMicro() <= until)
	})
}
