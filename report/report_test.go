package report

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

func TestStory(t *testing.T) {
	p := synthPage()
	const want = "From 20 to 145 pods/s (×7.3): first kube-controller-manager’s client limit, then kube-scheduler’s client limit held it back; now this machine’s CPU does."
	if p.Verdict != want {
		t.Errorf("story is %q", p.Verdict)
	}
	p.Rounds[3].Took = "" // tried, and not proven
	if got := assemble(p.Rounds, RenderOptions{}).Verdict; got != "From 20 to 145 pods/s (×7.3): first kube-controller-manager’s client limit held it back; now this machine’s CPU does." {
		t.Errorf("with a round that is not proven: %q", got)
	}
	var names []string
	for _, r := range p.Rounds {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, ", "); got != "Baseline, Round 2, dose, Round 2, Round 3" {
		t.Errorf("rounds are %s", got)
	}
	if got := p.Rounds[3].Change; !reflect.DeepEqual(got, []string{"kube-scheduler.args.kube-api-qps=-1"}) {
		t.Errorf("round 3 changed %v", got)
	}
	if !p.Valid {
		t.Error("the page is not valid")
	}
}

func TestStoryOfInvalidRound(t *testing.T) {
	p := synthPage()
	p.Rounds[2].Valid = false
	q := assemble(p.Rounds, RenderOptions{})
	if q.Valid || q.Verdict != "Round 2 is not valid, so the rounds must not be compared." {
		t.Errorf("valid %t, verdict %q", q.Valid, q.Verdict)
	}
}

func TestOneRoundSaysItsOwnVerdict(t *testing.T) {
	in := synthRows(0)
	p := assemble([]Round{round(in, Input{Diagnosis: synthDiagnosis(0, in)})}, RenderOptions{})
	if p.Verdict != p.Rounds[0].Verdict || p.Rounds[0].Name != "density" {
		t.Errorf("%q %q", p.Verdict, p.Rounds[0].Name)
	}
	undiagnosed := assemble([]Round{round(in, Input{})}, RenderOptions{})
	if undiagnosed.Valid || undiagnosed.Rounds[0].Assessed {
		t.Error("a run that nobody diagnosed counts as valid")
	}
}

// TestCPU checks that counters come out as cores, that gaps stay gaps, and
// that other is what no process explains.
func TestCPU(t *testing.T) {
	const s = 1_000_000
	in := rows{
		meta: record.Meta{Machine: record.Machine{CPUs: 2}},
		processes: []record.ProcessSample{
			{TimeMicros: 0, PID: 1, Component: "etcd", UserSeconds: 1},
			{TimeMicros: 1 * s, PID: 1, Component: "etcd", UserSeconds: 1.5},
			{TimeMicros: 3 * s, PID: 1, Component: "etcd", UserSeconds: 2, SystemSeconds: 0.5}, // a sample is lost: no time is
			{TimeMicros: 0, PID: 9, Command: "cron", UserSeconds: 0},
			{TimeMicros: 3 * s, PID: 9, Command: "cron", UserSeconds: 0.3},
		},
		machine: []record.MachineSample{{TimeMicros: 0}, {TimeMicros: 1 * s, User: 0.75}, {TimeMicros: 3 * s, User: 2.25}},
	}
	got := cpu(clock{zero: 0, end: 4 * s}, in)
	if len(got.Series) != 2 || got.Series[0].Component != "etcd" || got.Series[1].Component != "other" {
		t.Fatalf("%+v", got.Series)
	}
	etcd, other := got.Series[0].Cores[margin:], got.Series[1].Cores[margin:]
	for i := range 3 {
		if etcd[i] != 0.5 || math.Abs(other[i]-0.25) > 1e-9 {
			t.Errorf("second %d: etcd %v, other %v", i, etcd[i], other[i])
		}
	}
	if !math.IsNaN(etcd[3]) || !math.IsNaN(other[3]) || !math.IsNaN(got.Series[0].Cores[0]) {
		t.Errorf("unobserved seconds are %v and %v, not unknown", etcd[3], other[3])
	}
	if got.Series[0].Seconds != 1.5 {
		t.Errorf("etcd used %v CPU-seconds", got.Series[0].Seconds)
	}
}

