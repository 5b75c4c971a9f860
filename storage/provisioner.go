package storage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
	libmetrics "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"
)

// Retries of what failed, as both sidecars have them by default.
const (
	retryFirst = time.Second
	retryMost  = 5 * time.Minute
)

// A provisioner makes and deletes volumes when the library's controller asks.
type provisioner struct {
	conf     *Config
	client   kubernetes.Interface
	backend  *backend
	metrics  libmetrics.Metrics
	attached cache.Indexer // VolumeAttachments by volume
}

// run provisions until ctx ends. started is called once the controller's
// informers know the cluster.
func (p *provisioner) run(ctx context.Context, started func()) {
	factory := informers.NewSharedInformerFactory(p.client, controller.DefaultResyncPeriod)
	attachments := factory.Storage().V1().VolumeAttachments().Informer()
	if err := attachments.AddIndexers(cache.Indexers{byVolume: volumeOf}); err != nil {
		panic(err) // only of an informer that runs
	}
	p.attached = attachments.GetIndexer()
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	volumes := factory.Core().V1().PersistentVolumes().Informer()
	classes := factory.Storage().V1().StorageClasses().Informer()

	var workers sync.WaitGroup
	limiter := func() workqueue.TypedRateLimiter[string] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMost)
	}
	// The options are those with which the external-provisioner runs it; the
	// lease is held by the process, as there.
	c := controller.NewProvisionController(ctx, p.client, p.conf.Storage.Driver, p,
		controller.LeaderElection(false),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.RateLimiter(limiter()),
		controller.CreateProvisionedPVLimiter(workqueue.DefaultTypedControllerRateLimiter[string]()),
		controller.Threadiness(p.conf.Storage.Workers),
		controller.ClaimsInformer(claims),
		controller.VolumesInformer(volumes),
		controller.ClassesInformer(classes),
		controller.AddFinalizer(true),
		controller.MetricsInstance(p.metrics),
	)
	c.ControllerWaitGroup(&workers)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if ctx.Err() == nil {
		started()
	}
	c.Run(ctx)
	workers.Wait()
	factory.Shutdown()
}

// Provision implements controller.Provisioner.
func (p *provisioner) Provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	s := &p.conf.Storage
	err := p.backend.do(ctx, "CreateVolume", string(o.PVC.UID), drawCreate, s.ProvisionDelay, provisionTimeout)
	if err != nil {
		return nil, controller.ProvisioningInBackground, fmt.Errorf("create volume %s: %w", o.PVName, err)
	}
	reclaim := corev1.PersistentVolumeReclaimDelete
	if o.StorageClass.ReclaimPolicy != nil {
		reclaim = *o.StorageClass.ReclaimPolicy
	}
	source := &corev1.CSIPersistentVolumeSource{
		Driver: s.Driver, VolumeHandle: o.PVName,
		VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": p.conf.Identity + "-" + s.Driver},
	}
	if o.PVC.Spec.VolumeMode == nil || *o.PVC.Spec.VolumeMode == corev1.PersistentVolumeFilesystem {
		source.FSType = "ext4"
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName, Labels: map[string]string{LabelRun: p.conf.RunID}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   o.PVC.Spec.AccessModes,
			MountOptions:                  o.StorageClass.MountOptions,
			VolumeMode:                    o.PVC.Spec.VolumeMode,
			PersistentVolumeReclaimPolicy: reclaim,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: source},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete implements controller.Provisioner.
func (p *provisioner) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	// The backend would refuse to delete what is attached, so it is not asked.
	attached, err := p.attached.ByIndex(byVolume, volume.Name)
	if err != nil {
		return err
	}
	for _, a := range attached {
		return fmt.Errorf("persistentvolume %s is still attached to node %s", volume.Name, a.(*storagev1.VolumeAttachment).Spec.NodeName)
	}
	if err := p.backend.do(ctx, "DeleteVolume", string(volume.UID), drawDelete, p.conf.Storage.ProvisionDelay, provisionTimeout); err != nil {
		return fmt.Errorf("delete volume %s: %w", volume.Name, err)
	}
	return nil
}

// SupportsBlock implements controller.BlockProvisioner: it stores either as well.
func (p *provisioner) SupportsBlock(context.Context) bool { return true }

// byVolume indexes attachments by the volume that they attach.
const byVolume = "volume"

func volumeOf(o any) ([]string, error) {
	a, ok := o.(*storagev1.VolumeAttachment)
	if !ok || a.Spec.Source.PersistentVolumeName == nil {
		return nil, nil
	}
	return []string{*a.Spec.Source.PersistentVolumeName}, nil
}

// without is a list without one of its members.
func without(list []string, member string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == member })
}
