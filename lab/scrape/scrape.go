// Package scrape answers scrapes of a component's metrics over a Unix socket,
// with what has changed since the last answer.
//
// Most of what /metrics costs a component is not to look at its metrics but to
// write 17,000 lines of them, to encrypt these and send them, though nine of ten
// say what they said a second ago. Who holds the last answer gets the others:
// delta encoding in HTTP (RFC 3229), by the manipulation and in the form that
// docs/lab.md describes under "Metrics". Everybody else gets the text format of
// Prometheus, as from /metrics.
//
// Start with Listen.
package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Manipulation is the name under which changes are asked for and sent (A-IM and
// IM in RFC 3229).
const Manipulation = "kubedyno-lines"

// Listen serves what the gatherer has at a Unix socket until the returned
// function is called. A socket that a process before this one has left at the
// path is replaced.
func Listen(path string, from prometheus.Gatherer) (stop func(), err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("metrics socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("metrics socket: %w", err)
	}
	server := &http.Server{Handler: newHandler(from, time.Now()), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends by Close
	}()
	return func() { _ = server.Close(); <-done }, nil
}

// A handler remembers its last answer, and answers one request at a time.
type handler struct {
	from prometheus.Gatherer
	life string // tells this process's answers from those of one before it

	mu     sync.Mutex
	number uint64 // of the last answer
	known  bool   // changes can be told to who has it
	last   answer
	spare  answer // to be filled again
	again  *rereader
	out    bytes.Buffer
}

func newHandler(from prometheus.Gatherer, began time.Time) *handler {
	return &handler{from: from, life: strconv.FormatInt(began.UnixNano(), 36), again: newRereader(from)}
}

func (h *handler) tag() string { return fmt.Sprintf(`"%s-%d"`, h.life, h.number) }

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.out.Reset()
	changes := h.known && r.Header.Get("A-IM") == Manipulation && r.Header.Get("If-None-Match") == h.tag()
	if changes && h.again != nil && h.again.changes(&h.out, &h.last) {
		h.send(w, http.StatusIMUsed)
		return
	}
	families, err := h.from.Gather()
	if err != nil {
		http.Error(w, "gather metrics: "+err.Error(), http.StatusInternalServerError)
		return
	}
	now := h.spare
	plain := now.fill(families)
	code := http.StatusOK
	if plain && changes {
		code = http.StatusIMUsed
		err = writeChanges(&h.out, &h.last, &now, families)
	} else {
		for _, f := range families {
			if _, e := expfmt.MetricFamilyToText(&h.out, f); e != nil {
				err = e
			}
		}
	}
	h.last, h.spare = now, h.last
	h.known = plain && err == nil
	if err != nil {
		h.number++
		http.Error(w, "write metrics: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if h.again != nil && h.known {
		h.again.gathered(&h.last)
	}
	h.send(w, code)
}

// send sends what was written, which becomes the last answer.
func (h *handler) send(w http.ResponseWriter, code int) {
	if code == http.StatusIMUsed {
		w.Header().Set("IM", Manipulation)
		w.Header().Set("Delta-Base", h.tag())
	}
	h.number++
	if h.known {
		w.Header().Set("ETag", h.tag())
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	w.Header().Set("Content-Length", strconv.Itoa(h.out.Len()))
	w.WriteHeader(code)
	_, _ = w.Write(h.out.Bytes()) // who hung up asks for all next time
}

// writeChanges writes how the lines of an answer differ from those of the last.
func writeChanges(out *bytes.Buffer, last, now *answer, families []*dto.MetricFamily) error {
	c := changes{out: out}
	old := last.families
	for i, f := range now.families {
		for len(old) > 0 && old[0].name < f.name {
			c.drop(last.lines(old[0].metrics))
			old = old[1:]
		}
		var was []metric
		if len(old) > 0 && old[0].name == f.name {
			if old[0].kind == f.kind {
				was = old[0].metrics
			} else {
				c.drop(last.lines(old[0].metrics))
			}
			old = old[1:]
		}
		if err := c.family(last, now, was, f.metrics, families[i]); err != nil {
			return err
		}
	}
	for _, f := range old {
		c.drop(last.lines(f.metrics))
	}
	c.flush()
	return nil
}

// changes collects runs of lines that stay and that go.
type changes struct {
	out        *bytes.Buffer
	kept, gone int
	number     [32]byte
}

func (c *changes) keep(n int) {
	if c.gone > 0 {
		c.flush()
	}
	c.kept += n
}

func (c *changes) drop(n int) {
	if c.kept > 0 {
		c.flush()
	}
	c.gone += n
}

func (c *changes) flush() {
	c.run('=', c.kept)
	c.run('-', c.gone)
	c.kept, c.gone = 0, 0
}

func (c *changes) run(sign byte, n int) {
	if n > 0 {
		c.out.WriteByte(sign)
		c.out.Write(strconv.AppendInt(c.number[:0], int64(n), 10))
		c.out.WriteByte('\n')
	}
}

func (c *changes) value(v float64) {
	c.flush()
	if v == 0 {
		v = 0 // the text format knows no negative zero
	}
	c.out.WriteByte('~')
	c.out.Write(strconv.AppendFloat(c.number[:0], v, 'g', -1, 64))
	c.out.WriteByte('\n')
}

// values writes those that moved.
func (c *changes) values(before, after []float64) {
	for i, v := range after {
		if unmoved(v, before[i]) {
			c.keep(1)
		} else {
			c.value(v)
		}
	}
}

// family writes the changes of one family's lines.
func (c *changes) family(last, now *answer, was, is []metric, f *dto.MetricFamily) error {
	var places map[string]int // of was, by key: only where the two differ
	next := 0
	for i := range is {
		if next < len(was) && !was[next].same(&is[i]) {
			if places == nil {
				places = make(map[string]int, len(was))
				for j := range was {
					places[was[j].key()] = j
				}
			}
			if at, ok := places[is[i].key()]; ok && at > next {
				c.drop(last.lines(was[next:at]))
				next = at
			}
		}
		if next < len(was) && was[next].same(&is[i]) {
			c.values(last.of(&was[next]), now.of(&is[i]))
			next++
			continue
		}
		c.flush()
		if _, err := expfmt.MetricFamilyToText(c.out, &dto.MetricFamily{Name: f.Name, Type: f.Type, Metric: f.Metric[i : i+1]}); err != nil {
			return err
		}
	}
	c.drop(last.lines(was[next:]))
	return nil
}
