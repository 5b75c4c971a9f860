package campaign

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// heard notes what a proof tells.
type heard struct{ lines []string }

func (h *heard) Finding(_ int, f diagnose.Finding, _ compare.Measured) {
	h.lines = append(h.lines, "finding "+f.ID)
}
func (h *heard) Trying(_ int, dose bool, t compare.Trial) {
	h.lines = append(h.lines, map[bool]string{true: "dose ", false: "change "}[dose]+strings.Join(t.Set, " "))
}
func (h *heard) Tried(int, bool, compare.Trial) {}
func (h *heard) Judged(_ int, r compare.Round) {
	h.lines = append(h.lines, map[bool]string{true: "proven", false: "not proven"}[r.Proven])
}

// play answers the runs of a proof, one after another, with recordings.
func play(t *testing.T, names ...string) func(context.Context, *experiment.Experiment, []string, string, string) error {
	return func(_ context.Context, e *experiment.Experiment, settings []string, out, parent string) error {
		t.Helper()
		if parent == "" {
			t.Error("a run does not know whose finding it tries")
		}
		// What is run must carry the change, in the experiment and in words.
		changed := false
		for _, s := range settings {
			changed = changed || strings.Contains(s, "kube-api-qps")
		}
		if qps := e.Cluster.Components["kube-scheduler"].Args["kube-api-qps"]; !changed || qps == nil {
			t.Errorf("the run has no change: %v", settings)
		}
		if len(names) == 0 {
			return errors.New("no more runs")
		}
		from := recordtest.Unpack(t, names[0])
		names = names[1:]
		return os.CopyFS(out, os.DirFS(from))
	}
}

func TestProveNotProven(t *testing.T) {
	out := filepath.Join(t.TempDir(), "proof")
	h := &heard{}
	// Whatever is changed, the same comes out.
	p, err := Prove(context.Background(), ProveOptions{
		Recording: recordtest.Unpack(t, "scheduler-limit-15"), Out: out, Rounds: 3, Tell: h,
		Run: play(t, "scheduler-limit-15", "scheduler-limit-15"),
	})
	if !errors.Is(err, ErrNotProven) {
		t.Fatalf("%v", err)
	}
	if len(p.Rounds) != 1 || p.Rounds[0].Proven || p.Proved {
		t.Errorf("%+v", p)
	}
	if v := p.Rounds[0].Verdict; !strings.Contains(v, "the dose does not answer") || !strings.Contains(v, "still there") {
		t.Error(v)
	}
	if got := strings.Join(h.lines, "\n"); !strings.HasPrefix(got, "finding scheduler-client-limit\ndose ") || !strings.HasSuffix(got, "not proven") {
		t.Error(got)
	}
	if q, err := compare.ReadProof(out); err != nil || len(q.Rounds) != 1 {
		t.Errorf("the proof was not kept: %v", err)
	}
}

func TestProveRunFails(t *testing.T) {
	out := filepath.Join(t.TempDir(), "proof")
	_, err := Prove(context.Background(), ProveOptions{
		Recording: recordtest.Unpack(t, "scheduler-limit-15"), Out: out, Rounds: 3, Tell: &heard{},
		Run: play(t),
	})
	if err == nil || !strings.Contains(err.Error(), "run round-1-dose: no more runs") {
		t.Errorf("%v", err)
	}
}

func TestProveNothing(t *testing.T) {
	for name, ended := range map[string]string{
		"healthy-5-per-second": "nothing holds this run back",
		"machine-at-capacity":  "The machine is at capacity",
	} {
		out := filepath.Join(t.TempDir(), "proof")
		p, err := Prove(context.Background(), ProveOptions{
			Recording: recordtest.Unpack(t, name), Out: out, Rounds: 3, Tell: &heard{}, Run: play(t),
		})
		if !errors.Is(err, ErrNothingToProve) || !strings.Contains(p.Ended, ended) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Pods come at the very rate of a limit, and the machine is full as well: which
// of both it is, is tried.
func TestProveBehindCapacity(t *testing.T) {
	const name = "limit-on-a-full-machine"
	out := filepath.Join(t.TempDir(), "proof")
	h := &heard{}
	pods := 0
	again := play(t, name, name)
	p, err := Prove(context.Background(), ProveOptions{
		Recording: recordtest.Unpack(t, name), Out: out, Rounds: 3, Tell: h,
		Run: func(ctx context.Context, e *experiment.Experiment, settings []string, out, parent string) error {
			if pods == 0 { // the dose comes first
				pods = e.ExpectedPods()
			}
			return again(ctx, e, settings, out, parent)
		},
	})
	if !errors.Is(err, ErrNothingToProve) || p.Proved || len(p.Rounds) != 1 {
		t.Fatalf("%v: %+v", err, p)
	}
	r := p.Rounds[0]
	if r.Finding.ID != "scheduler-client-limit" || !strings.HasPrefix(r.Behind, "The machine is at capacity") || r.Proven {
		t.Errorf("%+v", r)
	}
	if !strings.HasPrefix(p.Ended, "The machine is at capacity") || !strings.Contains(p.Ended, "Round 1, behind that, did not change it") {
		t.Error(p.Ended)
	}
	if r.Dose.Pods != 0 || pods != 600 {
		t.Errorf("the dose asked for %d pods, says %d: 600 at the dose's rate take less than %d s", pods, r.Dose.Pods, doseSeconds)
	}
}

// A dose is over when its rate is known.
func TestDoseIsShort(t *testing.T) {
	var asked []int
	again := play(t, "scheduler-limit-15", "scheduler-limit-15")
	p, err := Prove(context.Background(), ProveOptions{
		Recording: recordtest.Unpack(t, "scheduler-limit-15"), Out: filepath.Join(t.TempDir(), "proof"), Rounds: 1, DoseSeconds: 11, Tell: &heard{},
		Run: func(ctx context.Context, e *experiment.Experiment, settings []string, out, parent string) error {
			asked = append(asked, e.ExpectedPods())
			return again(ctx, e, settings, out, parent)
		},
	})
	if !errors.Is(err, ErrNotProven) || len(asked) != 2 {
		t.Fatalf("%v: %v", err, asked)
	}
	dose := p.Rounds[0].Dose
	want := max(dosePods, int(dose.PredictedRate*11))
	if asked[0] != dose.Pods || asked[0] < want || asked[0] > want+1 || asked[1] <= asked[0] || p.Rounds[0].Lift.Pods != 0 {
		t.Errorf("%v pods, of the dose %d, want %d", asked, dose.Pods, want)
	}
}

func TestProveInvalid(t *testing.T) {
	_, err := Prove(context.Background(), ProveOptions{
		Recording: recordtest.Unpack(t, "starved-generator"), Out: filepath.Join(t.TempDir(), "proof"), Rounds: 3, Tell: &heard{}, Run: play(t),
	})
	if !errors.Is(err, diagnose.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestMergeSettings(t *testing.T) {
	got := strings.Join(merge([]string{"a.cpu=1", "b.args.x=2"}, []string{"b.args.x=3", "c.cpu=4"}), " ")
	if want := "a.cpu=1 b.args.x=3 c.cpu=4"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
