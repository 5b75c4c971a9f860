package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// A memo keeps what was costly to make, by key. Who asks for what is being
// made waits for it; no more than slots are made at the same time.
type memo[T any] struct {
	most  int // kept
	slots chan struct{}

	mu    sync.Mutex
	order []string // the least recently asked for first
	kept  map[string]*work[T]
}

type work[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func newMemo[T any](most int, slots chan struct{}) *memo[T] {
	return &memo[T]{most: most, slots: slots, kept: map[string]*work[T]{}}
}

// get is the value of key, which of makes where nobody has asked for it
// before. Making is not ended with ctx, waiting is.
func (m *memo[T]) get(ctx context.Context, key string, of func() (T, error)) (T, error) {
	for {
		m.mu.Lock()
		w, ok := m.kept[key]
		if !ok {
			w = &work[T]{done: make(chan struct{})}
			m.kept[key] = w
		}
		m.touch(key)
		m.mu.Unlock()
		if !ok {
			m.work(ctx, key, w, of)
			return w.value, w.err
		}
		select {
		case <-w.done:
		case <-ctx.Done():
			return w.value, ctx.Err()
		}
		if errors.Is(w.err, errGaveUp) {
			continue // who was to make it lost patience; we did not
		}
		return w.value, w.err
	}
}

// errGaveUp says that who was to make a value stopped waiting for its turn.
var errGaveUp = errors.New("gave up waiting")

func (m *memo[T]) work(ctx context.Context, key string, w *work[T], of func() (T, error)) {
	defer close(w.done)
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		w.err = errors.Join(errGaveUp, ctx.Err())
		m.forget(key, w)
		return
	}
	defer func() { <-m.slots }()
	if w.value, w.err = of(); w.err != nil {
		m.forget(key, w) // it may work the next time
	}
}

// touch needs mu. It forgets what was not asked for in the longest time.
func (m *memo[T]) touch(key string) {
	m.order = append(slices.DeleteFunc(m.order, func(k string) bool { return k == key }), key)
	for len(m.order) > m.most {
		delete(m.kept, m.order[0])
		m.order = m.order[1:]
	}
}

func (m *memo[T]) forget(key string, w *work[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept[key] == w {
		delete(m.kept, key)
		m.order = slices.DeleteFunc(m.order, func(k string) bool { return k == key })
	}
}
