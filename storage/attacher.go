package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// An attacher attaches what the attach-detach controller asks for with a
// VolumeAttachment, and detaches what it deletes. Its requests are those of the
// external-attacher: for an attachment a finalizer on the volume, a finalizer
// with the node's ID on the attachment, and its status; for a detachment the
// status and the finalizer; and the volume's finalizer when it is to go.
type attacher struct {
	conf    *Config
	client  kubernetes.Interface
	backend *backend

	attachments storagelisters.VolumeAttachmentLister
	byVolume    cache.Indexer
	volumes     corelisters.PersistentVolumeLister
	nodes       storagelisters.CSINodeLister
	queue       workqueue.TypedRateLimitingInterface[string] // attachments
	volumeQueue workqueue.TypedRateLimitingInterface[string]
}

// run attaches until ctx ends. started is called once the informers know the
// cluster.
func (a *attacher) run(ctx context.Context, started func()) {
	factory := informers.NewSharedInformerFactory(a.client, 0)
	attachments := factory.Storage().V1().VolumeAttachments()
	volumes := factory.Core().V1().PersistentVolumes()
	nodes := factory.Storage().V1().CSINodes()
	a.attachments, a.volumes, a.nodes = attachments.Lister(), volumes.Lister(), nodes.Lister()
	if err := attachments.Informer().AddIndexers(cache.Indexers{byVolume: volumeOf}); err != nil {
		panic(err) // only of an informer that runs
	}
	a.byVolume = attachments.Informer().GetIndexer()
	queue := func(name string) workqueue.TypedRateLimitingInterface[string] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMost),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: name})
	}
	a.queue, a.volumeQueue = queue("csi-attacher-va"), queue("csi-attacher-pv")
	add := func(queue workqueue.TypedRateLimitingInterface[string]) cache.ResourceEventHandlerFuncs {
		put := func(o any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				queue.Add(key)
			}
		}
		return cache.ResourceEventHandlerFuncs{AddFunc: put, UpdateFunc: func(_, o any) { put(o) }}
	}
	handlers := add(a.queue)
	handlers.DeleteFunc = func(o any) { // its volume may be let go now
		if late, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = late.Obj
		}
		if names, _ := volumeOf(o); len(names) > 0 {
			a.volumeQueue.Add(names[0])
		}
	}
	for _, err := range []error{second(attachments.Informer().AddEventHandler(handlers)), second(volumes.Informer().AddEventHandler(add(a.volumeQueue)))} {
		if err != nil {
			panic(err) // only of an informer that has ended
		}
	}
	nodes.Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if ctx.Err() == nil {
		started()
	}
	var workers sync.WaitGroup
	for range a.conf.Storage.AttachWorkers {
		workers.Go(func() { work(ctx, a.queue, a.attachment) })
		workers.Go(func() { work(ctx, a.volumeQueue, a.volume) })
	}
	<-ctx.Done()
	a.queue.ShutDown()
	a.volumeQueue.ShutDown()
	workers.Wait()
	factory.Shutdown()
}

func second[T any](_ T, err error) error { return err }

// work does what is in the queue, and again later what fails.
func work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], do func(ctx context.Context, name string) error) {
	for {
		name, ended := queue.Get()
		if ended {
			return
		}
		if err := do(ctx, name); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "It is tried again later", "name", name)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// attachment brings one attachment to where it should be.
func (a *attacher) attachment(ctx context.Context, name string) error {
	va, err := a.attachments.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case va.Spec.Attacher != a.conf.Storage.Driver:
		return nil
	case va.DeletionTimestamp != nil:
		err = a.detach(ctx, va)
	case !va.Status.Attached:
		err = a.attach(ctx, va)
	}
	return err
}

func (a *attacher) attach(ctx context.Context, va *storagev1.VolumeAttachment) error {
	ready, err := a.prepare(ctx, va)
	if err == nil {
		err = a.backend.do(ctx, "ControllerPublishVolume", string(va.UID), drawAttach, a.conf.Storage.AttachDelay, attachTimeout)
	}
	if err != nil {
		err = fmt.Errorf("attach %s: %w", va.Name, err)
		failure := va.DeepCopy()
		failure.Status.AttachError = &storagev1.VolumeError{Message: err.Error(), Time: metav1.Now()}
		if told := a.patchAttachment(ctx, va, failure, "status"); told != nil {
			klog.ErrorS(told, "The attachment was not told of an error", "name", va.Name)
		}
		return err
	}
	done := ready.DeepCopy()
	done.Status.Attached, done.Status.AttachError = true, nil
	return a.patchAttachment(ctx, ready, done, "status")
}

