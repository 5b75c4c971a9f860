// Package run performs one run: it wires a control plane, its load and the
// collectors to a recording, and ends them in order.
//
// A run is nested scopes. Whatever was started is stopped in reverse order,
// however the run ends, and the recording is finished last, so that it tells
// what happened also when the run was interrupted or a component died.
//
// Start with Run, then Options.
package run

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// Options say what to run and where to keep what is observed.
type Options struct {
	Experiment *experiment.Experiment
	// Settings are the --set values already applied to Experiment, kept with
	// the recording so that a reader sees what differs.
	Settings []string
	// Out is the recording's folder. It must not exist, or be empty.
	Out string
	// Parent is the ID of the recording whose finding this run tries out.
	Parent string
	// Kubeconfig and Context name an existing cluster; Existing says to use
	// one. Otherwise the run starts a lab of its own.
	Existing            bool
	Kubeconfig, Context string
	// AuditLog and ServerLog are files of an existing cluster's API server that
	// can be read from here: its audit log, and its own log at -v=3 or above.
	AuditLog, ServerLog string
	// Executable is the kubedyno binary, re-executed as keeper, hollow nodes
	// and load generator.
	Executable string
	Tool       string // version of kubedyno
	Watch      Watcher
	Log        *slog.Logger
	Now        func() time.Time
}

// State is what can be said of a run while it goes on.
type State struct {
	Phase                   string
	Claims                  bool // the numbers are of claims, which do not run
	Total                   int  // pods, or claims, that the phase asks for
	Created, Bound, Running int
	Gone                    int
	// EndsBound says that pods are done when they are bound: nobody starts them.
	EndsBound bool
	// ControlPlaneCores and OwnCores are CPU use over the last second; -1 is
	// unknown.
	ControlPlaneCores, OwnCores float64
}

// A Watcher is told how the run goes. Its methods are called from one
// goroutine at a time.
type Watcher interface {
	Phase(name string)
	Update(State)
	Note(text string)
}

// ErrInterrupted is the cause when the caller ended the run.
var ErrInterrupted = errors.New("interrupted")

// stopTimeout bounds the orderly end of a run. Components get their own,
// shorter graces inside.
const stopTimeout = 30 * time.Second

// Run performs the experiment and returns when the recording is finished and
// nothing of the run is left on the machine. The recording in Out can be opened
// also when Run returns an error, unless the error says that it could not be
// created.
func Run(ctx context.Context, o Options) error {
	s := &session{o: o}
	return s.finish(ctx)
}

// finish is the session from its recording's first file to its last.
func (s *session) finish(ctx context.Context) error {
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	o := s.o
	w, err := s.create()
	if err != nil {
		return err
	}
	s.w = w
	began := s.o.Now()
	err = s.run(ctx)
	if s.endedIn == "" {
		s.endedIn = s.phaseName()
	}
	status, reason := record.StatusComplete, ""
	switch {
	case err == nil:
	case s.watching && s.length == 0 && errors.Is(err, context.Cause(ctx)):
		err = nil // its end was for the caller to say
	case ctx.Err() != nil:
		status, reason = record.StatusInterrupted, "interrupted in "+s.endedIn
		err = fmt.Errorf("%w in %s", ErrInterrupted, s.endedIn)
		if s.plane != nil {
			err = fmt.Errorf("%w; what was observed until then is in %s", err, o.Out)
		}
	default:
		status, reason = record.StatusFailed, err.Error()
	}
	if ferr := w.Finish(status, reason); errors.Is(err, syscall.ENOSPC) && errors.Is(ferr, syscall.ENOSPC) {
		err = ferr // both say that the disk is full; this one says what to do
	} else {
		err = errors.Join(err, ferr)
	}
	s.noteTime(s.o.Now().Sub(began))
	if s.plane == nil {
		// There was no control plane, so there is nothing to keep: the error
		// says it all.
		err = errors.Join(err, s.discard())
	}
	return err
}

// spent is how long something took.
type spent struct {
	what string
	took time.Duration
}

