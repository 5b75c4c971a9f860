package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// StartOptions say how to start the generator process.
type StartOptions struct {
	Config     Config
	Executable string    // default: this process's own
	Env        []string  // default: this process's own
	Stderr     io.Writer // takes what the process writes there; may be nil
	// Wrap changes the command before it starts, such as to enter a cgroup.
	Wrap func(*exec.Cmd) error
	// Grace is how long the process may take to end when asked to;
	// default: 3 s, three times what it needs.
	Grace time.Duration
}

const defaultGrace = 3 * time.Second

// An ExitError reports that the generator ended by itself.
type ExitError struct {
	Err error    // from Cmd.Wait; nil where it exited with 0
	Log []string // its last lines
}

func (e *ExitError) Error() string {
	text := ProcessName + " exited early"
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	if len(e.Log) > 0 {
		text += ": " + e.Log[len(e.Log)-1]
	}
	return text
}

func (e *ExitError) Unwrap() error { return e.Err }

// Worker is the parent's hold on a generator process. Its methods may be
// called from several goroutines; phases that run at the same time are sent at
// the same time.
type Worker struct {
	cmd   *exec.Cmd
	grace time.Duration
	log   *lastLines
	done  chan struct{} // closed when the process is gone
	exit  error         // from Cmd.Wait, once done

	mu       sync.Mutex
	stdin    io.WriteCloser
	ready    ready
	progress Progress
	last     int               // ID of the latest request
	open     map[int]*exchange // by ID; the start's is 0
}

// exchange is a request that is not answered yet.
type exchange struct {
	onOp    func(record.Operation) // nil: nobody wants to hear
	answers chan event             // holds one
}

// Start starts the process and returns once the run's namespace is ready for
// pods. Ctx bounds that wait; the process lives until Stop, or until this
// process ends.
func Start(ctx context.Context, o StartOptions) (*Worker, error) {
	if o.Executable == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", ProcessName, err)
		}
		o.Executable = self
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	w := &Worker{grace: o.Grace, log: &lastLines{next: o.Stderr}, done: make(chan struct{}), open: map[int]*exchange{}}
	w.cmd = exec.Command(o.Executable)
	w.cmd.Args[0] = ProcessName
	w.cmd.Env = o.Env
	w.cmd.Stderr = w.log
	w.cmd.WaitDelay = o.Grace
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C reaches us, not the child
	stdin, err := w.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", ProcessName, err)
	}
	w.stdin = stdin
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", ProcessName, err)
	}
	if o.Wrap != nil {
		if err := o.Wrap(w.cmd); err != nil {
			return nil, fmt.Errorf("start %s: %w", ProcessName, err)
		}
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", ProcessName, err)
	}
	go w.read(stdout)
	if err := w.start(ctx, o.Config); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

func (w *Worker) start(ctx context.Context, c Config) error {
	_, q, end := w.begin(0, nil)
	defer end()
	if err := w.write(c); err != nil {
		return err
	}
	select {
	case e := <-q.answers:
		if e.Error != "" {
			return errors.New(e.Error)
		}
		return nil
	case <-w.done:
		return w.exited()
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready: %w", ProcessName, context.Cause(ctx))
	}
}

// PID is the process's.
func (w *Worker) PID() int { return w.cmd.Process.Pid }

// Namespace is where the run's objects go.
func (w *Worker) Namespace() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready.Namespace
}

// MetricsURL is where the process serves its metrics.
func (w *Worker) MetricsURL() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready.MetricsURL
}

// Progress is the latest news of the phase that runs, or ran last.
func (w *Worker) Progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress
}

// Done is closed when the process has ended, asked to or not.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Check asks whether the cluster knows what the phases would make, without
// making any of it.
func (w *Worker) Check(ctx context.Context, phases []experiment.Phase) error {
	_, err := w.request(ctx, command{Do: "check", Phases: phases}, nil)
	return err
}

// Run executes the load of a phase, without its wait, and returns when every operation has been answered or given up. It calls onOp
// for each, in the order of answers, from one goroutine for all phases, and not
// after it has returned. When ctx ends, so does the phase: the summary tells how far it
// came, and the error is ctx's.
func (w *Worker) Run(ctx context.Context, p experiment.Phase, onOp func(record.Operation)) (Summary, error) {
	return w.request(ctx, command{Do: "phase", Phase: &p}, onOp)
}

// Cleanup asks for the deletion of the run's namespace and all it holds. It
// touches no namespace that is not the run's.
func (w *Worker) Cleanup(ctx context.Context) error {
	_, err := w.request(ctx, command{Do: "cleanup"}, nil)
	return err
}

