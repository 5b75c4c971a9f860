// Package eventflood finds clients that flood the cluster with Events.
package eventflood
