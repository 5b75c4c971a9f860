package fault

// What goes wrong on nodes.
var nodes = []Fault{
	{
		Name: "slow-node-disk", Number: "F59", Title: "nodes have slow disks", Holds: "the start of pods",
		Parameter: Parameter{Means: "what the start of a pod takes of its node's disk", Kind: Duration, Low: "100ms", Middle: "500ms", High: "2s"},
		Right:     []Place{{"node", "start", "disk"}, {"node", "start", "workers"}},
		Alike:     []string{"slow-images", "slow-network-plugin"},
		Doc: `The disk of a node serves one start at a time: image layers, writable layers, volumes. Pods that come to the same node wait for each other.

**What you see.** Pods are scheduled at once and start late, the more of them a node gets.

**What tells it apart.** All the time is between binding and Running, and the control plane is idle. A pull that takes long does so for the first pod of an image only.

**Remedy.** Faster disks, fewer pods for each node at a time.`,
		Change: "cluster: {node: {disk: {{.Text}}}}",
		Show:   "arrivals",
		acted:  startTook,
	},
	{
		Name: "slow-images", Number: "F59", Title: "images are pulled slowly, one after the other", Holds: "the start of pods",
		Parameter: Parameter{Means: "what a pull takes", Kind: Duration, Low: "1s", Middle: "5s", High: "15s"},
		Right:     []Place{{"node", "start", "network"}, {"node", "start", "disk"}, {"node", "start", "workers"}},
		Alike:     []string{"slow-node-disk"},
		Doc: `The first pod of an image on a node waits for the pull, and kubelets pull one image at a time.

**What you see.** The first pods start late, and later ones at once.

**What tells it apart.** Only the first pod of an image on a node is late.

**Remedy.** Smaller images, a registry nearby, parallel pulls (serializeImagePulls: false), pulls ahead of time.`,
		Change: "cluster: {node: {images: {pull: {{.Text}}, parallel: 1}}}",
		Show:   "arrivals",
		acted:  startTook,
	},
	{
		Name: "slow-network-plugin", Number: "F59", Title: "the network plugin serves one pod at a time", Holds: "the start of pods",
		Parameter: Parameter{Means: "what a pod's sandbox takes", Kind: Duration, Low: "100ms", Middle: "500ms", High: "2s"},
		Right:     []Place{{"node", "start", "network"}, {"node", "start", "lock"}, {"node", "start", "workers"}},
		Alike:     []string{"slow-node-disk"},
		Doc: `A network plugin with one lock for the node makes the sandboxes of its pods one after the other.

**What you see.** Pods are scheduled at once and start one after the other.

**What tells it apart.** As slow disks, from outside; the kubelet's own times of sandboxes tell the two apart.

**Remedy.** A plugin without the lock, addresses that are prepared ahead.`,
		Change: "cluster: {node: {network: {delay: {{.Text}}, serial: true}}}",
		Show:   "arrivals",
		acted:  startTook,
	},
	{
		Name: "slow-volumes", Number: "F51", Title: "volumes take long to be made", Holds: "binding: the scheduler waits for the volume",
		Parameter: Parameter{Means: "what the backend takes for a volume", Kind: Duration, Low: "1s", Middle: "4s", High: "10s"},
		Right:     []Place{{"kubedyno-csi", "bind", "disk"}, {client("kubedyno-csi"), "bind", "disk"}, {kubeScheduler, "bind", "disk"}},
		Alike:     []string{"scheduler-limit", "locks-per-object"},
		Doc: `With WaitForFirstConsumer a volume is made when its pod has a node, and the scheduler waits with the binding until it is there.

**What you see.** Pods with volumes take long to be bound, others do not.

**What tells it apart.** The PreBind point takes the time, and no request waits in the scheduler's limiter.

**Remedy.** A faster backend, more workers and requests for the provisioner.`,
		Change: "cluster: {storage: {provisionDelay: {{.Text}}}}",
		Show:   "claims",
		acted: func(r *reading, v Value) Effect {
			mean, n, ok := r.mean("scheduler_framework_extension_point_duration_seconds", on(kubeScheduler, "extension_point", "PreBind"))
			if !ok {
				return missing("scheduler_framework_extension_point_duration_seconds of PreBind")
			}
			return judge(mean >= v.Duration.Seconds()/2, mean, "s", "the scheduler waited %.1f s before a binding, on average (n=%.0f)", mean, n)
		},
	},
}

// startTook is the check of slow starts: from binding to Running the mean pod took
// at least half of the value.
func startTook(r *reading, v Value) Effect {
	pods, err := r.Pods()
	if err != nil {
		return missing("pods")
	}
	n, sum := 0, 0.0
	for _, p := range pods {
		if p.BoundMicros != 0 && p.RunningMicros != 0 {
			n++
			sum += float64(p.RunningMicros-p.BoundMicros) / 1e6
		}
	}
	if n == 0 {
		return missing("the start of a single pod")
	}
	mean := sum / float64(n)
	return judge(mean > v.Duration.Seconds()/2+0.3, mean, "s", "pods started %.2f s after they were bound, on average (n=%d)", mean, n)
}
