package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubedyno/kubedyno/experiment"
)

// Labels of what a run makes on a cluster, as load has them.
const (
	LabelRun   = "kubedyno.io/run"
	LabelOwner = "app.kubernetes.io/managed-by"
	owner      = "kubedyno"
)

// Account is the service account of the sidecars, in their namespace.
const Account = "csi"

// An Installation is a driver on a cluster: its CSIDriver and StorageClass, and
// the account of its sidecars with their rights. All of it carries the run's
// label.
type Installation struct {
	Storage   experiment.Storage
	RunID     string
	Namespace string // of the sidecars; it is made too
	// Default makes the class the one of claims that name none.
	Default bool
}

// RoleName is what the cluster role and its binding are called: cluster-wide
// names must differ from run to run.
func (i Installation) RoleName() string { return "kubedyno:csi:" + i.Namespace }

func (i Installation) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelRun: i.RunID, LabelOwner: owner}}
}

// Install puts the driver on the cluster. What is there already under its names
// belongs to somebody else, and is an error.
func (i Installation) Install(ctx context.Context, client kubernetes.Interface) error {
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: i.Namespace, Name: Account}
	create := metav1.CreateOptions{}
	for _, step := range []struct {
		what string
		make func() error
	}{
		{"namespace " + i.Namespace, func() error {
			_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: i.meta(i.Namespace)}, create)
			return err
		}},
		{"service account " + Account, func() error {
			_, err := client.CoreV1().ServiceAccounts(i.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: i.meta(Account)}, create)
			return err
		}},
		{"role of the sidecars", func() error {
			_, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: i.meta(i.RoleName()), Rules: sidecarRules}, create)
			return err
		}},
		{"binding of the sidecars' role", func() error {
			_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: i.meta(i.RoleName()), Subjects: []rbacv1.Subject{subject},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: i.RoleName()},
			}, create)
			return err
		}},
		{"role for the sidecars' leases", func() error {
			_, err := client.RbacV1().Roles(i.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: i.meta(Account), Rules: leaseRules}, create)
			return err
		}},
		{"binding of the role for leases", func() error {
			_, err := client.RbacV1().RoleBindings(i.Namespace).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: i.meta(Account), Subjects: []rbacv1.Subject{subject},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: Account},
			}, create)
			return err
		}},
		{"CSIDriver " + i.Storage.Driver, func() error {
			_, err := client.StorageV1().CSIDrivers().Create(ctx, i.driver(), create)
			return err
		}},
		{"StorageClass " + i.Storage.Class, func() error {
			_, err := client.StorageV1().StorageClasses().Create(ctx, i.class(), create)
			return err
		}},
	} {
		if err := step.make(); err != nil {
			return fmt.Errorf("install the storage driver: create %s: %w", step.what, err)
		}
	}
	return nil
}

func (i Installation) driver() *storagev1.CSIDriver {
	return &storagev1.CSIDriver{
		ObjectMeta: i.meta(i.Storage.Driver),
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: ptr.To(i.Storage.Attach), PodInfoOnMount: ptr.To(false),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		},
	}
}

func (i Installation) class() *storagev1.StorageClass {
	mode := storagev1.VolumeBindingImmediate
	if i.Storage.Binding == experiment.BindingFirstConsumer {
		mode = storagev1.VolumeBindingWaitForFirstConsumer
	}
	c := &storagev1.StorageClass{
		ObjectMeta: i.meta(i.Storage.Class), Provisioner: i.Storage.Driver,
		ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete), VolumeBindingMode: &mode,
	}
	if i.Default {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	return c
}

// sidecarRules are what the deployments of external-provisioner and
// external-attacher grant to them (deploy/kubernetes/rbac.yaml of each), without
// what is for snapshots and capacity.
var sidecarRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
	{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch", "update"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses", "csinodes"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"get", "list", "watch", "patch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments/status"}, Verbs: []string{"patch"}},
	{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list", "watch", "create", "update", "patch"}},
}

var leaseRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "watch", "list", "create", "update", "patch", "delete"}},
}

// Drained waits until the volumes of the run are gone: the sidecars that delete
// them must live as long.
func (i Installation) Drained(ctx context.Context, client kubernetes.Interface) error {
	of := metav1.ListOptions{LabelSelector: labels.Set{LabelRun: i.RunID}.String()}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		volumes, err := client.CoreV1().PersistentVolumes().List(ctx, of)
		if err == nil && len(volumes.Items) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			left := "an unknown number"
			if err == nil {
				left = fmt.Sprint(len(volumes.Items))
			}
			return fmt.Errorf("%s of the run's volumes are still there; kubedyno clean --run %s takes them away", left, i.RunID)
		}
	}
}

// Remove takes the driver off the cluster again, with whatever of it is there.
func (i Installation) Remove(ctx context.Context, client kubernetes.Interface) error {
	d := metav1.DeleteOptions{}
	var errs []error
	for _, step := range []struct {
		what string
		err  error
	}{
		{"StorageClass " + i.Storage.Class, client.StorageV1().StorageClasses().Delete(ctx, i.Storage.Class, d)},
		{"CSIDriver " + i.Storage.Driver, client.StorageV1().CSIDrivers().Delete(ctx, i.Storage.Driver, d)},
		{"ClusterRoleBinding " + i.RoleName(), client.RbacV1().ClusterRoleBindings().Delete(ctx, i.RoleName(), d)},
		{"ClusterRole " + i.RoleName(), client.RbacV1().ClusterRoles().Delete(ctx, i.RoleName(), d)},
		{"namespace " + i.Namespace, client.CoreV1().Namespaces().Delete(ctx, i.Namespace, d)},
	} {
		if step.err != nil && !apierrors.IsNotFound(step.err) {
			errs = append(errs, fmt.Errorf("remove the storage driver: delete %s: %w", step.what, step.err))
		}
	}
	return errors.Join(errs...)
}
