package overhead

import (
	"math"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

var origin = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

const period = 0.01

// made makes a recording of 20 s.
func made(t *testing.T, collectors []record.Observer, fill func(w *record.Writer)) *record.Recording {
	t.Helper()
	return recordtest.Make(t, record.Meta{Started: origin, Ended: origin.Add(20 * time.Second), Collectors: collectors}, fill)
}

// sample writes n samples of one stack.
func sample(w *record.Writer, id int64, component, frames string, n int) {
	w.Stack(record.Stack{ID: id, Frames: frames})
	for i := range n {
		w.StackSample(record.StackSample{TimeMicros: origin.Add(time.Duration(i+1) * time.Millisecond).UnixMicro(), Component: component, PID: 1, Stack: id})
	}
}

func costs(t *testing.T, rec *record.Recording) (map[string]Cost, *Table) {
	t.Helper()
	table, err := Of(rec)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]Cost{}
	for _, c := range table.Costs {
		by[c.Collector] = c
	}
	return by, table
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestEachSampleHasOneOwner(t *testing.T) {
	const me, lib = "github.com/kubedyno/kubedyno/", "k8s.io/apiserver/pkg/"
	rec := made(t, []record.Observer{
		{Name: "metrics", Samples: 7}, {Name: "objects", Samples: 300}, {Name: "lives", Samples: 100}, {Name: "logs"},
		{Name: "stacks", IntervalSeconds: period, Samples: 5000, CPUSeconds: 0.25}, {Name: "requests"}, {Name: "profile"},
		{Name: "process"}, {Name: "kubedyno", CPUSeconds: 2.5},
	}, func(w *record.Writer) {
		for i, s := range []struct {
			component, frames string
			n                 int
		}{
			{"kubedyno", "runtime.goexit;" + me + "collect.(*Group).run;" + me + "collect/metrics.(*scraper).scrape;" + me + "internal/tsdb.(*appender).Commit", 40},
			{"kubedyno", me + "collect/objects.(*stream).follow;x", 3},
			{"kubedyno", me + "collect/objects.(*Lives).Collect;" + me + "collect/objects.(*stream).follow", 5},
			{"kubedyno", me + "collect/internal/tail.(*Follower).Run;" + me + "collect/logs.(*file).line", 2},
			{"kubedyno", me + "record.(*Writer).flush;compress/gzip.x", 11},
			{"kubedyno", "runtime.gcBgMarkWorker;runtime.gcDrain", 13},
			{"kubedyno", "crypto/tls.(*Conn).Read", 17},
			{"kubedyno", me + "collect/stacks.(*sampler).read", 1},
			{"kube-apiserver", "net/http.(*conn).serve;github.com/prometheus/client_golang/prometheus/promhttp.HandlerForTransactional.func1;x", 20},
			{"etcd", "github.com/prometheus/client_golang/prometheus/promhttp.HandlerFor.func1", 4},
			{"kube-apiserver", lib + "endpoints/filters.WithAudit.func1;" + lib + "audit.LogRequestObject;encoding/json.Marshal", 6},
			{"kube-apiserver", lib + "endpoints/filters.WithAudit.func1;" + lib + "registry/generic.Create", 1000},
			{"kube-apiserver", lib + "endpoints/handlers.(*WatchServer).HandleHTTP;x", 80},
			{"kube-apiserver", lib + "storage/cacher.(*cacheWatcher).process", 20},
			{"kube-scheduler", "net/http/pprof.Profile;runtime/pprof.StopCPUProfile", 8},
			{"", "do_exit_[k];bpf_prog_0123456789abcdef_kd_exit_[k]", 9},
			{"", "do_exit_[k];bpf_prog_0123456789abcdef_someone_[k]", 99},
		} {
			sample(w, int64(i+1), s.component, s.frames, s.n)
		}
		for i, v := range []float64{0, 2000} {
			w.AppendSample("apiserver_watch_events_total", map[string]string{"resource": "pods"}, origin.Add(time.Duration(i*10)*time.Second+time.Millisecond), v)
		}
	})
	by, table := costs(t, rec)
	for name, want := range map[string]struct{ own, inside float64 }{
		"metrics": {.40, .24}, "objects": {.03, 300. / 2000}, "lives": {.05, 100. / 2000}, "logs": {.02, 0},
		"stacks": {.25, .05}, "requests": {0, .06}, "profile": {0, .08}, "process": {0, .09},
		Writer: {.11, 0}, Garbage: {.13, 0}, Rest: {.17, 0}, Whole: {2.5, Unknown},
	} {
		if c := by[name]; !near(c.CPUSeconds, want.own) || !near(c.InsideSeconds, want.inside) {
			t.Errorf("%s: %.3f CPU-s of its own and %.3f inside, want %.3f and %.3f", name, c.CPUSeconds, c.InsideSeconds, want.own, want.inside)
		}
	}
	if by["metrics"].Where != "kube-apiserver, etcd" {
		t.Errorf("metrics cost inside %q", by["metrics"].Where)
	}
	if by["stacks"].Sampled || !by["metrics"].Sampled {
		t.Error("what was counted is not told from what was sampled")
	}
	if sum, ok := table.Total(); !ok || !near(sum, 2.5+.24+.15+.05+.05+.06+.08+.09) {
		t.Errorf("all of it: %v, %v", sum, ok)
	}
	if got := table.Collectors(); !near(got, .40+.03+.05+.02+.25) {
		t.Errorf("collectors: %v", got)
	}
	if last := table.Costs[len(table.Costs)-1].Collector; last != Whole {
		t.Errorf("last is %s", last)
	}
}

// Watches that have the server's clock are told from others' by their stacks; what feeds
// watches is shared by the events.
func TestWatchesWithTheServersClock(t *testing.T) {
	const lib, stamps = "k8s.io/apiserver/pkg/", "github.com/kubedyno/kubedyno/lab/stamps."
	rec := made(t, []record.Observer{
		{Name: "objects", Samples: 300}, {Name: "lives", Samples: 100}, {Name: "stacks", IntervalSeconds: period},
	}, func(w *record.Writer) {
		sample(w, 1, "kube-apiserver", stamps+"Handler.func1;"+lib+"endpoints/handlers.(*WatchServer).HandleHTTP;x", 700) // another's
		sample(w, 2, "kube-apiserver", stamps+"Handler.func1;"+stamps+"(*stamper).serve;"+lib+"endpoints/handlers.(*WatchServer).HandleHTTP;x", 7)
		sample(w, 3, "kube-apiserver", "time.goFunc;"+stamps+"(*stamper).due;x", 5)
		sample(w, 4, "kube-apiserver", lib+"storage/cacher.(*cacheWatcher).process", 20)
		sample(w, 5, "kube-apiserver", stamps+"Handler.func1;"+lib+"registry/generic.Create", 1000)
		for i, v := range []float64{0, 2000} {
			w.AppendSample("apiserver_watch_events_total", map[string]string{"resource": "pods"}, origin.Add(time.Duration(i*10)*time.Second+time.Millisecond), v)
		}
	})
	by, _ := costs(t, rec)
	for name, want := range map[string]float64{"objects": .12*3/4 + .20*300/2000, "lives": .12/4 + .20*100/2000} {
		if got := by[name].InsideSeconds; !near(got, want) {
			t.Errorf("%s: %v CPU-s inside, want %v", name, got, want)
		}
	}
}

// What an event's encoding costs is not added by our watch where others want it too.
func TestEncodingForAll(t *testing.T) {
	const (
		lib   = "k8s.io/apiserver/pkg/"
		ours  = "github.com/kubedyno/kubedyno/lab/stamps.(*stamper).serve;" + lib + "endpoints/handlers.(*WatchServer).HandleHTTP;"
		other = lib + "endpoints/handlers.(*WatchServer).HandleHTTP;"
		takes = lib + "storage/cacher.(*cachingObject).CacheEncode;"
		once  = takes + "sync.(*Once).doSlow;" + lib + "storage/cacher.(*cachingObject).CacheEncode.func1;x"
		pod   = ";k8s.io/api/core/v1.(*Pod)."
		event = ";k8s.io/api/core/v1.(*Event)."
	)
	for name, c := range map[string]struct {
		stacks map[string]int
		want   int
	}{
		"alone":        {map[string]int{ours + "x": 5, ours + once: 7, other + "x": 100}, 12},
		"with another": {map[string]int{ours + "x": 5, ours + once: 7, ours + takes + "write": 2, other + takes + "write": 100}, 7},
		"with another of pods": {map[string]int{
			ours + once: 3, ours + once + pod + "Size": 5, ours + once + event + "Size": 11, ours + once + event + "MarshalToSizedBuffer": 13,
			other + once + pod + "MarshalToSizedBuffer": 1,
		}, 24},
	} {
		t.Run(name, func(t *testing.T) {
			var samples []functions.Sample
			for frames, n := range c.stacks {
				samples = append(samples, functions.Sample{Component: "kube-apiserver", Frames: frames, Count: n})
			}
			if got := attribute(samples, false).stamped; got != c.want {
				t.Errorf("%d samples are ours, want %d", got, c.want)
			}
		})
	}
}

// An API server without an audit log passes through the functions of one.
func TestRequestsInside(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want float64
	}{
		"not known":  {nil, .10},
		"an audit":   {[]string{"--secure-port=1", "--audit-log-path=x"}, .10},
		"no audit":   {[]string{"--secure-port=1"}, .04},
		"sent along": {[]string{"--audit-webhook-config-file=x"}, .10},
	} {
		t.Run(name, func(t *testing.T) {
			m := record.Meta{Started: origin, Ended: origin.Add(20 * time.Second), Collectors: []record.Observer{{Name: "requests"}, {Name: "stacks", IntervalSeconds: period}}}
			m.Cluster.Components = []record.Component{{Name: "etcd", Args: []string{"--name=x"}}, {Name: "kube-apiserver", Args: c.args}}
			by, _ := costs(t, recordtest.Make(t, m, func(w *record.Writer) {
				sample(w, 1, "kube-apiserver", "github.com/kubedyno/kubedyno/lab/requestlog.(*Log).Handler.func1;k8s.io/apiserver/pkg/audit.AuditContextFrom", 6)
				sample(w, 2, "kube-apiserver", "github.com/kubedyno/kubedyno/lab/requestlog.(*Log).Handler.func1;github.com/kubedyno/kubedyno/lab/requestlog.(*answer).line;time.Time.AppendFormat", 4)
				sample(w, 3, "kube-apiserver", "github.com/kubedyno/kubedyno/lab/requestlog.(*Log).Handler.func1;k8s.io/apiserver/pkg/endpoints/handlers.GetResource", 50)
			}))
			if got := by["requests"].InsideSeconds; !near(got, c.want) {
				t.Errorf("%v CPU-s inside, want %v", got, c.want)
			}
		})
	}
}

