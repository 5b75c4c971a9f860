package stacks

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func word(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// encode makes a record of the kernel's form, with its trailer.
func encode(kind uint32, misc uint16, body []byte, tail ...uint64) []byte {
	for len(body)%8 != 0 {
		body = append(body, 0)
	}
	for _, v := range tail {
		body = append(body, word(v)...)
	}
	b := binary.LittleEndian.AppendUint32(nil, kind)
	b = binary.LittleEndian.AppendUint16(b, misc)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(body)+8))
	return append(b, body...)
}

func pair(a, b uint32) uint64 { return uint64(a) | uint64(b)<<32 }

func concat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// knownEvents are one record of each kind.
func knownEvents() map[uint32][]byte {
	tail := []uint64{pair(7, 8), 1234, 1}
	return map[uint32][]byte{
		recordSample: encode(recordSample, 0, concat(word(pair(7, 8)), word(1234), word(1), word(3), word(contextUser), word(0x401000), word(0x402000))),
		recordComm:   encode(recordComm, miscCommExec, concat(word(pair(7, 8)), []byte("etcd\x00")), tail...),
		recordMmap2: encode(recordMmap2, 0, concat(word(pair(7, 8)), word(0x400000), word(0x1000), word(0x2000), word(pair(254, 1)), word(99), word(0), word(pair(5, 2)),
			[]byte("/usr/bin/etcd\x00")), tail...),
		recordFork:    encode(recordFork, 0, concat(word(pair(9, 7)), word(pair(9, 8)), word(1234)), tail...),
		recordExit:    encode(recordExit, 0, concat(word(pair(9, 7)), word(pair(9, 8)), word(1234)), tail...),
		recordLost:    encode(recordLost, 0, concat(word(1), word(42)), tail...),
		recordKsymbol: encode(recordKsymbol, 0, concat(word(0xffffffffc0000000), word(0x100), []byte("bpf_prog_x\x00")), tail...),
	}
}

func TestParseEvent(t *testing.T) {
	want := map[uint32]event{
		recordSample:  {pid: 7, tid: 8, time: 1234, cpu: 1},
		recordComm:    {pid: 7, tid: 8, time: 1234, cpu: 1, text: "etcd", exec: true},
		recordMmap2:   {pid: 7, tid: 8, time: 1234, cpu: 1, lo: 0x400000, length: 0x1000, offset: 0x2000, file: fileID{254, 1, 99}, text: "/usr/bin/etcd"},
		recordFork:    {pid: 9, ppid: 7, tid: 9, ptid: 8, time: 1234, cpu: 1},
		recordExit:    {pid: 9, ppid: 7, tid: 9, ptid: 8, time: 1234, cpu: 1},
		recordLost:    {pid: 7, tid: 8, time: 1234, cpu: 1, lost: 42},
		recordKsymbol: {pid: 7, tid: 8, time: 1234, cpu: 1, lo: 0xffffffffc0000000, length: 0x100, text: "bpf_prog_x"},
	}
	for kind, b := range knownEvents() {
		e, ok, err := parseEvent(b)
		if err != nil || !ok {
			t.Errorf("kind %d: %v %v", kind, ok, err)
			continue
		}
		w := want[kind]
		w.kind = kind
		if kind == recordSample {
			if !bytes.Equal(e.chain, concat(word(contextUser), word(0x401000), word(0x402000))) {
				t.Errorf("chain %x", e.chain)
			}
			e.chain = nil
		}
		e2 := e
		e2.chain = nil
		if got, wanted := e2, w; got.kind != wanted.kind || got.time != wanted.time || got.cpu != wanted.cpu || got.pid != wanted.pid || got.tid != wanted.tid ||
			got.ppid != wanted.ppid || got.ptid != wanted.ptid || got.text != wanted.text || got.exec != wanted.exec || got.lo != wanted.lo ||
			got.length != wanted.length || got.offset != wanted.offset || got.file != wanted.file || got.lost != wanted.lost || got.gone != wanted.gone {
			t.Errorf("kind %d:\n got %+v\nwant %+v", kind, got, wanted)
		}
		// A part of it is an error or nothing, never a wrong record of a sample.
		for n := range len(b) {
			if e, ok, _ := parseEvent(b[:n]); ok && kind == recordSample {
				t.Errorf("%d of %d bytes are taken for %+v", n, len(b), e)
			}
		}
	}
}

// However records lie in the ring, all come out, in order.
func TestEachRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 256
		data := make([]byte, n)
		tail := rapid.Uint64Range(0, 1<<40).Draw(t, "tail") &^ 7
		head := tail
		var want [][]byte
		for head-tail < n-64 {
			r := encode(uint32(rapid.IntRange(1, 20).Draw(t, "kind")), 0, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body"))
			for i, c := range r {
				data[(head+uint64(i))%n] = c
			}
			head += uint64(len(r))
			want = append(want, r)
		}
		i := 0
		end := eachRecord(data, tail, head, func(b []byte) {
			if i >= len(want) || !bytes.Equal(b, want[i]) {
				t.Fatalf("record %d is %x", i, b)
			}
			i++
		})
		if end != head || i != len(want) {
			t.Fatalf("%d of %d records, ended at %d of %d", i, len(want), end, head)
		}
	})
}

