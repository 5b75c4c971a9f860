// Package etcdnetwork finds latency between the API server and etcd.
package etcdnetwork
