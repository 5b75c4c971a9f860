package slownodes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// share of the lost time that stage start must hold, and few where the nodes' own
	// clocks or the order in which their pods start say why.
	share, few = 0.3, 0.1
	// part of all lost time that a step on the nodes must have taken by their own clocks
	// where pods wait for somebody else there, too.
	part = 0.1
	// idle is the load of the machine below which nobody can blame it, and quick
	// the latency in seconds of the nodes' own reports.
	idle  = 0.85
	quick = 0.2
	// mostly is the part of the pods' waiting on which stretches must have fallen in which
	// the machine was full, where it was not on average.
	mostly = 0.5
	// several pods that came with the name of a node are no accident.
	several = 10
	// perNode is the least number of pods on a node that show how it takes them.
	perNode = 5
	// beside is the part of a pod's start that may pass outside of its node where the
	// machine is busy: on full machines it was half and more.
	beside = 0.2
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "slow-nodes",
	Title: "The nodes take long to start pods",
	Doc: `Between the binding and the report that a pod runs, the node is in charge: it pulls images, sets the network up, attaches and mounts volumes, and starts containers, a few pods at a
time. The control plane has nothing to do meanwhile.

**Evidence.** At least 30 % of the lost time is in stage start, or 10 % where the nodes' own clocks or the order in which their pods start say why; the API server answers the nodes' reports quickly (below 0.2 s), so that they are not late for its sake; the machine is not full, and was not while at least half of their waiting passed.
On a busy machine with simulated nodes: their requests, what watches take and threads that wait for a CPU are at most a fifth of what a pod takes to start, the API server refuses less than a fifth of what nodes ask for, nine of ten pods come, and the nodes' own clocks say that it is they, or pods of one node become running at intervals that vary by a quarter at most, or five in a row by less than a fifth while the node falls behind the pods that come; the rest is charged.
Where pods of one node become running one after the other, evenly spaced, and one that found the node idle took about as long, the node works on one at a time: the finding says so, and how long each takes. So it does behind pods that waited for the same and ran together, an image say, if rows of five after them are even and the node falls behind. Where the nodes' own clocks are recorded (kubelet_image_pull_duration_seconds, kubelet_run_podsandbox_duration_seconds), pulls or sandboxes that took at least half of what pods lost are named; 0.3 s for a sandbox are usual, or three fifths of the start delay that an experiment sets, and count for nothing.

Another step that took at least 10 % of all lost time, by the nodes' clocks, is a finding of its own.

Ten pods and more that came with a node's name, without a scheduler, are at least half of those that never ran, and no pod ran there: the node is not there or does not serve, and whoever gave them the name is to blame.

Where somebody else makes pods wait on their nodes too, a pull or a sandbox of simulated nodes that took at least 10 % of all lost time, by the nodes' clocks, is named for what it took; of sandboxes, without what passed outside of the nodes, for they may wait for volumes and addresses.

**Contradicting.** Simulated nodes that waited for the API server's answers for at least half of what their pods lost (kubedyno_hollow_start_wait_seconds less _start_lateness_seconds). Simulated nodes that are late against their own draw (nodes-late) are the harness' fault. A full machine or a starved API server delays watch events and reports.

**Look-alikes.** nodes-refused (the API server refuses the tokens of pods, or the reports). Slow delivery of watch events to nodes: then stage observe and other watchers are late too. Volumes that are attached late: the finding says which step.`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	lost := v.Excess(diagnose.Start)
	switch {
	case v.EndsBound:
		return diagnose.NotThere("nobody starts pods on seeded nodes")
	case !v.StagesOK:
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	case !v.Symptom() || lost < few*v.Lost.PodSeconds:
		return diagnose.NotThere("nodes took %.0f of the %.0f lost pod-seconds", lost, v.Lost.PodSeconds)
	}
	for _, f := range earlier {
		if f.ID == "component-ended" && (f.Component == diagnose.Etcd || f.Component == diagnose.APIServer) {
			return diagnose.NotThere("pods start late, but %s", f.Cause)
		}
	}
	if node, pods := v.Unserved(); pods >= several && 2*pods >= v.Counts.Stuck {
		return diagnose.Found(unserved(v, node, pods, lost))
	}
	n := float64(max(1, v.Counts.Running, v.Counts.Bound))
	perPod := *v.Stage(diagnose.Start).WaitSeconds / n
	busy := v.Upstream()
	if m, ok := v.MachineCPU(v.Plateau); busy == "" && ok && m.Share >= idle {
		busy = fmt.Sprintf("the machine's CPU is %.0f %% busy", 100*m.Share)
	}
	if during, ok := v.WaitedDuring(diagnose.Start, v.FullSpans()); busy == "" && ok && during >= mostly {
		busy = fmt.Sprintf("the machine's CPUs are full for %.0f %% of that time", 100*during)
	}
	outside, known := elsewhere(v)
	outside /= n
	for _, f := range earlier {
		if f.Class == diagnose.HarnessHit && f.Stage == diagnose.Start {
			return diagnose.NotThere("the simulated nodes were late by their own fault (%s)", f.ID)
		}
	}
	// otherwise is where somebody else makes pods wait, but for what nodes measured of
	// themselves.
	otherwise := func(why string) diagnose.Outcome {
		if found := measured(v, lost, outside*n, known, why); len(found) > 0 {
			return diagnose.Found(found...)
		}
		return diagnose.NotThere("pods start late, %s", why)
	}
	// What passes outside of the nodes is known of pods that came.
	if busy != "" && (!known || outside > beside*perPod || 10*v.Counts.Stuck > v.Counts.Running) {
		return otherwise("but " + busy)
	}
	if waited, ok := answers(v); ok && waited >= most*lost/n {
		return otherwise(fmt.Sprintf("and their nodes waited for the API server's answers for %.1f s of %.1f", waited, perPod))
	}
	reports := 0
	took := 0.0
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Resource == "pods/status" && t.Verb == "patch" }) {
		if t.Seconds >= 0 {
			reports, took = reports+t.Count, took+t.Seconds
		}
	}
	if busy == "" && reports > 0 && took/float64(reports) >= quick {
		return otherwise(fmt.Sprintf("and the nodes' reports take %.2f s at the API server", took/float64(reports)))
	}
	failed, refused, asked := failures(v)
	if asked > 0 && float64(failed) >= failing*float64(asked) {
		return otherwise(fmt.Sprintf("and %d of %d requests of nodes for tokens and reports failed", failed, asked))
	}
	if busy != "" && float64(failed+refused) >= failing*float64(asked) {
		return otherwise(fmt.Sprintf("but %s, and the nodes have to ask again for %d of %d tokens and reports", busy, failed+refused, asked))
	}
	while := "while the control plane is not busy"
	if busy != "" {
		while = "although " + busy
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: "node", Stage: diagnose.Start, Resource: "unknown", Sources: 1,
		Cause:   "nodes take long between a pod's binding and its running",
		Summary: fmt.Sprintf("The nodes are slow: a pod takes %.1f s from its binding to running, %.1f s more than a healthy node, %s.", perPod, lost/n, while),
		Claims:  map[string]float64{diagnose.Start: lost},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: "stages: start", Value: lost, Unit: "pod-seconds", Text: fmt.Sprintf("%.0f pod-seconds above what a healthy node takes", lost)},
		},
		Advice:    diagnose.Advice{Text: "Look at the nodes: image pulls (serializeImagePulls, registry), their disks, the CNI plugin, volumes, and the kubelet's own API limits (kubeAPIQPS)."},
		RefutedBy: "nodes that see their pods late: a watch event that arrives long after the binding",
	}
	if busy != "" {
		// What others make pods wait for is measured, and is not the nodes'.
		f.Direct = true
		f.Claims[diagnose.Start] = max(0, lost-outside*n)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "requests of nodes; stages: observe", Value: outside, Unit: "s", Text: fmt.Sprintf("of the %.1f s that a pod takes to start, %.2f pass outside of its node: its requests, what the watches take, threads that wait for a CPU", perPod, outside)})
	}
	if reports > 0 {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "requests: patch pods/status", Value: took / float64(reports), Unit: "s", Text: fmt.Sprintf("the API server answers the nodes' reports in %.0f ms (n=%d)", 1000*took/float64(reports), reports)})
	}
	q, ok := oneAfterAnother(v, perPod-lost/n)
	if ok {
		f.Resource = "workers"
		f.Cause = fmt.Sprintf("each node starts pods one after the other, %.2f s each", q.each)
		f.Summary = fmt.Sprintf("The nodes start pods one after the other, %.2f s each, so %d pods on a node take %.0f s, %s.", q.each, q.most, q.each*float64(q.most), while)
		varying := fmt.Sprintf("varying by %.0f %%", 100*q.cv)
		if q.own && q.cv > steady {
			varying += fmt.Sprintf(", %d in a row by %.0f %%", row, 100*q.rowCV)
		}
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "pods: running, by node", Value: q.each, Unit: "s", Text: fmt.Sprintf("between pods of one node that become running pass %.2f s in the median (%s), on %d nodes", q.each, varying, q.nodes)})
		f.Advice.Text = "Let nodes start several pods at a time: parallel image pulls (serializeImagePulls: false, maxParallelImagePulls), a faster disk, a CNI plugin without a lock."
	}
	slow, others := kubelets(v, &f, lost, n, while)
	if busy != "" && !slow && !(ok && q.own) {
		return diagnose.NotThere("pods start late, but %s, and no clock of the nodes says that it is they", busy)
	}
	if lost < share*v.Lost.PodSeconds && !slow && !ok {
		return diagnose.NotThere("nodes took %.0f of the %.0f lost pod-seconds", lost, v.Lost.PodSeconds)
	}
	volumes(v, &f, while)
	return diagnose.Found(append([]diagnose.Finding{f}, others...)...)
}

