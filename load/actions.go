package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/load/pace"
)

// work is a phase's operations, compiled.
type work struct {
	phase     string
	n         int // 0: closed clients go on for d
	d         time.Duration
	pacing    experiment.Pacing
	timetable pace.Timetable // of an open loop
	operation func(i int) operation
	// succeeded is called once, at the end, with the numbers of the operations
	// that succeeded, ascending.
	succeeded func(operations []int)
}

// operation is one thing to do.
type operation struct {
	verb, resource, namespace, name string
	pods                            int32 // that it asks for
	send                            func(context.Context) answer
}

// work compiles the phase's action.
func (g *generator) work(ctx context.Context, p experiment.Phase) (*work, error) {
	w := &work{phase: p.Name, succeeded: func([]int) {}}
	var err error
	switch {
	case p.Create != nil:
		w.pacing = p.Create.Pacing
		err = g.create(ctx, w, p.Create.Objects)
	case p.Apply != nil:
		w.pacing = p.Apply.Pacing
		err = g.apply(ctx, w, p.Apply)
	case p.Scale != nil:
		w.pacing = p.Scale.Pacing
		err = g.scale(w, p.Scale)
	case p.Patch != nil:
		w.pacing = p.Patch.Pacing
		err = g.patch(w, p.Patch)
	case p.Update != nil:
		w.pacing = p.Update.Pacing
		err = g.update(w, p.Update)
	case p.Churn != nil:
		w.pacing = p.Churn.Pacing
		err = g.churn(w, p.Churn)
	case p.Read != nil:
		w.pacing = p.Read.Pacing
		err = g.read(ctx, w, p.Read)
	case p.Delete != nil:
		w.pacing = p.Delete.Pacing
		err = g.delete(w, p.Delete)
	default:
		return nil, fmt.Errorf("phase %q has no load: its action is %q", p.Name, p.Action())
	}
	if err != nil {
		return nil, fmt.Errorf("phase %q: %w", p.Name, err)
	}
	if w.timetable == nil && w.pacing.Clients == 0 {
		w.timetable = timetable(w.pacing.Rate, w.n, g.seed(p.Name))
	}
	return w, nil
}

// timetable is when n operations at a rate are due.
func timetable(r experiment.Rate, n int, seed uint64) pace.Timetable {
	switch {
	case r.Burst || r.IsZero(): // a single operation needs no rate
		return pace.Burst{}
	case r.Over > 0:
		return pace.Ramp{From: r.From, To: r.PerSecond, Over: r.Over}
	case r.Poisson:
		return pace.Poisson(r.PerSecond, n, seed)
	case len(r.Steps) > 0:
		steps := make(pace.Steps, len(r.Steps))
		for i, s := range r.Steps {
			steps[i] = pace.Step{Rate: s.PerSecond, For: s.For}
		}
		return steps
	}
	return pace.Constant(r.PerSecond)
}

// post creates object i of a plan.
func (g *generator) post(pl *plan, i int) operation {
	name := pl.name(i)
	return operation{"create", pl.resource, pl.in(i), name, pl.pods, func(ctx context.Context) answer {
		body, err := pl.create.body(i)
		if err != nil {
			return g.client.unsent(fmt.Errorf("encode %s: %w", name, err))
		}
		return g.client.do(ctx, call{method: http.MethodPost, path: pl.at(i), contentType: pl.contentType, body: body, subject: name})
	}}
}

// remove deletes object i of a plan.
func (g *generator) remove(pl *plan, i int) operation {
	name := pl.name(i)
	q := call{method: http.MethodDelete, path: pl.at(i) + "/" + name, subject: name}
	switch {
	case pl.kind == "Pod" && g.cfg.NoKubelets:
		q.query = "gracePeriodSeconds=0"
	case pl.kind != "Pod": // which has its grace, as with kubectl delete
		// As kubectl does: the default of a Job is to leave its pods behind.
		q.query = "propagationPolicy=Background"
	}
	return operation{"delete", pl.resource, pl.in(i), name, 0, func(ctx context.Context) answer { return g.client.do(ctx, q) }}
}

