package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/internal/introspect"
	"github.com/kubedyno/kubedyno/record"
)

// ProcessName is the generator's argv[0] and its user agent.
const ProcessName = "kubedyno-load"

// Config is the first line that the process reads.
type Config struct {
	Kubeconfig string `json:"kubeconfig"` // path; empty: as kubectl finds it
	Context    string `json:"context,omitempty"`
	RunID      string `json:"run"`
	Namespace  string `json:"namespace,omitempty"` // default: Namespace(RunID)
	Seed       int64  `json:"seed"`
	Nodes      int    `json:"nodes,omitempty"` // hollow ones: what a DaemonSet asks for
	// Existing says that the cluster is no lab: nothing may be made outside of
	// the run's namespace.
	Existing bool `json:"existing,omitempty"`
	// HollowNodes keeps the pods on the run's hollow nodes, on a cluster that
	// has others too: see HollowTaint.
	HollowNodes bool `json:"hollowNodes,omitempty"`
	// NoAccounts says that no controller makes service accounts, so that the
	// generator makes those without which no pod is let in.
	NoAccounts bool `json:"noAccounts,omitempty"`
	// NoKubelets says that nobody ends pods: they are deleted without a grace
	// period, which only a kubelet could end.
	NoKubelets bool `json:"noKubelets,omitempty"`
}

// command is each further line.
type command struct {
	// ID is the caller's: what the command brings carries it. Cancel ends the
	// command of its ID.
	ID     int                `json:"id"`
	Do     string             `json:"do"` // check, phase, cancel, cleanup
	Phase  *experiment.Phase  `json:"phase,omitempty"`
	Phases []experiment.Phase `json:"phases,omitempty"`
}

// event is a line that the process writes. Each command but cancel is
// answered by one event with Done or Error, or both.
type event struct {
	ID       int               `json:"id,omitempty"`
	Ready    *ready            `json:"ready,omitempty"`
	Op       *record.Operation `json:"op,omitempty"`
	Progress *Progress         `json:"progress,omitempty"`
	Done     *Summary          `json:"done,omitempty"`
	Error    string            `json:"error,omitempty"`
}

type ready struct {
	Namespace  string `json:"namespace"`
	MetricsURL string `json:"metricsURL"`
}

const (
	progressEvery = 250 * time.Millisecond
	// maxLine is far above any command.
	maxLine = 4 << 20
	// flushWithin bounds how long the process outlives its input while nobody
	// reads what it still has to say.
	flushWithin = 500 * time.Millisecond
)

// ProcessMain is the generator process: a Config and then commands as JSON
// lines on stdin, events as JSON lines on stdout. It returns when stdin or ctx
// ends, within a second. It has told stderr of the error that it returns.
func ProcessMain(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	err := serve(ctx, stdin, stdout)
	if err != nil {
		// The parent that reads events may be gone; these are the last words.
		fmt.Fprintf(stderr, "%s: %v\n", ProcessName, err)
	}
	return err
}

func serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := newOutbox(stdout, cancel)
	defer out.close()

	lines := readLines(ctx, stdin, cancel)
	var cfg Config
	switch first, ok := <-lines; {
	case !ok:
		return ended(ctx)
	default:
		if err := json.Unmarshal(first, &cfg); err != nil {
			return fmt.Errorf("read config: %w", err)
		}
	}
	if cfg.Namespace == "" {
		cfg.Namespace = Namespace(cfg.RunID)
	}
	c, err := newClient(cfg)
	if err == nil {
		err = c.prepare(ctx, cfg)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		out.send(event{Error: err.Error()})
		return err
	}
	m := newMetrics()
	url, served, err := introspect.Serve(ctx, m.registry, true)
	if err != nil {
		out.send(event{Error: err.Error()})
		return err
	}
	out.send(event{Ready: &ready{Namespace: cfg.Namespace, MetricsURL: url}})
	s := server{generator: generator{cfg: cfg, client: c}, out: out, metrics: m}
	err = s.loop(ctx, lines)
	cancel(nil)
	return errors.Join(err, <-served)
}