// unserved is the finding of pods that came with the name of a node which serves nobody.
func unserved(v *diagnose.View, node string, pods int, lost float64) diagnose.Finding {
	return diagnose.Finding{
		Class: diagnose.Bottleneck, Component: "node", Stage: diagnose.Start, Resource: "policy", Sources: 1, Grade: diagnose.Likely,
		Cause:   fmt.Sprintf("pods name node %s themselves, which serves nobody", node),
		Summary: fmt.Sprintf("%d pods came with spec.nodeName %s, past the scheduler, and no pod ever ran on that node.", pods, node),
		Claims:  map[string]float64{diagnose.Start: lost * min(1, float64(pods)/float64(max(1, v.Counts.Stuck)))},
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: "pods: node, bound", Value: float64(pods), Unit: "pods", Text: fmt.Sprintf("had node %s when they were first seen; none of them was running when the recording ended", node)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Look whether there is a node %s (kubectl get node %s) and whether its kubelet runs. Then find who gives pods its name: their template, or a mutating webhook or policy; without spec.nodeName the scheduler chooses.", node, node)},
		RefutedBy: "a pod that runs on that node",
	}
}

// elsewhere is what of the pods' stage start passed outside of their nodes, in
// pod-seconds: until the nodes' requests were answered, until watches told of what was
// written (taken to be as long as ours), and until threads of simulated nodes had a CPU
// of this machine. known is false where one of it was not recorded, and where real
// nodes share this machine: what their containers wait for is not counted.
func elsewhere(v *diagnose.View) (seconds float64, known bool) {
	if _, real := v.CPU("kubelet", v.Load); real || !v.Known(diagnose.Observe) {
		return 0, false
	}
	seconds = *v.Stage(diagnose.Observe).WaitSeconds
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return diagnose.OfNode(t.Agent) && !t.Long }) {
		if t.Seconds < 0 {
			return 0, false
		}
		seconds += t.Seconds
	}
	delay, _ := v.RunDelay(diagnose.Hollow, v.Load)
	return seconds + delay, true
}

