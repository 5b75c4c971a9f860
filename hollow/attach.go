package hollow

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// Storage is the node's part of a simulated CSI driver: what the kubelet says
// to the API server for it.
type Storage struct {
	Driver     string `json:"driver"`
	Attach     bool   `json:"attach"`              // the CSIDriver's attachRequired
	Limit      int    `json:"limit,omitempty"`     // volumes that a node takes; 0: any number
	MountDelay Delay  `json:"mountDelay,omitzero"` // of an attached volume
}

func (s *Storage) check() error {
	switch {
	case s == nil:
		return nil
	case s.Driver == "":
		return errors.New("storage: it needs a driver")
	case s.Limit < 0:
		return fmt.Errorf("storage: limit is %d: it must not be negative", s.Limit)
	case s.MountDelay.Distribution == "":
		return nil // no delay
	}
	return s.MountDelay.check("storage: mountDelay")
}

// volumes is what a node knows of the volumes of its pods. node.mu guards it.
type volumes struct {
	used     map[string]int  // by how many pods, by unique name
	told     []string        // volumesInUse as the API server has it, sorted
	attached map[string]bool // volumesAttached as the node's watch showed it
	changed  chan struct{}   // closed, and made anew, when told or attached change
	due      bool            // a report is planned or under way
}

// What a kubelet does not do at once.
const (
	// statusTick is nodeStatusUpdateFrequency: how often a kubelet looks whether
	// its status has changed. A volume waits for that before it is mounted.
	statusTick = 10 * time.Second
	// volumeLoop is how often its volume manager looks at the pods' volumes.
	volumeLoop = 100 * time.Millisecond
)

// claimsOf lists the claims of a pod, a name each.
func claimsOf(object *v1.Pod) (names []string) {
	for i := range object.Spec.Volumes {
		v := &object.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, object.Name+"-"+v.Name)
		}
	}
	return names
}

// mountClaims begins to mount the pod's claims. n.mu is held.
func (n *node) mountClaims(p *pod) {
	for _, claim := range p.claims {
		n.fleet.start(func(ctx context.Context) { n.mountClaim(ctx, p, claim) })
	}
}