func FuzzRecords(f *testing.F) {
	for _, b := range knownEvents() {
		f.Add(b, uint64(0), uint64(len(b)))
		f.Add(append(bytes.Clone(b), b...), uint64(8), uint64(len(b)))
	}
	f.Fuzz(func(t *testing.T, data []byte, tail, size uint64) {
		data = data[:len(data)&^7]
		tail &^= 7
		eachRecord(data, tail, tail+size, func(b []byte) {
			if e, ok, err := parseEvent(b); err == nil && ok && len(e.chain) > len(b) {
				t.Fatal("more chain than record")
			}
		})
		_, _, _ = parseEvent(data)
	})
}

// The table agrees with the runtime on every function that this test can name.
func TestGoTableAgreesWithRuntime(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads an ELF binary")
	}
	o := ownObject(t)
	n := 0
	text, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	s := text.Section(".text")
	if text.Type == elf.ET_DYN {
		t.Skip("the addresses of a position-independent binary are not the runtime's")
	}
	for pc := s.Addr; pc < s.Addr+s.Size; pc += 997 {
		var want []string
		frames := runtime.CallersFrames([]uintptr{uintptr(pc) + 1})
		for {
			f, more := frames.Next()
			if f.Function != "" {
				want = append([]string{clean(f.Function)}, want...)
			}
			if !more {
				break
			}
		}
		got := o.table.frames(pc)
		here, _, _ := strings.Cut(got, ";")
		if next, _, _ := strings.Cut(o.table.frames(pc+1), ";"); len(want) == 0 || len(got) >= maxName || here != next {
			continue // the last byte of a function: the runtime takes it for the next one
		}
		n++
		if got == strings.Join(want, ";") {
			continue
		}
		// The runtime leaves out wrappers that the compiler made.
		if i := len(strings.Split(got, ";")); i > len(want) && strings.HasSuffix(got, want[len(want)-1]) {
			continue
		}
		if strings.Contains(got, ".deferwrap") || strings.Contains(got, ".gowrap") {
			continue // such a wrapper the runtime calls by what it wraps
		}
		t.Errorf("%#x: %s, the runtime has %s", pc, got, strings.Join(want, ";"))
	}
	if n < 1000 {
		t.Errorf("only %d addresses compared", n)
	}
	t.Logf("%d addresses", n)
}

func ownObject(t testing.TB) *object {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	o, err := newObject("self", data)
	if err != nil {
		t.Fatal(err)
	}
	if o.table == nil || o.table.inlines == nil {
		t.Fatal("this test's own table of functions was not found")
	}
	return o
}

// tinyTable is a table of one function of 16 bytes, main.f, into all of which
// main.g was inlined.
func tinyTable() (table, inlines []byte) {
	le := binary.LittleEndian
	names := []byte("\x00main.f\x00main.g\x00")
	pctab := []byte{0, 2, 16, 0, 1, 16, 0} // at 1: value 0 up to 16; at 4: value -1 up to 16, which ends
	f := make([]byte, funcSize+4*3+4*4)
	le.PutUint32(f[4:], 1)  // its name
	le.PutUint32(f[28:], 3) // kinds of pcdata
	f[43] = 4               // kinds of funcdata
	le.PutUint32(f[funcSize+4*pcdataInlTree:], 1)
	head := make([]byte, headerSize)
	le.PutUint32(head, magicGo120)
	head[offsetMinLC], head[offsetPtrSize], head[offsetFuncs] = 1, 8, 1
	le.PutUint64(head[offsetNames:], headerSize)
	le.PutUint64(head[offsetPctab:], uint64(headerSize+len(names)))
	le.PutUint64(head[offsetFunctab:], uint64(headerSize+len(names)+len(pctab)))
	functab := make([]byte, 12) // start and entry of the function; end of the last one
	le.PutUint32(functab[4:], 12)
	le.PutUint32(functab[8:], 16)
	call := make([]byte, inlinedCallSize)
	le.PutUint32(call[4:], 8)  // its name
	le.PutUint32(call[8:], 99) // called from past the table: the end of the way out
	return concat(head, names, pctab, functab, f), call
}

func TestTinyTable(t *testing.T) {
	data, inlines := tinyTable()
	table, err := newGoTable(data, 0x1000, inlines)
	if err != nil {
		t.Fatal(err)
	}
	for pc, want := range map[uint64]string{0xfff: "", 0x1000: "main.f;main.g", 0x100f: "main.f;main.g", 0x1010: ""} {
		if got := table.frames(pc); got != want {
			t.Errorf("%#x: %q, want %q", pc, got, want)
		}
	}
	// Any part of it is refused, or names nothing else.
	for n := range len(data) {
		table, err := newGoTable(data[:n], 0x1000, inlines)
		if err != nil {
			continue
		}
		if got := table.frames(0x1000); got != "" && got != "main.f" {
			t.Errorf("%d of %d bytes: %q", n, len(data), got)
		}
	}
}

