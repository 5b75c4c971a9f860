// Package diskneighbour finds processes that keep etcd's disk busy.
package diskneighbour
