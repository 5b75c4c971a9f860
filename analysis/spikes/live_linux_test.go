package spikes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// burns is set in the copies of this test binary that use CPU and end.
const burns = "KUBEDYNO_SPIKES_TEST_BURN"

func TestMain(m *testing.M) {
	if os.Getenv(burns) != "" {
		began := time.Now()
		var sum float64
		for time.Since(began) < 60*time.Millisecond {
			sum += math.Sqrt(float64(len(os.Args)) + sum)
		}
		fmt.Print(int(math.Mod(sum, 2)))
		return
	}
	os.Exit(m.Run())
}

// Real processes, shorter than a reading's interval: their command line and
// their period come out, with what the kernel says they used.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 14 s")
	}
	dir := filepath.Join(t.TempDir(), "r")
	w, err := record.Create(dir, record.Meta{Name: "live", Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- process.New(process.Options{}).Collect(ctx, w) }()
	const period, times = 2200 * time.Millisecond, 6
	tick := time.NewTicker(period)
	defer tick.Stop()
	used := 0.0
	for i := range times {
		<-tick.C
		c := exec.Command(os.Args[0], "-addon-apply", fmt.Sprint("/tmp/manifests-", i))
		c.Env = append(os.Environ(), burns+"=1")
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		used += (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
	}
	time.Sleep(300 * time.Millisecond)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	rec := recordtest.Open(t, dir)
	if _, err := rec.Exits(); errors.Is(err, record.ErrMissing) {
		t.Skipf("the kernel does not tell of ends of processes here: %v", err)
	}
	res, err := Find(rec, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res.Rows {
		if r.What != Command || !strings.Contains(r.Name, "-addon-apply") {
			continue
		}
		t.Logf("%+v; the kernel told its parent %.3f s", r, used)
		if r.Kind != Repeats || math.Abs(r.Period-period.Seconds()) > 0.1 || r.Executions != times {
			t.Errorf("got %s every %.3f ± %.3f s, %d times", r.Kind, r.Period, r.PeriodError, r.Executions)
		}
		if math.Abs(r.Total/used-1) > 0.05 {
			t.Errorf("used %.4f CPU-s, want %.4f", r.Total, used)
		}
		return
	}
	t.Errorf("no row of the command: %+v", res.Rows)
}
