// Package etcdsync finds runs in which etcd waited for its disk.
package etcdsync
