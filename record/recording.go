package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/internal/tsdb"
)

// ErrMissing says that a recording does not hold what was asked for. It is
// never "none": the reason, where the recording knows it, is in the message.
var ErrMissing = errors.New("not recorded")

// ProfileRef says what a profile in the recording is of.
type ProfileRef struct {
	Component string    `json:"component"`
	Instance  string    `json:"instance,omitempty"`
	Phase     string    `json:"phase"`
	Kind      string    `json:"kind"` // cpu, heap, goroutine, …
	Start     time.Time `json:"start,omitzero"`
	End       time.Time `json:"end,omitzero"`
	File      string    `json:"file"` // inside the recording; the Writer sets it where empty
}

// Point is one value of a series.
type Point struct {
	Time  time.Time
	Value float64
}

// Series is a labelled sequence of points, oldest first. The metric's name is
// the label __name__ where the query kept it.
type Series struct {
	Labels map[string]string
	Points []Point
	// Note stands in for a value that is not a number: the last native
	// histogram, or a string. It adds no points.
	Note string
}

// Vector is an instant query's result: series of one point each, sorted by
// labels. (A query for a range, as up[1m], gives several points.)
type Vector []Series

// Matrix is a range query's result, sorted by labels.
type Matrix []Series

// lookback is Prometheus' own, so that GaugeAt and a query agree.
const lookback = 5 * time.Minute

// Recording is an opened recording. Its methods may be called at the same
// time. Slices and pointers it returns are shared: do not change them.
type Recording struct {
	dir      string // as the user named it
	home     string // where the files are; a copy where dir cannot be written
	meta     Meta
	root     *os.Root // of home; keeps a stranger's recording from naming files outside
	profiles []ProfileRef

	pods         func() ([]Pod, error)
	operations   func() ([]Operation, error)
	processes    func() ([]ProcessSample, error)
	machine      func() ([]MachineSample, error)
	requests     func() ([]Request, error)
	nodes        func() ([]NodeSample, error)
	exits        func() ([]ProcessExit, error)
	cores        func() ([]CoreSample, error)
	disks        func() ([]DiskSample, error)
	stackSamples func() ([]StackSample, error)
	stacks       func() ([]Stack, error)
	blockIO      func() ([]BlockIO, error)
	syncs        func() ([]Sync, error)
	objects      func() ([]ObjectChange, error)
	events       func() ([]Event, error)
	metrics      func() (*tsdb.Reader, error)
}

// Open opens the recording in dir. One whose writer died is finished first;
// where the folder cannot be written, in a temporary copy that Close removes.
// One whose writer is alive is left alone: the error is a *LiveError.
func Open(dir string) (*Recording, error) {
	meta, err := readMeta(dir)
	if err != nil {
		return nil, err
	}
	home := dir
	if meta.Status == StatusRunning {
		if home, meta, err = finishDead(dir); err != nil {
			return nil, err
		}
	} else if _, err := os.Stat(filepath.Join(dir, liveDir)); err == nil {
		tidy(dir) // its writer died between its last two steps
	}
	r := &Recording{dir: dir, home: home, meta: meta}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Recording) open() (err error) {
	if r.root, err = os.OpenRoot(r.home); err != nil {
		return fmt.Errorf("open recording: %w", err)
	}
	if r.profiles, err = r.readProfiles(); err != nil {
		return err
	}
	r.pods = cached(r, pods)
	r.operations = cached(r, operations)
	r.processes = cached(r, processes)
	r.machine = cached(r, machine)
	r.requests = cached(r, requests)
	r.nodes = cached(r, nodes)
	r.exits = cached(r, exits)
	r.cores = cached(r, cores)
	r.disks = cached(r, disks)
	r.stackSamples = cached(r, stackSamples)
	r.stacks = cached(r, stacks)
	r.blockIO = cached(r, blockIO)
	r.syncs = cached(r, syncs)
	r.objects = cached(r, objects)
	r.events = cached(r, events)
	r.metrics = sync.OnceValues(func() (*tsdb.Reader, error) {
		m, err := tsdb.OpenReader(filepath.Join(r.home, metricsDir))
		if errors.Is(err, tsdb.ErrEmpty) || errors.Is(err, fs.ErrNotExist) {
			return nil, r.missing("metrics")
		}
		return m, err
	})
	return nil
}

// cached reads a table when it is first asked for.
func cached[T any](r *Recording, t tableOf[T]) func() ([]T, error) {
	return sync.OnceValues(func() ([]T, error) {
		rows, err := t.read(r.root)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, r.missing(string(t.name))
		}
		return rows, err
	})
}

