package stacks

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"path"
	"runtime/debug"
	"slices"
	"sort"

	"github.com/ianlancetaylor/demangle"
)

const (
	// maxSymbols bounds what one file may make us keep: 16 bytes each.
	maxSymbols = 4 << 20
	// maxCached addresses of one file are kept with their names.
	maxCached = 1 << 16
)

// A symbol is a function of an ELF file or of the kernel.
type symbol struct {
	addr uint64
	size uint32 // 0: unknown, up to the next one
	name uint32 // offset of its name
}

// symbols are sorted by address.
type symbols struct {
	list  []symbol
	names []byte
}

// sort leaves aliases in the order of their names: a stable sort of the kernel's
// 120,000 symbols, most of which are in order, takes twice as long.
func (s *symbols) sort() {
	slices.SortFunc(s.list, func(a, b symbol) int { return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.name, b.name)) })
}

// find is the name of the function that pc is in.
func (s *symbols) find(pc uint64) string {
	i := sort.Search(len(s.list), func(i int) bool { return s.list[i].addr > pc })
	// A small symbol may lie inside a larger one, and aliases share an address.
	for k := 1; k <= 8 && i-k >= 0; k++ {
		y := s.list[i-k]
		if y.size != 0 && pc-y.addr >= uint64(y.size) {
			continue
		}
		if uint64(y.name) >= uint64(len(s.names)) {
			return ""
		}
		return cString(s.names[y.name:min(int(y.name)+maxName, len(s.names))])
	}
	return ""
}

// An object is an executable or a library, as far as its functions go.
type object struct {
	name  string // base name of the file
	loads []elf.ProgHeader
	table *goTable
	syms  symbols
	more  func() // reads the symbols, which a Go binary needs for what is not Go in it; nil once it did
	cache map[uint64]string
	kept  func() // frees the file's bytes
	rest  func() // lets go of the pages that were read; they come again when asked for
}

// newObject reads an ELF file of 64 bits. Tables stay in data, which must live
// as long as the object.
func newObject(name string, data []byte) (_ *object, err error) {
	defer recovered(&err)
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	o := &object{name: clean(path.Base(name)), cache: map[uint64]string{}}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			o.loads = append(o.loads, p.ProgHeader)
		}
	}
	if f.Class != elf.ELFCLASS64 || f.ByteOrder != binary.LittleEndian {
		return o, nil // its functions stay [module+0xoffset]
	}
	o.addGo(f, data)
	o.more = func() {
		for _, table := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
			o.addSymbols(f, data, table)
		}
		o.syms.names = data
		o.syms.list = slices.Clip(o.syms.list)
		o.syms.sort()
	}
	return o, nil
}

// recovered turns a fault while reading a mapped file, which somebody may have
// cut short, and any other panic over foreign bytes, into an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("unreadable: %v", r)
	}
}

// content is a section's bytes.
func content(s *elf.Section, data []byte) []byte {
	if s == nil || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 ||
		s.Offset > uint64(len(data)) || s.FileSize > uint64(len(data))-s.Offset {
		return nil
	}
	return data[s.Offset : s.Offset+s.FileSize]
}

func (o *object) addSymbols(f *elf.File, data []byte, kind elf.SectionType) {
	for _, s := range f.Sections {
		if s.Type != kind || int(s.Link) >= len(f.Sections) {
			continue
		}
		entries, names := content(s, data), f.Sections[s.Link]
		if content(names, data) == nil {
			continue
		}
		for ; len(entries) >= elf.Sym64Size && len(o.syms.list) < maxSymbols; entries = entries[elf.Sym64Size:] {
			le := binary.LittleEndian
			if t := elf.SymType(entries[4] & 0xf); t != elf.STT_FUNC && t != elf.STT_GNU_IFUNC {
				continue
			}
			name, addr, size := le.Uint32(entries), le.Uint64(entries[8:]), le.Uint64(entries[16:])
			if addr == 0 || uint64(name) >= names.FileSize || names.Offset+uint64(name) > 1<<32-1 {
				continue
			}
			o.syms.list = append(o.syms.list, symbol{addr, uint32(min(size, 1<<32-1)), uint32(names.Offset) + name})
		}
	}
}

// addGo finds the table of Go functions, where there is one.
func (o *object) addGo(f *elf.File, data []byte) {
	s := f.Section(".gopclntab")
	if s == nil {
		s = f.Section(".data.rel.ro.gopclntab") // position-independent, up to Go 1.24
	}
	table := content(s, data)
	if len(table) < headerSize {
		return
	}
	text, inlines := o.module(f, data, s.Addr, binary.LittleEndian.Uint64(table[offsetNames:]))
	if text == 0 {
		if t := f.Section(".text"); t != nil {
			text = t.Addr // is runtime.text, unless C code was linked in before it
		}
	}
	if t, err := newGoTable(table, text, inlines); err == nil {
		o.table = t
	}
}