// Who else asks a component for its metrics is not our cost, where we can be told apart.
func TestScrapesOfOthers(t *testing.T) {
	const (
		told   = "net/http.(*conn).serve;github.com/kubedyno/kubedyno/lab/scrape.(*handler).ServeHTTP;"
		asked  = "net/http.(*conn).serve;github.com/prometheus/client_golang/prometheus/promhttp.HandlerForTransactional.func1;"
		gather = "github.com/prometheus/client_golang/prometheus.(*Registry).Gather"
	)
	type stacks map[string]int
	for name, c := range map[string]struct {
		stacks stacks
		want   int
	}{
		"nobody else":          {stacks{told + "x": 6, told + gather: 4, gather + ".func1": 20}, 30},
		"another nine times":   {stacks{told + "x": 6, told + gather: 4, asked + "x": 200, asked + gather: 36, gather + ".func1": 100}, 20},
		"no gathering seen":    {stacks{told + "x": 5, asked + "x": 15, gather + ".func1": 100}, 30},
		"no socket, all of it": {stacks{asked + "x": 200, asked + gather: 36, gather + ".func1": 100}, 336},
		"not for metrics":      {stacks{"main.main": 50}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var samples []functions.Sample
			for frames, n := range c.stacks {
				samples = append(samples, functions.Sample{Component: "kube-apiserver", Frames: frames, Count: n})
			}
			if got := attribute(samples, false).inside["metrics"]["kube-apiserver"]; got != c.want {
				t.Errorf("%d samples are ours, want %d", got, c.want)
			}
		})
	}
}

