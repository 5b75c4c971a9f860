package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/load/pace"
	"github.com/kubedyno/kubedyno/record"
)

// Summary tells what became of the operations of a phase.
type Summary struct {
	Phase   string        `json:"phase"`
	Planned int           `json:"planned"` // operations that the phase owed
	Sent    int           `json:"sent"`
	Failed  int           `json:"failed"`  // sent, and answered by an error or not at all
	Missed  int           `json:"missed"`  // never sent: too late, or the phase ended early
	Pods    int           `json:"pods"`    // asked for by the operations that succeeded
	LateP50 time.Duration `json:"lateP50"` // sent after due, nearest rank, of all sent
	LateP99 time.Duration `json:"lateP99"`
	LateMax time.Duration `json:"lateMax"`
	Start   time.Time     `json:"start"` // the first operation was due
	End     time.Time     `json:"end"`   // the last answer was read
	// Errors counts operations by what went wrong, and FirstError is the
	// earliest, with the object's name.
	Errors     map[string]int `json:"errors,omitempty"`
	FirstError string         `json:"firstError,omitempty"`
}

// Progress is how far the phase is that runs now.
type Progress struct {
	Phase   string `json:"phase"`
	Planned int    `json:"planned"`
	Sent    int    `json:"sent"`
	Done    int    `json:"done"` // answered, well or not
	Failed  int    `json:"failed"`
	Missed  int    `json:"missed"`
}

// generator executes phases one after another and remembers what it made.
type generator struct {
	cfg    Config
	client *client
	made   map[string]*made // by phase
}

// made is what a create phase left on the cluster.
type made struct {
	plan  *plan
	alive []int // indices of objects, ascending
}

// work is a phase's operations.
type work struct {
	phase      string
	verb       string
	n          int
	rate       experiment.Rate
	sendWithin time.Duration
	plan       *plan
	index      func(i int) int // of the object that operation i is about
	pods       int32           // that one operation asks for
	send       func(ctx context.Context, object int, name string) (answer, error)
	succeeded  func(objects []int) // called once, at the end, ascending
}

// work compiles the phase's action.
func (g *generator) work(p experiment.Phase) (*work, error) {
	switch {
	case p.Create != nil:
		return g.create(p)
	case p.Scale != nil:
		return g.scale(p)
	case p.Delete != nil:
		return g.delete(p)
	}
	return nil, fmt.Errorf("phase %q has no load: its action is %q", p.Name, p.Action())
}

func (g *generator) create(p experiment.Phase) (*work, error) {
	pl, err := compile(g.cfg, p.Name, p.Create)
	if err != nil {
		return nil, fmt.Errorf("phase %q: %w", p.Name, err)
	}
	return &work{
		phase: p.Name, verb: "create", n: p.Create.Count, rate: p.Create.Rate, sendWithin: p.Create.SendWithin,
		plan: pl, index: func(i int) int { return i }, pods: pl.pods,
		send: func(ctx context.Context, object int, name string) (answer, error) {
			body, err := pl.body(object)
			if err != nil {
				return answer{}, fmt.Errorf("encode %s: %w", name, err)
			}
			return g.client.do(ctx, http.MethodPost, pl.path, contentProtobuf, body, name), nil
		},
		succeeded: func(objects []int) { g.made[p.Name] = &made{plan: pl, alive: objects} },
	}, nil
}

func (g *generator) target(phase string) (*made, error) {
	m := g.made[phase]
	if m == nil {
		return nil, fmt.Errorf("phase %q has created nothing", phase)
	}
	return m, nil
}

func (g *generator) scale(p experiment.Phase) (*work, error) {
	m, err := g.target(p.Scale.Phase)
	if err != nil {
		return nil, err
	}
	if m.plan.kind != experiment.Deployment {
		return nil, fmt.Errorf("phase %q created no Deployments to scale", p.Scale.Phase)
	}
	// A patch of the scale subresource is JSON in every version of the API.
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": p.Scale.Replicas}})
	if err != nil {
		return nil, fmt.Errorf("phase %q: %w", p.Name, err)
	}
	return &work{
		phase: p.Name, verb: "scale", n: len(m.alive), rate: p.Scale.Rate, sendWithin: p.Scale.SendWithin,
		plan: m.plan, index: func(i int) int { return m.alive[i] }, pods: int32(p.Scale.Replicas),
		send: func(ctx context.Context, _ int, name string) (answer, error) {
			return g.client.do(ctx, http.MethodPatch, m.plan.path+"/"+name+"/scale", contentMergePatch, body, name), nil
		},
		succeeded: func([]int) {},
	}, nil
}

