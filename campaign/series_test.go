package campaign

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// Each block has every arm once; over a square each arm has each place once, and
// over one or two squares follows each other arm equally often.
func TestTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arms, seed := rapid.IntRange(1, 9).Draw(t, "arms"), rapid.Uint64().Draw(t, "seed")
		first := rapid.IntRange(0, 3).Draw(t, "squares before") * 2 * arms
		blocks := arms
		if arms%2 == 1 {
			blocks = 2 * arms
		}
		place, follows := map[[2]int]int{}, map[[2]int]int{}
		for b := range blocks {
			order := TurnsOf(arms, first+b, seed)
			if got := slices.Sorted(slices.Values(order)); len(got) != arms || got[0] != 0 || got[arms-1] != arms-1 || len(slices.Compact(got)) != arms {
				t.Fatalf("block %d: %v", b, order)
			}
			if !slices.Equal(order, TurnsOf(arms, first+b, seed)) {
				t.Fatal("another order of the same seed")
			}
			for i, a := range order {
				place[[2]int{a, i}]++
				if i > 0 {
					follows[[2]int{order[i-1], a}]++
				}
			}
		}
		for a := range arms {
			for b := range arms {
				if place[[2]int{a, b}] != blocks/arms {
					t.Fatalf("arm %d is %d times at place %d in %d blocks", a, place[[2]int{a, b}], b, blocks)
				}
				if a != b && follows[[2]int{a, b}] != blocks/arms {
					t.Fatalf("%d comes %d times after %d", b, follows[[2]int{a, b}], a)
				}
			}
		}
	})
}

// Which side begins is left to chance.
func TestTurnsAreRandom(t *testing.T) {
	starts := 0
	const pairs = 2000
	for seed := range uint64(pairs) {
		starts += TurnsOf(2, 0, seed)[0]
	}
	if starts < pairs*45/100 || starts > pairs*55/100 {
		t.Errorf("of %d series %d begin with the second arm", pairs, starts)
	}
}

// lightRuns makes folders in place of runs.
type lightRuns struct {
	now     time.Time
	takes   time.Duration
	result  func(arm string, n int) Outcome // of the n-th attempt of an arm, from 0
	tries   map[string]int
	stopAt  int // interrupts this run of all, from 0
	made    int
	stop    context.CancelFunc
	started []SeriesStep
	ran     []SeriesRun
}

func (l *lightRuns) Starting(s SeriesStep) { l.started = append(l.started, s) }
func (l *lightRuns) Ran(r SeriesRun)       { l.ran = append(l.ran, r) }

func (l *lightRuns) run(ctx context.Context, _ *experiment.Experiment, settings []string, out, _ string) error {
	l.now = l.now.Add(l.takes)
	l.made++
	if l.made-1 == l.stopAt {
		l.stop()
		return context.Cause(ctx)
	}
	arm := settings[0]
	n := l.tries[arm]
	l.tries[arm]++
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	result := l.result(arm, n)
	if result == Failed {
		return errors.New("etcd exited early")
	}
	return os.WriteFile(filepath.Join(out, "result"), []byte(result), 0o644)
}

func (l *lightRuns) judge(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "result"))
	if err != nil {
		return nil, err
	}
	if string(data) == string(Invalid) {
		return []string{"3 of 20 pods never ran"}, nil
	}
	return nil, nil
}

func lightArms(names ...string) []Arm {
	var arms []Arm
	for _, name := range names {
		arms = append(arms, Arm{Name: name, Settings: []string{name}, Experiment: func() (*experiment.Experiment, error) {
			return experiment.Builtin("density", experiment.Params{"nodes": "2"})
		}})
	}
	return arms
}

func (l *lightRuns) options(out string, blocks int, arms ...string) SeriesOptions {
	l.tries, l.stopAt, l.made = map[string]int{}, -1, 0
	if l.result == nil {
		l.result = func(string, int) Outcome { return Counts }
	}
	return SeriesOptions{Kind: "test", Arms: lightArms(arms...), Blocks: blocks, Seed: 7, Out: out, Run: l.run, Judge: l.judge, Tell: l, Now: func() time.Time { return l.now }}
}

