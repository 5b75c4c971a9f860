package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/collect/metrics"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/collect/profile"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/internal/clientcert"
	"github.com/kubedyno/kubedyno/load/actor"
)

// actorGrace is how long an actor may take to end: it gives up its locks.
const actorGrace = 5 * time.Second

// startActors starts the actors of a phase, or those that run all the time. One
// that runs in several phases goes on from one to the next.
func (s *session) startActors(ctx context.Context, phase string) error {
	for _, a := range s.o.Experiment.Actors {
		always := len(a.During) == 0
		if s.actors[a.Name] != nil || always != (phase == everyPhase) || !always && !slices.Contains(a.During, phase) {
			continue
		}
		if err := s.startActor(ctx, a); err != nil {
			return fmt.Errorf("start actor %s: %w", a.Name, err)
		}
	}
	return nil
}

func (s *session) startActor(ctx context.Context, a experiment.Actor) error {
	c := actor.Config{
		Name: a.Name, Do: string(a.Do), Namespace: s.worker.Namespace(), RunID: s.id, Seed: s.o.Experiment.Seed,
		Rate: a.Rate.PerSecond, Count: a.Count, Objects: a.Objects, Bytes: a.Bytes, Resource: a.Resource, Stale: a.Stale,
		QPS: float32(a.QPS), Burst: a.Burst, DelaySeconds: a.Delay.Seconds(), Refuse: a.Refuse,
	}
	var err error
	if c.Kubeconfig, err = s.actorKubeconfig(a.Name); err != nil {
		return err
	}
	switch a.Do {
	case experiment.ActAddonHook, experiment.ActAddonManager, experiment.ActAddonUser:
		if c.Folder, err = s.actorFolder(addonFolder); err != nil {
			return err
		}
		c.Image = experiment.AddonImage
	}
	switch a.Do {
	case experiment.ActKubectlApply, experiment.ActApplyOnChange, experiment.ActAddonHook, experiment.ActAddonManager:
		if c.Kubectl, err = s.kubectl(); err != nil {
			return err
		}
	}
	switch a.Do {
	case experiment.ActKubectlApply, experiment.ActApplyOnChange, experiment.ActAddonHook, experiment.ActAddonManager, experiment.ActAddonUser:
		if c.Cache, err = s.actorFolder(a.Name); err != nil {
			return err
		}
	}
	if a.Do == experiment.ActDiskWriter {
		if s.plane.StateDir == "" {
			return errors.New("a disk-writer writes beside the etcd of a lab, and this cluster is none")
		}
		if c.Cache, err = s.actorFolder(a.Name); err != nil {
			return err
		}
	}
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	act, err := startChild(ctx, s.o.Executable, actor.ProcessName, line)
	if err != nil {
		return err
	}
	if s.actors == nil {
		s.actors = map[string]*child{}
	}
	s.actors[a.Name] = act
	go func() { // nothing but its end is news
		for range act.Events {
		}
		<-act.done
		if !act.stopping() {
			s.fail(&diedError{fmt.Errorf("actor %s exited: %w", a.Name, act.err)})
		}
	}()
	s.attach(process.Component{Name: a.Name, PID: act.PID})
	at := strings.TrimSuffix(act.MetricsURL, "/metrics")
	if s.metrics != nil {
		s.metrics.Add(metrics.Target{Component: a.Name, Instance: act.instance(a.Name), URL: act.MetricsURL})
	}
	if s.profile != nil {
		s.profile.Add(profile.Target{Component: a.Name, Instance: act.instance(a.Name), URL: at + "/debug/pprof"})
	}
	s.note("actor %s (%s) runs", a.Name, a.Do)
	return nil
}

// stopActors ends the actors of a phase, or at the end all of them.
func (s *session) stopActors(ctx context.Context, phase string) error {
	var errs []error
	for _, a := range s.o.Experiment.Actors {
		child := s.actors[a.Name]
		if child == nil || phase != everyPhase && (!slices.Contains(a.During, phase) || s.goesOn(a, phase)) {
			continue
		}
		delete(s.actors, a.Name)
		if s.metrics != nil { // nobody will answer any more
			s.metrics.Remove(a.Name, child.instance(a.Name))
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), actorGrace)
		if err := child.stop(end); err != nil {
			errs = append(errs, fmt.Errorf("stop actor %s: %w", a.Name, err))
		}
		cancel()
	}
	if phase == everyPhase && s.folder != "" {
		errs = append(errs, os.RemoveAll(s.folder))
	}
	return errors.Join(errs...)
}

// goesOn says whether an actor runs in the step after a phase too.
func (s *session) goesOn(a experiment.Actor, phase string) bool {
	steps := s.o.Experiment.Plan()
	i := slices.IndexFunc(steps, func(p experiment.Step) bool { return slices.Contains(names(p), phase) })
	return i >= 0 && i+1 < len(steps) && slices.ContainsFunc(names(steps[i+1]), func(n string) bool { return slices.Contains(a.During, n) })
}

func (c *child) instance(name string) string { return fmt.Sprintf("%s@%d", name, c.PID) }

// actorKubeconfig is with what an actor talks: in a lab as a user of its own,
// elsewhere as the user's.
func (s *session) actorKubeconfig(name string) (string, error) {
	if s.plane.Kind != cluster.KindLab {
		return s.plane.Kubeconfigs.Load, nil
	}
	cert, key, err := clientcert.Sign(s.plane.NodeCA.CertFile, s.plane.NodeCA.KeyFile, name, lab.ActorGroup)
	if err != nil {
		return "", err
	}
	ca, err := os.ReadFile(s.plane.CA)
	if err != nil {
		return "", fmt.Errorf("authority of the API server: %w", err)
	}
	config, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"lab": {Server: s.plane.Server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{"lab": {Cluster: "lab", AuthInfo: name}},
		CurrentContext: "lab",
	})
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	dir, err := s.actorFolder(name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, config, 0o600)
}

// addonFolder is the folder that add-on managers of the run apply. No actor has
// a name with a dot.
const addonFolder = "addons.d"

// actorFolder is where an actor's files are: they go with the lab, or at the end.
func (s *session) actorFolder(name string) (string, error) {
	if s.plane.StateDir != "" {
		dir := filepath.Join(s.plane.StateDir, "actors", name)
		return dir, os.MkdirAll(dir, 0o700)
	}
	if s.folder == "" {
		dir, err := os.MkdirTemp("", "kubedyno-actors-")
		if err != nil {
			return "", err
		}
		s.folder = dir
	}
	dir := filepath.Join(s.folder, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// kubectl is the lab's, or elsewhere the user's.
func (s *session) kubectl() (string, error) {
	if s.plane.Kind == cluster.KindLab {
		return lab.FindLab()
	}
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return "", fmt.Errorf("kubectl-apply runs the kubectl that is installed: %w", err)
	}
	return path, nil
}
