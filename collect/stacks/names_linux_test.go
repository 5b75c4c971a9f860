package stacks

import (
	"errors"
	"os"
	"testing"
)

// The kernel names an address as its table of symbols does, but where an address has
// several names.
func TestKernelNames(t *testing.T) {
	names, err := newKernelNames()
	if err != nil {
		t.Skip(err) // without root; the table is read then
	}
	defer func() {
		if err := names.close(); err != nil {
			t.Error(err)
		}
	}()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, hidden, err := newKernel(f)
	if err != nil || hidden {
		t.Skipf("no table to compare with: hidden %v, %v", hidden, err)
	}
	list := table.syms.list
	alike, others := 0, 0
	for i := 0; i+1 < len(list); i += len(list)/3000 + 1 {
		addr := list[i].addr + 1
		if list[i+1].addr-list[i].addr < 2 {
			continue
		}
		got, err := names.find(addr)
		if err != nil {
			t.Fatal(err)
		}
		if want := table.syms.find(addr); got == want {
			alike++
		} else {
			others++
			t.Logf("%x: %q, in the table %q", addr, got, want)
		}
	}
	if alike < 1000 || alike < 20*others {
		t.Errorf("%d addresses are named as in the table, %d are not", alike, others)
	}
	if got, err := names.find(0x1000); got != "" || err != nil {
		t.Errorf("what is no address of the kernel has the name %q, %v", got, err)
	}
}

// broken is a kernel that does not answer any more.
type broken struct{ closed int }

func (b *broken) find(uint64) (string, error) { return "", errors.New("no") }
func (b *broken) close() error                { b.closed++; return nil }

// Where the kernel does not answer, its table is read, and what it has loaded since the
// start keeps its name.
func TestKernelThatDoesNotAnswer(t *testing.T) {
	s := newSampler(nothing{})
	b := &broken{}
	s.kernel.asked = b
	s.kernel.change(event{lo: 0xffffffffc0001000, length: 64, text: "bpf_prog_y"})
	if got := s.ofKernel(0x1000); got != "[unknown]"+kernelMark {
		t.Error(got)
	}
	if s.kernel.asked != nil || b.closed != 1 {
		t.Errorf("it is still asked, or was closed %d times", b.closed)
	}
	if got := s.ofKernel(0xffffffffc0001020); got != "bpf_prog_y"+kernelMark {
		t.Error(got)
	}
	s.close()
}

// What a run asks for, a thousand or two names, beside all that there are.
func BenchmarkKernelNames(b *testing.B) {
	b.Run("ask for one", func(b *testing.B) {
		names, err := newKernelNames()
		if err != nil {
			b.Skip(err)
		}
		defer names.close()
		s := newSampler(nothing{})
		s.readKernel()
		list := s.kernel.syms.list
		if len(list) == 0 {
			b.Skip("the kernel's addresses are hidden")
		}
		for i := 0; b.Loop(); i++ {
			if _, err := names.find(list[i*7919%len(list)].addr); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read all", func(b *testing.B) {
		for b.Loop() {
			newSampler(nothing{}).readKernel()
		}
	})
}
