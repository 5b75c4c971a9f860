package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"github.com/kubedyno/kubedyno/report/browsertest"
)

// recorded writes a scenario to disk and opens it.
func recorded(t *testing.T, i int, more ...func(*record.Writer, rows)) *record.Recording {
	t.Helper()
	in := synthRows(i)
	return recordtest.Make(t, in.meta, func(w *record.Writer) {
		for _, p := range in.pods {
			w.Pod(p)
		}
		for _, p := range in.processes {
			w.Process(p)
		}
		for _, m := range in.machine {
			w.Machine(m)
		}
		for _, write := range more {
			write(w, in)
		}
		for _, p := range in.profiles {
			var b bytes.Buffer
			if err := p.data.Write(&b); err != nil {
				t.Fatal(err)
			}
			if err := w.Profile(p.ref, b.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// requestsAndStacks are what not every recording has.
func requestsAndStacks(w *record.Writer, in rows) {
	for _, r := range synthRequests(in) {
		w.Request(r)
	}
	for id, frames := range in.stacks {
		w.Stack(record.Stack{ID: id, Frames: frames})
	}
	for _, s := range in.samples {
		w.StackSample(s)
	}
}

// TestRender goes the whole way: files on disk, to a page in a browser.
func TestRender(t *testing.T) {
	var inputs []Input
	for i := range scenarios {
		r := recorded(t, i, requestsAndStacks)
		d, err := diagnose.Run(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, Input{Recording: r, Diagnosis: d})
	}
	p, err := NewPage(inputs, RenderOptions{Tool: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range p.Rounds {
		if len(r.Functions) != len(synthFuncs) || len(r.CPU.Series) != 8 || r.Latencies[0].N != synthPods {
			t.Errorf("round %d: %d profiles, %d CPU series, %d pods", i, len(r.Functions), len(r.CPU.Series), r.Latencies[0].N)
		}
	}
	file := write(t, p)
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	browsertest.Open(t, ctx, file, 1400, false)
	w.Check(t, file)
	if charts := browsertest.Eval[int](t, ctx, inked); charts != 1+3*7 {
		t.Errorf("%d charts have something drawn, want %d", charts, 1+3*7)
	}
}

func TestComparisonText(t *testing.T) {
	c, err := compare.Recordings([]*record.Recording{recorded(t, 0)}, []*record.Recording{recorded(t, 1)}, compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteComparison(&b, Options{}, c); err != nil {
		t.Fatal(err)
	}
	golden(t, "comparison.txt", b.String())
	for _, l := range strings.Split(b.String(), "\n") {
		if n := columns(l); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	var repeated []*record.Recording
	for range 6 {
		repeated = append(repeated, recorded(t, 2))
	}
	if c, err = compare.Recordings(repeated, repeated, compare.Options{}); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := WriteComparison(&b, Options{}, c); err != nil {
		t.Fatal(err)
	}
	golden(t, "comparison-repeated.txt", b.String())
}