// prepare holds volume and attachment until they are detached again.
func (a *attacher) prepare(ctx context.Context, va *storagev1.VolumeAttachment) (*storagev1.VolumeAttachment, error) {
	names, _ := volumeOf(va)
	if len(names) == 0 {
		return nil, errors.New("it names no volume")
	}
	volume, err := a.volumes.Get(names[0])
	if err != nil {
		return nil, err
	}
	if volume.DeletionTimestamp != nil {
		return nil, fmt.Errorf("volume %s is being deleted", volume.Name)
	}
	finalizer := Finalizer(a.conf.Storage.Driver)
	if !slices.Contains(volume.Finalizers, finalizer) {
		held := volume.DeepCopy()
		held.Finalizers = append(held.Finalizers, finalizer)
		if err := a.patchVolume(ctx, volume, held); err != nil {
			return nil, err
		}
	}
	node, err := a.nodes.Get(va.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == a.conf.Storage.Driver })
	if i < 0 {
		return nil, fmt.Errorf("node %s has no driver %s", va.Spec.NodeName, a.conf.Storage.Driver)
	}
	id := node.Spec.Drivers[i].NodeID
	if slices.Contains(va.Finalizers, finalizer) && va.Annotations[nodeID] == id {
		return va, nil // by an attempt before
	}
	ready := va.DeepCopy()
	ready.Finalizers = append(without(ready.Finalizers, finalizer), finalizer)
	metav1.SetMetaDataAnnotation(&ready.ObjectMeta, nodeID, id)
	return ready, a.patchAttachment(ctx, va, ready)
}

func (a *attacher) detach(ctx context.Context, va *storagev1.VolumeAttachment) error {
	finalizer := Finalizer(a.conf.Storage.Driver)
	if !slices.Contains(va.Finalizers, finalizer) {
		return nil // done, and nearly gone
	}
	if err := a.backend.do(ctx, "ControllerUnpublishVolume", string(va.UID), drawDetach, a.conf.Storage.AttachDelay, attachTimeout); err != nil {
		err = fmt.Errorf("detach %s: %w", va.Name, err)
		failure := va.DeepCopy()
		failure.Status.DetachError = &storagev1.VolumeError{Message: err.Error(), Time: metav1.Now()}
		if told := a.patchAttachment(ctx, va, failure, "status"); told != nil {
			klog.ErrorS(told, "The attachment was not told of an error", "name", va.Name)
		}
		return err
	}
	// The status goes first: without its finalizer there is no attachment.
	detached := va.DeepCopy()
	detached.Status.Attached, detached.Status.DetachError = false, nil
	if err := a.patchAttachment(ctx, va, detached, "status"); err != nil {
		return err
	}
	gone := detached.DeepCopy()
	gone.Finalizers = without(gone.Finalizers, finalizer)
	return a.patchAttachment(ctx, detached, gone)
}

// volume lets a volume go that is to be deleted and is attached nowhere.
func (a *attacher) volume(ctx context.Context, name string) error {
	volume, err := a.volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	finalizer := Finalizer(a.conf.Storage.Driver)
	if err != nil || volume.DeletionTimestamp == nil || !slices.Contains(volume.Finalizers, finalizer) {
		return err
	}
	if attached, err := a.byVolume.ByIndex(byVolume, name); err != nil || len(attached) > 0 {
		return err
	}
	free := volume.DeepCopy()
	free.Finalizers = without(free.Finalizers, finalizer)
	return a.patchVolume(ctx, volume, free)
}

func (a *attacher) patchVolume(ctx context.Context, was, is *corev1.PersistentVolume) error {
	patch, err := mergePatch(&was.ObjectMeta, &is.ObjectMeta, nil)
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().PersistentVolumes().Patch(ctx, is.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return gone(err)
}

func (a *attacher) patchAttachment(ctx context.Context, was, is *storagev1.VolumeAttachment, sub ...string) error {
	var status any
	if len(sub) > 0 {
		status = attachmentStatus{is.Status.Attached, is.Status.AttachError, is.Status.DetachError}
	}
	patch, err := mergePatch(&was.ObjectMeta, &is.ObjectMeta, status)
	if err != nil {
		return err
	}
	_, err = a.client.StorageV1().VolumeAttachments().Patch(ctx, is.Name, types.MergePatchType, patch, metav1.PatchOptions{}, sub...)
	return gone(err)
}

// gone is nil for an object that is not there any more: it needs nothing.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// attachmentStatus is the status in a patch, where null takes an error away.
type attachmentStatus struct {
	Attached    bool                   `json:"attached"`
	AttachError *storagev1.VolumeError `json:"attachError"`
	DetachError *storagev1.VolumeError `json:"detachError"`
}

// mergePatch says what changes: the status where there is one, else finalizers
// and annotations.
func mergePatch(was, is *metav1.ObjectMeta, status any) ([]byte, error) {
	if status != nil {
		return json.Marshal(map[string]any{"status": status})
	}
	meta := map[string]any{}
	if !slices.Equal(was.Finalizers, is.Finalizers) {
		meta["finalizers"] = is.Finalizers
	}
	if !maps.Equal(was.Annotations, is.Annotations) {
		meta["annotations"] = is.Annotations
	}
	return json.Marshal(map[string]any{"metadata": meta})
}

// nodeID is the annotation with the node's name in the words of the driver.
const nodeID = "csi.alpha.kubernetes.io/node-id"

var notInFinalizer = regexp.MustCompile(`[^a-zA-Z0-9-]`)

// Finalizer is what the driver's attacher holds volumes and attachments by.
func Finalizer(driver string) string {
	return "external-attacher/" + notInFinalizer.ReplaceAllString(driver, "-")
}

// Holds reports whether a finalizer is one by which sidecars of CSI drivers hold
// volumes and attachments.
func Holds(finalizer string) bool {
	return finalizer == "external-provisioner.volume.kubernetes.io/finalizer" || strings.HasPrefix(finalizer, "external-attacher/")
}
