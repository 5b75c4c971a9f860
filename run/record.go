package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os/exec"
	"time"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/existing"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
)

// ObservePhase is the one phase of a recording that was not loaded.
const ObservePhase = "observe"

// RecordOptions say what to observe, without loading it.
type RecordOptions struct {
	// For is for how long; 0 is until the context ends, which then is no
	// interruption.
	For time.Duration
	// Lab is the name of a lab that is up; empty takes the only one. With
	// Existing it is not looked at.
	Lab string
	// Observe says how closely.
	Observe experiment.Observe
	// What else is as for a run.
	Options
}

// Record observes a control plane at its own work and returns when the
// recording is finished.
func Record(ctx context.Context, o RecordOptions) error {
	o.Experiment = &experiment.Experiment{Name: "record", Observe: o.Observe}
	s := &session{o: o.Options, lab: o.Lab, watching: true, length: o.For}
	return s.finish(ctx)
}

// find finds the control plane of a session that only watches.
func (s *session) find(ctx context.Context) (target, error) {
	if s.o.Existing {
		return s.connect(ctx)
	}
	st, err := lab.Open("", s.lab)
	if err != nil {
		return nil, err
	}
	if st.ControlPlane == nil || st.Phase == lab.PhaseDead {
		return nil, fmt.Errorf("lab %s is %s; look with `kubedyno lab status %s`", st.Name, st.Phase, st.Name)
	}
	s.note("lab %s: %s at %s", st.Name, st.ControlPlane.Version, st.ControlPlane.Server)
	return &watchedLab{st}, nil
}

func (s *session) connect(ctx context.Context) (target, error) {
	c, err := existing.Connect(ctx, s.o.Kubeconfig, s.o.Context)
	if err != nil {
		return nil, err
	}
	s.note("cluster %s: %s at %s", c.ControlPlane().Name, c.ControlPlane().Version, c.ControlPlane().Server)
	return &existingTarget{Cluster: c, executable: s.o.Executable, exited: make(chan error, 1)}, nil
}

// observe is the whole of a session that only watches.
func (s *session) observe(ctx context.Context) error {
	if err := s.watchedNodes(ctx); err != nil {
		return err
	}
	if err := s.leave(ctx); err != nil {
		return err
	}
	return s.perStep(ctx, experiment.Step{Phase: experiment.Phase{
		Name: ObservePhase, Kind: experiment.KindSteady, Settle: &experiment.Settle{For: s.length},
	}})
}

// watchedNodes counts the nodes, if it may, and notes those that a lab
// simulates.
func (s *session) watchedNodes(ctx context.Context) error {
	err := s.existingNodes(ctx)
	var none *noNodesError
	if errors.As(err, &none) { // nobody waits for pods here
		err = nil
	}
	w, ok := s.target.(*watchedLab)
	if err != nil || !ok || w.Hollow == nil {
		return err
	}
	if err := s.w.Update(func(m *record.Meta) { m.Nodes.Simulated = true }); err != nil {
		return err
	}
	return s.joinHollow(hollowProcess{PID: w.Hollow.PID, MetricsURL: w.Hollow.MetricsURL, Cgroup: w.Hollow.Cgroup, CPU: w.Hollow.CPU})
}

// pause waits for d, or for ctx where d is 0: then its end is what was asked
// for.
func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		<-ctx.Done()
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watchedLab is a lab that was up before and stays up.
type watchedLab struct{ *lab.State }

func (t *watchedLab) ControlPlane() *cluster.ControlPlane { return t.State.ControlPlane }
func (t *watchedLab) APIReady() time.Duration {
	return time.Duration(t.State.APIReady * float64(time.Second))
}
func (t *watchedLab) StartHollow(context.Context, json.RawMessage) (hollowProcess, error) {
	return hollowProcess{}, errors.New("a lab that is only watched gets no nodes")
}
func (t *watchedLab) Seed(context.Context, iter.Seq[lab.Seedling]) error {
	return errors.New("a lab that is only watched is not seeded")
}
func (t *watchedLab) WrapLoad(*exec.Cmd) error              { return nil }
func (t *watchedLab) LoadCgroup() string                    { return "" }
func (t *watchedLab) Limits(string) (env, cgroups []string) { return nil, nil }
func (t *watchedLab) Exited() <-chan error                  { return nil }
func (t *watchedLab) Stop(context.Context, bool) error      { return nil }
func (t *watchedLab) Remove() error                         { return nil }
