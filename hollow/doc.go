// Package hollow holds the simulated nodes: what a kubelet says to the API
// server, without containers.
//
// A fleet of hollow nodes is one process, kubedyno-hollow. Each node has its
// own identity, connection, lease, node watch and pod watch, and it drives
// every pod bound to it through the status patches and events that a kubelet
// v1.36 sends, in a kubelet's order, after delays drawn from a seeded
// distribution. Nothing runs: no container, no image, no network.
//
// What keeps it cheap: no informer and no object cache (a pod is one small
// struct), watch events are read with a field walker instead of being decoded,
// patches are appended from prepared pieces, and all delays of all nodes wait
// in one heap. docs/hollow.md lists what is said and what is left out.
//
// Start with ProcessMain, then Fleet, then node and pod.
package hollow

// UserAgent is what every request of the fleet carries, so that audit and
// request metrics tell simulated nodes from everything else.
const UserAgent = "kubedyno-hollow"

// LeftOut lists what a real kubelet v1.36 would have said or done and a hollow
// node does not. It is printed with each result, because every line is load
// that the control plane did not get.
func LeftOut() []string {
	return []string{
		"service account tokens are not renewed; a pod does not wait for a ConfigMap or Secret that is missing",
		"certificate signing requests for client and serving certificates",
		"events about the node itself (Starting, NodeReady, …) and about volumes and probes that fail",
		"volumes of drivers other than the simulated one (cluster.storage): attach, mount and VolumesInUse; a pod does not wait for them",
		"the list of images in node status; images are never removed",
		"containers do only what the pod's annotations say (kubedyno.io/run-seconds, exit-code, init-seconds, evict-seconds): without them a Job's pod keeps running until it is deleted, and init containers take no time",
		"probes: readiness probes succeed at their first chance, startup probes at once, liveness probes always",
		"readiness gates: a pod is Ready when its containers are",
		"eviction by the node itself, and the conditions that go with it (MemoryPressure, DiskPressure): a pod is evicted where its annotation says so; resize, static and mirror pods, ephemeral containers",
		"admission by CPU, memory and ports: a node refuses pods only beyond its pod count (OutOfpods)",
		"cgroup readings in pod status: status.resources repeats the spec",
		"logs, exec, port-forward and the kubelet's own HTTP endpoints; the pod network",
	}
}

// Fidelity is what a pod on a hollow node costs beside one on a real node, in a
// sentence to print with results. docs/fidelity.md tells how it was measured.
func Fidelity(t Traffic) string {
	if t == Least {
		return "hollow nodes say the least that lets pods run and go (traffic: least): the control plane works less for a pod than beside kubelets, which send some twenty requests for each"
	}
	return "beside a real kubelet v1.36.3 a hollow node's pods cost × 0.84 requests, × 0.81 bytes, as many watches and × 0.74 control-plane CPU (100 pods each, docs/fidelity.md)"
}

// leftOut adds what these settings leave out.
func (c *Config) leftOut() []string {
	var off []string
	if c.Traffic == Least {
		off = append(off, "all that a kubelet says of a pod but Running and its end: no GET before a status, no status on the way, one watch for all nodes (traffic: least)")
	}
	if !c.Images.Pull.isSet() {
		off = append(off, "image pulls: every image counts as present (event Pulled, never Pulling)")
	}
	if !*c.Volumes {
		off = append(off, "watches on referenced ConfigMaps and Secrets, and TokenRequests for service account volumes (volumes: false)")
	}
	if !*c.Informers {
		off = append(off, "informers for Services, RuntimeClasses and CSIDrivers; the CSINode object (informers: false)")
	}
	if !*c.Events {
		off = append(off, "events about pods (events: false)")
	}
	return append(off, LeftOut()...)
}
