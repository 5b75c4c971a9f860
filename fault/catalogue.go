package fault

import "slices"

// All is the catalogue, in the order in which a request meets them: storage, API
// server, clients, scheduler, controllers, nodes, the machine.
var All = slices.Concat(storage, apiserver, clients, scheduler, controllers, nodes, machine)

// Names of components and clients, as a diagnosis has them.
const (
	etcd              = "etcd"
	kubeAPIServer     = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	kubeScheduler     = "kube-scheduler"
	loadGenerator     = "kubedyno-load"
)

func client(name string) string { return "client:" + name }