func (g *generator) create(ctx context.Context, w *work, o experiment.Objects) error {
	pl, err := compile(g.cfg, w.phase, o, g.client.find(ctx))
	if err != nil {
		return err
	}
	if err := g.client.makeNamespaces(ctx, g.cfg, o); err != nil {
		return err
	}
	w.n = o.Count
	w.operation = func(i int) operation { return g.post(pl, i) }
	w.succeeded = func(done []int) {
		g.keep(w.phase, &made{plan: pl, alive: done, count: o.Count, next: o.Count, each: pl.pods})
	}
	return nil
}

// apply makes objects, or applies again what a phase made.
func (g *generator) apply(ctx context.Context, w *work, a *experiment.Apply) error {
	var pl *plan
	index := func(i int) int { return i }
	pods := int32(0)
	if a.Phase == "" {
		var err error
		if pl, err = compile(g.cfg, w.phase, a.Objects, g.client.find(ctx)); err != nil {
			return err
		}
		if err := g.client.makeNamespaces(ctx, g.cfg, a.Objects); err != nil {
			return err
		}
		w.n, pods = a.Count, pl.pods
		w.succeeded = func(done []int) {
			g.keep(w.phase, &made{plan: pl, alive: done, count: a.Count, next: a.Count, each: pl.pods})
		}
	} else {
		m, err := g.target(a.Phase)
		if err != nil {
			return err
		}
		pl, w.n = m.plan, rounds(a.Count, m)
		index = func(i int) int { return m.alive[i%len(m.alive)] }
	}
	w.operation = func(i int) operation {
		object := index(i)
		name := pl.name(object)
		return operation{"apply", pl.resource, pl.in(object), name, pods, func(ctx context.Context) answer {
			body, err := pl.apply.body(object)
			if err != nil {
				return g.client.unsent(fmt.Errorf("encode %s: %w", name, err))
			}
			return g.client.do(ctx, call{method: http.MethodPatch, path: pl.at(object) + "/" + name, query: "fieldManager=" + ProcessName + "&force=true",
				contentType: contentApplyPatch, body: body, subject: name})
		}}
	}
	return nil
}

// rounds is how many operations go round the objects of a phase.
func rounds(count int, m *made) int {
	if count == 0 || len(m.alive) == 0 {
		return len(m.alive)
	}
	return count
}

func (g *generator) scale(w *work, s *experiment.Scale) error {
	m, err := g.target(s.Phase)
	if err != nil {
		return err
	}
	// A patch of the scale subresource is JSON in every version of the API.
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": s.Replicas}})
	if err != nil {
		return err
	}
	w.n = len(m.alive)
	w.operation = func(i int) operation {
		name := m.plan.name(m.alive[i])
		return operation{"scale", m.plan.resource, m.plan.in(m.alive[i]), name, int32(s.Replicas), func(ctx context.Context) answer {
			return g.client.do(ctx, call{method: http.MethodPatch, path: m.plan.at(m.alive[i]) + "/" + name + "/scale", contentType: contentMergePatch, body: body, subject: name})
		}}
	}
	// What replaces these pods later are as many.
	w.succeeded = func([]int) { m.each = int32(s.Replicas) }
	return nil
}

func (g *generator) patch(w *work, p *experiment.Patch) error {
	m, err := g.target(p.Phase)
	if err != nil {
		return err
	}
	content := contentMergePatch
	if p.Type == experiment.StrategicPatch {
		if content = contentStrategicPatch; !m.plan.builtin {
			return fmt.Errorf("a strategic patch needs a built-in kind, and %s is none: use type merge", m.plan.kind)
		}
	}
	w.n = rounds(p.Count, m)
	g.patches(w, m, "patch", content, plain(p.Patch), 0)
	return nil
}

// patches sends a patch, filled in for each object.
func (g *generator) patches(w *work, m *made, verb, content string, patch map[string]any, pods int32) {
	t := newTemplate(patch, json.Marshal, w.phase, g.cfg.Namespace)
	w.operation = func(i int) operation {
		object := m.alive[i%len(m.alive)]
		name := m.plan.name(object)
		return operation{verb, m.plan.resource, m.plan.in(object), name, pods, func(ctx context.Context) answer {
			body, err := t.body(object)
			if err != nil {
				return g.client.unsent(fmt.Errorf("encode the patch of %s: %w", name, err))
			}
			return g.client.do(ctx, call{method: http.MethodPatch, path: m.plan.at(object) + "/" + name, contentType: content, body: body, subject: name})
		}}
	}
}

