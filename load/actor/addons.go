package actor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mode marks what an add-on manager keeps as it is in its folder, and takes away
// when it is no longer there.
const mode = "addonmanager.kubernetes.io/mode"

// prunable are the kinds that the manager takes away: kube-addon-manager's list in
// today's versions, without Secrets, which actors may not read.
var prunable = []string{
	"core/v1/ConfigMap", "core/v1/Endpoints", "core/v1/Namespace", "core/v1/PersistentVolumeClaim", "core/v1/PersistentVolume", "core/v1/Pod",
	"core/v1/ReplicationController", "core/v1/Service", "batch/v1/Job", "batch/v1/CronJob",
	"apps/v1/DaemonSet", "apps/v1/Deployment", "apps/v1/ReplicaSet", "apps/v1/StatefulSet", "networking.k8s.io/v1/Ingress",
}

// addonManager applies the folder by the clock.
func addonManager(ctx context.Context, a *actor) error {
	keep, err := a.keeper()
	if err != nil {
		return err
	}
	a.each(ctx, func(ctx context.Context, _, _ int) { _ = keep(ctx) })
	return nil
}

// addonHook applies the folder when a file in it was written or taken away, and
// at no other time. Rate is how often at most.
func addonHook(ctx context.Context, a *actor) error {
	keep, err := a.keeper()
	if err != nil {
		return err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the folder of add-ons: %w", err)
	}
	changes := os.NewFile(uintptr(fd), "inotify")
	defer changes.Close()
	if _, err := unix.InotifyAddWatch(fd, a.Folder, unix.IN_MOVED_TO|unix.IN_DELETE); err != nil {
		return fmt.Errorf("watch the folder of add-ons %s: %w", a.Folder, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = changes.Close() })
	defer stop()
	if err := until(ctx, func() error { return keep(ctx) }); err != nil {
		return err
	}
	buffer := make([]byte, 1<<16)
	for {
		if _, err := changes.Read(buffer); err != nil {
			return err // closed with ctx, or broken
		}
		// A hook that failed is called again, as who calls it would. What changes in
		// between is one more time together.
		for {
			err := keep(ctx)
			if !sleep(ctx, time.Duration(float64(time.Second)/a.Rate)) || err == nil {
				break
			}
		}
	}
}

// keeper writes the add-ons that are there from the beginning, and returns what
// applies the folder as kube-addon-manager did.
func (a *actor) keeper() (func(context.Context) error, error) {
	for i := range a.Objects {
		m := a.object(i)
		m.Labels[mode] = "Reconcile"
		if err := a.enable(m.Name, corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: m, Data: addon(i)}); err != nil {
			return nil, err
		}
	}
	args := []string{"apply", "-f", a.Folder, "-l", "kubernetes.io/cluster-service!=true," + mode + "=Reconcile", "--prune=true"}
	for _, kind := range prunable {
		args = append(args, "--prune-allowlist", kind)
	}
	args = append(args, "--recursive", "--namespace", a.Namespace)
	var once sync.Once
	return func(ctx context.Context) error {
		return a.act("apply", func() error {
			cmd := exec.CommandContext(ctx, a.Kubectl, args...)
			cmd.Args[0] = "kubectl"
			cmd.Env = append(os.Environ(), "KUBECACHEDIR="+a.Cache, "KUBECONFIG="+a.Kubeconfig)
			out, err := cmd.CombinedOutput()
			if err != nil && ctx.Err() == nil {
				once.Do(func() { fmt.Fprintf(a.stderr, "kubectl apply: %v: %s\n", err, bytes.TrimSpace(out)) })
			}
			return err
		})
	}, nil
}

// enable puts an add-on into the folder, whole or not at all.
func (a *actor) enable(name string, object any) error {
	b, err := json.Marshal(object)
	if err != nil {
		return err
	}
	part := filepath.Join(a.Cache, name+".part")
	if err := os.WriteFile(part, b, 0o600); err != nil {
		return fmt.Errorf("enable %s: %w", name, err)
	}
	if err := os.Rename(part, filepath.Join(a.Folder, name+".json")); err != nil {
		return fmt.Errorf("enable %s: %w", name, err)
	}
	return nil
}

// addonUser puts Objects add-ons of one pod each into the folder, one at each due
// time, and counts how long each takes until it runs.
func addonUser(ctx context.Context, a *actor) error {
	var waits sync.WaitGroup
	defer waits.Wait()
	every := time.Duration(float64(time.Second) / a.Rate)
	for i := range a.Objects {
		if i > 0 && !sleep(ctx, every) {
			return ctx.Err()
		}
		waits.Go(func() { _ = a.act("enable", func() error { return a.enableAndWait(ctx, i) }) })
	}
	<-ctx.Done()
	return nil
}

func (a *actor) enableAndWait(ctx context.Context, i int) error {
	m := a.object(i)
	app := map[string]string{"app": m.Name}
	labels := map[string]string{mode: "Reconcile", "app": m.Name}
	none := int64(0)
	object := appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &none, Containers: []corev1.Container{{Name: "main", Image: a.Image}}},
			},
		},
	}
	if err := a.act("ask", func() error { return a.enable(m.Name, object) }); err != nil {
		return err
	}
	for sleep(ctx, 100*time.Millisecond) {
		d, err := a.client.AppsV1().Deployments(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s did not run: %w", m.Name, context.Cause(ctx))
}
