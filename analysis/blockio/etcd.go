package blockio

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/kubedyno/kubedyno/record"
)

// The histograms in which etcd itself counts what its disk took.
const (
	WALSync       string = "etcd_disk_wal_fsync_duration_seconds"
	BackendCommit string = "etcd_disk_backend_commit_duration_seconds"
)

// Own is one of etcd's own histograms over a window. Its quantiles are
// interpolated inside buckets that double, so that they are good to a factor
// of two only; they are in microseconds, -1 where Count is 0.
type Own struct {
	Metric        string
	Component     string
	Instance      string
	Count         float64
	P50, P90, P99 float64
	Mean          float64 // microseconds; exact
	Buckets       []OwnBucket
}

// OwnBucket counts what was above the bucket before and not above Le seconds.
type OwnBucket struct {
	Le    float64
	Count float64
}

// EtcdOwn reads etcd's own histograms over a window, from the last scrape at
// or before its start to the last at or before its end. It is empty where the
// recording's metrics have none.
func EtcdOwn(rec *record.Recording, w record.Window) ([]Own, error) {
	var out []Own
	for _, metric := range []string{WALSync, BackendCommit} {
		name := metric
		series, err := rec.Points(name+"_bucket", nil, w)
		if err != nil {
			return nil, err
		}
		type target struct{ component, instance string }
		by := map[target][]OwnBucket{}
		for _, s := range series {
			le, err := strconv.ParseFloat(s.Labels["le"], 64)
			if err != nil {
				continue
			}
			t := target{s.Labels["component"], s.Labels["instance"]}
			n, _, err := rec.Increase(name+"_bucket", map[string]string{"component": t.component, "instance": t.instance, "le": s.Labels["le"]}, w)
			if err != nil {
				return nil, err
			}
			by[t] = append(by[t], OwnBucket{le, n})
		}
		for t, buckets := range by {
			match := map[string]string{"component": t.component, "instance": t.instance}
			sum, _, err := rec.Increase(name+"_sum", match, w)
			if err != nil {
				return nil, err
			}
			out = append(out, own(name, t.component, t.instance, buckets, sum))
		}
	}
	slices.SortFunc(out, func(a, b Own) int {
		return cmp.Or(-cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Instance, b.Instance))
	})
	return out, nil
}

// own makes of cumulative buckets single ones.
func own(metric, component, instance string, cumulative []OwnBucket, sum float64) Own {
	slices.SortFunc(cumulative, func(a, b OwnBucket) int { return cmp.Compare(a.Le, b.Le) })
	o := Own{Metric: metric, Component: component, Instance: instance, P50: -1, P90: -1, P99: -1, Mean: -1}
	below := 0.0
	for _, b := range cumulative {
		o.Buckets = append(o.Buckets, OwnBucket{b.Le, max(0, b.Count-below)})
		below = max(below, b.Count)
	}
	o.Count = below
	if o.Count == 0 {
		return o
	}
	o.P50, o.P90, o.P99 = o.quantile(0.5), o.quantile(0.9), o.quantile(0.99)
	o.Mean = sum / o.Count * 1e6
	return o
}

// quantile interpolates as PromQL's histogram_quantile does: evenly inside a
// bucket, and the last finite bound for what is above it.
func (o Own) quantile(q float64) float64 {
	rank, below, start := q*o.Count, 0.0, 0.0
	for _, b := range o.Buckets {
		if below+b.Count >= rank && b.Count > 0 {
			if math.IsInf(b.Le, 1) {
				return start * 1e6
			}
			return (start + (b.Le-start)*(rank-below)/b.Count) * 1e6
		}
		below += b.Count
		start = b.Le
	}
	return start * 1e6
}
