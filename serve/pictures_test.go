package serve

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"github.com/kubedyno/kubedyno/report/browsertest"
)

// TestScreenshots writes pictures of real runs, light and dark, to the folder
// that KUBEDYNO_SCREENSHOTS names.
func TestScreenshots(t *testing.T) {
	to := os.Getenv("KUBEDYNO_SCREENSHOTS")
	if to == "" {
		t.Skip("writes pictures for people to look at; `make screenshots` runs it")
	}
	dir := filepath.Join(t.TempDir(), "runs")
	names := []string{"claims-never-bound", "controller-limit-beside-quota", "far-etcd", "few-workers", "healthy-5-per-second", "quota-conflicts", "scheduler-limit-15", "slow-removal"}
	for _, name := range names {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(recordtest.Unpack(t, name))); err != nil {
			t.Fatal(err)
		}
	}
	v := start(t, dir)
	ctx := browsertest.New(t)
	total := 0
	browsertest.Open(t, ctx, v.address+"/?token="+token, 1280, false) // for the cookie
	end := halfOf(t, "few-workers", filepath.Join(dir, "few-workers-again"))
	defer end()
	for _, p := range []struct{ name, address, selector, until string }{
		{"progress", "/live?of=few-workers-again", "body", `document.querySelector('.meter').ariaValueNow > 0`},
		{"folder", "/", "body", `document.querySelectorAll('.folder tbody tr').length === 9 && document.querySelectorAll('.wait-for').length === 0`},
		{"story", "/report?of=few-workers", "#story", "true"}, {"findings", "/report?of=few-workers", "#why", "true"}, {"time", "/report?of=few-workers", "#time", "true"},
		{"requests", "/report?of=few-workers", "#requests", "true"}, {"pods", "/report?of=few-workers", "#pods", "true"}, {"resources", "/report?of=few-workers", "#use", "true"},
	} {
		for _, dark := range []bool{false, true} {
			browsertest.Open(t, ctx, v.address+p.address, 1280, dark)
			browsertest.Until(t, ctx, p.name, p.until)
			browsertest.Rest(t, ctx)
			name := p.name
			if dark {
				name += "-dark"
			}
			total += browsertest.Picture(t, ctx, p.selector, filepath.Join(to, name+".png"))
		}
	}
	if total > 1_500_000 {
		t.Errorf("the pictures have %d kB, more than a repository should carry", total/1000)
	}
}

// halfOf writes what a recording held in the middle of its load, as of now. end
// finishes it.
func halfOf(t *testing.T, name, dir string) (end func()) {
	t.Helper()
	rec, err := record.Open(recordtest.Unpack(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	pods, err := rec.Pods()
	if err != nil {
		t.Fatal(err)
	}
	load, ok := rec.Steady()
	if !ok {
		t.Fatalf("%s has no load", name)
	}
	middle := load.Start.Add(load.End.Sub(load.Start) / 2)
	later := time.Since(middle) + time.Second // which a browser takes to look
	m := rec.Meta()
	now := record.Meta{Name: m.Name, Started: m.Started.Add(later), Cluster: m.Cluster, Machine: m.Machine, Workload: m.Workload, Nodes: m.Nodes}
	for _, p := range m.Phases {
		if !p.Start.After(middle) {
			p.Start = p.Start.Add(later)
			if p.End.After(middle) {
				p.End = time.Time{}
			} else {
				p.End = p.End.Add(later)
			}
			now.Phases = append(now.Phases, p)
		}
	}
	w, err := record.Create(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	shift := func(us *int64) {
		if *us > middle.UnixMicro() {
			*us = 0
		}
		if *us != 0 {
			*us += later.Microseconds()
		}
	}
	for _, p := range pods {
		for _, us := range []*int64{&p.DueMicros, &p.SentMicros, &p.AckedMicros, &p.CreatedMicros, &p.BoundMicros, &p.RunningMicros, &p.ReadyMicros, &p.DeletedMicros} {
			shift(us)
		}
		w.Pod(p)
	}
	return func() {
		if err := w.Finish(record.StatusInterrupted, "the picture is taken"); err != nil {
			t.Error(err)
		}
	}
}