// answers is what simulated nodes waited for answers of the API server before a pod
// could run, in seconds a pod: a node tells of its pods one after the other, so that a slow answer delays those behind
// it, and a request may wait before the server's clock starts.
func answers(v *diagnose.View) (seconds float64, ok bool) {
	all, n, ok := v.Mean(diagnose.Hollow, "kubedyno_hollow_start_wait_seconds", nil)
	own, _, okOwn := v.Mean(diagnose.Hollow, "kubedyno_hollow_start_lateness_seconds", nil)
	return all - own, ok && okOwn && n > 0
}

// failing is the share of failures from which nodes are not to blame for what they
// ask for in vain.
const failing = 0.2

// failures counts what nodes asked for their pods, how much of it the API server could
// not do, and how much it did not do because they may not, or not yet.
func failures(v *diagnose.View) (failed, refused, asked int) {
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool {
		return diagnose.OfNode(t.Agent) && (t.Resource == "serviceaccounts/token" || t.Resource == "pods/status")
	}) {
		asked += t.Count
		for code, n := range t.Codes {
			switch {
			case code >= 500:
				failed += n
			case code == 403 || code == 429:
				refused += n
			}
		}
	}
	return failed, refused, asked
}

// most is the part of what a pod lost on its node from which one step is the
// reason.
const most = 0.5