// begin opens a request with the ID, or the next one where it is below 0.
func (w *Worker) begin(id int, onOp func(record.Operation)) (int, *exchange, func()) {
	q := &exchange{onOp: onOp, answers: make(chan event, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if id < 0 {
		w.last++
		id = w.last
	}
	w.open[id] = q
	return id, q, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, id)
	}
}

func (w *Worker) request(ctx context.Context, c command, onOp func(record.Operation)) (Summary, error) {
	id, q, end := w.begin(-1, onOp)
	defer end()
	c.ID = id
	answers := q.answers
	if err := w.write(c); err != nil {
		return Summary{}, err
	}
	result := func(e event) (Summary, error) {
		var s Summary
		if e.Done != nil {
			s = *e.Done
		}
		if err := context.Cause(ctx); err != nil {
			return s, err
		}
		if e.Error != "" {
			return s, errors.New(e.Error)
		}
		return s, nil
	}
	select {
	case e := <-answers:
		return result(e)
	case <-w.done:
		return w.lost(answers, result)
	case <-ctx.Done():
	}
	// The child ends what is in flight and answers with what it did.
	if err := w.write(command{ID: id, Do: "cancel"}); err != nil {
		return Summary{}, errors.Join(context.Cause(ctx), err, w.Stop())
	}
	select {
	case e := <-answers:
		return result(e)
	case <-w.done:
		return w.lost(answers, result)
	case <-time.After(w.grace):
		err := w.Stop()
		return Summary{}, errors.Join(context.Cause(ctx), err)
	}
}

// lost is a request's result where the process is gone: the answer may have
// arrived all the same.
func (w *Worker) lost(answers <-chan event, result func(event) (Summary, error)) (Summary, error) {
	select {
	case e := <-answers:
		return result(e)
	default:
		return Summary{}, w.exited()
	}
}

// Stop ends the process: its input closes, and after the grace it is killed.
// Stop may be called more than once.
func (w *Worker) Stop() error {
	w.mu.Lock()
	w.stdin.Close() // an error says that it is closed already
	w.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-time.After(w.grace):
	}
	if err := w.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", ProcessName, err)
	}
	<-w.done
	return fmt.Errorf("%s did not stop within %v and was killed", ProcessName, w.grace)
}

func (w *Worker) write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("command to %s: %w", ProcessName, err)
	}
	w.mu.Lock()
	_, err = w.stdin.Write(append(line, '\n'))
	w.mu.Unlock()
	if err != nil {
		select {
		case <-w.done:
			return w.exited()
		case <-time.After(w.grace):
			return fmt.Errorf("command to %s: %w", ProcessName, err)
		}
	}
	return nil
}

// exited describes the end of a process that is gone.
func (w *Worker) exited() error { return &ExitError{Err: w.exit, Log: w.log.lines()} }

// read handles the process's events until it is gone.
func (w *Worker) read(stdout io.Reader) {
	defer close(w.done)
	in := json.NewDecoder(bufio.NewReader(stdout))
	for {
		var e event
		if err := in.Decode(&e); err != nil {
			break
		}
		w.handle(e)
	}
	// What a killed child left in the pipe may not be whole; drain it, so
	// that Wait does not stop a child that still writes.
	_, _ = io.Copy(io.Discard, stdout)
	w.exit = w.cmd.Wait()
}

func (w *Worker) handle(e event) {
	w.mu.Lock()
	q := w.open[e.ID]
	switch {
	case e.Progress != nil:
		w.progress = *e.Progress
	case e.Ready != nil:
		w.ready = *e.Ready
	}
	w.mu.Unlock()
	switch {
	case e.Op != nil:
		if q != nil && q.onOp != nil {
			q.onOp(*e.Op)
		}
	case e.Progress != nil:
	case q != nil:
		select {
		case q.answers <- e:
		default: // a second answer to one request: the first counts
		}
	}
}

// lastLines passes output on and keeps its end.
type lastLines struct {
	next io.Writer

	mu   sync.Mutex
	tail []byte
}

const tailBytes = 4 << 10

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.tail = append(l.tail, p...)
	l.tail = l.tail[max(0, len(l.tail)-tailBytes):]
	l.mu.Unlock()
	if l.next != nil {
		return l.next.Write(p)
	}
	return len(p), nil
}

func (l *lastLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(string(bytes.ToValidUTF8(l.tail, []byte("?"))))
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
