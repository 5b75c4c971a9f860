// Package storage simulates CSI storage: a provisioner built on the library
// that real external-provisioners are built on, an attacher that does what the
// external-attacher does, and a backend that makes, deletes, attaches and
// detaches volumes in a drawn time and stores nothing.
//
// They run as one process, kubedyno-csi, under a service account of its own
// with the rights that the two sidecars have. It stands for a user's CSI
// sidecars, and therefore is part of the system under test and not of the
// harness: what it costs, and what its client limits hold up, are findings about
// the cluster. What the node's part of a driver does, hollow nodes do
// (hollow/attach.go).
//
// The provisioner has one lock for the driver, as the library has it today, or
// one for each claim, as it had years ago (perclaim.go).
//
// Start with Config, then ProcessMain; then, from outside, Install and Start.
package storage

// ProcessName is the process's argv[0], from which client-go makes the user
// agent, and its name as a component.
const ProcessName = "kubedyno-csi"
