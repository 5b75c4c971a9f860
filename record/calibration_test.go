package record

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func labRun(t *testing.T, dir string, change func(*Meta)) Meta {
	t.Helper()
	meta := Meta{Schema: Schema, ID: "20260102T150405Z-000001", Name: "density", Status: StatusRunning, Started: time.Unix(1e9, 0).UTC(),
		Cluster:  Cluster{Kind: "lab", Version: "v1.36.3", Profile: "tuned"},
		Machine:  Machine{CPUs: 2, Model: "some CPU", MemoryBytes: 24 << 30},
		Workload: Workload{Experiment: "experiment.yaml", Shape: "0123456789ab"}}
	change(&meta)
	w, err := Create(dir, meta)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	return meta
}

// A recording gets the calibration of its own kind, and no other.
func TestCalibrate(t *testing.T) {
	folder := t.TempDir()
	meta := labRun(t, filepath.Join(t.TempDir(), "r"), func(*Meta) {})
	key, ok := meta.CalibrationKey()
	if !ok {
		t.Fatal("a lab's run has no key")
	}
	want := &Calibration{Schema: CalibrationSchema, Of: key, Runs: []string{"a", "b"}, Ended: time.Unix(1e9, 0).UTC(),
		Features: map[string]Healthy{"rate": HealthyOf([]float64{100, 120, 110})}, Verdicts: map[string]int{"machine-cpu": 2}}
	if _, err := want.Write(folder); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Meta)
		fits   bool
	}{
		"the same":         {func(*Meta) {}, true},
		"other flags":      {func(m *Meta) { m.Cluster.Components = []Component{{Name: "etcd", Args: []string{"--x"}}} }, true},
		"another load":     {func(m *Meta) { m.Workload.Shape = "ba9876543210" }, false},
		"another profile":  {func(m *Meta) { m.Cluster.Profile = "stock" }, false},
		"another machine":  {func(m *Meta) { m.Machine.CPUs = 4 }, false},
		"other collectors": {func(m *Meta) { m.Collectors = []Observer{{Name: "stacks"}} }, false},
		"existing cluster": {func(m *Meta) { m.Cluster.Kind = "existing" }, false},
		"no load":          {func(m *Meta) { m.Workload.Shape = "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			labRun(t, dir, c.change)
			fits, err := Calibrate(dir, folder)
			if err != nil || fits != c.fits {
				t.Fatalf("fits %t, %v; want %t", fits, err, c.fits)
			}
			rec, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer rec.Close()
			got, err := rec.Calibration()
			if c.fits && (err != nil || !reflect.DeepEqual(got, want)) {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
			if !c.fits && !errors.Is(err, ErrMissing) {
				t.Errorf("a calibration of something else was taken: %+v, %v", got, err)
			}
		})
	}
}

func TestDamagedCalibration(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"no JSON": "{", "of the future": `{"schema": 99}`, "no schema": "{}"} {
		file := filepath.Join(dir, "c.json")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadCalibration(file); err == nil {
			t.Errorf("%s: %q was read", name, text)
		}
	}
}

func TestHealthyAbove(t *testing.T) {
	h := HealthyOf([]float64{10, 11, 9, 10, 12, 10})
	for x, want := range map[float64]bool{10: false, 12: false, 14: false, 15: false, 17: true, 20: true} {
		if got := h.Above(x); got != want {
			t.Errorf("%g beside %+v: above %t, want %t", x, h, got, want)
		}
	}
	// Runs that lie close together by chance do not make noise a finding.
	if same := HealthyOf([]float64{10, 10, 10, 10, 10}); same.Above(12.4) || !same.Above(13) {
		t.Error("five equal values must still grant 25 %")
	}
	if few := HealthyOf([]float64{10, 10, 10, 10}); few.Above(100) {
		t.Error("four healthy runs say nothing")
	}
}
