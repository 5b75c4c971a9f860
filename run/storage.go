package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/collect/metrics"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/collect/profile"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/hollow"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/storage"
)

// csi is the simulated storage driver of a run.
type csi struct {
	dir, log  string // private to us
	installed bool
	driver    storage.Installation
	client    kubernetes.Interface
	replicas  *storage.Replicas
}

// StorageNamespace is where the sidecars of a run's storage driver belong.
func StorageNamespace(runID string) string { return load.Namespace(runID) + "-csi" }

// prepareStorage makes the folder of the sidecars, with the log that collectors
// follow.
func (s *session) prepareStorage() error {
	e := s.o.Experiment.Cluster.Storage
	if e == nil {
		return nil
	}
	dir, err := os.MkdirTemp(s.plane.StateDir, "csi-") // an existing cluster has none: then the system's
	if err != nil {
		return fmt.Errorf("folder of the storage driver: %w", err)
	}
	s.csi = &csi{dir: dir, log: filepath.Join(dir, storage.ProcessName+".log"), driver: storage.Installation{
		Storage: *e, RunID: s.id, Namespace: StorageNamespace(s.id), Default: s.plane.Kind == cluster.KindLab,
	}}
	if err := os.WriteFile(s.csi.log, nil, 0o600); err != nil {
		return fmt.Errorf("log of the storage driver: %w", err)
	}
	return nil
}

// startStorage installs the driver and starts its sidecars. One that dies ends
// the run.
func (s *session) startStorage(ctx context.Context, fail context.CancelCauseFunc) error {
	if s.csi == nil {
		return nil
	}
	began := s.o.Now()
	rc, err := s.plane.RESTConfig("admin")
	if err != nil {
		return err
	}
	if s.csi.client, err = kubernetes.NewForConfig(rc); err != nil {
		return fmt.Errorf("install the storage driver: %w", err)
	}
	s.csi.installed = true // if only in part
	if err := s.csi.driver.Install(ctx, s.csi.client); err != nil {
		return err
	}
	env, cgroups := s.target.Limits(storage.ProcessName)
	s.csi.replicas, err = storage.Start(ctx, storage.StartOptions{
		Installation: s.csi.driver, Server: rc, Client: s.csi.client, Seed: s.o.Experiment.Seed,
		Dir: s.csi.dir, LogFile: s.csi.log, Executable: s.o.Executable, Env: env, Cgroups: cgroups,
	})
	if err != nil {
		return err
	}
	go func() {
		select {
		case err := <-s.csi.replicas.Exited():
			fail(&diedError{err})
		case <-ctx.Done():
		}
	}()
	for _, r := range s.csi.replicas.All() {
		if err := s.joinStorage(r, cgroups); err != nil {
			return err
		}
	}
	s.note("storage driver %s: its sidecars lead after %.1f s", s.csi.driver.Storage.Driver, s.o.Now().Sub(began).Seconds())
	return nil
}

// joinStorage makes a replica a component that is watched: of the system under
// test, for it stands for a user's sidecars.
func (s *session) joinStorage(r *storage.Replica, cgroups []string) error {
	c := process.Component{Name: storage.ProcessName, PID: r.PID()}
	if len(cgroups) > 0 {
		c.Cgroup = cgroups[0]
	}
	s.attach(c)
	if s.metrics != nil {
		s.metrics.Add(metrics.Target{Component: storage.ProcessName, Instance: r.Instance(), URL: r.MetricsURL})
	}
	if s.profile != nil {
		s.profile.Add(profile.Target{Component: storage.ProcessName, Instance: r.Instance(), URL: strings.TrimSuffix(r.MetricsURL, "/metrics") + "/debug/pprof"})
	}
	st := s.csi.driver.Storage
	return s.w.Update(func(m *record.Meta) {
		m.Cluster.Components = append(m.Cluster.Components, record.Component{
			Name: storage.ProcessName, Instance: r.Instance(), PID: r.PID(), Version: s.o.Tool,
			CPU: s.o.Experiment.Cluster.Components[storage.ProcessName].CPU,
			// As the flags of the sidecars that it stands for.
			Flags: map[string]string{
				"worker-threads": fmt.Sprint(st.Workers), "attacher-worker-threads": fmt.Sprint(st.AttachWorkers),
				"kube-api-qps": fmt.Sprint(st.QPS), "kube-api-burst": fmt.Sprint(st.Burst),
			},
		})
	})
}

// stopStorage ends the sidecars, once they have deleted the run's volumes where
// the cluster stays, and takes the driver away.
func (s *session) stopStorage(ctx context.Context) error {
	if s.csi == nil {
		return nil
	}
	var errs []error
	if s.o.Existing && s.csi.replicas != nil {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		errs = append(errs, s.csi.driver.Drained(drain, s.csi.client))
		cancel()
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageStopTimeout)
	defer cancel()
	if r := s.csi.replicas; r != nil {
		if s.metrics != nil {
			for _, one := range r.All() {
				s.metrics.Remove(storage.ProcessName, one.Instance())
			}
		}
		errs = append(errs, r.Stop(stop))
	}
	if s.o.Existing && s.csi.installed {
		errs = append(errs, s.csi.driver.Remove(stop, s.csi.client), s.namespaceGone(context.WithoutCancel(ctx), s.csi.driver.Namespace))
	}
	return errors.Join(errs...)
}

// storageStopTimeout bounds the end of the sidecars and the removal of a handful
// of objects.
const storageStopTimeout = 20 * time.Second

// removeStorage removes the driver's folder, when nobody reads its log any more.
func (s *session) removeStorage() error {
	if s.csi == nil {
		return nil
	}
	return os.RemoveAll(s.csi.dir)
}

// hollowStorage is the nodes' part of the driver.
func hollowStorage(s *experiment.Storage) *hollow.Storage {
	if s == nil {
		return nil
	}
	return &hollow.Storage{Driver: s.Driver, Attach: s.Attach, Limit: s.VolumesPerNode, MountDelay: hollowDelay(s.MountDelay)}
}
