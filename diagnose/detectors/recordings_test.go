package detectors_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/record"
)

// Recordings of real runs keep their diagnosis. Each lies in a folder of
// testdata/recordings with the expected outcome beside it, NAME.want.
func TestRecordings(t *testing.T) {
	root := filepath.Join("..", "..", "testdata", "recordings")
	wants, err := filepath.Glob(filepath.Join(root, "*", "recording.json"))
	if err != nil || len(wants) < 4 {
		t.Fatalf("%d recordings found in %s (%v)", len(wants), root, err)
	}
	update := flag.Lookup("update").Value.String() == "true"
	for _, meta := range wants {
		dir := filepath.Dir(meta)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			if size := folderBytes(t, dir); size > 400<<10 {
				t.Errorf("%d KiB: a recording that is kept must stay below 400", size>>10)
			}
			rec, err := record.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer rec.Close()
			d, err := diagnose.Run(asked{rec, t}, detectors.All)
			if err != nil {
				t.Fatal(err)
			}
			got := outcome(d)
			file := dir + ".want"
			if update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func folderBytes(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// outcome is what must not change: the verdict and what it names, not the
// wording.
func outcome(d *diagnose.Diagnosis) string {
	var b strings.Builder
	fmt.Fprintf(&b, "valid %v\n", d.Valid)
	for _, why := range d.InvalidReasons {
		fmt.Fprintf(&b, "invalid: %s\n", why)
	}
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "found %s: %s, %s, stage %s, %s, %s, explains %.2f\n", f.ID, f.Class, f.Component, f.Stage, f.Resource, f.Grade, f.Explains)
	}
	for _, c := range d.RuledOut {
		fmt.Fprintf(&b, "clear %s\n", c.ID)
	}
	for _, u := range d.NotAssessed {
		fmt.Fprintf(&b, "not assessed %s: %s\n", u.ID, u.Missing)
	}
	if d.Throughput != nil {
		fmt.Fprintf(&b, "throughput %.1f pods/s\n", d.Throughput.Mean)
	}
	for _, s := range d.Stages {
		if s.WaitSeconds != nil {
			fmt.Fprintf(&b, "stage %s %.1f pod-seconds\n", s.Name, *s.WaitSeconds)
		}
	}
	return b.String()
}

// asked checks that a diagnosis reads no metric that kept recordings lack.
type asked struct {
	*record.Recording
	t *testing.T
}

func (a asked) listed(metric string) {
	if !slices.Contains(diagnose.Metrics, metric) {
		a.t.Errorf("a diagnosis reads %s, which is not in diagnose.Metrics", metric)
	}
}

func (a asked) Points(metric string, match map[string]string, w record.Window) ([]record.Series, error) {
	a.listed(metric)
	return a.Recording.Points(metric, match, w)
}

func (a asked) Increase(metric string, match map[string]string, w record.Window) (float64, bool, error) {
	a.listed(metric)
	return a.Recording.Increase(metric, match, w)
}