func TestLatency(t *testing.T) {
	var pods []record.Pod
	for i := range 99 {
		pods = append(pods, record.Pod{CreatedMicros: 1, RunningMicros: 1 + int64(i+1)*1e6})
	}
	pods = append(pods, record.Pod{CreatedMicros: 1}) // never ran: not a sample
	l := latency("x", "created", "running", pods, created, running)
	if l.N != 99 || *l.P50 != 50 || *l.P90 != 90 || *l.Max != 99 || l.P99 != nil {
		t.Errorf("n %d p50 %v p90 %v max %v p99 %v", l.N, *l.P50, *l.P90, *l.Max, l.P99)
	}
	if none := latency("x", "", "", nil, created, running); none.P50 != nil || none.N != 0 {
		t.Errorf("%+v", none)
	}
}

func TestTopFunctions(t *testing.T) {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}}
	f := map[string]*profile.Location{}
	for i, n := range []string{"leaf", "mid", "root"} {
		fn := &profile.Function{ID: uint64(i + 1), Name: n}
		f[n] = &profile.Location{ID: uint64(i + 1), Line: []profile.Line{{Function: fn}}}
	}
	p.Sample = []*profile.Sample{
		{Location: []*profile.Location{f["leaf"], f["mid"], f["mid"], f["root"]}, Value: []int64{3, 3e9}}, // mid recurs, counts once
		{Location: []*profile.Location{f["root"]}, Value: []int64{1, 1e9}},
	}
	self, cum := map[string]float64{}, map[string]float64{}
	sum(p, self, cum)
	if !reflect.DeepEqual(self, map[string]float64{"leaf": 3, "root": 1}) || !reflect.DeepEqual(cum, map[string]float64{"leaf": 3, "mid": 3, "root": 4}) {
		t.Errorf("self %v, cum %v", self, cum)
	}
	rows := top(self, cum, 4, 2)
	if rows[0].Name != "leaf" || rows[0].Self != 0.75 || *rows[0].PerMs != 1500 {
		t.Errorf("%+v", rows[0])
	}
}

func TestValuesKeepGapsApart(t *testing.T) {
	b, err := json.Marshal(Values{1, math.NaN(), 0.123456, 20})
	if err != nil || string(b) != "[1,null,0.1235,20]" {
		t.Errorf("%s, %v", b, err)
	}
	var v Values
	if err := json.Unmarshal(b, &v); err != nil || len(v) != 4 || !math.IsNaN(v[1]) || v[3] != 20 {
		t.Errorf("%v, %v", v, err)
	}
}

// TestEmptyRecording draws a run that observed nothing.
func TestEmptyRecording(t *testing.T) {
	p := assemble([]Round{round(rows{}, Input{Diagnosis: &diagnose.Diagnosis{}})}, RenderOptions{})
	var b bytes.Buffer
	if err := WritePage(&b, p); err != nil {
		t.Fatal(err)
	}
}

// TestStandIn renders the page that a clean clone has.
func TestStandIn(t *testing.T) {
	p := synthPage()
	p.Rounds[0].Findings[0].Summary = `<script>alert(1)</script>`
	var b bytes.Buffer
	if err := writeStandIn(&b, p); err != nil {
		t.Fatal(err)
	}
	html := b.String()
	for _, want := range []string{"was not built", "npm run build", "From 20 to 145", "--set kube-scheduler.args.kube-api-qps=-1", "not measured: needs the audit log", "Not assessed", "block-io"} {
		if !strings.Contains(html, want) {
			t.Errorf("the stand-in page lacks %q", want)
		}
	}
	if strings.Contains(html, "<script") {
		t.Error("a name from the recording became markup")
	}
}
