// Package etcdcommits finds an etcd that commits its database after every few
// changes.
package etcdcommits