// mountClaim does for a claim what a kubelet's volume manager does, in its
// order: find the volume, report it in use, see it attached, mount it.
func (n *node) mountClaim(ctx context.Context, p *pod, claim string) {
	volume, ok := n.volumeOf(ctx, p, claim)
	if !ok {
		return
	}
	s := n.fleet.conf.Storage
	if csi := volume.Spec.CSI; csi != nil && csi.Driver == s.Driver {
		if !n.attachAndMount(ctx, p, claim, csi.VolumeHandle) {
			return
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p.mounts--
	n.mounted(p)
}

func (n *node) attachAndMount(ctx context.Context, p *pod, claim, handle string) bool {
	s, m := n.fleet.conf.Storage, n.fleet.metrics
	name := uniqueName(s.Driver, handle)
	began := time.Now()
	if s.Attach {
		if !n.use(p, name) || !n.awaitAttached(ctx, p, name) {
			return false
		}
	}
	if !n.verifyAttached(ctx, p, claim, name) {
		return false
	}
	m.volumeAttached.Observe(time.Since(began).Seconds())
	began = time.Now()
	attachment := "/apis/storage.k8s.io/v1/volumeattachments/" + attachmentName(handle, s.Driver, n.name)
	// Before the device is mounted the attachment's status and its metadata are
	// asked for, and the metadata again before the pod's own mount.
	for range 2 {
		if s.Attach && !n.attachedSays(ctx, p, attachment) {
			return false
		}
	}
	if d := s.MountDelay; d.Distribution != "" && !wait(ctx, d.of(n.fleet.conf.Seed, p.uid+"/"+claim, drawMount)) {
		return false
	}
	if s.Attach && !n.attachedSays(ctx, p, attachment) {
		return false
	}
	m.volumeMounted.Observe(time.Since(began).Seconds())
	return true
}

// volumeOf finds the volume that a claim is bound to, and waits until it is.
func (n *node) volumeOf(ctx context.Context, p *pod, claim string) (*v1.PersistentVolume, bool) {
	path := "/api/v1/namespaces/" + p.namespace + "/persistentvolumeclaims/" + claim
	for {
		var c v1.PersistentVolumeClaim
		var volume v1.PersistentVolume
		err := n.read(ctx, getClaim, path, &c)
		if err == nil && c.Spec.VolumeName != "" && c.Status.Phase == v1.ClaimBound {
			err = n.read(ctx, getVolume, "/api/v1/persistentvolumes/"+c.Spec.VolumeName, &volume)
			if err == nil && volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID == c.UID {
				return &volume, true
			}
		}
		if n.left(p) || !wait(ctx, backoff(0, volumeLoop, volumeLoop)) {
			return nil, false
		}
	}
}

// left reports whether a pod needs its volumes no more.
func (n *node) left(p *pod) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p.gone || p.deleting
}

// use reports the volume in use with the next look at the node's status. It is
// false where the pod does not need it any more.
func (n *node) use(p *pod, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.gone || p.deleting {
		return false
	}
	if n.volumes.used == nil {
		n.volumes.used = map[string]int{}
	}
	n.volumes.used[name]++
	p.volumes = append(p.volumes, name)
	n.planVolumes(time.Now())
	return true
}

// letGo takes the pod's volumes out of use: they are unmounted. n.mu is held.
func (n *node) letGo(p *pod) {
	for _, name := range p.volumes {
		if n.volumes.used[name]--; n.volumes.used[name] == 0 {
			delete(n.volumes.used, name)
		}
	}
	if p.volumes != nil {
		n.planVolumes(time.Now())
	}
	p.volumes = nil
}

// planVolumes plans the report of volumes in use, at the kubelet's next look.
// n.mu is held.
func (n *node) planVolumes(now time.Time) {
	if n.volumes.due {
		return
	}
	n.volumes.due = true
	since := now.Sub(n.readyAt)
	n.fleet.timers.add(timer{at: n.readyAt.Add(since.Truncate(statusTick) + statusTick), what: volumesDue, node: n})
}

// reportVolumes tells the API server which volumes are in use, if that has
// changed. A kubelet tries five times in a row and again ten seconds later.
func (n *node) reportVolumes(ctx context.Context) {
	n.mu.Lock()
	use := slices.Sorted(maps.Keys(n.volumes.used))
	same := slices.Equal(use, n.volumes.told)
	n.mu.Unlock()
	if !same {
		answer, err := n.client.do(ctx, patchNode, "/api/v1/nodes/"+n.name+"/status", patchBody, volumesPatch(time.Now(), use))
		release(answer)
		same = err == nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.volumes.due = false
	if same {
		n.volumes.told = use
		n.volumes.tell()
	}
	if !slices.Equal(slices.Sorted(maps.Keys(n.volumes.used)), n.volumes.told) && ctx.Err() == nil {
		n.planVolumes(time.Now())
	}
}

// tell wakes who waits for a change. node.mu is held.
func (v *volumes) tell() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// seenVolumes takes in which volumes the attach-detach controller has attached.
// n.mu is held.
func (n *node) seenVolumes(o *v1.Node) {
	if n.fleet.conf.Storage == nil {
		return
	}
	n.volumes.attached = make(map[string]bool, len(o.Status.VolumesAttached))
	for _, a := range o.Status.VolumesAttached {
		n.volumes.attached[string(a.Name)] = true
	}
	n.volumes.tell()
}

// awaitAttached waits until the volume is reported in use and shown as attached.
func (n *node) awaitAttached(ctx context.Context, p *pod, name string) bool {
	for {
		n.mu.Lock()
		v := &n.volumes
		_, told := slices.BinarySearch(v.told, name)
		ready, gone := told && v.attached[name], p.gone || p.deleting
		if v.changed == nil {
			v.changed = make(chan struct{})
		}
		changed := v.changed
		n.mu.Unlock()
		if ready || gone {
			return ready && !gone
		}
		select {
		case <-changed:
		case <-time.After(statusTick): // the pod may have gone
		case <-ctx.Done():
			return false
		}
	}
}

// verifyAttached asks for the claim's size, and for the node, which a kubelet
// does not take from its watch alone.
func (n *node) verifyAttached(ctx context.Context, p *pod, claim, name string) bool {
	return n.until(ctx, p, func() (bool, error) {
		var c v1.PersistentVolumeClaim
		if err := n.read(ctx, getClaim, "/api/v1/namespaces/"+p.namespace+"/persistentvolumeclaims/"+claim, &c); err != nil || !n.fleet.conf.Storage.Attach {
			return err == nil, err
		}
		var o v1.Node
		err := n.read(ctx, getNode, "/api/v1/nodes/"+n.name, &o)
		return err == nil && slices.ContainsFunc(o.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return string(a.Name) == name }), err
	})
}

// attachedSays asks whether the attachment is there.
func (n *node) attachedSays(ctx context.Context, p *pod, path string) bool {
	return n.until(ctx, p, func() (bool, error) {
		var a storagev1.VolumeAttachment
		err := n.read(ctx, getAttachment, path, &a)
		return err == nil && a.Status.Attached, err
	})
}

// until repeats what a kubelet does until it succeeds, after 0.5 s and twice as
// long each time, up to 2 min, or the pod is gone.
func (n *node) until(ctx context.Context, p *pod, try func() (bool, error)) bool {
	for fails := 0; ; fails++ {
		if done, err := try(); done && err == nil {
			return true
		}
		if n.left(p) || !wait(ctx, backoff(fails, 500*time.Millisecond, 2*time.Minute)) {
			return false
		}
	}
}

// read asks for one object.
func (n *node) read(ctx context.Context, k request, path string, into interface{ Unmarshal([]byte) error }) error {
	answer, err := n.client.do(ctx, k, path, noBody, nil)
	if err != nil {
		return err
	}
	defer release(answer)
	raw, err := unwrap(answer.Bytes())
	if err != nil {
		return err
	}
	return into.Unmarshal(raw)
}

// uniqueName is a CSI volume's name in a node's status.
func uniqueName(driver, handle string) string { return "kubernetes.io/csi/" + driver + "^" + handle }

// attachmentName is what the attach-detach controller calls an attachment.
func attachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// volumesPatch is a status report in which the volumes in use have changed.
func volumesPatch(now time.Time, use []string) []byte {
	b := statusPatch(now, unchanged)
	b = append(b[:len(b)-2], `,"volumesInUse":`...)
	if len(use) == 0 {
		return append(b, "null}}"...)
	}
	for i, name := range use {
		between := byte(',')
		if i == 0 {
			between = '['
		}
		b = appendString(append(b, between), name)
	}
	return append(b, "]}}"...)
}

// registerDriver makes the driver known on the node, as a kubelet does when the
// driver's registrar has called: an annotation, and an entry in the CSINode.
func (n *node) registerDriver(ctx context.Context) error {
	s := n.fleet.conf.Storage
	ids, err := json.Marshal(map[string]string{s.Driver: n.name})
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"csi.volume.kubernetes.io/nodeid": string(ids)}}})
	if err != nil {
		return err
	}
	var o v1.Node
	if err := n.read(ctx, getNode, "/api/v1/nodes/"+n.name, &o); err != nil {
		return err
	}
	answer, err := n.client.do(ctx, patchNode, "/api/v1/nodes/"+n.name+"/status", patchBody, patch)
	release(answer)
	if err != nil {
		return err
	}
	path := "/apis/storage.k8s.io/v1/csinodes/" + n.name
	var c storagev1.CSINode
	if err := n.read(ctx, getCSINode, path, &c); err != nil {
		return err
	}
	entry := storagev1.CSINodeDriver{Name: s.Driver, NodeID: n.name}
	if s.Limit > 0 {
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To(int32(s.Limit))}
	}
	c.Spec.Drivers = append(slices.DeleteFunc(c.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == s.Driver }), entry)
	body, err := wrap("storage.k8s.io/v1", "CSINode", c.Size(), c.MarshalToSizedBuffer)
	if err != nil {
		return err
	}
	answer, err = n.client.do(ctx, updateCSINode, path, protobufBody, body)
	release(answer)
	return err
}

// makeCSINode makes the node's CSINode, with the driver where there is one.
func (n *node) makeCSINode(ctx context.Context) {
	_ = retry(ctx, func() error { return n.csiNode(ctx) })
	if n.fleet.conf.Storage != nil {
		_ = retry(ctx, func() error {
			err := n.registerDriver(ctx)
			if isCode(err, http.StatusForbidden) || isCode(err, http.StatusUnprocessableEntity) {
				return &finalError{err}
			}
			return err
		})
	}
}
