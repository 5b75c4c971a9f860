package timeouts

import (
	"fmt"
	"strings"
	"time"

	"strconv"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	normalRequest = 60 * time.Second
	normalMinimum = 1800 // seconds
	// shortMinimum is a minimum that makes watches begin again at least every 5
	// minutes.
	shortMinimum = 150
	// aborted requests that say that a limit acts.
	aborted = 3
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "short-timeouts",
	Title: "The API server's time limits are shorter than requests need",
	Doc: `--request-timeout (60 s) ends requests, and the work for them is lost and asked for again; --min-request-timeout (1,800 s) is the shortest life of a watch, which lives for once to twice that: shortened, every watch of the cluster begins again that often.

**Evidence.** A flag below its default, and that it acts: requests ended by a time limit (apiserver_request_terminations_total, apiserver_request_aborts_total, code 504 in the audit log), or a minimum of 150 s and less. Without a trace that it
acts, a short --request-timeout is a risk.

**Look-alikes.** Clients that end their watches themselves, or do not keep up (relist-storm); a slow API server, whose requests reach a normal limit (no flag).`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	request, setRequest, known := v.Flag(diagnose.APIServer, "request-timeout")
	minimum, setMinimum, _ := v.Flag(diagnose.APIServer, "min-request-timeout")
	if !known {
		return diagnose.NotAssessed("the API server's flags")
	}
	var found []diagnose.Finding
	if d, err := time.ParseDuration(request); setRequest && err == nil && d < normalRequest {
		ended, _ := v.Increase(diagnose.APIServer, "apiserver_request_terminations_total", diagnose.Labels{"code": "~[^4].*"}) // 429 is one too many
		gone, _ := v.Increase(diagnose.APIServer, "apiserver_request_aborts_total", nil)
		late := 0
		for _, t := range v.Talks {
			late += t.Codes[504]
		}
		n := max(ended, gone, float64(late))
		f := diagnose.Finding{
			Class: diagnose.Risk, Component: diagnose.APIServer, Resource: "quota", Sources: 1,
			Cause:    "--request-timeout=" + request,
			Summary:  fmt.Sprintf("Requests are given up after %s (--request-timeout; the default is 60 s)", request),
			Evidence: []diagnose.Evidence{{Kind: "config", Ref: "kube-apiserver --request-timeout", Value: d.Seconds(), Unit: "s", Text: "the longest that a request may take; 60 s by default"}},
			Advice: diagnose.Advice{Text: "Set --request-timeout back to 60 s. The price: a client that asks for too much keeps its seat longer.",
				Set: map[string]string{diagnose.APIServer + ".args.request-timeout": "60s"}},
			RefutedBy: "requests that are given up after 60 s as well",
		}
		if n >= aborted {
			f.Sources = 2
			f.Summary += fmt.Sprintf(", and %.0f were", n)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "apiserver_request_terminations_total, apiserver_request_aborts_total, requests: code 504", Value: n, Unit: "requests", Text: "were ended by a time limit"})
			if text, ok := v.Suffers(); ok {
				f.Class, f.Stage = diagnose.Bottleneck, diagnose.Accept
				f.Claims = map[string]float64{}
				part := min(1, n*d.Seconds()/max(1e-9, v.AnsweredSeconds()))
				for _, s := range v.LostStages() {
					f.Claims[s.Name] = part * *s.ExcessSeconds
				}
				f.RequestSeconds = min(v.API.LostSeconds, n*d.Seconds())
				f.Summary += ": " + text
			}
		} else {
			f.Summary += "; none were in this run"
		}
		f.Summary += "."
		found = append(found, f)
	}
	if s, err := strconv.Atoi(minimum); setMinimum && err == nil && s < normalMinimum && s <= shortMinimum {
		began := v.TalksOf(func(t *diagnose.Talk) bool { return t.Verb == "watch" })
		n := 0
		for _, t := range began {
			n += t.Count
		}
		f := diagnose.Finding{
			Class: diagnose.Waste, Component: diagnose.APIServer, Resource: "watch", Sources: 1,
			Cause:     "--min-request-timeout=" + minimum,
			Summary:   fmt.Sprintf("Every watch ends after %d to %d s and begins again (--min-request-timeout; the default is 1,800 s): %.1f a second began.", s, 2*s, float64(n)/v.Span()),
			Evidence:  []diagnose.Evidence{{Kind: "config", Ref: "kube-apiserver --min-request-timeout", Value: float64(s), Unit: "s", Text: "the shortest that a watch lives; 1,800 s by default"}},
			Advice:    diagnose.Advice{Text: "Set --min-request-timeout back to 1800. The price: watches are spread anew over several API servers less often.", Set: map[string]string{diagnose.APIServer + ".args.min-request-timeout": "1800"}},
			RefutedBy: "as many watches that begin with the default",
			Cost:      v.CostOf(began, ""),
		}
		if float64(n) >= v.Span()/float64(2*s) {
			f.Sources = 2
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "requests: WATCH", Value: float64(n) / v.Span(), Unit: "1/s", Text: "watches began during the load"})
		}
		found = append(found, f)
	}
	if len(found) > 0 {
		return diagnose.Found(found...)
	}
	return diagnose.NotThere("--request-timeout is %s, --min-request-timeout %s", strings.TrimSpace(request+map[bool]string{false: "60s (default)"}[setRequest]), minimum+map[bool]string{false: "1800 (default)"}[setMinimum])
}