// noteTime tells where the time of a run went. What is no phase is the end: the
// components' last words, and the recording.
func (s *session) noteTime(all time.Duration) {
	if len(s.spent) == 0 {
		return
	}
	rest := all
	parts := make([]string, len(s.spent))
	for i, p := range s.spent {
		rest -= p.took
		parts[i] = fmt.Sprintf("%s %.1f s", p.what, p.took.Seconds())
	}
	s.note("%.1f s in all: %s, end and recording %.1f s", all.Seconds(), strings.Join(parts, ", "), max(rest, 0).Seconds())
}

// discard removes the recording of a run that never began, and the folder if it
// was made for it.
func (s *session) discard() error {
	if s.madeOut {
		return os.RemoveAll(s.o.Out)
	}
	entries, err := os.ReadDir(s.o.Out)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.o.Out, e.Name())))
	}
	return err
}

// create starts the recording before anything else, so that a folder that
// cannot be written is known before a control plane was started for it.
func (s *session) create() (*record.Writer, error) {
	e := s.o.Experiment
	if err := e.Whole(); err != nil {
		return nil, err
	}
	if len(e.Faults) > 0 { // they change the experiment, which would be run without them
		return nil, fmt.Errorf("experiment %s: fault %s was not injected", e.Name, e.Faults[0].Name)
	}
	effective, err := e.WithoutSecrets(record.RedactArgs).YAML()
	if err != nil {
		return nil, fmt.Errorf("experiment %s: %w", e.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(s.o.Out), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make a folder for the recording: %w", err)
	}
	_, statErr := os.Stat(s.o.Out)
	s.madeOut = errors.Is(statErr, fs.ErrNotExist)
	started := s.o.Now()
	s.id = record.NewID(started, rand.Reader)
	meta := record.Meta{
		Schema:   record.Schema,
		ID:       s.id,
		Name:     e.Name,
		Tool:     s.o.Tool,
		Started:  started,
		Status:   record.StatusRunning,
		Machine:  fingerprint(s.o.Out),
		Settings: s.o.Settings,
		Parent:   s.o.Parent,
	}
	if !s.watching {
		meta.Workload = workload(e)
		if meta.Workload.Shape, err = e.Shape(); err != nil {
			return nil, err
		}
	}
	w, err := record.Create(s.o.Out, meta)
	if err != nil || s.watching {
		return w, err
	}
	if err := w.Experiment(effective); err != nil {
		return nil, errors.Join(err, w.Finish(record.StatusFailed, err.Error()))
	}
	return w, nil
}

// loads reports whether an experiment does more than to look at idle nodes.
func loads(e *experiment.Experiment) bool {
	return slices.ContainsFunc(e.Plan(), func(s experiment.Step) bool { return s.Settle == nil && s.Wait == nil })
}

// workload puts the experiment into the numbers that a reader of the recording
// needs.
func workload(e *experiment.Experiment) record.Workload {
	w := record.Workload{Seed: e.Seed}
	if loads(e) { // else the cluster is observed at its own work
		w.Experiment = "experiment.yaml"
	}
	w.ExpectedPods, w.ExpectedClaims = e.ExpectedPods(), e.ExpectedClaims()
	for _, p := range experiment.Flat(e.Plan()) {
		o := p.Makes()
		switch {
		case o == nil || p.Kind != experiment.KindSteady || p.Adds == 0:
		case o.KindName() != string(experiment.Pod):
			w.Controller = o.KindName()
		case p.Create != nil && p.Create.Clients == 0:
			w.OfferedRate = p.Create.Rate.PerSecond
			if len(p.Create.Rate.Steps) > 0 { // the mean
				w.OfferedRate = float64(p.Operations) / max(p.Least().Seconds(), 1)
			}
		}
	}
	for _, o := range e.Objectives {
		w.Objectives = append(w.Objectives, record.Objective{
			Name: o.Name, Indicator: string(o.Indicator), Quantile: o.Quantile,
			Limit: o.Limit.Value, Unit: o.Limit.Unit,
		})
	}
	return w
}
