// Package tiedcpus finds components that are tied to CPUs that are full.
package tiedcpus