// Whatever fails and wherever a series is interrupted, it comes to the same runs
// in the same order as one that nobody interrupts, and all of them are booked.
func TestSeriesComesToItsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "series-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		names := []string{"a", "b", "c=1"}[:rapid.IntRange(1, 3).Draw(t, "arms")]
		blocks, spare := rapid.IntRange(1, 3).Draw(t, "blocks"), rapid.IntRange(1, 2).Draw(t, "spare")
		outcomes := map[string][]Outcome{}
		for _, name := range names {
			outcomes[name] = rapid.SliceOfN(rapid.SampledFrom([]Outcome{Counts, Counts, Counts, Invalid, Failed}), 12, 12).Draw(t, "of "+name)
		}
		result := func(arm string, n int) Outcome { return outcomes[arm][n] }

		whole := &lightRuns{result: result}
		o := whole.options(filepath.Join(dir, "whole"), blocks, names...)
		o.Spare = spare
		want, wantErr := RunSeries(t.Context(), o)

		parts := &lightRuns{result: result}
		o = parts.options(filepath.Join(dir, "parts"), blocks, names...)
		o.Spare = spare
		var got *Series
		var gotErr error
		for {
			var ctx context.Context
			ctx, parts.stop = context.WithCancel(t.Context())
			parts.stopAt = parts.made + rapid.IntRange(0, 8).Draw(t, "interrupted after")
			got, gotErr = RunSeries(ctx, o)
			interrupted := errors.Is(gotErr, context.Canceled)
			parts.stop()
			if !interrupted {
				break
			}
		}
		if fmt.Sprint(gotErr) != strings.ReplaceAll(fmt.Sprint(wantErr), "whole", "parts") || got.Ended != want.Ended || got.GaveUp != want.GaveUp {
			t.Fatalf("%v, %q; uninterrupted %v, %q", gotErr, got.Ended, wantErr, want.Ended)
		}
		told := func(s *Series) (all []string) {
			for _, r := range s.Runs {
				if r.Result != Interrupted {
					all = append(all, fmt.Sprint(r.Block, r.Arm, r.Result))
				}
			}
			return all
		}
		if !slices.Equal(told(got), told(want)) {
			t.Fatalf("%v\nuninterrupted\n%v", told(got), told(want))
		}
		bad := map[string]int{}
		for _, r := range got.Bad() {
			bad[r.Arm]++
			if r.Why == "" || !strings.HasPrefix(r.Out, SetAside) {
				t.Fatalf("%+v", r)
			}
		}
		for _, name := range names {
			dirs := got.Recordings(name)
			if !got.GaveUp && len(dirs) != blocks || bad[name] > spare+1 {
				t.Fatalf("%s: %d of %d runs count, %d are bad", name, len(dirs), blocks, bad[name])
			}
			for _, d := range dirs {
				if _, err := os.Stat(filepath.Join(d, "result")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got.GaveUp != errors.Is(gotErr, ErrManyBad) || got.GaveUp && !slices.ContainsFunc(names, func(name string) bool { return bad[name] > spare }) {
			t.Fatalf("gave up %v: %v, %v bad", got.GaveUp, gotErr, bad)
		}
		// One that has ended runs nothing more.
		made := parts.made
		if again, _ := RunSeries(t.Context(), o); parts.made != made || again.Ended != got.Ended {
			t.Fatalf("after its end %d runs more: %q", parts.made-made, again.Ended)
		}
	})
}

