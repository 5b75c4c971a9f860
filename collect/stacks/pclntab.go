package stacks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sort"
	"strings"
)

// Versions of Go's table of functions that we read.
const (
	magicGo118 = 0xfffffff0
	magicGo120 = 0xfffffff1
)

// Parts of a function's entry, from Go 1.20 on (runtime/runtime2.go, type
// _func; internal/abi/symtab.go has the indices).
const (
	funcSize         = 44
	pcdataInlTree    = 2
	funcdataInlTree  = 3
	inlinedCallSize  = 16
	maxInlined       = 64
	maxPcvalueSteps  = 1 << 20
	noOffset         = ^uint32(0)
	headerSize       = 72
	offsetFuncs      = 8
	offsetNames      = 32
	offsetPctab      = 56
	offsetFunctab    = 64
	offsetMinLC      = 6
	offsetPtrSize    = 7
	offsetTextInHead = 24
)

// A goTable finds Go functions by address, straight in the bytes of a binary's
// .gopclntab: no table is built. The tables that debug/gosym makes take some
// 80 MB for a kube-apiserver.
type goTable struct {
	names, functab, pctab []byte
	n                     int
	quantum               uint64
	text                  uint64 // address of runtime.text, from which functions are counted
	inlines               []byte // go:func.*, where inline trees are; nil where it was not found
	byIndex               map[int]string
}

// newGoTable reads the header. text counts where the header has none, which is
// so from Go 1.26 on.
func newGoTable(d []byte, text uint64, inlines []byte) (*goTable, error) {
	le := binary.LittleEndian
	if len(d) < headerSize {
		return nil, fmt.Errorf(".gopclntab has %d bytes", len(d))
	}
	magic := le.Uint32(d)
	if (magic != magicGo118 && magic != magicGo120) || d[offsetPtrSize] != 8 {
		return nil, fmt.Errorf(".gopclntab is of a version (%#x) or word size (%d) that is not known", magic, d[offsetPtrSize])
	}
	t := &goTable{quantum: max(1, uint64(d[offsetMinLC])), text: le.Uint64(d[offsetTextInHead:]), byIndex: map[int]string{}}
	if t.text == 0 {
		t.text = text
	}
	if magic == magicGo120 {
		t.inlines = inlines
	}
	part := func(at int) []byte {
		if o := le.Uint64(d[at:]); o < uint64(len(d)) {
			return d[o:]
		}
		return nil
	}
	t.names, t.pctab, t.functab = part(offsetNames), part(offsetPctab), part(offsetFunctab)
	n := le.Uint64(d[offsetFuncs:])
	if n == 0 || n > uint64(len(t.functab))/8 || n*8+4 > uint64(len(t.functab)) {
		return nil, fmt.Errorf(".gopclntab of %d bytes has %d functions", len(d), n)
	}
	t.n = int(n)
	return t, nil
}

// frames are the functions at an address, outermost first, joined with ";":
// the one that has code of its own, then those that the compiler inlined there.
func (t *goTable) frames(pc uint64) string {
	le := binary.LittleEndian
	if pc < t.text || pc-t.text > 1<<32-1 {
		return ""
	}
	off := pc - t.text
	i := sort.Search(t.n, func(i int) bool { return uint64(le.Uint32(t.functab[i*8:])) > off }) - 1
	if i < 0 || off >= uint64(le.Uint32(t.functab[(i+1)*8:])) {
		return ""
	}
	at := le.Uint32(t.functab[i*8+4:])
	if uint64(at)+funcSize > uint64(len(t.functab)) {
		return ""
	}
	f := t.functab[at:]
	name, ok := t.byIndex[i]
	if !ok {
		name = t.name(le.Uint32(f[4:]))
		t.byIndex[i] = name
	}
	if name == "" {
		return ""
	}
	inlined := t.inlined(f, off-uint64(le.Uint32(f)))
	for i := len(inlined) - 1; i >= 0; i-- {
		name += ";" + inlined[i]
	}
	return name
}

// inlined are the functions inlined at an offset into f, innermost first.
func (t *goTable) inlined(f []byte, off uint64) (names []string) {
	le := binary.LittleEndian
	pcdata, funcdata := uint64(le.Uint32(f[28:])), uint64(f[43])
	if t.inlines == nil || pcdata <= pcdataInlTree || funcdata <= funcdataInlTree ||
		pcdata > uint64(len(f)) || funcSize+4*(pcdata+funcdata) > uint64(len(f)) {
		return nil
	}
	values := le.Uint32(f[funcSize+4*pcdataInlTree:])
	tree := le.Uint32(f[funcSize+4*pcdata+4*funcdataInlTree:])
	if values == 0 || uint64(values) >= uint64(len(t.pctab)) || tree == noOffset || uint64(tree) >= uint64(len(t.inlines)) {
		return nil
	}
	calls := t.inlines[tree:]
	for len(names) < maxInlined {
		i := t.value(t.pctab[values:], off)
		if i < 0 || (uint64(i)+1)*inlinedCallSize > uint64(len(calls)) {
			return names
		}
		call := calls[uint64(i)*inlinedCallSize:]
		name := t.name(le.Uint32(call[4:]))
		if name == "" {
			return names
		}
		names = append(names, name)
		off = uint64(le.Uint32(call[8:]))
	}
	return names
}

// value decodes a table of values by offset into a function: pairs of
// differences, of the value in zigzag and of the offset.
func (t *goTable) value(p []byte, off uint64) int32 {
	v, pc := int32(-1), uint64(0)
	for i := range maxPcvalueSteps {
		dv, n := binary.Uvarint(p)
		if n <= 0 || (dv == 0 && i > 0) {
			return -1
		}
		p = p[n:]
		v += int32(uint32(dv)>>1) ^ -int32(dv&1)
		dpc, n := binary.Uvarint(p)
		if n <= 0 {
			return -1
		}
		p = p[n:]
		pc += dpc * t.quantum
		if off < pc {
			return v
		}
	}
	return -1
}

func (t *goTable) name(at uint32) string {
	if uint64(at) >= uint64(len(t.names)) {
		return ""
	}
	b := t.names[at:min(uint64(at)+maxName, uint64(len(t.names)))]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return clean(withoutShapes(string(b)))
}

// withoutShapes shortens the type arguments of a generic function to [...], as
// Go's own stack traces and profiles do.
func withoutShapes(name string) string {
	i := strings.IndexByte(name, '[')
	j := strings.LastIndexByte(name, ']')
	if i < 0 || j <= i {
		return name
	}
	return name[:i] + "[...]" + name[j+1:]
}

// maxName bounds a function's name, for hostile bytes.
const maxName = 1024

// clean keeps a name from breaking what it is put into.
func clean(name string) string {
	if strings.ContainsAny(name, ";\n") {
		name = strings.NewReplacer(";", ",", "\n", " ").Replace(name)
	}
	return strings.ToValidUTF8(name, "�")
}
