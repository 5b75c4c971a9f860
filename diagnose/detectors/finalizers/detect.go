package finalizers

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	// late is from how many seconds on a pod counts as kept: what is answered is
	// seen by a watch in some milliseconds, and within a second or two on a
	// machine that is full.
	late = 3
	// few is the least number of pods that are worth a word, and share of those
	// that their nodes deleted.
	few, share = 5, 0.05
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "kept-by-finalizers",
	Title: "Pods that are deleted stay, for somebody has not taken a finalizer away",
	Doc: `A deleted object stays as long as metadata.finalizers names anybody who wants to clean up first. A node deletes its pod for good (a grace period of 0) when the containers have ended; a pod
that is there after that is kept by finalizers alone. It holds its name, its place in quotas, and whoever waits until it is gone: a drain, a namespace, an owner that is deleted in the foreground.

**Evidence.** At least 5 pods, and 5 % of those that their nodes deleted, were there 3 s or more after the API server had said yes to the node's DELETE, or until the recording's end; it is the requests that
tell of the DELETE, and the watch that tells when a pod is gone. Who changed such a pod meanwhile is named: its controller is slow. Where nobody did, nobody works on that finalizer: its controller is not there.

**Charged.** Nothing waits for these pods that stages know: the finding stands for the share of the time during which pods were kept.

**Look-alikes.** slow-removal: the pods have not been deleted yet. A long grace period, or slow nodes: then no node has deleted its pods. A watch that is late: pods are seen to go late, but they go, and nobody changed them.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	if !v.HasRequests {
		return diagnose.NotAssessed("an audit log: only it tells when a node has deleted its pod")
	}
	end := v.Meta.Ended.UnixMicro()
	var kept, stayed int
	var total float64
	var first, last int64
	by := map[string]int{}
	for _, p := range v.Partings {
		gone := p.GoneMicros
		if gone == 0 {
			gone = end
		}
		held := float64(gone-p.AtMicros) / 1e6
		// One that goes without anybody's change was seen late.
		if held < late || p.GoneMicros != 0 && p.Agent == "" {
			continue
		}
		kept++
		total += held
		by[p.Agent]++
		if p.GoneMicros == 0 {
			stayed++
		}
		if first == 0 || p.AtMicros < first {
			first = p.AtMicros
		}
		last = max(last, gone)
	}
	switch {
	case len(v.Partings) == 0:
		return diagnose.NotThere("no node deleted a pod")
	case kept < few || float64(kept) < share*float64(len(v.Partings)):
		return diagnose.NotThere("%d of %d pods stayed when their nodes had deleted them", kept, len(v.Partings))
	}
	who := ""
	for agent, n := range by {
		if n > by[who] || n == by[who] && agent < who {
			who = agent
		}
	}
	mean := total / float64(kept)
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: "client:" + who, Resource: "lock", Sources: 2,
		Cause:        fmt.Sprintf("%s takes a finalizer away late", who),
		Summary:      fmt.Sprintf("Pods that are deleted stay for %.1f s, until %s takes a finalizer away: %d of %d, whose nodes had ended and deleted them.", mean, who, kept, len(v.Partings)),
		RemovalShare: 1,
		Suffered:     fmt.Sprintf("%d pods that were deleted stayed %.1f s each", kept, mean),
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: "requests: delete pods by nodes; pods: deleted", Value: mean, Unit: "s", Text: fmt.Sprintf("from a node's DELETE, answered with success, until the pod was gone (n=%d)", kept)},
			{Kind: "pattern", Ref: "requests: patch and update pods", Value: float64(by[who]), Unit: "pods", Text: fmt.Sprintf("of %d were changed by %s meanwhile", kept, who)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Look at what %s does before it takes its finalizer away, at its workers and its client's limit. The finalizers of a pod: kubectl get pod NAME -o jsonpath='{.metadata.finalizers}'.", who)},
		RefutedBy: "pods without finalizers that stay as long",
	}
	if w := v.Load.Seconds(); w > 0 {
		f.RemovalShare = min(1, float64(last-first)/1e6/w)
	}
	if diagnose.OfCluster(who) {
		f.Component, _, _ = strings.Cut(who, " ")
	}
	if who == "" {
		f.Component = diagnose.APIServer
		f.Cause = "pods have a finalizer that nobody takes away"
		f.Summary = fmt.Sprintf("Pods that are deleted do not go: %d of %d were still there %.1f s after their nodes had ended and deleted them, on average. Finalizers keep them, and nobody takes these away.", kept, len(v.Partings), mean)
		f.Evidence[1].Text = fmt.Sprintf("of %d were changed by nobody; %d were there until the end", kept, stayed)
		f.Advice.Text = "Look whose finalizer it is: kubectl get pod NAME -o jsonpath='{.metadata.finalizers}'. Start that controller again, or give it the right to change pods. If it is gone for good, take the finalizer away by hand (kubectl patch pod NAME --type=merge -p '{\"metadata\":{\"finalizers\":null}}'); the price: what it was to clean up stays."
	}
	return diagnose.Found(f)
}