// collectors tells which collector observes what, so that its gap explains
// what is missing.
var collectors = map[string]string{
	string(TablePods):         "objects",
	string(TableNodes):        "objects",
	string(TableOperations):   "load",
	string(TableProcesses):    "process",
	string(TableMachine):      "process",
	string(TableRequests):     "requests",
	string(TableExits):        "process",
	string(TableCores):        "process",
	string(TableDisks):        "process",
	string(TableStackSamples): "stacks",
	string(TableStacks):       "stacks",
	string(TableBlockIO):      "blockio",
	string(TableSyncs):        "blockio",
	string(TableObjects):      "lives",
	string(TableEvents):       "lives",
	"metrics":                 "metrics",
	"profiles":                "profile",
	"logs":                    "logs",
}

// missing is the error for a part of the recording that is not there.
func (r *Recording) missing(what string) error {
	var reasons []string
	for _, g := range r.meta.Gaps {
		if g.Subject != what && (g.Collector != what && g.Collector != collectors[what] || g.Subject != "") {
			continue
		}
		if !slices.Contains(reasons, g.Reason) {
			reasons = append(reasons, g.Reason)
		}
	}
	if len(reasons) == 0 {
		return fmt.Errorf("%s of recording %s: %w", what, r.dir, ErrMissing)
	}
	return fmt.Errorf("%s of recording %s: %w: %s", what, r.dir, ErrMissing, strings.Join(reasons, "; "))
}

func (r *Recording) readProfiles() ([]ProfileRef, error) {
	data, err := r.root.ReadFile(profilesIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	name := filepath.Join(r.dir, profilesIndex)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var refs []ProfileRef
	if err := json.Unmarshal(data, &refs); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", name, err)
	}
	slices.SortStableFunc(refs, compareProfiles)
	return refs, nil
}

// Dir is the folder that was opened.
func (r *Recording) Dir() string { return r.dir }

// Meta is what recording.json holds.
func (r *Recording) Meta() Meta { return r.meta }

// Components are the processes of the control plane and of the harness.
func (r *Recording) Components() []Component { return r.meta.Cluster.Components }

// Phases are the run's phases in order of time.
func (r *Recording) Phases() []Phase {
	phases := slices.Clone(r.meta.Phases)
	slices.SortStableFunc(phases, func(a, b Phase) int { return a.Start.Compare(b.Start) })
	return phases
}

// Steady is from the start of the first steady phase to the end of the last;
// false where the run had none.
func (r *Recording) Steady() (Window, bool) {
	var w Window
	found := false
	for _, p := range r.Phases() {
		if p.Kind != PhaseSteady {
			continue
		}
		if !found {
			w, found = p.Window(), true
		}
		if p.End.After(w.End) {
			w.End = p.End
		}
	}
	return w, found
}

// Experiment is the experiment file with all settings applied and without secrets.
func (r *Recording) Experiment() ([]byte, error) {
	data, err := r.root.ReadFile(experimentFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, r.missing("experiment")
	}
	return data, err
}

// Pods are sorted by due time, or creation where they were due at none.
func (r *Recording) Pods() ([]Pod, error) { return r.pods() }

// Operations are sorted by due time.
func (r *Recording) Operations() ([]Operation, error) { return r.operations() }

// Processes are sorted by time, then PID.
func (r *Recording) Processes() ([]ProcessSample, error) { return r.processes() }

// MachineSamples are sorted by time.
func (r *Recording) MachineSamples() ([]MachineSample, error) { return r.machine() }

// Requests are sorted by when the API server received them.
func (r *Recording) Requests() ([]Request, error) { return r.requests() }

// EachRequest calls f for every request, in the order in which the recording
// has them, which is nearly that of their ends. It holds none in memory, as
// Requests does; what f is given is good until it returns.
func (r *Recording) EachRequest(f func(*Request) error) error {
	err := requests.each(r.root, f)
	if errors.Is(err, fs.ErrNotExist) {
		return r.missing(string(TableRequests))
	}
	return err
}

// Nodes are sorted by name.
func (r *Recording) Nodes() ([]NodeSample, error) { return r.nodes() }

// Exits are sorted by when the process ended.
func (r *Recording) Exits() ([]ProcessExit, error) { return r.exits() }

// Cores are sorted by time, then CPU.
func (r *Recording) Cores() ([]CoreSample, error) { return r.cores() }

// Disks are sorted by time, then device.
func (r *Recording) Disks() ([]DiskSample, error) { return r.disks() }

// StackSamples are sorted by time, then CPU.
func (r *Recording) StackSamples() ([]StackSample, error) { return r.stackSamples() }