// Fields of runtime.moduledata (runtime/symtab.go), the same from Go 1.20 to
// 1.26. What is read there is checked before it is used.
const (
	moduleText   = 176
	moduleGofunc = 320
	moduleSize   = 328
)

// module finds runtime.firstmoduledata, which has no symbol in a stripped
// binary, by its first two words: the addresses of the table of functions and
// of the names in it. It tells where the text and the inline trees are.
func (o *object) module(f *elf.File, data []byte, pclntab, names uint64) (text uint64, inlines []byte) {
	le := binary.LittleEndian
	var first [16]byte
	le.PutUint64(first[:], pclntab)
	le.PutUint64(first[8:], pclntab+names)
	words := func(at uint64) (uint64, bool) { return 0, false }
	for _, name := range []string{".go.module", ".noptrdata", ".data", ".data.rel.ro"} {
		b := content(f.Section(name), data)
		if i := bytes.Index(b, first[:]); i >= 0 && len(b)-i >= moduleSize {
			m := b[i:]
			words = func(at uint64) (uint64, bool) { return le.Uint64(m[at:]), true }
			break
		}
	}
	if _, ok := words(0); !ok && f.Type == elf.ET_DYN {
		m := relocated(f, data, pclntab, pclntab+names)
		words = func(at uint64) (uint64, bool) { v, ok := m[at]; return v, ok }
	}
	text, ok1 := words(moduleText)
	gofunc, ok2 := words(moduleGofunc)
	if !ok1 || !ok2 {
		return 0, nil
	}
	inText := false
	for _, p := range o.loads {
		if text-p.Vaddr < p.Memsz && p.Flags&elf.PF_X != 0 {
			inText = true
		}
		if gofunc-p.Vaddr < p.Filesz && p.Off <= uint64(len(data)) && p.Filesz <= uint64(len(data))-p.Off {
			inlines = data[p.Off+gofunc-p.Vaddr : p.Off+p.Filesz]
		}
	}
	if !inText {
		return 0, nil
	}
	return text, inlines
}

// relocated is the module data of a position-independent binary, whose words
// are filled in when it is loaded: the values by offset.
func relocated(f *elf.File, data []byte, first, second uint64) map[uint64]uint64 {
	le := binary.LittleEndian
	each := func(visit func(at, value uint64)) {
		for _, s := range f.Sections {
			if s.Type != elf.SHT_RELA {
				continue
			}
			for b := content(s, data); len(b) >= 24; b = b[24:] {
				visit(le.Uint64(b), le.Uint64(b[16:]))
			}
		}
	}
	heads, seconds := map[uint64]bool{}, map[uint64]bool{}
	each(func(at, value uint64) {
		switch {
		case value == first && len(heads) < 1000:
			heads[at] = true
		case value == second && len(seconds) < 1000:
			seconds[at] = true
		}
	})
	for head := range heads {
		if !seconds[head+8] {
			continue
		}
		m := map[uint64]uint64{}
		each(func(at, value uint64) {
			if at-head < moduleSize {
				m[at-head] = value
			}
		})
		return m
	}
	return nil
}

// address is the link-time address of a byte of the file, as mapped.
func (o *object) address(offset uint64) (uint64, bool) {
	for _, p := range o.loads {
		if p.Flags&elf.PF_X != 0 && offset-p.Off < p.Filesz {
			return p.Vaddr + offset - p.Off, true
		}
	}
	for _, p := range o.loads { // a page may hold the end of one segment and the start of another
		if offset-p.Off < p.Filesz {
			return p.Vaddr + offset - p.Off, true
		}
	}
	return 0, false
}

// frames names the code at an address, outermost function first.
func (o *object) frames(addr uint64) (names string) {
	names, ok := o.cache[addr]
	if ok {
		return names
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	names = o.resolve(addr)
	if names == "" {
		names = fmt.Sprintf("[%s+0x%x]", o.name, addr)
	}
	if len(o.cache) >= maxCached {
		clear(o.cache)
	}
	o.cache[addr] = names
	return names
}

func (o *object) resolve(addr uint64) (names string) {
	defer func() {
		if recover() != nil { // the file was cut short under us
			o.table, o.syms, o.more = nil, symbols{}, nil
			names = ""
		}
	}()
	if o.table != nil {
		if names := o.table.frames(addr); names != "" {
			return names
		}
	}
	if more := o.more; more != nil {
		o.more = nil
		more()
	}
	return clean(demangled(o.syms.find(addr)))
}

// demangled is the name as it is written in C++ or Rust.
func demangled(name string) string {
	if len(name) < 3 || (name[0] != '_' || name[1] != 'Z' && name[1] != 'R') {
		return name
	}
	return demangle.Filter(name, demangle.NoParams, demangle.NoTemplateParams, demangle.NoEnclosingParams)
}