func TestSeriesOfAnotherKind(t *testing.T) {
	l := &lightRuns{}
	dir := filepath.Join(t.TempDir(), "s")
	if _, err := RunSeries(t.Context(), l.options(dir, 2, "a", "b")); err != nil {
		t.Fatal(err)
	}
	for why, change := range map[string]func(o *SeriesOptions){
		"repetitions: 2":               func(o *SeriesOptions) { o.Blocks = 3 },
		"seed: 7":                      func(o *SeriesOptions) { o.Seed = 8 },
		"sides: b, not c":              func(o *SeriesOptions) { o.Arms = lightArms("a", "c") },
		"sides: 2 of them":             func(o *SeriesOptions) { o.Arms = lightArms("a") },
		"runs: they were made by test": func(o *SeriesOptions) { o.Kind = "sweep" },
		"options":                      func(o *SeriesOptions) { o.Plan = map[string]int{"x": 1} },
		"experiments behind the same names;": func(o *SeriesOptions) {
			o.Arms[1].Experiment = func() (*experiment.Experiment, error) { return experiment.Builtin("idle", nil) }
		},
	} {
		o := l.options(dir, 2, "a", "b")
		change(&o)
		if _, err := RunSeries(t.Context(), o); !errors.Is(err, ErrOtherSeries) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
	o := l.options(t.TempDir(), 2, "a", "b")
	if err := os.WriteFile(filepath.Join(o.Out, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := RunSeries(t.Context(), o); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a folder with something in it: %v", err)
	}
	if _, err := RunSeries(t.Context(), l.options(filepath.Join(t.TempDir(), "twice"), 2, "a", "a")); err == nil {
		t.Error("two arms of one name")
	}
}

func TestSeriesEndsEarly(t *testing.T) {
	l := &lightRuns{takes: 10 * time.Second}
	o := l.options(filepath.Join(t.TempDir(), "s"), 10, "a", "b")
	var looks []int
	o.After = func(s *Series) (string, error) {
		looks = append(looks, s.Done())
		if s.Done() == 4 {
			return "b is slower", nil
		}
		return "", nil
	}
	s, err := RunSeries(t.Context(), o)
	if err != nil || s.Ended != "b is slower" || len(s.Recordings("a")) != 4 || len(s.Recordings("b")) != 4 || !slices.Equal(looks, []int{1, 2, 3, 4}) {
		t.Fatalf("%v: %q after %d and %d runs, looked at %v", err, s.Ended, len(s.Recordings("a")), len(s.Recordings("b")), looks)
	}
	if first, second := l.started[0], l.started[5]; first.Left != 0 || second.Run != 6 || second.Block != 3 || second.Left != 15*10*time.Second {
		t.Errorf("%+v, %+v", first, second)
	}
	if again, err := ReadSeries(o.Out); err != nil || again.Ended != s.Ended || again.Done() != 4 {
		t.Errorf("%v: %+v", err, again)
	}
}

func TestSeriesBudget(t *testing.T) {
	l := &lightRuns{takes: 10 * time.Second, result: func(arm string, n int) Outcome {
		if arm == "b" && n == 1 {
			return Invalid
		}
		return Counts
	}}
	o := l.options(filepath.Join(t.TempDir(), "s"), 10, "a", "b")
	o.Budget = 75 * time.Second // 3 blocks, one run of them made again, and no fourth
	s, err := RunSeries(t.Context(), o)
	if err != nil || s.Ended != "the budget of 1m15s is spent after 3 of 10 runs of each" || s.Done() != 3 {
		t.Fatalf("%v: %q, %d blocks", err, s.Ended, s.Done())
	}
	doubts := strings.Join(s.Doubts(), "\n")
	if !strings.Contains(doubts, "b, does not count (invalid): 3 of 20 pods never ran") || !strings.Contains(doubts, "more runs of b do not count (1) than of a (0)") {
		t.Error(doubts)
	}
	o = l.options(filepath.Join(t.TempDir(), "short"), 10, "a", "b")
	o.Budget = time.Second
	if s, err = RunSeries(t.Context(), o); err != nil || s.Done() != 1 {
		t.Errorf("%v: %d blocks; the first is always made", err, s.Done())
	}
}

// What cannot even begin is not tried again and again.
func TestSeriesThatNeverBegins(t *testing.T) {
	l := &lightRuns{}
	o := l.options(filepath.Join(t.TempDir(), "s"), 3, "a", "b")
	tries := 0
	o.Run = func(context.Context, *experiment.Experiment, []string, string, string) error {
		tries++
		return errors.New("kubedyno-lab is not there")
	}
	s, err := RunSeries(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "kubedyno-lab is not there") || tries != 1 {
		t.Fatalf("%d tries: %v", tries, err)
	}
	if bad := s.Bad(); len(bad) != 1 || bad[0].Out != "" {
		t.Errorf("%+v", bad)
	}
}

// A series that was killed finds a run in its book of which it does not know what
// came. Its recording tells.
func TestSeriesWasKilled(t *testing.T) {
	for name, test := range map[string]struct {
		left func(dir string) error
		want Outcome
	}{
		"complete": {func(dir string) error {
			return os.CopyFS(dir, os.DirFS(recordtest.Unpack(t, "healthy-5-per-second")))
		}, Counts},
		"invalid": {func(dir string) error {
			return os.CopyFS(dir, os.DirFS(recordtest.Unpack(t, "starved-generator")))
		}, Invalid},
		"nothing": {func(string) error { return nil }, Interrupted},
		"cut off": {func(dir string) error {
			w, err := record.Create(dir, record.Meta{Name: "x"})
			if err != nil {
				return err
			}
			return w.Finish(record.StatusFailed, "killed")
		}, Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lightRuns{}
			o := l.options(filepath.Join(t.TempDir(), "s"), 1, "a")
			o.Judge = nil
			killed := errors.New("killed")
			o.Tell = nil
			o.Run = func(_ context.Context, _ *experiment.Experiment, _ []string, out, _ string) error {
				if err := test.left(out); err != nil {
					t.Error(err)
				}
				panic(killed)
			}
			func() {
				defer func() {
					if recover() != killed { //nolint:errorlint // the very value
						t.Error("the run was not killed")
					}
				}()
				_, _ = RunSeries(t.Context(), o)
			}()
			o.Run = func(_ context.Context, _ *experiment.Experiment, _ []string, out, _ string) error {
				return os.CopyFS(out, os.DirFS(recordtest.Unpack(t, "healthy-5-per-second")))
			}
			s, err := RunSeries(t.Context(), o)
			if err != nil || len(s.Recordings("a")) != 1 {
				t.Fatalf("%v: %+v", err, s)
			}
			if got := s.Runs[0]; got.Result != test.want || got.Result != Counts && len(s.Runs) != 2 {
				t.Errorf("%+v", s.Runs)
			}
		})
	}
}

// While its process lives, nobody else goes on with a series.
func TestSeriesIsBeingRun(t *testing.T) {
	l := &lightRuns{}
	o := l.options(filepath.Join(t.TempDir(), "s"), 1, "a")
	o.Run = func(ctx context.Context, _ *experiment.Experiment, _ []string, out, _ string) error {
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return err
		}
		w, err := record.Create(out, record.Meta{Name: "x", Started: time.Now()})
		if err != nil {
			return err
		}
		other := o
		other.Run = func(context.Context, *experiment.Experiment, []string, string, string) error {
			t.Error("a second one runs")
			return nil
		}
		if _, err := RunSeries(ctx, other); !errors.As(err, new(*record.LiveError)) {
			t.Errorf("%v", err)
		}
		if err := w.Finish(record.StatusComplete, ""); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(out, "result"), []byte(Counts), 0o644)
	}
	if _, err := RunSeries(t.Context(), o); err != nil {
		t.Error(err)
	}
}

