// Package etcdclients finds work that etcd does for others than the API server.
package etcdclients
