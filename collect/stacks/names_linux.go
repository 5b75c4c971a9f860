package stacks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
)

// kernelNames asks the kernel what a function of it is called. /proc/kallsyms says the
// same of all 120,000 at once, in 5 MB of text that the kernel writes and we parse: in a
// run's stacks are some 700 of them.
type kernelNames struct {
	prog         *ebpf.Program
	cell, format *ebpf.Map
	out          [addressBytes + nameBytes]byte
}

// What the cell holds: the address that is asked for, and the answer.
const (
	addressBytes = 8
	nameBytes    = 512 // as long as the kernel has them, KSYM_NAME_LEN
)

// newKernelNames needs CAP_BPF and CAP_PERFMON, or root, and Linux 5.14, whose programs
// may be run by a system call and have printf's %ps.
func newKernelNames() (_ *kernelNames, err error) {
	_ = rlimit.RemoveMemlock() // kernels before 5.11 count maps against it; others need nothing
	k := &kernelNames{}
	defer func() {
		if err != nil {
			k.close()
		}
	}()
	if k.cell, err = ebpf.NewMap(&ebpf.MapSpec{Name: "kd_name", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(k.out)), MaxEntries: 1}); err != nil {
		return nil, fmt.Errorf("make a map for names: %w", err)
	}
	format := []byte("%ps\x00")
	// The program's loader wants to know that nobody can change a format.
	if k.format, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "kd_format", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(format)), MaxEntries: 1,
		Flags: readOnlyInPrograms, Contents: []ebpf.MapKV{{Key: uint32(0), Value: format}},
	}); err != nil {
		return nil, fmt.Errorf("make a map for a format: %w", err)
	}
	if err := k.format.Freeze(); err != nil {
		return nil, fmt.Errorf("freeze a map: %w", err)
	}
	if k.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "kd_name", Type: ebpf.Syscall, Flags: sleepable, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, k.cell.FD(), addressBytes),
			asm.Mov.Imm(asm.R2, nameBytes),
			asm.LoadMapValue(asm.R3, k.format.FD(), 0),
			asm.LoadMapValue(asm.R4, k.cell.FD(), 0),
			asm.Mov.Imm(asm.R5, addressBytes),
			asm.FnSnprintf.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	}); err != nil {
		return nil, fmt.Errorf("load the program for names: %w", err)
	}
	return k, nil
}

// Flags of linux/bpf.h, BPF_F_RDONLY_PROG and BPF_F_SLEEPABLE.
const (
	readOnlyInPrograms = 1 << 7
	sleepable          = 1 << 4
)

// find returns the name of the function that an address is in, or "" where the kernel
// has none.
func (k *kernelNames) find(addr uint64) (string, error) {
	clear(k.out[:])
	binary.NativeEndian.PutUint64(k.out[:], addr)
	if err := k.cell.Put(uint32(0), k.out[:]); err != nil {
		return "", fmt.Errorf("ask for a name: %w", err)
	}
	if _, err := k.prog.Run(&ebpf.RunOptions{}); err != nil {
		return "", fmt.Errorf("look a name up: %w", err)
	}
	if err := k.cell.Lookup(uint32(0), k.out[:]); err != nil {
		return "", fmt.Errorf("read a name: %w", err)
	}
	name, _, _ := bytes.Cut(k.out[addressBytes:], []byte{0})
	if bytes.HasPrefix(name, []byte("0x")) {
		return "", nil // an address without a name is written as such
	}
	name, _, _ = bytes.Cut(name, []byte(" [")) // of a module
	return string(name), nil
}

func (k *kernelNames) close() error {
	var errs []error
	if k.prog != nil {
		errs = append(errs, k.prog.Close())
	}
	for _, m := range []*ebpf.Map{k.cell, k.format} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
