package hollow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A watched is what is followed: one collection, selected by a field.
type watched struct {
	resource, path, selector string
	isPod                    bool
	event                    func(kind string, h header, raw []byte)
	replace                  func(uids map[string]bool) // after a complete list; may be nil
}

// errExpired says that the server no longer knows our resource version.
var errExpired = errors.New("resource version is too old")

// A reflector's backoff, and how long a stream must have lived for it to begin anew.
const (
	watchBackoffFirst = 200 * time.Millisecond
	watchBackoffMost  = 30 * time.Second
	watchIsHealthy    = 30 * time.Second
)

// follow keeps a watch of the node's open until ctx ends.
func (n *node) follow(ctx context.Context, w watched) { n.client.follow(ctx, w) }

// follow keeps a watch open until ctx ends, and begins again with the whole
// state when the server cannot continue where it stopped.
func (c *client) follow(ctx context.Context, w watched) {
	m := c.metrics
	events := m.watchEvents.WithLabelValues(w.resource)
	s := stream{c: c, w: w, count: events.Inc, down: m.watchDown.WithLabelValues(w.resource)}
	fails := 0
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			m.reconnects.WithLabelValues(w.resource).Inc()
		}
		began := time.Now()
		s.heard = false
		err := s.once(ctx)
		s.endedAt = time.Now()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errExpired) || isCode(err, http.StatusGone):
			s.version = ""
		case isCode(err, http.StatusUnprocessableEntity) || isCode(err, http.StatusBadRequest):
			s.noInitialEvents = true // an older server: list, then watch
		}
		// A stream that brought something was well until the server ended it, as it
		// does with who does not keep up; a reflector comes back at once.
		if s.heard || time.Since(began) > watchIsHealthy {
			fails = 0
		}
		// Even a stream that ended well is not opened again at once: when a
		// server goes away, all of them end together.
		if !wait(ctx, backoff(fails, watchBackoffFirst, watchBackoffMost)) {
			return
		}
		fails++
	}
}

// A stream is a watch across its reconnections.
type stream struct {
	c               *client
	w               watched
	version         string // continue after it; "" is from the beginning
	noInitialEvents bool
	count           func()
	heard           bool      // this stream brought an event
	endedAt         time.Time // when the last stream ended; zero before the first
	down            prometheus.Counter
}

// opened counts for how long there was no stream.
func (s *stream) opened() {
	if !s.endedAt.IsZero() {
		s.down.Add(time.Since(s.endedAt).Seconds())
	}
}

func (s *stream) once(ctx context.Context) error {
	q := url.Values{
		"watch":               {"true"},
		"allowWatchBookmarks": {"true"},
		// As a reflector: between 5 and 10 minutes.
		"timeoutSeconds": {fmt.Sprint(300 + rand.IntN(300))},
	}
	if s.w.selector != "" {
		q.Set("fieldSelector", s.w.selector)
	}
	var initial map[string]bool
	if s.version == "" {
		s.c.metrics.relists.WithLabelValues(s.w.resource).Inc()
		if s.noInitialEvents {
			if err := s.list(ctx); err != nil {
				return err
			}
		} else {
			initial = map[string]bool{}
			q.Set("sendInitialEvents", "true")
			q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
		}
	}
	if s.version != "" {
		q.Set("resourceVersion", s.version)
	}
	return s.c.watch(ctx, s.w.path, q.Encode(), s.opened, func(frame []byte) error {
		kind, raw, err := watchEvent(frame)
		if err != nil {
			return err
		}
		if string(kind) == "ERROR" {
			var status metav1.Status
			if err := status.Unmarshal(raw); err != nil {
				return err
			}
			if status.Code == http.StatusGone {
				return errExpired
			}
			return &statusError{"watch " + s.w.path, int(status.Code), status.Message}
		}
		h, err := readHeader(raw, s.w.isPod)
		if err != nil {
			return err
		}
		if initial == nil {
			s.version = string(h.version)
		}
		if string(kind) == "BOOKMARK" {
			if initial != nil && h.initialEnd {
				if s.w.replace != nil {
					s.w.replace(initial)
				}
				initial, s.version = nil, string(h.version)
			}
			return nil
		}
		s.heard = true
		s.count()
		if initial != nil {
			initial[string(h.uid)] = true
		}
		s.w.event(string(kind), h, raw)
		return nil
	})
}

// list is how older servers tell the whole state.
func (s *stream) list(ctx context.Context) error {
	q := url.Values{"resourceVersion": {"0"}}
	if s.w.selector != "" {
		q.Set("fieldSelector", s.w.selector)
	}
	answer, err := s.c.doQuery(ctx, listRequest, s.w.path, q.Encode(), noBody, nil)
	if err != nil {
		return err
	}
	defer release(answer)
	raw, err := unwrap(answer.Bytes())
	if err != nil {
		return err
	}
	all := map[string]bool{}
	version, err := items(raw, func(item []byte) error {
		h, err := readHeader(item, s.w.isPod)
		if err != nil {
			return err
		}
		all[string(h.uid)] = true
		s.w.event("ADDED", h, item)
		return nil
	})
	if err != nil {
		return err
	}
	if s.w.replace != nil {
		s.w.replace(all)
	}
	s.version = version
	return nil
}

// backoff doubles from first to most and spreads each wait over [½, 1½).
func backoff(fails int, first, most time.Duration) time.Duration {
	d := first << min(fails, 20)
	if d > most || d <= 0 {
		d = most
	}
	return time.Duration(float64(d) * (0.5 + rand.Float64()))
}

// wait sleeps and reports whether ctx is still alive.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// A finalError is one that repeating will not cure.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// retry repeats f, as a kubelet repeats registering, until it succeeds, fails
// for good, or ctx ends.
func retry(ctx context.Context, f func() error) error {
	for fails := 0; ; fails++ {
		err := f()
		var final *finalError
		if err == nil || errors.As(err, &final) {
			return err
		}
		if !wait(ctx, backoff(fails, 100*time.Millisecond, 7*time.Second)) {
			return fmt.Errorf("%w (last try: %w)", ctx.Err(), err)
		}
	}
}
