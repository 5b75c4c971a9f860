package kerneltypes

import (
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// All at once find the same types, and nobody keeps them for ever.
func TestShared(t *testing.T) {
	types := Shared()
	if _, err := types.Kernel(); err != nil {
		t.Skip(err) // a kernel without BTF
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			mine := Shared()
			if mine != types {
				t.Error("they are read again")
			}
			spec, err := mine.Kernel()
			if err != nil {
				t.Error(err)
				return
			}
			var task *btf.Struct
			if err := spec.TypeByName("task_struct", &task); err != nil || len(task.Members) < 50 {
				t.Errorf("%v, %v", task, err)
			}
		})
	}
	all.Wait()
	runtime.KeepAlive(types)
	types = nil
	kept := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return latest.Value() != nil
	}
	for range 10 { // a stack that is no longer used may hold them through one collection
		if runtime.GC(); !kept() {
			return
		}
	}
	t.Error("they are kept though nobody uses them")
}
