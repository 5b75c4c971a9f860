package diagnose

import (
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// A moment at which a quota's account could not be read is passed over; a process
// that never had one makes its component's unknown.
func TestThrottledPassesOverGaps(t *testing.T) {
	start := time.Unix(1000, 0)
	row := func(second int64, periods, throttled int64, seconds float64) record.ProcessSample {
		return record.ProcessSample{TimeMicros: start.UnixMicro() + second*1e6, Periods: periods, ThrottledPeriods: throttled, ThrottledSeconds: seconds}
	}
	known := process{samples: []record.ProcessSample{row(0, -1, -1, -1), row(1, 100, 50, 5), row(2, -1, -1, -1), row(3, 120, 60, 6), row(4, -1, -1, -1)}}
	never := process{samples: []record.ProcessSample{row(0, -1, -1, -1), row(4, -1, -1, -1)}}
	w := record.Window{Start: start.Add(time.Second), End: start.Add(3 * time.Second)}
	v := &View{processes: map[string][]process{"etcd": {known}, "kube-scheduler": {known, never}}}
	if seconds, share, ok := v.Throttled("etcd", w); !ok || seconds != 1 || share != 0.5 {
		t.Errorf("got %g s, %g of the periods, %v; want 1 s of 20 periods, half of them", seconds, share, ok)
	}
	if _, _, ok := v.Throttled("kube-scheduler", w); ok {
		t.Error("a component of which one process is unknown is known")
	}
}
