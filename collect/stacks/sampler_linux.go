package stacks

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// sweepInterval is how often what no living process uses is dropped, and the
	// pages of files whose names were looked up.
	sweepInterval = 10 * time.Second
	// maxChains bounds the memory of which raw call chain is which stack.
	maxChains = 1 << 16
	// maxObject is the largest file whose symbols are read.
	maxObject = 4 << 30
)

// A proc is a process as the records tell it.
type proc struct {
	pid, ppid int32
	component string
	attached  bool
	seq       int
	named     int64 // µs, of Attach
	space     *space
	exited    bool
}

// ended is the end of a named process.
type ended struct {
	pid    int32
	seq    int
	micros int64
}

// sampler turns the kernel's records into rows. It is used by one goroutine.
type sampler struct {
	out   sink
	clock clock

	procs  map[int32]*proc
	comms  map[int32]string // of threads
	files  map[fileKey]*file
	spaces uint64
	empty  *space
	kernel *kernel
	vdso   *object

	ended []ended // of the processes that the run knows, since the last drain

	chains  map[uint64]int64
	seed    maphash.Seed
	written map[int64]struct{} // stacks that have a row
	buf     []byte
	chain   []frame // of the stack that is being named

	samples, frames, unknown, bytes int64
	noMaps                          map[int32]bool // processes whose maps may not be read
	lost, lostBefore                int64
	lostFrom, lostTo                time.Time
}

type fileKey struct {
	id   fileID
	path string
}

func newSampler(out sink) *sampler {
	s := &sampler{
		out: out, procs: map[int32]*proc{}, comms: map[int32]string{}, files: map[fileKey]*file{},
		chains: map[uint64]int64{}, seed: maphash.MakeSeed(), written: map[int64]struct{}{}, noMaps: map[int32]bool{},
		empty: &space{}, kernel: &kernel{cache: map[uint64]string{}},
	}
	s.vdso = ownVDSO()
	return s
}

// askKernel asks the kernel for the names of its functions as they are needed, or reads
// all of them where it cannot be asked.
func (s *sampler) askKernel() {
	names, err := newKernelNames()
	if err != nil {
		s.readKernel()
		return
	}
	s.kernel.asked = names
}

// readKernel reads the kernel's symbols, or notes why that cannot be.
func (s *sampler) readKernel() {
	const name = "/proc/kallsyms"
	f, err := os.Open(name)
	if err == nil {
		defer f.Close()
		k, hidden, readErr := newKernel(f)
		if readErr == nil && !hidden {
			k.late = s.kernel.late
			s.kernel = k
			return
		}
		if err = readErr; hidden {
			err = errors.New("its addresses read zero; run as root or grant CAP_SYSLOG, and set kernel.kptr_restrict to 1 or less")
		}
	}
	s.out.Gap(record.Gap{Collector: "stacks", Subject: "kernel functions", Reason: fmt.Sprintf("kernel frames have no names: %s: %v", name, err)})
}

// ownVDSO is the code that the kernel maps into every process. Ours is
// everybody's.
func ownVDSO() *object {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	for _, m := range parseMaps(b) {
		if m.path != "[vdso]" || m.hi-m.lo > 1<<20 {
			continue
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil
		}
		defer mem.Close()
		image := make([]byte, m.hi-m.lo)
		if _, err := mem.ReadAt(image, int64(m.lo)); err != nil {
			return nil
		}
		o, err := newObject("[vdso]", image)
		if err != nil {
			return nil
		}
		o.name = "vdso"
		return o
	}
	return nil
}

// close frees the files.
func (s *sampler) close() {
	for _, f := range s.files {
		if f.object != nil {
			f.object.kept()
		}
	}
	_ = s.kernel.close() // only file descriptors
}

