package record

import (
	"errors"
	"path/filepath"
	"testing"
	"time"
)

// A thin copy has the tables and the metrics that were asked for, and says what
// it lacks.
func TestThin(t *testing.T) {
	dir := t.TempDir()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w, err := Create(filepath.Join(dir, "whole"), Meta{Name: "x", Started: began, Phases: []Phase{{Name: "load", Kind: PhaseSteady, Start: began.Add(2 * time.Second), End: began.Add(4 * time.Second)}}, Machine: Machine{Kernel: "6.1.0-17-amd64"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Experiment([]byte("name: x\n")); err != nil {
		t.Fatal(err)
	}
	w.Pod(Pod{UID: "u", Name: "p", CreatedMicros: began.UnixMicro()})
	w.Process(ProcessSample{TimeMicros: began.UnixMicro(), PID: 1, Command: "/home/me/secret --thing"})
	w.Observes(TableExits) // and none ended
	for i := range 3 {
		w.BlockIO(BlockIO{TimeMicros: began.UnixMicro() + int64(i), Operation: "write", Device: "vda", Bytes: 4096})
	}
	for i := range 5 {
		at := began.Add(time.Duration(i) * time.Second)
		w.AppendSample("kept_total", map[string]string{"component": "a"}, at, float64(i))
		w.AppendSample("kept_total", map[string]string{"component": "a", "code": "at-rest"}, at, 7)
		if i >= 3 { // its first value was counted under the load
			w.AppendSample("kept_total", map[string]string{"component": "a", "code": "late"}, at, 7)
		}
		w.AppendSample("dropped_total", map[string]string{"component": "a"}, at, float64(i))
	}
	if err := w.Finish(StatusInterrupted, "because"); err != nil {
		t.Fatal(err)
	}
	whole := open(t, filepath.Join(dir, "whole"))
	if err := Thin(whole, filepath.Join(dir, "thin"), Wanted{
		Metrics: []string{"kept_total"},
		Series:  func(string, map[string]string) bool { return true },
		Request: func(*Request) bool { return true },
		BlockIO: func(rows []BlockIO) []BlockIO { return rows[:1] },
	}); err != nil {
		t.Fatal(err)
	}
	thin := open(t, filepath.Join(dir, "thin"))
	a, b := whole.Meta(), thin.Meta()
	if b.ID != a.ID || b.Status != StatusInterrupted || b.EndReason != "because" || !b.Ended.Equal(a.Ended) {
		t.Errorf("the copy is of another run: %+v", b)
	}
	if len(b.Gaps) != 5 || b.Machine.Kernel != "6.1.0" {
		t.Errorf("gaps %v, kernel %s", b.Gaps, b.Machine.Kernel)
	}
	if _, err := thin.Exits(); err != nil {
		t.Errorf("a table without rows: %v", err)
	}
	if _, err := thin.Events(); !errors.Is(err, ErrMissing) {
		t.Errorf("a table that was not recorded: %v", err)
	}
	window := Window{began, began.Add(4 * time.Second)}
	if v, ok, err := thin.Increase("kept_total", map[string]string{"code": ""}, window); v != 4 || !ok || err != nil {
		t.Errorf("kept_total grew by %v, %v (%v)", v, ok, err)
	}
	if v, _, _ := thin.Increase("kept_total", map[string]string{"code": "late"}, window); v != 7 {
		t.Errorf("what was first counted under the load is %v", v)
	}
	if _, ok, _ := thin.Increase("kept_total", map[string]string{"code": "at-rest"}, window); ok {
		t.Error("a counter that never moved is there")
	}
	if len(b.KeptMetrics) != 1 {
		t.Errorf("the copy does not name its metrics: %v", b.KeptMetrics)
	}
	if _, ok, _ := thin.Increase("dropped_total", nil, window); ok {
		t.Error("dropped_total is still there")
	}
	if pods, err := thin.Pods(); err != nil || len(pods) != 1 {
		t.Errorf("pods %v (%v)", pods, err)
	}
	if _, err := thin.Requests(); !errors.Is(err, ErrMissing) {
		t.Errorf("a table that was not recorded: %v", err)
	}
	if rows, err := thin.BlockIO(); err != nil || len(rows) != 1 {
		t.Errorf("requests to block devices: %v (%v)", rows, err)
	}
	if ps, err := thin.Processes(); err != nil || len(ps) != 1 || ps[0].Command != "other" {
		t.Errorf("processes %v (%v)", ps, err)
	}
}
