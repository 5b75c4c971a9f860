package collect

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// fake is a collector that ends as it is told.
type fake struct {
	name string
	err  error
	stop bool // returns at once
	acct record.Observer
	last bool // what it saw of the end
}

func (f *fake) Name() string { return f.name }
func (f *fake) Collect(ctx context.Context, w *record.Writer) error {
	if f.stop {
		return f.err
	}
	<-ctx.Done()
	w.AppendSample("last_words", nil, time.Now(), 1)
	f.last = true
	return f.err
}
func (f *fake) Account() record.Observer { return f.acct }

func writer(t *testing.T) *record.Writer {
	t.Helper()
	w, err := record.Create(filepath.Join(t.TempDir(), "r"), record.Meta{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Finish(record.StatusComplete, "") })
	return w
}

func TestGroup(t *testing.T) {
	w := writer(t)
	ctx, cancel := context.WithCancel(t.Context())
	a := &fake{name: "a", acct: record.Observer{Samples: 3, Note: "fine"}}
	b := &fake{name: "b", stop: true, err: NotSupported("there is no %s here", "b")}
	g := Start(ctx, w, a, b)
	if g.Context().Err() != nil {
		t.Error("a source that does not exist ended the run")
	}
	cancel() // as Ctrl-C does
	if g.Context().Err() == nil {
		t.Error("the work goes on")
	}
	time.Sleep(20 * time.Millisecond)
	if a.last {
		t.Error("the collector did not wait for Stop")
	}
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	if err := g.Stop(); err != nil || !a.last {
		t.Error(err, a.last)
	}
	m := w.Meta()
	var got []string
	for _, o := range m.Collectors {
		if o.Name == "kubedyno" {
			if o.CPUSeconds <= 0 {
				t.Errorf("%+v", o)
			}
			o.Note = ""
		}
		got = append(got, fmt.Sprint(o.Name, " ", o.Samples, " ", o.Note))
	}
	if s := strings.Join(got, "; "); s != "a 3 fine; b 0 not supported: there is no b here; kubedyno 0 " {
		t.Errorf("accounts: %s", s)
	}
	if len(m.Gaps) != 1 || m.Gaps[0].Collector != "b" || m.Gaps[0].Reason != "there is no b here" {
		t.Errorf("gaps: %+v", m.Gaps)
	}
}

func TestGroupFailure(t *testing.T) {
	full := errors.New("no space left on device")
	a := &fake{name: "a"}
	g := Start(t.Context(), writer(t), a, &fake{name: "b", stop: true, err: full})
	<-g.Context().Done()
	if err := context.Cause(g.Context()); !errors.Is(err, full) || err.Error() != "collector b: no space left on device" {
		t.Errorf("cause: %v", err)
	}
	if err := g.Stop(); !errors.Is(err, full) || !a.last {
		t.Errorf("%v", err)
	}
}