// sandbox is what a healthy node takes for one, in seconds: containerd with a bridge
// takes 0.1 to 0.3 where it is not crowded.
const sandbox = 0.3

// sandboxes is the part of a simulated pod's start that is the sandbox's.
const sandboxes = 0.6

// A step of a pod's start that nodes time by their own clocks.
type step struct {
	metric                       string
	usual                        float64 // seconds of a healthy node
	what, cause, summary, advice string
	asks                         bool // the API server, on its way
}

// steps are those that may take long. Sandboxes of simulated nodes take what the
// experiment says.
func steps(v *diagnose.View, component string) []step {
	made := sandbox
	if component == diagnose.Hollow {
		made = max(made, sandboxes*v.Meta.Nodes.StartDelayP99)
	}
	return []step{
		{"kubelet_image_pull_duration_seconds", 0, "from asking for an image to having it", "pods wait for images to be pulled", "Pods wait for their images: %.1f s from asking for one to having it, other pulls included, %s.",
			"Make images smaller, keep them on the nodes, bring the registry nearer, or let nodes pull several at a time (serializeImagePulls: false, maxParallelImagePulls).", false},
		{"kubelet_run_podsandbox_duration_seconds", made, "for making a sandbox, the network plugin included", "sandboxes take long, of which the network plugin is the usual part", "Pods wait for their sandboxes: the nodes take %.1f s for one, most of which is usually the network plugin's, %s.",
			"Look at the network plugin: a lock for the whole node, addresses that are taken from the API server one by one. Addresses that are prepared ahead, and a plugin without the lock, help.", true},
	}
}

// A clocked step is one with what a component's clock says of it.
type clocked struct {
	step
	mean     float64 // seconds
	beyond   float64 // pod-seconds more than a healthy node takes
	evidence diagnose.Evidence
}

// clock reads a component's clock of the step.
func (s step) clock(v *diagnose.View, component string) (c clocked, ok bool) {
	mean, n, ok := v.Mean(component, s.metric, nil)
	if !ok {
		return c, false
	}
	evidence := diagnose.Evidence{Kind: "wait", Ref: s.metric + `{component="` + component + `"}`, Value: mean, Unit: "s", Text: fmt.Sprintf("%s, by the nodes' clocks (n=%.0f)", s.what, n)}
	return clocked{s, mean, (mean - s.usual) * n, evidence}, true
}

// finding is of a step that is part of the pod-seconds that were lost on the nodes.
func (c clocked) finding(lost float64) diagnose.Finding {
	beyond := min(c.beyond, lost)
	return diagnose.Finding{
		Class: diagnose.Bottleneck, Component: "node", Stage: diagnose.Start, Resource: "network", Sources: 2,
		Cause: c.cause, Direct: true, Advice: diagnose.Advice{Text: c.advice},
		Summary:   fmt.Sprintf(c.summary, c.mean, fmt.Sprintf("%.0f of the %.0f pod-seconds that pods lost on their nodes", beyond, lost)),
		Claims:    map[string]float64{diagnose.Start: beyond},
		Evidence:  []diagnose.Evidence{c.evidence},
		RefutedBy: "pods that start as late where this step takes no time",
	}
}