// attach gives processes the names that the run knows them by.
func (s *sampler) attach(known map[int32]named) {
	changed := false
	for pid, n := range known {
		if old := s.procs[pid]; old != nil && old.attached && old.seq == n.seq {
			continue
		}
		p := s.process(pid)
		p.component, p.attached, p.seq, p.named, p.exited = n.component, true, n.seq, n.at.UnixMicro(), false
		changed = true
	}
	for changed { // until it has reached the last descendant
		changed = false
		for _, p := range s.procs {
			if c := s.inherited(p.ppid); !p.attached && c != "" && c != p.component {
				p.component, changed = c, true
			}
		}
	}
}

// inherited is the component of a process that a component started. The
// command and its keeper start everything, so nothing inherits from them.
func (s *sampler) inherited(ppid int32) string {
	parent := s.procs[ppid]
	if parent == nil || parent.component == process.Self || parent.component == process.Keeper {
		return ""
	}
	return parent.component
}

// process is a process that may not have been met before; then its parents
// are met too.
func (s *sampler) process(pid int32) *proc {
	p := s.procs[pid]
	if p != nil {
		return p
	}
	p = &proc{pid: pid}
	s.procs[pid] = p // before its parents, in case they form a loop
	if pid > 0 {
		p.ppid = parentOf(pid)
	}
	if p.ppid > 0 {
		s.process(p.ppid)
		p.component = s.inherited(p.ppid)
	}
	return p
}

func parentOf(pid int32) int32 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[1]), 10, 32)
	return int32(n)
}

// handle takes one record. now is when the records were read.
func (s *sampler) handle(e event, now time.Time) {
	switch e.kind {
	case recordSample:
		s.sample(e)
	case recordComm:
		s.comms[e.tid] = e.text
		if e.exec {
			// What follows are the mappings of the new program: a process that
			// is dead when we look has told them all.
			s.process(e.pid).space = s.empty
		}
	case recordMmap2:
		// One of a process whose space was never read is in there when it is.
		if p := s.process(e.pid); p.space != nil && e.length > 0 && e.lo+e.length > e.lo {
			s.spaces++
			p.space = p.space.with(s.spaces, mapping{e.lo, e.lo + e.length, e.offset, s.file(e.file, e.text)})
		}
	case recordFork:
		if comm, ok := s.comms[e.ptid]; ok {
			s.comms[e.tid] = comm
		}
		if e.pid != e.ppid { // a process, not a thread
			parent := s.process(e.ppid)
			p := &proc{pid: e.pid, ppid: e.ppid, component: s.inherited(e.ppid), space: parent.space}
			if old := s.procs[e.pid]; old != nil && old.attached && old.named >= s.clock.micros(e.time) {
				// It was named before we were told that it exists.
				p.component, p.attached, p.seq, p.named = old.component, true, old.seq, old.named
			}
			s.procs[e.pid] = p
			delete(s.noMaps, e.pid)
		}
	case recordExit:
		delete(s.comms, e.tid)
		if p := s.procs[e.pid]; p != nil && e.pid == e.tid {
			p.exited = true // other threads may still run: it goes with the next sweep
			if p.attached {
				s.ended = append(s.ended, ended{e.pid, p.seq, s.clock.micros(e.time)})
			}
		}
	case recordKsymbol:
		s.kernel.change(e)
	case recordLost, recordLostSamples:
		s.lose(e.lost, now)
	}
}

// lose counts records that did not fit into the kernel's buffer.
func (s *sampler) lose(n uint64, now time.Time) {
	from := now.Add(-drainInterval)
	if s.lost > s.lostBefore && from.Sub(s.lostTo) > time.Second {
		s.tellLost()
	}
	if s.lost == s.lostBefore {
		s.lostFrom = from
	}
	s.lost += int64(n)
	s.lostTo = now
}

// tellLost notes the stretch in which records were lost.
func (s *sampler) tellLost() {
	if n := s.lost - s.lostBefore; n > 0 {
		s.out.Gap(record.Gap{
			Collector: "stacks", Subject: "samples", Start: s.lostFrom, End: s.lostTo,
			Reason: fmt.Sprintf("the kernel's buffer overflowed: %d records lost, samples or others; kubedyno got too little CPU, or processes came and went in a storm", n),
		})
	}
	s.lostBefore = s.lost
}

