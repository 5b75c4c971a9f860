package diagnose_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/diagnosetest"
	"github.com/kubedyno/kubedyno/record"
)

func view(t *testing.T, words string) *diagnose.View {
	t.Helper()
	r, err := diagnosetest.Parse(words)
	if err != nil {
		t.Fatal(err)
	}
	v, err := diagnose.NewView(r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func near(got, want float64) bool { return math.Abs(got-want) <= 0.02*math.Abs(want)+1e-9 }

// A hundred pods in 20 s, and what metrics said meanwhile.
const measured = `
pods 100 bare 5/s
metric kube-apiserver apiserver_request_total{code=200,resource=pods} +300 rest 2/s
metric kube-apiserver apiserver_request_total{code=409,resource=pods} +100
metric kube-apiserver apiserver_request_total{code=409,resource=leases} +7
metric kube-apiserver apiserver_audit_duration_seconds_sum +4 rest 0.01/s
metric kube-apiserver apiserver_audit_duration_seconds_count +200 rest 1/s
gauge kube-apiserver apiserver_longrunning_requests{resource=pods} 10..30 rest 4
gauge kube-apiserver apiserver_longrunning_requests{resource=nodes} 5 rest 5
no metrics of etcd
`

func TestCounters(t *testing.T) {
	v := view(t, measured)
	const total, histogram = "apiserver_request_total", "apiserver_audit_duration_seconds"
	for _, c := range []struct {
		name, component, metric string
		match                   diagnose.Labels
		want                    float64
		ok                      bool
	}{
		{"all", diagnose.APIServer, total, nil, 407, true},
		{"by label", diagnose.APIServer, total, diagnose.Labels{"code": "409"}, 107, true},
		{"by expression", diagnose.APIServer, total, diagnose.Labels{"code": "~4.."}, 107, true},
		{"a label that never occurred is 0", diagnose.APIServer, total, diagnose.Labels{"code": "500"}, 0, true},
		{"so is a counter of a component that was scraped", diagnose.APIServer, "apiserver_request_aborts_total", nil, 0, true},
		{"nothing is known of one that was not", diagnose.Etcd, "etcd_server_proposals_failed_total", nil, 0, false},
	} {
		if got, ok := v.Increase(c.component, c.metric, c.match); ok != c.ok || !near(got, c.want) {
			t.Errorf("%s: %g %t, want %g %t", c.name, got, ok, c.want, c.ok)
		}
	}
	parts, ok := v.IncreaseBy(diagnose.APIServer, total, "resource", diagnose.Labels{"code": "409"})
	if !ok || len(parts) != 2 || parts[0].Label != "pods" || !near(parts[0].Value, 100) || !near(parts[1].Value, 7) {
		t.Errorf("by resource: %v %t", parts, ok)
	}
	if parts, ok := v.IncreaseBy(diagnose.APIServer, "apiserver_request_aborts_total", "resource", nil); !ok || len(parts) != 0 {
		t.Errorf("what never counted has no parts and is known: %v %t", parts, ok)
	}
	if _, ok := v.IncreaseBy(diagnose.Etcd, "etcd_server_proposals_failed_total", "type", nil); ok {
		t.Error("parts of a component that was not scraped")
	}
	if mean, n, ok := v.Mean(diagnose.APIServer, histogram, nil); !ok || !near(mean, 0.02) || !near(n, 200) {
		t.Errorf("mean %g of %g, %t", mean, n, ok)
	}
	if mean, _, ok := v.RestMean(diagnose.APIServer, histogram, nil); !ok || !near(mean, 0.01) {
		t.Errorf("mean at rest %g, %t", mean, ok)
	}
	if _, _, ok := v.Mean(diagnose.APIServer, "apiserver_authorization_webhook_duration_seconds", nil); ok {
		t.Error("a mean of nothing")
	}
	if r, ok := v.RestRate(diagnose.APIServer, total, diagnose.Labels{"resource": "pods"}); !ok || !near(r.PerSecond, 2) {
		t.Errorf("at rest %+v %t", r, ok)
	}
	if r, ok := v.RestRate(diagnose.APIServer, "apiserver_request_aborts_total", nil); !ok || r.PerSecond != 0 {
		t.Errorf("what never counted, at rest: %+v %t", r, ok)
	}
	if _, ok := v.RestRate(diagnose.Etcd, "etcd_server_proposals_failed_total", nil); ok {
		t.Error("rest of a component that was not scraped")
	}
}

// lateScrape is a source whose API server was scraped first so long after the load.
type lateScrape struct {
	diagnose.Source
	at    time.Time
	asked record.Window // of the last counter
}

func (s *lateScrape) Points(metric string, match diagnose.Labels, w record.Window) ([]record.Series, error) {
	if metric == "go_sched_gomaxprocs_threads" && w.Contains(s.at) {
		return []record.Series{{Points: []record.Point{{Time: s.at, Value: 2}}}}, nil
	}
	return s.Source.Points(metric, match, w)
}

func (s *lateScrape) Increase(metric string, match diagnose.Labels, w record.Window) (float64, bool, error) {
	s.asked = w
	return s.Source.Increase(metric, match, w)
}

// What a busy API server did under the load is in the scrape that comes after it.
func TestLateScrape(t *testing.T) {
	r, err := diagnosetest.Parse(measured)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ after, want time.Duration }{
		{time.Second, 5 * time.Second}, // the interval is as good as it was
		{12 * time.Second, 12 * time.Second},
		{time.Minute, 5 * time.Second}, // that tells of something else
	} {
		s := &lateScrape{Source: r}
		v, err := diagnose.NewView(s)
		if err != nil {
			t.Fatal(err)
		}
		s.at = v.Load.End.Add(c.after)
		v, err = diagnose.NewView(s)
		if err != nil {
			t.Fatal(err)
		}
		v.Increase(diagnose.APIServer, "apiserver_request_total", nil)
		if got := s.asked.End.Sub(v.Load.End); got != c.want {
			t.Errorf("scraped %v after the load: counters until %v after it, want %v", c.after, got, c.want)
		}
	}
}

func TestGauges(t *testing.T) {
	v := view(t, measured)
	const open = "apiserver_longrunning_requests"
	l, ok := v.Gauge(diagnose.APIServer, open, nil, v.Load)
	if !ok || math.Abs(l.Mean-25) > 1 || l.Max < 33 || l.Max > 35 || l.First < 14.9 || l.First > 16.2 {
		t.Errorf("load: %+v %t", l, ok)
	}
	if l, ok := v.Gauge(diagnose.APIServer, open, nil, v.Rest); !ok || l.Mean != 9 || l.Max != 9 {
		t.Errorf("rest: %+v %t", l, ok)
	}
	if by := v.GaugeBy(diagnose.APIServer, open, "resource", nil, v.Load); len(by) != 2 || by["nodes"].Mean != 5 {
		t.Errorf("by resource: %v", by)
	}
	if _, ok := v.Gauge(diagnose.APIServer, "apiserver_storage_size_bytes", nil, v.Load); ok {
		t.Error("a gauge that nobody showed is unknown")
	}
}

func TestSteps(t *testing.T) {
	v := view(t, measured)
	steps, ok := v.Steps(diagnose.APIServer, "apiserver_request_total", diagnose.Labels{"code": "409"})
	if !ok || len(steps) < 15 {
		t.Fatalf("%d steps, %t", len(steps), ok)
	}
	if p := diagnose.Persistent(steps, 1); p < 0.7 {
		t.Errorf("conflicts came in %.0f %% of the time", 100*p)
	}
	if p := diagnose.Persistent(steps, 50); p != 0 {
		t.Errorf("never 50 a second, but in %.0f %% of the time", 100*p)
	}
}

// Who talks, and how the API server answered.
func TestTalks(t *testing.T) {
	v := view(t, `
pods 100 bare 5/s
requests ipam update configmaps 20/s each 5ms code 409 30% names 3 users 2 rest 2/s
requests kube-controller-manager/job-controller get jobs 2/s each 400ms rest 1/s each 2ms
requests poller LIST configmaps 5/s metronome
requests mesh WATCH pods 1/s each 3s
`)
	one := func(agent string) diagnose.Talk {
		ts := v.TalksOf(func(t *diagnose.Talk) bool { return t.Agent == agent })
		if len(ts) != 1 {
			t.Fatalf("%s: %d talks", agent, len(ts))
		}
		return ts[0]
	}
	ipam := one("ipam")
	if r := ipam.Rate(v); r < 15 || r > 25 || ipam.Names != 3 || ipam.Users != 2 || ipam.BusiestCount < ipam.Count/4 || !ipam.Writes() || ipam.Harness {
		t.Errorf("%.1f/s %+v", ipam.Rate(v), ipam.Names)
	}
	if s := ipam.Share(409); s < 0.2 || s > 0.4 || ipam.Succeeded() != ipam.Count-ipam.Codes[409] {
		t.Errorf("%.2f conflicts", s)
	}
	if ipam.RestRate < 1 || ipam.RestRate > 3 {
		t.Errorf("%.1f/s at rest", ipam.RestRate)
	}
	jobs := one("kube-controller-manager … job-controller")
	if jobs.Mean < 0.3 || jobs.Mean > 0.5 || jobs.Names != -1 {
		t.Errorf("%+v", jobs.Mean)
	}
	poller := one("poller")
	if cv, ok := poller.CV(); !ok || cv > 0.1 {
		t.Errorf("a metronome varies by %.2f", cv)
	}
	if len(v.Lists) == 0 || v.Lists[0].Agent != "poller" || v.Lists[0].Direct() != int64(poller.Count) {
		t.Errorf("lists: %+v", v.Lists)
	}
	if !one("mesh").Long {
		t.Error("a watch is long")
	}
	if load := v.TalksOf(func(t *diagnose.Talk) bool { return t.Agent == diagnose.Load }); len(load) != 1 || !load[0].Harness {
		t.Errorf("the load: %+v", load)
	}
	c := v.CostOf([]diagnose.Talk{ipam}, "")
	if c.RequestShare < 0.2 || c.RequestShare > 0.9 || c.BusyShare == nil || c.ServerCPUSeconds == nil || c.Measured {
		t.Errorf("%v", c)
	}
}

// Who waits uses no CPU: costs are shared out by what is left without the waiting.
func TestWaitingCostsNothing(t *testing.T) {
	v := view(t, `pods 100 bare 5/s
requests asker get pods 10/s each 500ms authenticated 60% authorized 20% webhooks 10% queued 9%
requests worker get pods 10/s each 50ms
requests reader get widgets/status 10/s each 100ms group example.com
requests other get widgets 10/s each 100ms group example.org
metric kube-apiserver apiserver_crd_conversion_webhook_duration_seconds_sum{crd_name=widgets.example.com} +1000`)
	cost := func(agent string) float64 {
		talks := v.TalksOf(func(t *diagnose.Talk) bool { return t.Agent == agent })
		if len(talks) != 1 {
			t.Fatalf("%d kinds of requests of %s", len(talks), agent)
		}
		c := v.CostOf(talks, "")
		if c.BusyShare == nil {
			return 0
		}
		return *c.BusyShare
	}
	worker := cost("worker")
	if asker := cost("asker"); worker <= 0 || asker < 0.05*worker || asker > 0.2*worker {
		t.Errorf("1 %% of 500 ms: %.3f, 50 ms: %.3f", asker, worker)
	}
	if other := cost("other"); other < 1.5*worker {
		t.Errorf("the same name in another group: %.3f beside %.3f", other, worker)
	}
	if reader := cost("reader"); reader != 0 {
		t.Errorf("all its time went to conversions: %.3f", reader)
	}
}

// The symptom is more than pods: requests that take long where they did not at
// rest.
func TestSlowAnswers(t *testing.T) {
	const ask = "pods 50 bare 5/s\nrequests shop get services 20/s each "
	if v := view(t, ask+"3ms rest 20/s each 2ms"); v.API.Slow() {
		t.Errorf("%v", v.API)
	} else if text, ok := v.Suffers(); ok {
		t.Errorf("suffers: %s", text)
	}
	v := view(t, ask+"400ms rest 20/s each 2ms")
	text, ok := v.Suffers()
	if !v.API.Slow() || !ok || !strings.Contains(text, "at rest") || v.Symptom() {
		t.Errorf("%q %+v", text, v.API)
	}
	if v := view(t, ask+"400ms\nno audit"); v.API.Slow() || v.HasRequests {
		t.Error("without an audit log nothing is known of requests")
	}
}

func TestWitnesses(t *testing.T) {
	v := view(t, `
pods 100 bare 5/s
log kube-controller-manager 7 "Waited before sending request" delay="1.5s" reason="client-side throttling, not priority and fairness" verb="POST" URL="https://x/api/v1/namespaces/a/pods"
profile kube-apiserver 6s net/http.(*conn).serve k8s.io/apiserver/pkg/endpoints/handlers.ListResource.func1 encoding/json.Marshal
profile kube-apiserver 2s runtime.gcBgMarkWorker
profile kube-apiserver 5s runtime.mcall runtime.findRunnable
writes etcd 2MB/s; delay etcd 0.5; connections 40/s
`)
	if l, ok := v.Log(diagnose.ControllerManager, "client-throttled"); !ok || l.Count < 1 || l.Seconds < 1.4 {
		t.Errorf("%+v %t", l, ok)
	}
	if l, ok := v.Log(diagnose.ControllerManager, "lease-lost"); !ok || l.Count != 0 {
		t.Errorf("a log without such a line: %+v %t", l, ok)
	}
	if _, ok := v.Log(diagnose.Etcd, "lease-lost"); ok {
		t.Error("a log that is not there says nothing")
	}
	if w, ok := v.Work(diagnose.APIServer, "LIST"); !ok || !near(w.CPUSeconds, 6) || !near(w.Share, 0.75) || !near(w.PerPod, 0.06) {
		t.Errorf("%+v %t", w, ok)
	}
	if _, ok := v.Work(diagnose.Etcd, "LIST"); ok {
		t.Error("no profile, no work")
	}
	if b, ok := v.Written(diagnose.Etcd, v.Load); !ok || !near(b/v.Span(), 2e6) {
		t.Errorf("%g bytes written", b)
	}
	if d, ok := v.RunDelay(diagnose.Etcd, v.Load); !ok || !near(d/v.Span(), 0.5) {
		t.Errorf("%g s delayed", d)
	}
	if _, ok := v.RunDelay(diagnose.APIServer, v.Load); ok {
		t.Error("run delay was not recorded")
	}
	if n, ok := v.Connections(v.Load); !ok || math.Abs(n/v.Span()-40) > 2 {
		t.Errorf("%g connections", n)
	}
}

// Waste needs no symptom and comes after what holds pods up; a bottleneck of
// slow requests alone counts as one.
func TestClassesWithoutPods(t *testing.T) {
	det := func(fs ...diagnose.Finding) []diagnose.Detector {
		return []diagnose.Detector{{Name: "x", Detect: func(*diagnose.View, []diagnose.Finding) diagnose.Outcome { return diagnose.Found(fs...) }}}
	}
	run := func(words string, fs ...diagnose.Finding) *diagnose.Diagnosis {
		r, err := diagnosetest.Parse(words)
		if err != nil {
			t.Fatal(err)
		}
		d, err := diagnose.Run(r, det(fs...))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	small, large := &diagnose.Cost{RequestShare: 0.1}, &diagnose.Cost{RequestShare: 0.6}
	waste := func(cause string, c *diagnose.Cost) diagnose.Finding {
		return diagnose.Finding{Class: diagnose.Waste, Cause: cause, Cost: c, Sources: 2}
	}
	slow := diagnose.Finding{Class: diagnose.Bottleneck, Cause: "slow", RequestSeconds: 1000, Sources: 2}
	const fine, sick = "pods 100 bare 5/s", "pods 100 bare 5/s\nrequests shop get services 20/s each 400ms rest 20/s each 2ms"
	d := run(fine, waste("small", small), slow, waste("large", large))
	if len(d.Findings) != 2 || d.Findings[0].Cause != "large" || d.Findings[1].Cause != "small" || d.Err() != nil || d.Findings[0].Grade != diagnose.Confirmed || d.Findings[0].Suffered != "" {
		t.Errorf("nothing suffers: %+v, %v", d.Findings, d.Err())
	}
	d = run(sick, waste("small", small), slow)
	if len(d.Findings) != 2 || d.Findings[0].Cause != "slow" || d.Findings[0].RequestShare != 1 || d.Findings[0].Grade != diagnose.Confirmed || d.Err() == nil || d.Findings[0].Suffered == "" {
		t.Errorf("requests suffer: %+v", d.Findings)
	}
}
