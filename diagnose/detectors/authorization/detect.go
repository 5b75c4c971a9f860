package authorization

import (
	"cmp"
	"fmt"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/layer"
)

const (
	asked = "apiserver_authorization_webhook_duration_seconds"
	// burnt is the share of the API server's CPU that authorizing may take:
	// healthy ones stay below 2 %.
	burnt = 0.10
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "authorization",
	Title: "Each request waits to be authorized",
	Doc: `Each request is authorized before anything else is done for it. RBAC looks through all bindings of the cluster and of the namespace until one allows it: with tens of thousands that is CPU for each request. A webhook authorizer is asked over the network, and its answers are kept for a while.

**Evidence.** The filter "authorization" takes at least 10 ms of each request and 10 % of its time (apiserver_request_filter_duration_seconds). Where the webhook's own clock (apiserver_authorization_webhook_duration_seconds) has most of it the webhook is the
cause, otherwise the number of bindings, which the API server's profile confirms from 10 % of its CPU on.

**Look-alikes.** Admission webhooks (asked for writes only, after authorization); a full CPU (every filter is slow, and the machine is full).`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	l, ok := layer.Filter(v, "authorization", func(t *diagnose.Talk) float64 { return t.Authorization })
	if !ok {
		return diagnose.NotAssessed("the API server's metrics")
	}
	mean, n := l.Mean, l.Count
	if quick := cmp.Or(l.Quick(v), l.Still(earlier)); quick != "" {
		return diagnose.NotThere("%s", quick)
	}
	_, hook := v.Increase(diagnose.APIServer, asked+"_sum", nil)
	took, calls, hasHook := v.Mean(diagnose.APIServer, asked, nil)
	work, profiled := v.Work(diagnose.APIServer, "authorization")
	byHook := hook && hasHook && took*calls >= 0.5*mean*n
	f := diagnose.Finding{Resource: "policy", RefutedBy: "a run with fewer bindings in which requests take as long"}
	switch {
	case byHook:
		l.Sources++
		f.Resource, f.Cause = "webhook", fmt.Sprintf("the authorization webhook takes %.0f ms an answer", 1000*took)
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: asked, Value: took, Unit: "s", Text: fmt.Sprintf("for an answer of the authorization webhook (n=%.0f)", calls)})
		f.Advice.Text = "Look at what serves the authorization webhook; ask it last, after Node and RBAC, only for what its matchConditions need, and keep its answers longer (authorizedTTL). The price of longer: a right that is taken away lives on for that time."
		f.RefutedBy = "a run without this webhook in which requests take as long"
	case v.Upstream() != "" && (!profiled || work.Share < burnt):
		return diagnose.NotThere("authorization took %.0f ms of each request, because %s", 1000*mean, v.Upstream())
	default:
		f.Cause = fmt.Sprintf("authorizing takes %.0f ms a request", 1000*mean)
		f.Advice.Text = "Bind roles to groups instead of to each user or account, and take away bindings that nobody uses: RBAC reads through all of a namespace's and of the cluster's for each request. The price: groups are coarser than users."
		if profiled && work.Share >= burnt {
			l.Sources++
			f.Cause += fmt.Sprintf(", %.0f %% of the API server's CPU", 100*work.Share)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: "profiles: kube-apiserver", Value: work.Share, Unit: "1", Text: "of the API server's CPU went to authorization"})
		}
	}
	if !l.Finding(v, &f) {
		return diagnose.NotThere("authorization took %.0f ms of each request, and nothing waited for it", 1000*mean)
	}
	f.Summary = fmt.Sprintf("%s %.0f ms to be authorized (n=%.0f)%s", l.Each(), 1000*mean, n, layer.Outcome(&f))
	return diagnose.Found(f)
}
