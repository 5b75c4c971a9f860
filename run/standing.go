package run

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/record"
)

// A Layer is how far a cluster is built up; all below it stands too.
type Layer string

// The layers of a lab, from the bottom up.
const (
	LayerNothing   Layer = ""
	LayerEtcd      Layer = lab.Etcd
	LayerAPI       Layer = lab.APIServer
	LayerManager   Layer = lab.ControllerManager
	LayerScheduler Layer = lab.Scheduler
	LayerNode      Layer = "node"
	LayerAddons    Layer = "add-ons"
)

// Layers are those that an experiment's cluster has.
func Layers(e *experiment.Experiment) []Layer {
	all := []Layer{LayerNothing, LayerEtcd, LayerAPI, LayerManager, LayerScheduler}
	all = slices.DeleteFunc(all, func(l Layer) bool { return e.Cluster.Components[string(l)].Off })
	if e.Cluster.Nodes.All() > 0 {
		all = append(all, LayerNode)
	}
	if len(e.Actors) > 0 {
		all = append(all, LayerAddons)
	}
	return all
}

// A Standing is a recording of the machine's processes that goes on while
// clusters, or commands, stand on it and go again. It is light: nobody is asked
// anything, so that what stands there has nothing to do.
type Standing struct {
	o       Options
	id      string
	w       *record.Writer
	process *process.Collector
	group   *collect.Group
	lab     *labTarget // that stands now
}

// StartStanding begins the recording. Finish must be called.
func StartStanding(ctx context.Context, o Options, name string) (*Standing, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	started := o.Now()
	s := &Standing{o: o, id: record.NewID(started, rand.Reader), process: process.New(process.Options{})}
	w, err := record.Create(o.Out, record.Meta{
		Schema: record.Schema, ID: s.id, Name: name, Tool: o.Tool, Started: started,
		Status: record.StatusRunning, Machine: fingerprint(o.Out), Settings: o.Settings,
	})
	if err != nil {
		return nil, err
	}
	s.w = w
	for _, c := range []string{"objects", "metrics", "profile", "logs", "requests", "stacks", "blockio"} {
		w.Gap(record.Gap{Collector: c, Reason: "an idle machine's processes are looked at, and nothing is asked of anybody"})
	}
	s.group = collect.Start(ctx, w, s.process)
	return s, nil
}

// Finish ends the recording. err is why the work ended, nil where it is done.
func (s *Standing) Finish(err error) error {
	status, reason := record.StatusComplete, ""
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, ErrInterrupted):
		status, reason = record.StatusInterrupted, "interrupted"
	case err != nil:
		status, reason = record.StatusFailed, err.Error()
	}
	return errors.Join(s.group.Stop(), s.w.Finish(status, reason))
}

// Lab builds the cluster of an experiment up to a layer, calls while as it
// stands, and takes it down.
func (s *Standing) Lab(ctx context.Context, e *experiment.Experiment, layer Layer, while func(ctx context.Context) error) (err error) {
	if layer == LayerNothing {
		return while(s.until(ctx))
	}
	if e.Cluster.Storage != nil {
		return errors.New("simulated storage is not built up in layers; leave cluster.storage out")
	}
	o := s.o
	o.Experiment = e
	last := ""
	if layer != LayerNode && layer != LayerAddons {
		last = string(layer)
	}
	work, fail := context.WithCancelCause(s.until(ctx))
	defer fail(nil)
	p := &session{o: o, id: s.id, w: s.w, process: s.process, fail: fail, began: o.Now()}
	target, err := newLabTarget(work, o, last, p.note)
	if err != nil {
		return err
	}
	s.lab, p.target = target, target
	defer func() {
		s.lab = nil
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, target.Stop(stop, err != nil), target.Remove())
	}()
	go func() {
		select {
		case e := <-target.Exited():
			fail(&diedError{e})
		case <-work.Done():
		}
	}()
	p.plane = target.ControlPlane()
	if err := p.describeCluster(); err != nil {
		return err
	}
	for _, c := range p.plane.Components {
		p.attach(process.Component{Name: c.Name, PID: c.PID, Cgroup: c.Cgroup})
	}
	p.attach(process.Component{Name: process.Keeper, PID: p.plane.KeeperPID})
	if last == "" {
		defer func() { err = errors.Join(err, p.stopRealNodes(ctx)) }()
		if e.Cluster.Nodes.All() > 0 {
			if err := p.startNodes(work); err != nil {
				return err
			}
		}
	}
	if layer == LayerAddons && len(e.Actors) > 0 {
		end, err := p.startAddons(work)
		defer func() { err = errors.Join(err, end()) }()
		if err != nil {
			return err
		}
	}
	err = while(work)
	if cause := context.Cause(work); err != nil && cause != nil {
		err = cause // says more than what it did to whatever was under way
	}
	return err
}

// startAddons starts the actors in a namespace of theirs, which the load
// generator makes; that one has nothing else to do.
func (s *session) startAddons(ctx context.Context) (end func() error, err error) {
	worker, err := load.Start(ctx, load.StartOptions{
		Config: load.Config{
			Kubeconfig: s.plane.Kubeconfigs.Load, RunID: s.id, Seed: s.o.Experiment.Seed,
			Nodes:      s.o.Experiment.Cluster.Nodes.All(),
			NoAccounts: s.o.Experiment.Cluster.Components[lab.ControllerManager].Off,
			NoKubelets: s.o.Experiment.Cluster.Nodes.Seeded > 0,
		},
		Executable: s.o.Executable,
		Wrap:       s.target.WrapLoad,
	})
	if err != nil {
		return func() error { return nil }, fmt.Errorf("start the load generator: %w", err)
	}
	s.worker = worker
	s.attach(process.Component{Name: load.ProcessName, PID: worker.PID(), Cgroup: s.target.LoadCgroup()})
	end = func() error { return errors.Join(s.stopActors(ctx, everyPhase), worker.Stop()) }
	return end, s.startActors(ctx, everyPhase)
}

// until is ctx, ended also when the recording cannot go on.
func (s *Standing) until(ctx context.Context) context.Context {
	both, fail := context.WithCancelCause(ctx)
	context.AfterFunc(s.group.Context(), func() { fail(context.Cause(s.group.Context())) })
	return both
}

// Pause freezes the lab that stands.
func (s *Standing) Pause(ctx context.Context) error {
	if s.lab == nil {
		return errors.New("no lab stands that could be paused")
	}
	return s.lab.Pause(ctx)
}

// CommandName is the component that a command and all it starts count for.
const CommandName = "command"

// commandGrace is how long a command may take to end when it is told to.
const commandGrace = 10 * time.Second

// Command runs a command, calls while as it runs, and ends it with all that it
// started in its process group.
func (s *Standing) Command(ctx context.Context, argv []string, while func(ctx context.Context) error) (err error) {
	work, fail := context.WithCancelCause(s.until(ctx))
	defer fail(nil)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said tailBuffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = commandGrace // for who holds its output and has left its group
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	s.process.Attach(process.Component{Name: CommandName, PID: cmd.Process.Pid})
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		if line := said.LastLine(); line != "" {
			err = fmt.Errorf("%w: %s", err, line)
		}
		fail(fmt.Errorf("%s ended before it was looked at: %w", argv[0], err))
		ended <- err
	}()
	err = while(work)
	if cause := context.Cause(work); err != nil && cause != nil {
		err = cause
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	grace := time.NewTimer(commandGrace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // also who is left of its group
	return err
}
