// Package etcdspace finds an etcd that has used up its space quota and refuses writes.
package etcdspace
