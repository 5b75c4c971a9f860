package blockio

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"pgregory.net/rapid"
)

var epoch = time.Unix(1000, 0)

func io(at, issued, done int64, pid int32, operation string, bytes int64) record.BlockIO {
	us := func(v int64) int64 {
		if v < 0 {
			return 0
		}
		return epoch.UnixMicro() + v
	}
	return record.BlockIO{TimeMicros: us(at), IssuedMicros: us(issued), DoneMicros: us(done), PID: pid, Command: fmt.Sprint("p", pid), Component: "etcd", Device: "vda", Operation: operation, Bytes: bytes}
}

func TestRequests(t *testing.T) {
	rows := []record.BlockIO{
		io(0, 10, 110, 1, "write", 4096),
		io(50, 70, 370, 1, "write", 8192),
		io(60, -1, 160, 1, "flush", 0),
		io(70, 70, 150, 0, "flush", 0),
		io(90, 95, -1, 1, "write", 512),
	}
	rows[1].Error = 5
	var got []string
	for _, g := range Requests(rows) {
		got = append(got, fmt.Sprintf("%s %d %s n=%d bytes=%d errors=%d unfinished=%d queue=%d/%v device=%d/%v total=%d/%v",
			g.Component, g.PID, g.Operation, g.Count, g.Bytes, g.Errors, g.Unfinished, g.Queue.N, g.Queue.Max, g.InDevice.N, g.InDevice.P50, g.Total.N, g.Total.Max))
	}
	want := []string{
		"etcd 1 write n=3 bytes=12800 errors=1 unfinished=1 queue=2/20 device=2/100 total=2/320",
		"etcd 1 flush n=1 bytes=0 errors=0 unfinished=0 queue=0/-1 device=0/-1 total=1/100",
		"etcd 0 flush n=1 bytes=0 errors=0 unfinished=0 queue=0/-1 device=1/80 total=1/80",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s", fmt.Sprintln(got))
	}
}

func TestSyncs(t *testing.T) {
	call := func(at, done int64, name string) record.Sync {
		return record.Sync{TimeMicros: epoch.UnixMicro() + at, DoneMicros: epoch.UnixMicro() + done, PID: 1, Command: "etcd", Call: name}
	}
	rows := []record.Sync{call(0, 1000, "fdatasync"), call(5, 3005, "fdatasync"), call(7, 8, "fsync")}
	rows[2].DoneMicros = 0
	got := Syncs(rows)
	if len(got) != 2 || got[0].Operation != "fdatasync" || got[0].Count != 2 || got[0].Total.Max != 3000 || got[1].Unfinished != 1 || got[1].Total.P50 != -1 {
		t.Errorf("%+v", got)
	}
	if n := len((Filter{Device: "vda"}).SelectSyncs(rows)); n != 0 {
		t.Errorf("%d calls on a device", n)
	}
}

func TestFilter(t *testing.T) {
	rows := []record.BlockIO{io(0, 1, 2, 1, "write", 1), io(10, 11, 12, 2, "read", 1), io(20, 21, 22, 2, "write", 1)}
	rows[2].Component, rows[2].Device = "", "vdb"
	for _, c := range []struct {
		f    Filter
		want int
	}{
		{Filter{}, 3},
		{Filter{Component: "etcd"}, 2},
		{Filter{Process: "2"}, 2},
		{Filter{Process: "p2", Operation: "read"}, 1},
		{Filter{Device: "vdb"}, 1},
		{Filter{Window: record.Window{Start: epoch.Add(10 * time.Microsecond), End: epoch.Add(20 * time.Microsecond)}}, 1},
	} {
		if got := len(c.f.Select(rows)); got != c.want {
			t.Errorf("%+v selects %d, want %d", c.f, got, c.want)
		}
	}
}