func FuzzGoTable(f *testing.F) {
	data, inlines := tinyTable()
	f.Add(data, uint64(0x1000), uint64(0x1000), inlines)
	f.Fuzz(func(t *testing.T, data []byte, text, pc uint64, inlines []byte) {
		table, err := newGoTable(data, text, inlines)
		if err != nil {
			return
		}
		for i := range uint64(4) {
			if name := table.frames(pc + i); len(name) > (maxInlined+1)*(3*maxName+1) {
				t.Fatalf("a name of %d bytes", len(name))
			}
		}
	})
}

func FuzzObject(f *testing.F) {
	if b, err := os.ReadFile("/bin/true"); err == nil && len(b) < 1<<17 {
		f.Add(b, uint64(0x2000))
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, offset uint64) {
		o, err := newObject("/x", data)
		if err != nil {
			return
		}
		if a, ok := o.address(offset); ok {
			o.frames(a)
		}
		o.frames(offset)
	})
}

func TestKernelSymbols(t *testing.T) {
	k, hidden, err := newKernel(strings.NewReader(`ffffffff81000000 T _stext
ffffffff81000100 t do_it
ffffffff81000180 d data
ffffffffc0000000 t in_module	[xfs]
garbage
`))
	if err != nil || hidden {
		t.Fatal(hidden, err)
	}
	for addr, want := range map[uint64]string{
		0xffffffff81000010: "_stext_[k]", 0xffffffff81000190: "do_it_[k]", 0xffffffffc0000008: "in_module_[k]", 0x1000: "[unknown]_[k]",
	} {
		if got, err := k.frame(addr); got != want || err != nil {
			t.Errorf("%#x: %s, %v, want %s", addr, got, err, want)
		}
	}
	k.change(event{lo: 0xffffffffc0001000, length: 64, text: "bpf_prog_y"})
	if got, err := k.frame(0xffffffffc0001020); got != "bpf_prog_y_[k]" || err != nil {
		t.Error(got, err)
	}
	k.change(event{lo: 0xffffffffc0001000, gone: true})
	if got, err := k.frame(0xffffffffc0001020); got != "in_module_[k]" || err != nil {
		t.Error(got, err)
	}
	if _, hidden, _ := newKernel(strings.NewReader("0000000000000000 T _stext\n0000000000000000 t do_it\n")); !hidden {
		t.Error("addresses that read zero are not seen as hidden")
	}
}

func TestParseMaps(t *testing.T) {
	got := parseMaps([]byte(`00400000-00401000 r--p 00000000 fe:01 99                                 /usr/bin/etcd
00401000-00500000 r-xp 00001000 fe:01 99                                 /usr/bin/a name with blanks (deleted)
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
7f1000000000-7f1000001000 r-xp 00000000 00:00 0
nonsense
`))
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	if g := got[0]; g.lo != 0x401000 || g.hi != 0x500000 || g.offset != 0x1000 || g.file != (fileID{0xfe, 1, 99}) || g.path != "/usr/bin/a name with blanks" {
		t.Errorf("%+v", g)
	}
	if got[1].path != "[vdso]" || got[2].path != "" {
		t.Errorf("%+v", got)
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte("00401000-00500000 r-xp 00001000 fe:01 99      /usr/bin/etcd\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range parseMaps(b) {
			if m.hi <= m.lo {
				t.Fatal("an empty mapping")
			}
		}
	})
}

// A space after any order of mappings holds at each address the last one put
// there.
func TestSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 64
		var model [size]*file
		var offsets [size]uint64
		s := &space{}
		for i := range rapid.IntRange(1, 12).Draw(t, "n") {
			lo := rapid.Uint64Range(0, size-1).Draw(t, "lo")
			hi := rapid.Uint64Range(lo+1, size).Draw(t, "hi")
			f := &file{}
			s = s.with(uint64(i), mapping{lo, hi, 1000, f})
			for a := lo; a < hi; a++ {
				model[a], offsets[a] = f, 1000+a-lo
			}
		}
		for a := range uint64(size) {
			m := s.find(a)
			switch {
			case m == nil && model[a] == nil:
			case m == nil || m.file != model[a] || a-m.lo+m.offset != offsets[a]:
				t.Fatalf("at %d: %+v", a, m)
			}
		}
	})
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{
		"main.f":                             "main.f",
		"main.f[go.shape.struct { A; B }]":   "main.f[...]",
		"main.(*T[go.shape.int]).m[...].fun": "main.(*T[...].fun",
	} {
		if got := clean(withoutShapes(in)); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if got := clean("a;b\nc\xff"); got != "a,b c�" {
		t.Errorf("%q", got)
	}
	if got := demangled("_ZN3foo3barEi"); got != "foo::bar" {
		t.Errorf("%q", got)
	}
	if stackID([]byte("a")) == stackID([]byte("b")) || stackID([]byte("a")) < 0 || stackID([]byte("main;f")) != 3552229292093956937 {
		t.Error(stackID([]byte("main;f")))
	}
}
