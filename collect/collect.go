// Package collect runs the collectors of one run: the contract that each source
// implements, in a folder of its own below, and the group that starts and ends
// them together.
//
// Collectors read and record; they decide nothing. What a source costs, here
// and inside the observed component, stands in docs/collectors.md.
//
// Start with Collector, then Start.
package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// ErrNotSupported says that a source does not exist here, or may not be read.
// The text around it is the gap's reason, so it names the way out.
var ErrNotSupported = errors.New("not supported here")

// A Collector watches one source while a run is in progress.
//
// Collect blocks until ctx ends, writes what it still holds, and returns nil.
// An error wrapping ErrNotSupported means the source does not exist here: the
// recording notes the gap and the run goes on. Any other error ends the run.
// The caller closes w.
type Collector interface {
	Name() string
	Collect(ctx context.Context, w *record.Writer) error
}

// An Accountant is a Collector that says what it took: the group asks once,
// after Collect has returned.
type Accountant interface {
	Account() record.Observer
}

// Own is the name of the account of this process as a whole.
const Own = "kubedyno"

// NotSupported is the error of a collector whose source is not there.
func NotSupported(format string, args ...any) error {
	return &notSupported{fmt.Sprintf(format, args...)}
}

// notSupported keeps the reason apart from the sentinel, so that a gap reads
// as its reason alone.
type notSupported struct{ reason string }

func (e *notSupported) Error() string { return e.reason }
func (e *notSupported) Unwrap() error { return ErrNotSupported }

// A Group is a set of running collectors.
type Group struct {
	w       *record.Writer
	ctx     context.Context // for the caller's work: ends when a collector fails
	fail    context.CancelCauseFunc
	stop    context.CancelFunc
	started time.Time
	cpu     float64
	running sync.WaitGroup
	once    sync.Once
	err     error // of Stop

	mu    sync.Mutex
	errs  []error
	accts []record.Observer // in the order of Start
}

// Start runs each collector in a goroutine of its own.
//
// The end of ctx ends Context, and so the load, but not the collectors: they
// live until Stop, so that a run that was interrupted still gets its last
// scrape while the components are alive. The caller must call Stop.
func Start(ctx context.Context, w *record.Writer, collectors ...Collector) *Group {
	work, fail := context.WithCancelCause(ctx)
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	g := &Group{
		w: w, ctx: work, fail: fail, stop: stop,
		started: time.Now(), cpu: ownCPU(),
		accts: make([]record.Observer, len(collectors)),
	}
	for i, c := range collectors {
		g.accts[i].Name = c.Name()
		g.running.Go(func() { g.run(life, i, c) })
	}
	return g
}

func (g *Group) run(ctx context.Context, i int, c Collector) {
	began := time.Now()
	err := c.Collect(ctx, g.w)
	acct := record.Observer{Name: c.Name()}
	if a, ok := c.(Accountant); ok {
		acct = a.Account()
		acct.Name = c.Name()
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrNotSupported):
		gap := record.Gap{Collector: c.Name(), Reason: err.Error()}
		if acct.Samples > 0 { // it worked before: only the rest is missing
			gap.Start, gap.End = began, time.Now()
		}
		g.w.Gap(gap)
		if acct.Note == "" {
			acct.Note = "not supported: " + err.Error()
		}
	default:
		err = fmt.Errorf("collector %s: %w", c.Name(), err)
		acct.Note = "failed: " + err.Error()
		g.fail(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.accts[i] = acct
	if err != nil && !errors.Is(err, ErrNotSupported) {
		g.errs = append(g.errs, err)
	}
}

// Context is for the work that the collectors watch. It ends with the context
// given to Start and when a collector fails; context.Cause then says which.
func (g *Group) Context() context.Context { return g.ctx }

// Stop ends all collectors at once, waits for them, and notes their accounts
// in the recording. It returns the errors that ended collectors early. Calls
// after the first wait and return the same.
func (g *Group) Stop() error {
	g.once.Do(func() {
		g.stop()
		g.running.Wait()
		g.fail(nil)
		own := record.Observer{
			Name: Own, CPUSeconds: ownCPU() - g.cpu,
			Note: fmt.Sprintf("this process as a whole, all collectors and the writer included, over %.1f s", time.Since(g.started).Seconds()),
		}
		errs := g.errs
		err := g.w.Update(func(m *record.Meta) {
			// A run may have several groups: the one that lasted longest spans
			// the others, and CPU must not count twice.
			m.Collectors = slices.DeleteFunc(m.Collectors, func(o record.Observer) bool {
				if o.Name != Own {
					return false
				}
				if o.CPUSeconds > own.CPUSeconds {
					own = o
				}
				return true
			})
			m.Collectors = append(append(m.Collectors, g.accts...), own)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("note the collectors' accounts: %w", err))
		}
		g.err = errors.Join(errs...)
	})
	return g.err
}

// ownCPU is the CPU that this process has used, in seconds.
func ownCPU() float64 {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}
