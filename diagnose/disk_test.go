package diagnose

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/record"
)

// What etcd's requests took is that of the device it writes most to, in the window.
func TestDiskTime(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	row := func(seconds float64, component, device, operation string, queue, served, bytes int64) record.BlockIO {
		at := began.Add(time.Duration(seconds * 1e9)).UnixMicro()
		return record.BlockIO{TimeMicros: at, IssuedMicros: at + queue, DoneMicros: at + queue + served, Component: component, Device: device, Operation: operation, Bytes: bytes}
	}
	unfinished := row(3, Etcd, "vda", "write", 0, 0, 4096)
	unfinished.DoneMicros = 0
	flush := row(3, Etcd, "vda", "flush", 0, 900, 0)
	flush.IssuedMicros = 0
	blocks := []record.BlockIO{
		row(0, Etcd, "vda", "write", 90000, 90000, 4096), // before the window
		row(1, Etcd, "vda", "write", 1000, 500, 4096),
		row(2, Etcd, "vda", "write", 3000, 1500, 4096),
		row(2, Etcd, "vdb", "write", 80000, 80000, 4096), // its snapshots
		row(2, APIServer, "vda", "write", 70000, 70000, 1<<20),
		row(2, APIServer, "vdb", "write", 1, 1, 3<<20),
		unfinished, flush,
	}
	v := &View{blocks: &blocks}
	d, ok := v.DiskTime(Etcd, record.Window{Start: began.Add(time.Second), End: began.Add(time.Minute)})
	if !ok || d.Writes != 2 || d.QueueSeconds != 0.002 || d.DeviceSeconds != 0.001 || d.FlushSeconds != 0.0009 || math.Abs(d.SyncSeconds()-0.0039) > 1e-9 {
		t.Errorf("etcd's requests: %+v, %v", d, ok)
	}
	if share, known := v.WritesThere(APIServer, d); !known || share != 0.25 {
		t.Errorf("%v of what the API server writes goes to etcd's disk, %v", share, known)
	}
	if _, known := v.WritesThere(Scheduler, d); known {
		t.Error("it is known where one writes who sends no requests")
	}
	if _, known := v.WritesThere(APIServer, DiskTime{}); known {
		t.Error("it is known how much goes to no device")
	}
	if _, ok := v.DiskTime(Scheduler, v.Load); ok {
		t.Error("a component without requests has a time")
	}
}

// What a thin copy keeps says the same, to a tenth of a millisecond, and has one row
// for all that another process sends of a kind.
func TestThinBlockIO(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := record.Window{Start: began.Add(-time.Hour), End: began.Add(time.Hour)}
	rapid.Check(t, func(t *rapid.T) {
		slow := rapid.Int64Range(0, 1).Draw(t, "slow")
		var rows []record.BlockIO
		at := began.UnixMicro()
		for range rapid.IntRange(1, 2000).Draw(t, "rows") {
			at += rapid.Int64Range(0, 5000).Draw(t, "gap")
			r := record.BlockIO{
				TimeMicros: at, PID: rapid.SampledFrom([]int32{1, 2, 3}).Draw(t, "pid"), Device: rapid.SampledFrom([]string{"vda", "vdb"}).Draw(t, "device"),
				Operation: rapid.SampledFrom([]string{"write", "flush", "read"}).Draw(t, "operation"), Bytes: rapid.Int64Range(1, 9).Draw(t, "pages") * 4096,
				Command: "/home/me/secret", Sector: at % 7919, Flags: "sync",
			}
			if slow == 0 && r.PID == 1 {
				r.Device = "vda" // who reads a sample cannot tell which of two has a little more
			}
			r.Component = map[int32]string{1: Etcd, 2: APIServer}[r.PID]
			r.IssuedMicros = r.TimeMicros + slow*1000 + rapid.Int64Range(0, 1+30000*slow).Draw(t, "queue")
			r.DoneMicros = r.IssuedMicros + rapid.Int64Range(0, 1+30000*slow).Draw(t, "served")
			rows = append(rows, r)
		}
		thin := ThinBlockIO(rows)
		a, b := &View{blocks: &rows}, &View{blocks: &thin}
		x, okX := a.DiskTime(Etcd, w)
		y, okY := b.DiskTime(Etcd, w)
		near := func(x, y float64) bool { return math.Abs(x-y) <= 0.0001+1e-9 }
		if okX != okY || slow == 1 && x.Writes != y.Writes || x.device != y.device || !near(x.QueueSeconds, y.QueueSeconds) || !near(x.DeviceSeconds, y.DeviceSeconds) || !near(x.FlushSeconds, y.FlushSeconds) {
			t.Fatalf("%+v, %v of all rows, %+v, %v of the thin ones", x, okX, y, okY)
		}
		p, knownP := a.WritesThere(APIServer, x)
		q, knownQ := b.WritesThere(APIServer, y)
		if p != q || knownP != knownQ {
			t.Fatalf("%v, %v of all rows, %v, %v of the thin ones", p, knownP, q, knownQ)
		}
		type kind struct {
			pid               int32
			device, operation string
		}
		seen := map[kind]bool{}
		for i, r := range thin {
			if i > 0 && r.TimeMicros < thin[i-1].TimeMicros {
				t.Fatal("rows are not in the order of time")
			}
			if r.Command == "/home/me/secret" || r.Sector != 0 || r.Flags != "" {
				t.Fatalf("a row keeps what nobody reads: %+v", r)
			}
			if k := (kind{r.PID, r.Device, r.Operation}); r.Component != Etcd || r.Operation == "read" {
				if seen[k] {
					t.Fatalf("two rows of %+v", k)
				}
				seen[k] = true
			}
		}
	})
}