// annotationUpdate makes sure that the pod template differs from the one before.
const annotationUpdate = "kubedyno.io/update"

func (g *generator) update(w *work, u *experiment.Update) error {
	m, err := g.target(u.Phase)
	if err != nil {
		return err
	}
	pods := plain(u.Pods)
	if pods == nil {
		pods = map[string]any{}
	}
	part(part(pods, "metadata"), "annotations")[annotationUpdate] = w.phase
	w.n = len(m.alive)
	g.patches(w, m, "update", contentStrategicPatch, map[string]any{"spec": map[string]any{"template": pods}}, m.each)
	return nil
}

// churn replaces the oldest objects first, so that each is replaced once
// before any is a second time. The new ones have numbers of their own: the
// deletion of an object takes its time.
func (g *generator) churn(w *work, c *experiment.Churn) error {
	m, err := g.target(c.Phase)
	if err != nil {
		return err
	}
	batch, cycles := c.Batches(m.count)
	if len(m.alive) < batch {
		return fmt.Errorf("%d objects of phase %q are there, a cycle replaces %d", len(m.alive), c.Phase, batch)
	}
	first := m.next
	// The object that operation i of a cycle deletes or makes.
	deleted := func(k int) int { // the k-th deletion of all
		if k < len(m.alive) {
			return m.alive[k]
		}
		return first + k - len(m.alive)
	}
	w.n = 2 * batch * cycles
	w.operation = func(i int) operation {
		cycle, at := i/(2*batch), i%(2*batch)
		if at < batch {
			return g.remove(m.plan, deleted(cycle*batch+at))
		}
		made := g.post(m.plan, first+cycle*batch+at-batch)
		made.pods = m.each
		return made
	}
	w.succeeded = func(done []int) {
		alive := slices.Clone(m.alive)
		for _, i := range done {
			cycle, at := i/(2*batch), i%(2*batch)
			if at >= batch {
				alive = append(alive, first+cycle*batch+at-batch)
				continue
			}
			gone := deleted(cycle*batch + at)
			alive = slices.DeleteFunc(alive, func(object int) bool { return object == gone })
		}
		m.alive, m.next = alive, first+batch*cycles
	}
	if c.Every > 0 {
		w.timetable = pace.Cycles{Each: timetable(c.Rate, 2*batch, 0), Size: 2 * batch, Every: c.Every}
	}
	return nil
}

func (g *generator) delete(w *work, d *experiment.Delete) error {
	m, err := g.target(d.Phase)
	if err != nil {
		return err
	}
	w.n = len(m.alive)
	w.operation = func(i int) operation { return g.remove(m.plan, m.alive[i]) }
	w.succeeded = func(done []int) {
		gone := make(map[int]bool, len(done))
		for _, i := range done {
			gone[m.alive[i]] = true
		}
		m.alive = slices.DeleteFunc(slices.Clone(m.alive), func(object int) bool { return gone[object] })
	}
	return nil
}

// made is what a phase left on the cluster. Phases that run at the same time
// read it; one that changes it is alone with it.
type made struct {
	plan  *plan
	alive []int // numbers of objects, the oldest first
	count int   // that were asked for
	next  int   // number of the next object
	each  int32 // pods that each object asks for
}

// store holds what phases have made.
type store struct {
	mu   sync.Mutex
	made map[string]*made
}

func (s *store) keep(phase string, m *made) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil {
		s.made = map[string]*made{}
	}
	s.made[phase] = m
}

func (s *store) target(phase string) (*made, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.made[phase]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("phase %q has created nothing", phase)
}

// check compiles what phases make without sending any of it, so that what the
// cluster would refuse is known before the first phase begins.
func (g *generator) check(ctx context.Context, phases []experiment.Phase) error {
	var errs []error
	for _, p := range phases {
		errs = append(errs, g.check(ctx, p.Parallel))
		o := p.Makes()
		switch {
		case o == nil:
			continue
		case o.KindName() == "CustomResourceDefinition":
			return errors.Join(errs...) // after which there may be kinds that are not there yet
		}
		if _, err := compile(g.cfg, p.Name, *o, g.client.find(ctx)); err != nil {
			errs = append(errs, fmt.Errorf("phase %q: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}