// A histogram holds each time in the bucket that says so, and percentiles are
// times that were there, in order.
func TestLatencyProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var times []float64
		for _, v := range rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 1, 50).Draw(t, "micros") {
			times = append(times, float64(v))
		}
		l := LatencyOf(slices.Clone(times))
		n := 0
		for i, c := range l.Histogram {
			n += c
			inside := 0
			for _, v := range times {
				if v >= BucketStart(i) && v < BucketStart(i+1) {
					inside++
				}
			}
			if inside != c {
				t.Fatalf("bucket %d has %d, want %d", i, c, inside)
			}
		}
		if n != len(times) || l.N != n || l.Histogram[len(l.Histogram)-1] == 0 {
			t.Fatalf("%+v of %v", l, times)
		}
		if l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.Max || !slices.Contains(times, l.P50) || !slices.Contains(times, l.P99) {
			t.Fatalf("%+v of %v", l, times)
		}
	})
}

// All that began in the window is in one cell, and nothing else.
func TestHeatProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := record.Window{Start: epoch, End: epoch.Add(time.Second)}
		step := time.Duration(rapid.Int64Range(1, 2e6).Draw(t, "step")) * time.Microsecond
		var rows []record.BlockIO
		inside := 0
		for _, at := range rapid.SliceOfN(rapid.Int64Range(-1e6, 2e6), 0, 40).Draw(t, "at") {
			rows = append(rows, io(at, at, at+7, 1, "write", 1))
			rows[len(rows)-1].TimeMicros = epoch.UnixMicro() + at
			rows[len(rows)-1].DoneMicros = epoch.UnixMicro() + at + 7
			if at >= 0 && at < 1e6 {
				inside++
			}
		}
		h := HeatOfRequests(rows, w, step)
		n := 0
		for _, c := range h.Columns {
			for b, v := range c {
				n += v
				if v > 0 && b != Bucket(7) {
					t.Fatalf("bucket %d", b)
				}
			}
		}
		// The last column may reach beyond the window.
		if beyond := len(rows) - inside; n < inside || n > inside+beyond {
			t.Fatalf("%d cells of %d inside", n, inside)
		}
	})
	if h := HeatOfSyncs(nil, record.Window{Start: epoch, End: epoch}, 0); len(h.Columns) != 0 {
		t.Errorf("%+v", h)
	}
}

func TestEtcdQuantiles(t *testing.T) {
	o := own(WALSync, "etcd", "1", []OwnBucket{{math.Inf(1), 100}, {0.001, 50}, {0.002, 90}, {0.004, 99}}, 0.13)
	if o.Count != 100 || o.P50 != 1000 || o.P90 != 2000 || o.P99 != 4000 || math.Abs(o.Mean-1300) > 1e-6 {
		t.Errorf("%+v", o)
	}
	if o.Buckets[1].Count != 40 || o.Buckets[3].Count != 1 {
		t.Errorf("%+v", o.Buckets)
	}
	if q := o.quantile(1); q != 4000 {
		t.Errorf("what is above the last bound is %v", q)
	}
	if none := own(WALSync, "etcd", "1", []OwnBucket{{0.001, 0}, {math.Inf(1), 0}}, 0); none.Count != 0 || none.P50 != -1 || none.Mean != -1 {
		t.Errorf("%+v", none)
	}
}

func TestEtcdOwnOfARecording(t *testing.T) {
	rec := recordtest.Make(t, record.Meta{Started: epoch}, func(w *record.Writer) {
		for i, n := range []float64{10, 30} {
			at := epoch.Add(time.Duration(i*10) * time.Second)
			for le, share := range map[string]float64{"0.001": 0.5, "0.002": 1, "+Inf": 1} {
				w.AppendSample(WALSync+"_bucket", map[string]string{"component": "etcd", "instance": "a", "le": le}, at, n*share)
			}
			w.AppendSample(WALSync+"_sum", map[string]string{"component": "etcd", "instance": "a"}, at, n*0.001)
		}
	})
	got, err := EtcdOwn(rec, record.Window{Start: epoch, End: epoch.Add(time.Minute)})
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if o := got[0]; o.Metric != WALSync || o.Instance != "a" || o.Count != 20 || o.P50 != 1000 || math.Abs(o.Mean-1000) > 1e-6 {
		t.Errorf("%+v", o)
	}
}
