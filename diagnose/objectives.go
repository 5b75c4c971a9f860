package diagnose

import (
	"cmp"
	"fmt"
	"math"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// Indicators that an objective can be about, as experiments name them.
const (
	indicatorStartup    = "pod-startup"
	indicatorIntent     = "intent-latency"
	indicatorThroughput = "throughput"
	indicatorClaims     = "claim-bound"
	indicatorFailures   = "claim-failures"
)

// sure is the confidence with which a quantile is said to be kept.
const sure = 0.95

// judgeObjectives says of each declared objective whether the run kept it. A run
// that is not valid keeps none: its numbers must not be used.
func (v *View) judgeObjectives(valid bool) []record.Objective {
	judged := []record.Objective{}
	for _, o := range v.Meta.Workload.Objectives {
		o.Assessed, o.Met, o.Value, o.N, o.Reason = false, false, 0, 0, ""
		switch {
		case !valid:
			o.Reason = "the run is not valid"
		case v.EndsBound && o.Indicator != indicatorThroughput:
			o.Reason = "pods on seeded nodes never start"
		case o.Indicator == indicatorStartup:
			o = v.Latencies.PodStartup.judge(o)
		case o.Indicator == indicatorIntent:
			o = v.Latencies.Intent.judge(o)
		case o.Indicator == indicatorThroughput:
			o = v.judgeThroughput(o)
		case v.Claims == nil && (o.Indicator == indicatorClaims || o.Indicator == indicatorFailures):
			o.Reason = "the load made no claims"
		case o.Indicator == indicatorClaims && v.Claims.Missing != "":
			o.Reason = v.Claims.Missing
		case o.Indicator == indicatorClaims:
			o = v.Claims.ToBound.judge(o)
		case o.Indicator == indicatorFailures:
			o = v.Claims.judgeFailures(o)
		default:
			o.Reason = fmt.Sprintf("this kubedyno knows no indicator %q", o.Indicator)
		}
		judged = append(judged, o)
	}
	return judged
}

// judge compares a quantile with its limit. What never arrived ranks above all
// that did.
func (l LatencyOf) judge(o record.Objective) record.Objective {
	o.N = l.N
	if l.N == 0 {
		o.Reason = "there is no sample"
		return o
	}
	if !stat.Carries(l.N, o.Quantile) {
		o.Reason = fmt.Sprintf("%d samples are too few for a quantile of %g", l.N, o.Quantile)
		return o
	}
	o.Assessed = true
	rank := max(1, int(math.Ceil(float64(l.N)*o.Quantile-1e-9)))
	if rank > len(l.sorted) {
		o.Reason = fmt.Sprintf("%d of %d never %s", l.Incomplete, l.N, cmp.Or(l.reached, "ran"))
		if len(l.sorted) > 0 {
			o.Value = l.sorted[len(l.sorted)-1]
		}
		return o
	}
	o.Value = l.sorted[rank-1]
	o.Met = o.Value <= o.Limit
	if need := enough(o.Quantile); o.Met && l.N < need {
		o.Reason = fmt.Sprintf("to be %.0f %% sure takes %d samples without a miss", 100*sure, need)
	}
	return o
}

// enough is how many samples without a miss make it sure that a quantile is
// below its limit: 1 - q^n ≥ 0.95 (the success-run formula). Of the largest there
// is nothing to be sure about: it is what it is.
func enough(q float64) int {
	if q <= 0 || q >= 1 {
		return 1
	}
	return int(math.Ceil(math.Log(1-sure) / math.Log(q)))
}

func (v *View) judgeThroughput(o record.Objective) record.Objective {
	if v.Throughput == nil {
		o.Reason = "pods were bound for less than 2 s, too short for a rate"
		return o
	}
	o.Assessed, o.N, o.Value = true, v.Throughput.N, v.Throughput.Mean
	o.Met = o.Value >= o.Limit
	return o
}