func (g *generator) delete(p experiment.Phase) (*work, error) {
	m, err := g.target(p.Delete.Phase)
	if err != nil {
		return nil, err
	}
	return &work{
		phase: p.Name, verb: "delete", n: len(m.alive), rate: p.Delete.Rate, sendWithin: p.Delete.SendWithin,
		plan: m.plan, index: func(i int) int { return m.alive[i] },
		send: func(ctx context.Context, _ int, name string) (answer, error) {
			// No body: an apps/v1 Deployment's pods go in the background, and
			// a pod has its grace, as with kubectl delete.
			return g.client.do(ctx, http.MethodDelete, m.plan.path+"/"+name, "", nil, name), nil
		},
		succeeded: func(objects []int) {
			m.alive = slices.DeleteFunc(m.alive, func(i int) bool {
				_, gone := slices.BinarySearch(objects, i)
				return gone
			})
		},
	}, nil
}

// counters are a phase's Progress while it runs.
type counters struct{ planned, sent, done, failed, missed atomic.Int64 }

func (c *counters) progress(phase string) Progress {
	return Progress{Phase: phase, Planned: int(c.planned.Load()), Sent: int(c.sent.Load()), Done: int(c.done.Load()),
		Failed: int(c.failed.Load()), Missed: int(c.missed.Load())}
}

func timetable(r experiment.Rate) pace.Timetable {
	switch {
	case r.Burst || r == experiment.Rate{}: // a single operation needs no rate
		return pace.Burst{}
	case r.Over > 0:
		return pace.Ramp{From: r.From, To: r.PerSecond, Over: r.Over}
	}
	return pace.Constant(r.PerSecond)
}

// run executes the phase's action and returns when every operation has been
// answered or given up. It calls emit for each, from many goroutines.
func (g *generator) run(ctx context.Context, p experiment.Phase, count *counters, emit func(record.Operation)) (Summary, error) {
	w, err := g.work(p)
	if err != nil {
		return Summary{Phase: p.Name}, err
	}
	count.planned.Store(int64(w.n))
	tally := tally{Summary: Summary{Phase: p.Name, Planned: w.n, Start: g.client.now()}}
	operation := func(i int, due time.Time) record.Operation {
		return record.Operation{
			Phase: w.phase, Verb: w.verb, Resource: w.plan.resource, Namespace: g.cfg.Namespace,
			Name: w.plan.name(w.index(i)), Pods: w.pods, DueMicros: due.UnixMicro(),
		}
	}
	err = pace.Open(ctx, timetable(w.rate), w.n, pace.Options{
		Start:      tally.Start,
		SendWithin: w.sendWithin,
		Missed: func(i int, due time.Time) {
			op := operation(i, due)
			op.Error = fmt.Sprintf("missed: not sent within %v", w.sendWithin)
			if ctx.Err() != nil {
				op.Error = "missed: the phase ended early"
			}
			count.missed.Add(1)
			tally.miss(op)
			emit(op)
		},
	}, func(ctx context.Context, i int, due time.Time) {
		op := operation(i, due)
		object := w.index(i)
		count.sent.Add(1)
		a, err := w.send(ctx, object, op.Name)
		if err != nil {
			now := g.client.now()
			a = answer{sent: now, done: now, err: err}
		}
		op.SentMicros, op.DoneMicros, op.Code = a.sent.UnixMicro(), a.done.UnixMicro(), int32(a.code)
		if a.err != nil {
			op.Error = a.err.Error()
			count.failed.Add(1)
		}
		count.done.Add(1)
		tally.answered(op, object, a.sent.Sub(due), a.done)
		emit(op)
	})
	s, ok := tally.finish()
	if w.verb == "delete" {
		s.Pods = 0
	}
	w.succeeded(ok)
	return s, err
}

// tally collects what a Summary says.
type tally struct {
	mu sync.Mutex
	Summary
	late       []time.Duration
	ok         []int
	firstError int64 // due time, in microseconds
}

func (t *tally) miss(op record.Operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Missed++
	t.count(op)
}

func (t *tally) answered(op record.Operation, object int, late time.Duration, done time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Sent++
	t.late = append(t.late, max(late, 0))
	if done.After(t.End) {
		t.End = done
	}
	if op.Error == "" {
		t.Pods += int(op.Pods)
		t.ok = append(t.ok, object)
		return
	}
	t.Failed++
	t.count(op)
}

func (t *tally) count(op record.Operation) {
	if t.Errors == nil {
		t.Errors = map[string]int{}
	}
	t.Errors[op.Error]++
	if t.FirstError == "" || op.DueMicros < t.firstError {
		t.firstError = op.DueMicros
		t.FirstError = fmt.Sprintf("%s %s %s/%s: %s", op.Verb, op.Resource, op.Namespace, op.Name, op.Error)
	}
}

// finish returns the summary and the objects that succeeded, ascending.
func (t *tally) finish() (Summary, []int) {
	slices.Sort(t.late)
	slices.Sort(t.ok)
	t.LateP50, t.LateP99, t.LateMax = nearestRank(t.late, 0.5), nearestRank(t.late, 0.99), nearestRank(t.late, 1)
	if t.End.IsZero() {
		t.End = t.Start
	}
	return t.Summary, t.ok
}

func nearestRank(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}
