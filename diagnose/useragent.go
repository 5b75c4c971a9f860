package diagnose

import "strings"

// ParseUserAgent splits a Kubernetes client's user agent into its program and
// the role that the program's client was made for:
//
//	kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/<sha>/replicaset-controller
//	→ kube-controller-manager, replicaset-controller
//
// With --use-service-account-credentials the role is followed, or replaced, by
// the controller's account; the account's last part then names the role.
func ParseUserAgent(ua string) (program, role string) {
	program, rest, _ := strings.Cut(ua, "/")
	_, rest, ok := strings.Cut(rest, ") ")
	if !ok {
		return program, ""
	}
	// rest is kubernetes/<sha>[/role[/account]]
	parts := strings.Split(rest, "/")
	if len(parts) > 2 {
		role = parts[2]
		if i := strings.LastIndex(role, ":"); strings.HasPrefix(role, "system:serviceaccount:") {
			role = role[i+1:]
		}
	}
	return program, role
}

// NamespaceController is the part of the controller manager that empties namespaces,
// as the user agent's short form has it.
const NamespaceController = ControllerManager + " … namespace-controller"

// EvictsByTaint says whether a client, likewise, is the part of the controller manager that
// evicts pods from nodes with a taint of the effect NoExecute.
func EvictsByTaint(agent string) bool {
	return agent == ControllerManager+" … node-controller" || agent == ControllerManager+" … taint-eviction-controller"
}

// OfCluster says whether a client, by requests.Agent's short form, is a part of what
// a cluster is made of: its control plane, or a node's agents.
func OfCluster(agent string) bool {
	switch programOf(agent) {
	case APIServer, ControllerManager, Scheduler, "kubelet", "kube-proxy", "cloud-controller-manager":
		return true
	}
	return false
}

// OfNode says whether a client, likewise, is a node's agent: a kubelet, or what
// simulates many.
func OfNode(agent string) bool {
	program := programOf(agent)
	return program == "kubelet" || program == Hollow
}

func programOf(agent string) string {
	program, _, _ := strings.Cut(agent, " ")
	program, _, _ = strings.Cut(program, "/")
	return program
}
