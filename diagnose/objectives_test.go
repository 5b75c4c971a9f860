package diagnose

import (
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// hundredths are 0.01, 0.02, … n times.
func hundredths(n int) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = float64(i+1) / 100
	}
	return xs
}

func TestObjectives(t *testing.T) {
	for _, tt := range []struct {
		name          string
		xs            []float64
		missing       int
		quantile      float64
		limit         float64
		met, assessed bool
		value         float64
		reason        string
	}{
		{"kept, and sure of it", hundredths(300), 0, 0.99, 2.97, true, true, 2.97, ""},
		{"kept, and not sure", hundredths(298), 0, 0.99, 5, true, true, 2.96, "299 samples"},
		{"missed by a hair", hundredths(300), 0, 0.99, 2.969, false, true, 2.97, ""},
		{"no sample", nil, 0, 0.99, 5, false, false, 0, "no sample"},
		{"too few for a p99", hundredths(99), 0, 0.99, 5, false, false, 0, "99 samples are too few"},
		{"the last", hundredths(3), 0, 1, 0.03, true, true, 0.03, ""},
		{"the last never came", hundredths(3), 1, 1, 5, false, true, 0.03, "1 of 4 never ran"},
		{"some never came, above the quantile", hundredths(299), 1, 0.99, 5, true, true, 2.97, ""},
		{"none came", nil, 200, 0.99, 5, false, true, 0, "200 of 200 never ran"},
		{"median of one", hundredths(1), 0, 0.5, 1, true, true, 0.01, "5 samples"},
	} {
		o := latencyOf(tt.xs, tt.missing).judge(record.Objective{Quantile: tt.quantile, Limit: tt.limit, Unit: "s"})
		if o.Met != tt.met || o.Assessed != tt.assessed || o.Value != tt.value || o.N != len(tt.xs)+tt.missing {
			t.Errorf("%s: %+v", tt.name, o)
		}
		if !strings.Contains(o.Reason, tt.reason) || tt.reason == "" && o.Reason != "" {
			t.Errorf("%s: reason %q", tt.name, o.Reason)
		}
	}
}

func TestObjectivesOfARun(t *testing.T) {
	v := &View{Throughput: &stat.Throughput{Mean: 19.7, N: 1500}, Latencies: Latencies{Intent: latencyOf(hundredths(10), 0)}}
	v.Meta.Workload.Objectives = []record.Objective{
		{Indicator: "throughput", Limit: 20, Unit: "1/s"}, {Indicator: "throughput", Limit: 19, Unit: "1/s"},
		{Indicator: "intent-latency", Quantile: 1, Limit: 1, Unit: "s", Met: true, Assessed: true, Value: 7},
		{Indicator: "pod-startup", Quantile: 0.99, Limit: 5, Unit: "s"}, {Indicator: "happiness"},
	}
	var got []string
	for _, o := range v.judgeObjectives(true) {
		word := "not assessed"
		switch {
		case o.Met:
			word = "met"
		case o.Assessed:
			word = "missed"
		}
		got = append(got, word)
	}
	if s := strings.Join(got, ", "); s != "missed, met, met, not assessed, not assessed" {
		t.Error(s)
	}
	for _, o := range v.judgeObjectives(false) {
		if o.Met || o.Assessed || o.Reason != "the run is not valid" {
			t.Errorf("of an invalid run: %+v", o)
		}
	}
	v.Throughput = nil
	if o := v.judgeObjectives(true)[1]; o.Assessed || !strings.Contains(o.Reason, "too short") {
		t.Errorf("%+v", o)
	}
}