func (s *sampler) sample(e event) {
	p := s.process(e.pid)
	if p.space == nil {
		s.readMaps(p)
	}
	comm, ok := s.comms[e.tid]
	if !ok {
		comm = readComm(e.pid, e.tid)
		s.comms[e.tid] = comm
	}
	id := s.stack(p, e.chain)
	s.samples++
	s.out.StackSample(record.StackSample{
		TimeMicros: s.clock.micros(e.time), CPU: int32(e.cpu), PID: max(e.pid, 0), TID: max(e.tid, 0),
		Component: p.component, Command: comm, Stack: id,
	})
}

// readComm is a thread's name; a thread that is gone has none.
func readComm(pid, tid int32) string {
	if pid <= 0 {
		return "[exited]"
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
	if err != nil {
		return "[exited]"
	}
	return clean(strings.TrimSuffix(string(b), "\n"))
}

// readMaps reads where a process's code is. One that is gone had its parent's,
// for had it executed a program, we would have been told the mappings.
func (s *sampler) readMaps(p *proc) {
	p.space = s.empty
	if p.pid <= 0 {
		return
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(p.pid)) + "/maps")
	if errors.Is(err, os.ErrPermission) {
		s.noMaps[p.pid] = true
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		if parent := s.procs[p.ppid]; parent != nil && parent.pid > 1 && !parent.exited {
			if parent.space == nil {
				s.readMaps(parent)
			}
			p.space = parent.space
		}
		return
	}
	lines := parseMaps(b)
	if len(lines) == 0 {
		return
	}
	s.spaces++
	sp := &space{id: s.spaces}
	for _, l := range lines {
		sp.mappings = append(sp.mappings, mapping{l.lo, l.hi, l.offset, s.file(l.file, l.path)})
	}
	slices.SortFunc(sp.mappings, func(a, b mapping) int { return cmp.Compare(a.lo, b.lo) })
	p.space = sp
}

func (s *sampler) file(id fileID, path string) *file {
	k := fileKey{id, path}
	f := s.files[k]
	if f == nil {
		f = &file{id: id, path: path}
		s.files[k] = f
	}
	return f
}

// stack is the id of a call chain's stack, which is written when it is new.
func (s *sampler) stack(p *proc, chain []byte) int64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	h.Write(binary.LittleEndian.AppendUint64(nil, p.space.id))
	h.Write(chain)
	key := h.Sum64()
	if id, ok := s.chains[key]; ok {
		return id
	}
	s.buf = s.name(s.buf[:0], p, chain)
	id := stackID(s.buf)
	if _, ok := s.written[id]; !ok {
		s.written[id] = struct{}{}
		s.bytes += int64(len(s.buf))
		s.out.Stack(record.Stack{ID: id, Frames: string(s.buf)})
	}
	if len(s.chains) >= maxChains {
		clear(s.chains)
	}
	s.chains[key] = id
	return id
}

type frame struct {
	addr   uint64
	kernel bool
	known  bool // of which side it is
}

// name appends the names of a call chain, outermost first. The chain has the
// innermost first, and markers that say whose the frames behind them are.
func (s *sampler) name(out []byte, p *proc, chain []byte) []byte {
	frames := s.chain[:0]
	context, first := uint64(0), true
	for ; len(chain) >= 8; chain = chain[8:] {
		addr := binary.LittleEndian.Uint64(chain)
		if addr >= contextMax {
			context, first = addr, true
			continue
		}
		if !first && addr > 0 {
			addr-- // a return address: the call is before it
		}
		first = false
		frames = append(frames, frame{addr, context == contextKernel, context == contextKernel || context == contextUser})
	}
	s.chain = frames
	for i := len(frames) - 1; i >= 0; i-- {
		if len(out) > 0 {
			out = append(out, ';')
		}
		f := frames[i]
		s.frames++
		var name string
		switch {
		case !f.known: // a guest's or a hypervisor's
			name = "[unknown]"
		case f.kernel:
			name = s.ofKernel(f.addr)
		default:
			name = s.user(p, f.addr)
		}
		if name[0] == '[' {
			s.unknown++
		}
		out = append(out, name...)
	}
	if len(out) == 0 {
		s.frames++
		s.unknown++
		out = append(out, "[unknown]"...)
	}
	return out
}

