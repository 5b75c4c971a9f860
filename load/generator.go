package load

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"
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
	// Latency from due to answered, by verb.
	Latency map[string]Latency `json:"latency,omitempty"`
	// Clients is how many there were in a closed loop; 0: the loop was open.
	Clients int `json:"clients,omitempty"`
}

// Latency describes the operations of one verb, nearest rank. What was missed
// or got no answer ranks above all answers.
type Latency struct {
	N          int           `json:"n"`
	P50        time.Duration `json:"p50"`
	P99        time.Duration `json:"p99"` // 0 where there are too few for it
	Max        time.Duration `json:"max"` // of those that were answered
	Unanswered int           `json:"unanswered,omitempty"`
}

// Never is the latency of an operation that had no answer.
const Never time.Duration = math.MaxInt64

// enoughForP99 is how many samples a 99th percentile takes.
const enoughForP99 = 100

// HidesStalls says of a closed loop what its numbers cannot show; it is empty
// of an open one.
func (s Summary) HidesStalls() string {
	if s.Clients == 0 {
		return ""
	}
	return fmt.Sprintf("phase %s: a closed loop of %d clients: each sends only when it has its answer, so while the cluster stalls nothing is sent, "+
		"and what would have waited is not measured (coordinated omission): at most %d operations show a stall; do not compare its latencies and rates with those of an open loop",
		s.Phase, s.Clients, s.Clients)
}

// LatencyText is the latencies in words, a verb a part; empty where there are none.
func (s Summary) LatencyText() string {
	var parts []string
	for _, verb := range slices.Sorted(maps.Keys(s.Latency)) {
		l := s.Latency[verb]
		text := fmt.Sprintf("%s p50 %s", verb, tookText(l.P50))
		if l.P99 > 0 {
			text += ", p99 " + tookText(l.P99)
		}
		if l.Unanswered < l.N {
			text += ", slowest " + tookText(l.Max)
		}
		if l.Unanswered > 0 {
			text += fmt.Sprintf(", %d without an answer", l.Unanswered)
		}
		parts = append(parts, fmt.Sprintf("%s (n=%d)", text, l.N))
	}
	return strings.Join(parts, "; ")
}

func tookText(d time.Duration) string {
	switch {
	case d == Never:
		return "no answer"
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return fmt.Sprintf("%.3g ms", float64(d)/1e6)
}

// Progress is how far a phase is.
type Progress struct {
	Phase   string `json:"phase"`
	Planned int    `json:"planned"`
	Sent    int    `json:"sent"`
	Done    int    `json:"done"` // answered, well or not
	Failed  int    `json:"failed"`
	Missed  int    `json:"missed"`
}

// generator executes phases and remembers what they made.
type generator struct {
	cfg    Config
	client *client
	store
}

// seed is where a phase's random choices start.
func (g *generator) seed(phase string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(phase))
	return h.Sum64() ^ uint64(g.cfg.Seed)
}

// counters are a phase's Progress while it runs.
type counters struct{ planned, sent, done, failed, missed atomic.Int64 }

func (c *counters) progress(phase string) Progress {
	return Progress{Phase: phase, Planned: int(c.planned.Load()), Sent: int(c.sent.Load()), Done: int(c.done.Load()),
		Failed: int(c.failed.Load()), Missed: int(c.missed.Load())}
}

// run executes the phase's action and returns when every operation has been
// answered or given up. It calls emit for each, from many goroutines.
func (g *generator) run(ctx context.Context, p experiment.Phase, count *counters, emit func(record.Operation)) (Summary, error) {
	w, err := g.work(ctx, p)
	if err != nil {
		return Summary{Phase: p.Name}, err
	}
	count.planned.Store(int64(w.n))
	tally := tally{Summary: Summary{Phase: p.Name, Planned: w.n, Clients: w.pacing.Clients, Start: g.client.now()}}
	row := func(o operation, due time.Time) record.Operation {
		return record.Operation{
			Phase: w.phase, Verb: o.verb, Resource: o.resource, Namespace: o.namespace,
			Name: o.name, Pods: o.pods, DueMicros: due.UnixMicro(),
		}
	}
	missed := func(i int, due time.Time) {
		op := row(w.operation(i), due)
		op.Error = fmt.Sprintf("missed: not sent within %v", w.pacing.SendWithin)
		if ctx.Err() != nil {
			op.Error = "missed: the phase ended early"
		}
		count.missed.Add(1)
		tally.miss(op)
		emit(op)
	}
	send := func(ctx context.Context, i int, due time.Time) {
		o := w.operation(i)
		op := row(o, due)
		count.sent.Add(1)
		a := o.send(ctx)
		op.SentMicros, op.DoneMicros, op.Code = a.sent.UnixMicro(), a.done.UnixMicro(), int32(a.code)
		if a.err != nil {
			op.Error = a.err.Error()
			count.failed.Add(1)
		}
		count.done.Add(1)
		tally.answered(op, i, due, a)
		emit(op)
	}
	if w.pacing.Clients > 0 {
		err = pace.Closed(ctx, w.n, pace.Clients{N: w.pacing.Clients, Think: w.pacing.Think, For: w.d}, send)
	} else {
		err = pace.Open(ctx, w.timetable, w.n, pace.Options{
			Start: tally.Start, InFlight: w.pacing.InFlight, SendWithin: w.pacing.SendWithin, Missed: missed,
		}, send)
	}
	s, done := tally.finish()
	w.succeeded(done)
	return s, err
}

// tally collects what a Summary says.
type tally struct {
	mu sync.Mutex
	Summary
	late       []time.Duration
	latency    map[string][]time.Duration // by verb
	ok         []int                      // operations that succeeded
	firstError int64                      // due time, in microseconds
}

func (t *tally) miss(op record.Operation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Missed++
	t.took(op.Verb, Never)
	t.count(op)
}

// took notes a latency, counted from when the operation was due.
func (t *tally) took(verb string, d time.Duration) {
	if t.latency == nil {
		t.latency = map[string][]time.Duration{}
	}
	t.latency[verb] = append(t.latency[verb], d)
}

func (t *tally) answered(op record.Operation, i int, due time.Time, a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Sent++
	t.late = append(t.late, max(a.sent.Sub(due), 0))
	if a.done.After(t.End) {
		t.End = a.done
	}
	if a.code == 0 {
		t.took(op.Verb, Never) // nobody answered
	} else {
		t.took(op.Verb, a.done.Sub(due))
	}
	if op.Error == "" {
		t.Pods += int(op.Pods)
		t.ok = append(t.ok, i)
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

// finish returns the summary and the operations that succeeded, ascending.
func (t *tally) finish() (Summary, []int) {
	slices.Sort(t.late)
	slices.Sort(t.ok)
	t.LateP50, t.LateP99, t.LateMax = nearestRank(t.late, 0.5), nearestRank(t.late, 0.99), nearestRank(t.late, 1)
	for verb, took := range t.latency {
		slices.Sort(took)
		l := Latency{N: len(took), P50: nearestRank(took, 0.5)}
		answers, _ := slices.BinarySearch(took, Never)
		if l.Unanswered = l.N - answers; answers > 0 {
			l.Max = took[answers-1]
		}
		if l.N >= enoughForP99 {
			l.P99 = nearestRank(took, 0.99)
		}
		if t.Latency == nil {
			t.Latency = map[string]Latency{}
		}
		t.Latency[verb] = l
	}
	if t.Planned == 0 { // closed clients that went on for a time
		t.Planned = t.Sent
	}
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