func TestWithoutSamplesUnknown(t *testing.T) {
	rec := made(t, []record.Observer{{Name: "metrics"}, {Name: "process", CPUSeconds: 0.5}, {Name: "kubedyno", CPUSeconds: 1}}, func(w *record.Writer) {
		at := func(s int) int64 { return origin.Add(time.Duration(s) * time.Second).UnixMicro() }
		for _, p := range []record.ProcessSample{
			{TimeMicros: at(1), PID: 1, StartMicros: at(-5), Component: "etcd", UserSeconds: 10, SystemSeconds: 1},
			{TimeMicros: at(9), PID: 1, StartMicros: at(-5), Component: "etcd", UserSeconds: 12, SystemSeconds: 2},
			{TimeMicros: at(2), PID: 2, StartMicros: at(1), Component: "kubedyno", UserSeconds: 1},
			{TimeMicros: at(9), PID: 3, StartMicros: at(1), UserSeconds: 100},
		} {
			w.Process(p)
		}
	})
	by, table := costs(t, rec)
	if by["metrics"].CPUSeconds != Unknown || by["metrics"].InsideSeconds != Unknown || by["process"].CPUSeconds != 0.5 {
		t.Errorf("metrics %+v, process %+v", by["metrics"], by["process"])
	}
	if _, ok := table.Total(); ok {
		t.Error("a sum with unknown parts is called known")
	}
	if !near(table.RunSeconds, 4) { // etcd's growth of 3 and all of a process born meanwhile
		t.Errorf("the run used %v CPU-s", table.RunSeconds)
	}
	if by["process"].Bytes == 0 || by[Whole].Bytes <= by["process"].Bytes {
		t.Errorf("bytes: process %d, all %d", by["process"].Bytes, by[Whole].Bytes)
	}
}