// ended is nil where the input's end, the ordinary stop, ended ctx.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// readLines delivers the input's lines and ends ctx when the input ends.
func readLines(ctx context.Context, r io.Reader, cancel context.CancelCauseFunc) <-chan []byte {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(r)
		in.Buffer(nil, maxLine)
		for in.Scan() {
			select {
			case lines <- append([]byte(nil), in.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
		if err := in.Err(); err != nil {
			cancel(fmt.Errorf("read commands: %w", err))
			return
		}
		cancel(io.EOF)
	}()
	return lines
}

// server answers commands. Those that were sent before others are answered run
// at the same time.
type server struct {
	generator
	out     *outbox
	metrics *metrics
}

func (s *server) loop(ctx context.Context, lines <-chan []byte) error {
	var running sync.WaitGroup
	defer running.Wait()
	var mu sync.Mutex
	stop := map[int]func(){} // by the command's ID
	for {
		var line []byte
		select {
		case l, ok := <-lines:
			if !ok {
				return ended(ctx)
			}
			line = l
		case <-ctx.Done():
			return ended(ctx)
		}
		var cmd command
		if err := json.Unmarshal(line, &cmd); err != nil {
			return fmt.Errorf("read command: %w", err)
		}
		mu.Lock()
		cancel, busy := stop[cmd.ID]
		if cmd.Do == "cancel" {
			mu.Unlock()
			if busy {
				cancel()
			}
			continue
		}
		work, cancel := context.WithCancel(ctx)
		stop[cmd.ID] = cancel
		mu.Unlock()
		if busy {
			cancel()
			return fmt.Errorf("command %q with the number %d of one that runs", cmd.Do, cmd.ID)
		}
		running.Go(func() {
			answer := s.answer(work, cmd)
			answer.ID = cmd.ID
			cancel()
			mu.Lock()
			delete(stop, cmd.ID) // before the answer goes out, which may bring the next command
			mu.Unlock()
			s.out.send(answer)
		})
	}
}

func (s *server) answer(ctx context.Context, cmd command) event {
	switch {
	case cmd.Do == "phase" && cmd.Phase != nil:
		return s.phase(ctx, cmd.ID, *cmd.Phase)
	case cmd.Do == "check":
		return outcome(s.check(ctx, cmd.Phases))
	case cmd.Do == "cleanup":
		return outcome(s.client.cleanup(ctx, s.cfg))
	}
	return event{Error: fmt.Sprintf("unknown command %q", cmd.Do)}
}

// outcome is the answer to a command that has nothing else to say.
func outcome(err error) event {
	e := event{Done: &Summary{}}
	if err != nil {
		e.Error = err.Error()
	}
	return e
}

func (s *server) phase(ctx context.Context, id int, p experiment.Phase) event {
	var count counters
	watched, stop := context.WithCancel(ctx)
	var progress sync.WaitGroup
	progress.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				now := count.progress(p.Name)
				s.out.send(event{ID: id, Progress: &now})
			case <-watched.Done():
				return
			}
		}
	})
	summary, err := s.run(ctx, p, &count, func(op record.Operation) {
		s.metrics.operation(&op)
		s.out.send(event{ID: id, Op: &op})
	})
	stop()
	progress.Wait()
	last := count.progress(p.Name)
	s.out.send(event{ID: id, Progress: &last})
	e := event{Done: &summary}
	if err != nil {
		e.Error = err.Error()
	}
	return e
}

// outbox writes events without ever holding up who sends them: a slow reader
// must not slow the load down.
type outbox struct {
	mu     sync.Mutex
	queue  []event
	wake   chan struct{} // holds one
	closed bool
	done   chan struct{}
	wrote  atomic.Int64 // bytes that were read, or are in the pipe
}

// counted counts what goes through.
type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func newOutbox(w io.Writer, failed context.CancelCauseFunc) *outbox {
	o := &outbox{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(o.done)
		buf := bufio.NewWriter(counted{w, &o.wrote})
		enc := json.NewEncoder(buf)
		for range o.wake {
			for {
				batch, closed := o.take()
				for _, e := range batch {
					if err := enc.Encode(e); err != nil {
						failed(fmt.Errorf("write events: %w", err))
						return
					}
				}
				if len(batch) > 0 {
					continue
				}
				if err := buf.Flush(); err != nil {
					failed(fmt.Errorf("write events: %w", err))
					return
				}
				if closed {
					return
				}
				break
			}
		}
	}()
	return o
}

func (o *outbox) take() ([]event, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	batch := o.queue
	o.queue = nil
	return batch, o.closed
}

func (o *outbox) send(e event) {
	o.mu.Lock()
	if !o.closed {
		o.queue = append(o.queue, e)
	}
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// close writes what is left, unless nobody reads it.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
	for before := int64(-1); ; {
		select {
		case <-o.done:
			return
		case <-time.After(flushWithin):
		}
		now := o.wrote.Load()
		if now == before {
			return
		}
		before = now
	}
}