// kubelets says what the nodes' own clocks say of pulls and sandboxes, of the n pods
// that came and lost so many pod-seconds; while says how busy others were. slow says
// whether one step is the reason: f is of it then. Others are the findings of steps that
// are part of it.
func kubelets(v *diagnose.View, f *diagnose.Finding, lost, n float64, while string) (slow bool, others []diagnose.Finding) {
	var all []clocked
	for _, component := range []string{"kubelet", diagnose.Hollow} {
		for _, s := range steps(v, component) {
			if c, ok := s.clock(v, component); ok {
				f.Evidence, all = append(f.Evidence, c.evidence), append(all, c)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b clocked) int { return cmp.Compare(b.beyond, a.beyond) })
	if len(all) > 0 && all[0].beyond/float64(max(1, v.Counts.Running)) >= most*lost/n {
		c := all[0]
		f.Sources++
		f.Resource, f.Cause = "network", c.cause
		f.Summary = fmt.Sprintf(c.summary, c.mean, while)
		f.Advice.Text = c.advice
		slow, all = true, all[1:]
	}
	for _, c := range large(all, part*v.Lost.PodSeconds, v.Claims != nil) {
		others = append(others, c.finding(lost))
	}
	return slow, others
}

// large are the steps that took at least so many pod-seconds. Where pods have volumes a
// sandbox may have waited for them, and that has findings of its own.
func large(all []clocked, least float64, volumes bool) (found []clocked) {
	for _, c := range all {
		if c.beyond >= least && !(c.asks && volumes) {
			found = append(found, c)
		}
	}
	return found
}

// measured are the findings of steps that simulated nodes timed, where somebody else, why,
// makes pods wait on their nodes as well. Nothing else makes a pull longer. A sandbox may
// wait for volumes and addresses, which nodes ask for: what passed outside of them, in
// pod-seconds, is taken off, and where that is not known nothing is left.
func measured(v *diagnose.View, lost, outside float64, known bool, why string) (found []diagnose.Finding) {
	for _, s := range steps(v, diagnose.Hollow) {
		c, ok := s.clock(v, diagnose.Hollow)
		if s.asks {
			if c.beyond -= outside; !known {
				continue
			}
		}
		if !ok || c.beyond < part*v.Lost.PodSeconds {
			continue
		}
		f := c.finding(lost)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "stages: start", Value: lost, Unit: "pod-seconds", Text: "above what a healthy node takes: pods start late, " + why})
		found = append(found, f)
	}
	return found
}

// volumes says where the way of a pod's volumes takes longest.
func volumes(v *diagnose.View, f *diagnose.Finding, while string) {
	if v.Claims == nil {
		return
	}
	who := map[string]string{
		"request": "the attach-detach controller of " + diagnose.ControllerManager,
		"attach":  "the storage driver: its attacher's workers and client limit, and its backend",
	}
	longest := 0.0
	for _, g := range v.Claims.Groups {
		for _, s := range g.Steps {
			if who[s.Name] == "" || s.P50 == nil {
				continue
			}
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "volumes: " + s.Name, Value: *s.P50, Unit: "s",
				Text: fmt.Sprintf("median of the step %s of %d claims of class %s", s.Name, s.N, g.Class)})
			if *s.P50 > longest {
				longest = *s.P50
				f.Resource = "unknown"
				f.Cause = fmt.Sprintf("pods wait for their volumes: step %s", s.Name)
				f.Summary = fmt.Sprintf("Pods wait for their volumes before they start: step %s takes %.1f s in the median, %s.", s.Name, longest, while)
				f.Advice.Text = fmt.Sprintf("Look first at %s.", who[s.Name])
			}
		}
	}
}
