package stacks

import (
	"bufio"
	"bytes"
	"io"
	"math"
	"slices"
	"strconv"
)

// kernelMark ends the name of a function of the kernel.
const kernelMark = "_[k]"

// A kernel names the kernel's functions.
type kernel struct {
	asked namer        // the kernel itself; nil where it cannot be asked
	syms  symbols      // what its table has, where it is not
	late  []lateSymbol // loaded since: eBPF programs, modules
	cache map[uint64]string
}

// A namer tells what a function is called, "" where nobody knows.
type namer interface {
	find(addr uint64) (string, error)
	close() error
}

type lateSymbol struct {
	addr, length uint64
	name         string
}

// newKernel reads /proc/kallsyms. hidden says that the addresses in it read
// zero, which is what somebody without permission gets.
func newKernel(r io.Reader) (k *kernel, hidden bool, err error) {
	k = &kernel{cache: map[uint64]string{}}
	in := bufio.NewScanner(r)
	lines := 0
	for in.Scan() {
		// ffffffff81000000 T _text, then a tab and [module] for those of modules
		b := in.Bytes()
		lines++
		if len(b) < 20 || (b[17]|0x20 != 't' && b[17]|0x20 != 'w') {
			continue
		}
		addr, err := strconv.ParseUint(string(b[:16]), 16, 64)
		if err != nil || addr == 0 || len(k.syms.list) >= maxSymbols || len(k.syms.names) > math.MaxUint32-maxName {
			continue
		}
		name, _, _ := bytes.Cut(b[19:], []byte{'\t'})
		k.syms.list = append(k.syms.list, symbol{addr: addr, name: uint32(len(k.syms.names))})
		k.syms.names = append(append(k.syms.names, name[:min(len(name), maxName-1)]...), 0)
	}
	k.syms.list, k.syms.names = slices.Clip(k.syms.list), slices.Clip(k.syms.names)
	k.syms.sort()
	return k, lines > 0 && len(k.syms.list) == 0, in.Err()
}

// change notes a function that the kernel gained or lost.
func (k *kernel) change(e event) {
	k.late = slices.DeleteFunc(k.late, func(s lateSymbol) bool { return s.addr == e.lo })
	if !e.gone && len(k.late) < maxCached {
		k.late = append(k.late, lateSymbol{e.lo, e.length, clean(e.text)})
	}
	clear(k.cache)
}

// frame fails where the kernel was to be asked and did not answer.
func (k *kernel) frame(addr uint64) (string, error) {
	if name, ok := k.cache[addr]; ok {
		return name, nil
	}
	name := ""
	for _, s := range k.late {
		if addr-s.addr < s.length {
			name = s.name
		}
	}
	switch {
	case name != "":
	case k.asked != nil:
		told, err := k.asked.find(addr)
		if err != nil {
			return "", err
		}
		name = clean(told)
	default:
		name = clean(k.syms.find(addr))
	}
	if name == "" {
		name = "[unknown]"
	}
	if len(k.cache) >= maxCached {
		clear(k.cache)
	}
	name += kernelMark
	k.cache[addr] = name
	return name, nil
}

func (k *kernel) close() error {
	if k.asked == nil {
		return nil
	}
	return k.asked.close()
}