// Stacks are sorted by ID.
func (r *Recording) Stacks() ([]Stack, error) { return r.stacks() }

// BlockIO is sorted by when it was submitted.
func (r *Recording) BlockIO() ([]BlockIO, error) { return r.blockIO() }

// Syncs are sorted by when they were called.
func (r *Recording) Syncs() ([]Sync, error) { return r.syncs() }

// Objects are sorted by time.
func (r *Recording) Objects() ([]ObjectChange, error) { return r.objects() }

// Events are sorted by when they were seen.
func (r *Recording) Events() ([]Event, error) { return r.events() }

// Query evaluates a PromQL expression at one time.
func (r *Recording) Query(expr string, at time.Time) (Vector, error) {
	m, err := r.metrics()
	if err != nil {
		return nil, err
	}
	series, err := m.Instant(context.Background(), expr, at)
	return convert(series), err
}

// QueryRange evaluates a PromQL expression at the window's start and each
// step after it, up to and including its end.
func (r *Recording) QueryRange(expr string, w Window, step time.Duration) (Matrix, error) {
	m, err := r.metrics()
	if err != nil {
		return nil, err
	}
	series, err := m.Range(context.Background(), expr, w.Start, w.End, step)
	return convert(series), err
}

// Increase is by how much the matching counters grew in the window, all
// together: for each series the last sample at or before the window's end,
// less the last one at or before its start. A series that was born inside the
// window counts from 0, and so does a counter that fell, for its process was
// restarted. Nothing is extrapolated. ok is false where no series matches.
//
// A match value that starts with ~ is a regular expression for the whole
// value; an empty one matches series without the label.
func (r *Recording) Increase(metric string, match map[string]string, w Window) (value float64, ok bool, err error) {
	m, err := r.metrics()
	if err != nil {
		return 0, false, err
	}
	return m.Increase(context.Background(), metric, match, w.Start, w.End)
}

// GaugeAt is the sum over the matching series of their last value at or
// before at, as Prometheus would see it: not older than five minutes, and
// not of a series that ended. ok is false where there is none. Match values
// are as for Increase.
func (r *Recording) GaugeAt(metric string, match map[string]string, at time.Time) (value float64, ok bool, err error) {
	m, err := r.metrics()
	if err != nil {
		return 0, false, err
	}
	return m.At(context.Background(), metric, match, at, lookback)
}

// Points are the raw samples of the matching series in the window, sorted by
// labels. Series without one are left out. Match values are as for Increase.
func (r *Recording) Points(metric string, match map[string]string, w Window) ([]Series, error) {
	m, err := r.metrics()
	if err != nil {
		return nil, err
	}
	series, err := m.Points(context.Background(), metric, match, w.Start, w.End)
	return convert(series), err
}

func convert(series []tsdb.Series) []Series {
	out := make([]Series, len(series))
	for i, s := range series {
		out[i] = Series{Labels: s.Labels, Note: s.Note, Points: make([]Point, len(s.Points))}
		for j, p := range s.Points {
			out[i].Points[j] = Point(p)
		}
	}
	return out
}

// Profiles lists the profiles by component, then start, phase and kind.
func (r *Recording) Profiles() []ProfileRef { return r.profiles }

// ReadProfile reads one of them.
func (r *Recording) ReadProfile(ref ProfileRef) (*profile.Profile, error) {
	f, err := r.root.Open(ref.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("profile %s of recording %s: %w", ref.File, r.dir, ErrMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("profile of recording %s: %w", r.dir, err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(r.dir, ref.File), err)
	}
	return p, nil
}

// Logs lists the components that left a log.
func (r *Recording) Logs() []string {
	names, _ := fs.Glob(r.root.FS(), logsDir+"/*.log")
	for i, n := range names {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(n, logsDir+"/"), ".log")
	}
	return names
}

// Log opens a component's log. The caller closes it.
func (r *Recording) Log(component string) (io.ReadCloser, error) {
	f, err := r.root.Open(logsDir + "/" + fileName(component) + ".log")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", component, r.missing("logs"))
	}
	if err != nil {
		return nil, fmt.Errorf("log of recording %s: %w", r.dir, err)
	}
	return f, nil
}

// Close frees what the recording holds open. What it gave out stays valid.
func (r *Recording) Close() error {
	var errs []error
	if r.metrics != nil {
		// Opening just to close is cheap, and spares a lock around each use.
		if m, err := r.metrics(); err == nil {
			errs = append(errs, m.Close())
		}
	}
	if r.root != nil {
		errs = append(errs, r.root.Close())
	}
	if r.home != r.dir {
		errs = append(errs, os.RemoveAll(r.home))
	}
	return errors.Join(errs...)
}