// ofKernel names an address in the kernel.
func (s *sampler) ofKernel(addr uint64) string {
	name, err := s.kernel.frame(addr)
	if err != nil {
		_ = s.kernel.close() // it has not answered either
		s.kernel.asked = nil
		s.readKernel()
		name, _ = s.kernel.frame(addr) // a table does not fail
	}
	return name
}

// user names an address in a process.
func (s *sampler) user(p *proc, addr uint64) string {
	m := p.space.find(addr)
	if m == nil {
		return "[unknown]"
	}
	f := m.file
	switch {
	case f.path == "[vdso]":
		if s.vdso != nil {
			return s.vdso.frames(addr - m.lo)
		}
		return "[vdso]"
	case f.path == "" || strings.HasPrefix(f.path, "//anon"):
		return "[anon]" // written by a just-in-time compiler
	case f.path[0] != '/':
		return clean(f.path)
	}
	if !f.tried {
		f.tried = true
		f.object = s.open(p.pid, f)
	}
	offset := addr - m.lo + m.offset
	if f.object == nil {
		return fmt.Sprintf("[%s+0x%x]", clean(f.path[strings.LastIndexByte(f.path, '/')+1:]), offset)
	}
	link, ok := f.object.address(offset)
	if !ok {
		return fmt.Sprintf("[%s+0x%x]", f.object.name, offset)
	}
	return f.object.frames(link)
}

// open reads a file's symbols: as the process sees it, for it may have another
// root, else as we do, for it may be gone. nil where it cannot be read.
func (s *sampler) open(pid int32, f *file) *object {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for _, name := range []string{fmt.Sprintf("/proc/%d/root%s", pid, f.path), f.path, fmt.Sprintf("/proc/%d/exe", pid)} {
		data, err := mapFile(name, f.id)
		if err != nil {
			continue
		}
		o, err := newObject(f.path, data)
		if err != nil {
			_ = unix.Munmap(data)
			continue
		}
		o.kept = func() { _ = unix.Munmap(data) }
		o.rest = func() { _ = unix.Madvise(data, unix.MADV_DONTNEED) }
		return o
	}
	return nil
}

var errOtherFile = errors.New("another file has that name now")

// mapFile maps a file that is still the one of that identity.
func mapFile(name string, id fileID) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size <= 0 || st.Size > maxObject {
		return nil, io.ErrUnexpectedEOF
	}
	same := st.Ino == id.inode && unix.Major(st.Dev) == id.major && unix.Minor(st.Dev) == id.minor
	if id.inode != 0 && !same {
		// These show another device, and an overlay another inode, to stat
		// than in a process's maps.
		var fs unix.Statfs_t
		err := unix.Fstatfs(int(f.Fd()), &fs)
		if err != nil || fs.Type != unix.OVERLAYFS_SUPER_MAGIC && (fs.Type != unix.BTRFS_SUPER_MAGIC || st.Ino != id.inode) {
			return nil, errOtherFile
		}
	}
	return unix.Mmap(int(f.Fd()), 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
}

// sweep drops what no living process uses, and lets go of the pages of files
// that were read: symbols of a control plane are a hundred megabytes. Records
// that were lost may have been of ends, so processes are looked for.
func (s *sampler) sweep() {
	for _, f := range s.files {
		f.used = false
	}
	for pid, p := range s.procs {
		if p.exited || (pid > 0 && unix.Kill(int(pid), 0) == unix.ESRCH) {
			delete(s.procs, pid)
			continue
		}
		if p.space != nil {
			for _, m := range p.space.mappings {
				m.file.used = true
			}
		}
	}
	for k, f := range s.files {
		if f.used {
			if f.object != nil {
				f.object.rest()
			}
			continue
		}
		delete(s.files, k)
		if f.object != nil {
			f.object.kept()
		}
	}
	if len(s.comms) > maxChains {
		clear(s.comms)
	}
}