func TestFolderOf(t *testing.T) {
	taken := map[string]bool{SetAside: true}
	for name, want := range map[string]string{
		"etcd.args.snapshot-count=500": "etcd.args.snapshot-count=500", "../x": "x", "": "arm", "not-counted": "not-counted-2", "a/b c": "a-b-c",
	} {
		if got := folderOf(name, taken); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if _, err := ReadSeries(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestSeriesChecksAllBefore holds that a mistake in one arm is told before any
// other is run, and that no folder is left.
func TestSeriesChecksAllBefore(t *testing.T) {
	l := &lightRuns{}
	out := filepath.Join(t.TempDir(), "out")
	o := l.options(out, 3, "right", "wrong")
	refused, asked := errors.New("no such flag"), 0
	o.Check = func(context.Context, *experiment.Experiment) error {
		if asked++; asked == 2 {
			return refused
		}
		return nil
	}
	_, err := RunSeries(t.Context(), o)
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "wrong") {
		t.Errorf("got %v, want the refusal of the second arm by its name", err)
	}
	if l.made != 0 {
		t.Errorf("%d runs were made before the refusal", l.made)
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
	o.Check = nil
	if s, err := RunSeries(t.Context(), o); err != nil || s.Done() != 3 {
		t.Errorf("once it is right: %v", err)
	}
}

// What a later block has already is not run again beside a run that an early one
// lost.
func TestSeriesLeftWhenAnEarlyRunIsMadeAgain(t *testing.T) {
	s := &Series{Blocks: 3, Arms: []SeriesArm{{Name: "a"}, {Name: "b"}}}
	for block := 1; block <= 3; block++ {
		for _, arm := range []string{"a", "b"} {
			if block == 1 && arm == "b" || block == 3 && arm == "a" {
				continue
			}
			s.Runs = append(s.Runs, SeriesRun{Block: block, Arm: arm, Result: Counts, Seconds: 10})
		}
	}
	if left := s.left(0, "b", false); left != 20*time.Second {
		t.Errorf("%v", left)
	}
}
