// Package kerneltypes shares the types of the running kernel among the collectors that
// load programs into it.
package kerneltypes

import (
	"sync"
	"weak"

	"github.com/cilium/ebpf/btf"
)

var (
	mu     sync.Mutex
	latest weak.Pointer[btf.Cache]
)

// Shared is the running kernel's type information (BTF). To read it takes 20 ms of CPU
// and some megabytes, so those who begin at the same time share it: it is
// kept for as long as one of them holds what Shared returned. What is in it must not be
// changed.
func Shared() *btf.Cache {
	mu.Lock()
	defer mu.Unlock()
	c := latest.Value()
	if c == nil {
		c = btf.NewCache()
		latest = weak.Make(c)
	}
	return c
}
