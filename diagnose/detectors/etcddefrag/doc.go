// Package etcddefrag finds an etcd that is defragmented while others want to
// read and write.
package etcddefrag
