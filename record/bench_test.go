package record

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// BenchmarkScrape commits 20,000 samples an iteration, as one scrape of a
// whole control plane does.
func BenchmarkScrape(b *testing.B) {
	w := create(b, filepath.Join(b.TempDir(), "r"), Meta{})
	defer finish(b, w)
	series := manySeries(20_000)
	refs := make([]storage.SeriesRef, len(series))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		scrapeAll(b, w, series, refs, at(float64(i)), float64(i))
		i++
	}
}

func manySeries(n int) []labels.Labels {
	series := make([]labels.Labels, n)
	for i := range series {
		series[i] = labels.FromStrings(model.MetricNameLabel, fmt.Sprint("apiserver_request_duration_seconds_bucket_", i%20),
			"component", "kube-apiserver", "instance", "127.0.0.1:6443", "le", fmt.Sprint(i), "resource", "pods", "verb", "LIST")
	}
	return series
}

func scrapeAll(b testing.TB, w *Writer, series []labels.Labels, refs []storage.SeriesRef, at time.Time, v float64) {
	app := w.Metrics().AppenderV2(context.Background())
	for i, ls := range series {
		ref, err := app.Append(refs[i], ls, 0, at.UnixMilli(), v*float64(i%10), nil, nil, storage.AOptions{})
		if err != nil {
			b.Fatal(err)
		}
		refs[i] = ref
	}
	if err := app.Commit(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkRequestRow(b *testing.B) {
	w := create(b, filepath.Join(b.TempDir(), "r"), Meta{})
	b.ReportAllocs()
	for b.Loop() {
		w.Request(benchRequest)
	}
	b.StopTimer()
	finish(b, w)
}

var benchRequest = Request{
	ReceivedMicros: start.UnixMicro(), DoneMicros: start.UnixMicro() + 5000, Verb: "update", Group: "coordination.k8s.io", Resource: "leases",
	Namespace: "kube-node-lease", Name: "node-0042", User: "system:node:node-0042", UserAgent: "kubedyno-hollow/v0.1.0", Code: 200,
}

// BenchmarkFinish and BenchmarkOpen are of ten minutes at 5 s with 20,000
// series, 100,000 requests, and 3,000 pods with five rows each.
func BenchmarkFinish(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := tenMinutes(b)
		b.StartTimer()
		finish(b, w)
	}
}

func BenchmarkOpen(b *testing.B) {
	w := tenMinutes(b)
	dead := crash(b, w)
	finish(b, w)
	b.Run("dead", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			dir := filepath.Join(b.TempDir(), "r")
			if err := copyFiles(dir, dead); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			r, err := Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			r.Close()
			b.StartTimer()
		}
	})
	for name, use := range map[string]func(*Recording) error{
		"meta":     func(*Recording) error { return nil },
		"pods":     func(r *Recording) error { return second(r.Pods()) },
		"requests": func(r *Recording) error { return second(r.Requests()) },
		"query": func(r *Recording) error {
			return second(r.Query(`sum(rate(apiserver_request_duration_seconds_bucket_3[1m]))`, at(300)))
		},
		"increase": func(r *Recording) error {
			_, _, err := r.Increase("apiserver_request_duration_seconds_bucket_3", map[string]string{"verb": "LIST"}, Window{at(100), at(400)})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r, err := Open(w.Dir())
				if err != nil {
					b.Fatal(err)
				}
				if err := use(r); err != nil {
					b.Fatal(err)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func tenMinutes(b testing.TB) *Writer {
	w := create(b, filepath.Join(b.TempDir(), "r"), Meta{})
	series := manySeries(20_000)
	refs := make([]storage.SeriesRef, len(series))
	for i := range 120 {
		scrapeAll(b, w, series, refs, at(float64(5*i)), float64(i))
	}
	for i := range 100_000 {
		r := benchRequest
		r.ReceivedMicros += int64(i) * 6000
		r.Name = fmt.Sprint("node-", i%1000)
		w.Request(r)
	}
	for range 5 {
		for i := range 3000 {
			w.Pod(Pod{Namespace: "load", Name: fmt.Sprint("pod-", i), UID: fmt.Sprintf("0b1c8f0e-0000-4000-8000-%012d", i), CreatedMicros: micros(float64(i) / 5)})
		}
	}
	return w
}
