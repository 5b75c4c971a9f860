package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Of the library's first years: how long one candidate tries a claim before it
// begins again, and how long a lock is good for.
const (
	claimTerm     = 30 * time.Second
	claimLease    = 15 * time.Second
	claimDeadline = 10 * time.Second
	claimRetry    = 2 * time.Second
)

const (
	annProvisioner   = "volume.kubernetes.io/storage-provisioner"
	annProvisionedBy = "pv.kubernetes.io/provisioned-by"
)

// A perClaim provisions as the library did before it had one lock for a driver:
// every replica works, and for each claim all of them compete for a lock of the
// claim's own. Who competes first lists the claim's Events, to see whether another
// has told of a volume, and who has the lock reads class and volume from the API
// server. All of it, locks included, goes through one client with the sidecar's
// limit.
type perClaim struct {
	*provisioner
	events record.EventRecorder

	mu      sync.Mutex
	known   map[types.UID]context.CancelFunc // claims that this replica competes for
	workers sync.WaitGroup
}

// runPerClaim provisions until ctx ends. started is called once the informer knows
// the claims.
func (p *provisioner) runPerClaim(ctx context.Context, started func()) {
	told := record.NewBroadcaster(record.WithContext(ctx))
	told.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: p.client.CoreV1().Events("")})
	defer told.Shutdown()
	c := &perClaim{
		provisioner: p, known: map[types.UID]context.CancelFunc{},
		events: told.NewRecorder(scheme.Scheme, corev1.EventSource{Component: p.conf.Storage.Driver + "_" + p.conf.Identity}),
	}
	factory := informers.NewSharedInformerFactory(p.client, claimLease)
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	see := func(o any) {
		if claim, ok := o.(*corev1.PersistentVolumeClaim); ok {
			c.see(ctx, claim)
		}
	}
	if _, err := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, o any) { see(o) },
		DeleteFunc: func(o any) {
			if claim, ok := o.(*corev1.PersistentVolumeClaim); ok {
				c.settle(claim.UID)
			}
		},
	}); err != nil {
		panic(err) // only of an informer that has ended
	}
	factory.StartWithContext(ctx)
	if cache.WaitForCacheSync(ctx.Done(), claims.HasSynced) {
		started()
	}
	<-ctx.Done()
	factory.Shutdown() // from here on no claim is seen
	c.workers.Wait()
}

// see begins to compete for a claim that is to get a volume, and ends it for one
// that has its own.
func (c *perClaim) see(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		c.settle(claim.UID)
		return
	}
	// The volume controller writes it once the claim wants a volume: with late
	// binding, when its pod has a node.
	if claim.Annotations[annProvisioner] != c.conf.Storage.Driver {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[claim.UID] != nil {
		return
	}
	ctx, end := context.WithCancel(ctx)
	c.known[claim.UID] = end
	c.workers.Go(func() {
		for ctx.Err() == nil {
			c.lockClaim(ctx, claim)
		}
	})
}

func (c *perClaim) settle(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end := c.known[uid]; end != nil {
		end()
		delete(c.known, uid)
	}
}

// lockClaim competes for a claim's lock for one term, and provisions when it has
// it.
func (c *perClaim) lockClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	ctx, end := context.WithTimeout(ctx, claimTerm)
	defer end()
	log := klog.LoggerWithValues(klog.FromContext(ctx), "PVC", klog.KObj(claim))
	told, err := c.told(ctx, claim)
	if err != nil && ctx.Err() == nil {
		log.Error(err, "List events of claim")
	}
	if told {
		<-ctx.Done() // the informer will say that it is bound
		return
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: "provision",
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: c.conf.Namespace, Name: "provision-" + string(claim.UID)},
			Client:    c.client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: c.conf.Identity},
		},
		LeaseDuration: claimLease, RenewDeadline: claimDeadline, RetryPeriod: claimRetry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if err := c.provision(ctx, claim); err != nil && ctx.Err() == nil {
					log.Error(err, "Provision claim")
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		log.Error(err, "Lock claim")
		<-ctx.Done()
		return
	}
	elector.Run(ctx)
}

// provisioned is the reason of the Event that tells of a volume.
const provisioned = "ProvisioningSucceeded"

// told says whether a replica has told of the claim's volume.
func (c *perClaim) told(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	all, err := c.client.CoreV1().Events(claim.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(claim.UID)}.AsSelector().String(),
	})
	if err != nil {
		return false, err
	}
	for _, e := range all.Items {
		if e.InvolvedObject.UID == claim.UID && e.Reason == provisioned {
			return true, nil
		}
	}
	return false, nil
}

// provision makes a claim's volume, unless it is there.
func (c *perClaim) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	switch _, err := c.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get volume %s: %w", name, err)
	}
	class, err := c.client.StorageV1().StorageClasses().Get(ctx, className(claim), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get class %s: %w", className(claim), err)
	}
	c.events.Event(claim, corev1.EventTypeNormal, "Provisioning", fmt.Sprintf("External provisioner is provisioning volume for claim %q", klog.KObj(claim)))
	volume, _, err := c.Provision(ctx, controller.ProvisionOptions{PVC: claim, PVName: name, StorageClass: class})
	if err != nil {
		c.events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", err.Error())
		return err
	}
	owner, err := reference.GetReference(scheme.Scheme, claim)
	if err != nil {
		return fmt.Errorf("refer to claim %s: %w", claim.Name, err)
	}
	volume.Spec.ClaimRef, volume.Spec.StorageClassName = owner, class.Name
	metav1.SetMetaDataAnnotation(&volume.ObjectMeta, annProvisionedBy, c.conf.Storage.Driver)
	if _, err := c.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create volume %s: %w", name, err)
	}
	c.events.Event(claim, corev1.EventTypeNormal, provisioned, fmt.Sprintf("Successfully provisioned volume %s", name))
	return nil
}

func className(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}
