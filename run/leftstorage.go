package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/storage"
)

// cleanOrder is the order in which kinds are deleted: pods and claims go with
// their namespaces, then what they held.
var cleanOrder = []string{"Namespace", "VolumeAttachment", "PersistentVolume", "StorageClass", "CSIDriver", "ClusterRoleBinding", "ClusterRole", "Node"}

// storageKind is how one kind of a storage driver's objects is found and
// deleted.
type storageKind struct {
	list   func(context.Context, kubernetes.Interface, metav1.ListOptions) ([]metav1.ObjectMeta, error)
	get    func(context.Context, kubernetes.Interface, string) (metav1.Object, error)
	delete func(context.Context, kubernetes.Interface, string, metav1.DeleteOptions) error
	// free takes the finalizers off of an object that is being deleted, where
	// those who would do that are gone.
	free func(context.Context, kubernetes.Interface, string, []byte) error
}

var storageKinds = map[string]storageKind{
	"PersistentVolume": {
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (all []metav1.ObjectMeta, err error) {
			list, err := c.CoreV1().PersistentVolumes().List(ctx, o)
			for i := range list.Items {
				all = append(all, list.Items[i].ObjectMeta)
			}
			return all, err
		},
		get: func(ctx context.Context, c kubernetes.Interface, name string) (metav1.Object, error) {
			return c.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		},
		delete: func(ctx context.Context, c kubernetes.Interface, name string, o metav1.DeleteOptions) error {
			return c.CoreV1().PersistentVolumes().Delete(ctx, name, o)
		},
		free: func(ctx context.Context, c kubernetes.Interface, name string, patch []byte) error {
			_, err := c.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	},
	"StorageClass": {
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (all []metav1.ObjectMeta, err error) {
			list, err := c.StorageV1().StorageClasses().List(ctx, o)
			for i := range list.Items {
				all = append(all, list.Items[i].ObjectMeta)
			}
			return all, err
		},
		get: func(ctx context.Context, c kubernetes.Interface, name string) (metav1.Object, error) {
			return c.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
		},
		delete: func(ctx context.Context, c kubernetes.Interface, name string, o metav1.DeleteOptions) error {
			return c.StorageV1().StorageClasses().Delete(ctx, name, o)
		},
	},
	"CSIDriver": {
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (all []metav1.ObjectMeta, err error) {
			list, err := c.StorageV1().CSIDrivers().List(ctx, o)
			for i := range list.Items {
				all = append(all, list.Items[i].ObjectMeta)
			}
			return all, err
		},
		get: func(ctx context.Context, c kubernetes.Interface, name string) (metav1.Object, error) {
			return c.StorageV1().CSIDrivers().Get(ctx, name, metav1.GetOptions{})
		},
		delete: func(ctx context.Context, c kubernetes.Interface, name string, o metav1.DeleteOptions) error {
			return c.StorageV1().CSIDrivers().Delete(ctx, name, o)
		},
	},
	"ClusterRole": {
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (all []metav1.ObjectMeta, err error) {
			list, err := c.RbacV1().ClusterRoles().List(ctx, o)
			for i := range list.Items {
				all = append(all, list.Items[i].ObjectMeta)
			}
			return all, err
		},
		get: func(ctx context.Context, c kubernetes.Interface, name string) (metav1.Object, error) {
			return c.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		},
		delete: func(ctx context.Context, c kubernetes.Interface, name string, o metav1.DeleteOptions) error {
			return c.RbacV1().ClusterRoles().Delete(ctx, name, o)
		},
	},
	"ClusterRoleBinding": {
		list: func(ctx context.Context, c kubernetes.Interface, o metav1.ListOptions) (all []metav1.ObjectMeta, err error) {
			list, err := c.RbacV1().ClusterRoleBindings().List(ctx, o)
			for i := range list.Items {
				all = append(all, list.Items[i].ObjectMeta)
			}
			return all, err
		},
		get: func(ctx context.Context, c kubernetes.Interface, name string) (metav1.Object, error) {
			return c.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		},
		delete: func(ctx context.Context, c kubernetes.Interface, name string, o metav1.DeleteOptions) error {
			return c.RbacV1().ClusterRoleBindings().Delete(ctx, name, o)
		},
	},
	// Attachments are the attach-detach controller's, and found by their volumes.
	"VolumeAttachment": {
		get: func(ctx context.Context, c kubernetes.Interface, name string) (metav1.Object, error) {
			return c.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
		},
		delete: func(ctx context.Context, c kubernetes.Interface, name string, o metav1.DeleteOptions) error {
			return c.StorageV1().VolumeAttachments().Delete(ctx, name, o)
		},
		free: func(ctx context.Context, c kubernetes.Interface, name string, patch []byte) error {
			_, err := c.StorageV1().VolumeAttachments().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
	},
}

// storageLeftovers lists what storage drivers of runs left. Who may not see a
// kind cannot have made one of it.
func storageLeftovers(ctx context.Context, client kubernetes.Interface, of metav1.ListOptions) ([]Leftover, error) {
	var left []Leftover
	volumes := map[string]string{} // of runs, with the run
	for _, kind := range cleanOrder {
		k, ours := storageKinds[kind]
		if !ours || k.list == nil {
			continue
		}
		all, err := k.list(ctx, client, of)
		if apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %ss of runs: %w", kind, err)
		}
		for i := range all {
			left = append(left, leftover(kind, &all[i], -1))
			if kind == "PersistentVolume" {
				volumes[all[i].Name] = all[i].Labels[load.LabelRun]
			}
		}
	}
	if len(volumes) == 0 {
		return left, nil
	}
	attachments, err := client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list VolumeAttachments of runs: %w", err)
	}
	for _, a := range attachments.Items {
		if name := a.Spec.Source.PersistentVolumeName; name != nil && volumes[*name] != "" {
			l := leftover("VolumeAttachment", &a.ObjectMeta, -1)
			l.Run = volumes[*name]
			left = append(left, l)
		}
	}
	return left, nil
}

// cleanStorage deletes one object of a storage driver. Its finalizers are those
// of sidecars that do not live any more.
func cleanStorage(ctx context.Context, client kubernetes.Interface, l Leftover) error {
	k, ok := storageKinds[l.Kind]
	if !ok {
		return fmt.Errorf("no way to delete a %s", l.Kind)
	}
	object, err := k.get(ctx, client, l.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if l.Kind != "VolumeAttachment" && object.GetLabels()[load.LabelRun] != l.Run {
		return errNotOurs
	}
	uid := object.GetUID()
	err = k.delete(ctx, client, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || err == nil && k.free == nil {
		return nil
	}
	if err != nil {
		return err
	}
	for {
		object, err := k.get(ctx, client, l.Name)
		if apierrors.IsNotFound(err) || err == nil && object.GetUID() != uid {
			return nil
		}
		if err != nil {
			return err
		}
		// Others take theirs off at the same time: only what was just read is
		// written back.
		others := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), storage.Holds)
		if len(others) < len(object.GetFinalizers()) {
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": others, "resourceVersion": object.GetResourceVersion()}})
			if err != nil {
				return err
			}
			if err := k.free(ctx, client, l.Name, patch); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("take its finalizers off: %w", err)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is still there (%w), held by %s", context.Cause(ctx), strings.Join(others, ", "))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
