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
		"watches on referenced ConfigMaps and Secrets, and TokenRequests for service account volumes",
		"informers for Services, RuntimeClasses and CSIDrivers; the CSINode object",
		"certificate signing requests for client and serving certificates",
		"events about the node itself (Starting, NodeReady, …)",
		"volumes: attach, mount and VolumesInUse; a pod does not wait for them",
		"images: every image counts as present (event Pulled, never Pulling); no image list in node status",
		"init containers run in no time and all at once; sidecars and probes succeed at once",
		"readiness gates: a pod is Ready when its containers are",
		"containers that end by themselves: a Job's pod keeps running until it is deleted",
		"restarts, crash loops, probes that fail, eviction, resize, static and mirror pods, ephemeral containers",
		"admission by CPU, memory and ports: a node refuses pods only beyond its pod count (OutOfpods)",
		"cgroup readings in pod status: status.resources repeats the spec",
		"logs, exec, port-forward and the kubelet's own HTTP endpoints; the pod network",
	}
}
