// Command kubedyno-coredns is CoreDNS with the plug-ins that kubeadm's Corefile
// names, and pprof: what a real node has as CoreDNS' image.
//
// It is a program of its own and no component of kubedyno-lab, because a node
// keeps it in an image and each of its pods maps it: a third of the size, and
// none of the control plane's start-up. It is in the same module because nine
// tenths of its packages are compiled for the control plane anyway.
package main

import (
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/pprof"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() { coremain.Run() }
