package diagnose

import "strconv"

// A PodController is one of the controller manager's that makes pods, or what owns
// them, with a few workers.
type PodController struct {
	Agent   string  // how its user agent ends
	Queue   string  // name of its work queue, in metrics
	Flag    string  // of the controller manager, that sets how many workers it has
	Default float64 // workers without the flag, in v1.36
}

// PodControllers are all of them.
var PodControllers = []PodController{
	{"replicaset-controller", "replicaset", "concurrent-replicaset-syncs", 5},
	{"deployment-controller", "deployment", "concurrent-deployment-syncs", 5},
	{"job-controller", "job", "concurrent-job-syncs", 5},
	{"statefulset-controller", "statefulset", "concurrent-statefulset-syncs", 5},
	{"daemon-set-controller", "daemonset", "concurrent-daemonset-syncs", 2},
	{"replication-controller", "replicationmanager", "concurrent-rc-syncs", 5},
}

// ReplicaSets is the one that makes the pods of Deployments.
var ReplicaSets = PodControllers[0]

// Workers are those that it has in a run, by its flag.
func (c PodController) Workers(v *View) float64 {
	if x, set, _ := v.Flag(ControllerManager, c.Flag); set {
		if n, err := strconv.ParseFloat(x, 64); err == nil && n > 0 {
			return n
		}
	}
	return c.Default
}
