package blockio

import (
	"strconv"
	"strings"
)

// line is a line of trace_pipe as far as it is used.
type line struct {
	comm     string // of the thread that was running; <...> where it is not known
	tid, pid int32  // pid 0: not known
	at       int64  // ns
	event    string // block_rq_issue, sys_fsync …
	rest     string // what follows the event's name
	lost     int64  // instead of all else: events that the ring lost; -1 some
}

// parseLine reads
//
//	etcd-28435   (  28430) [001] ..... 1797.984162: block_io_start: 254,0 WS 4096 () 344501704 + 8 be,0,5 [etcd]
//	etcd-28435   (  28430) [001] .....  1797.984162: sys_fsync(fd: 1)
//	CPU:1 [LOST 123 EVENTS]
//
// The command has 16 columns, and may hold any character.
func parseLine(s string) (l line, ok bool) {
	if cpu, rest, found := strings.Cut(s, " [LOST "); found && strings.HasPrefix(cpu, "CPU:") {
		count, _, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(strings.TrimSuffix(count, "]"), 10, 64)
		if err != nil || n <= 0 {
			n = -1 // "[LOST EVENTS]"
		}
		return line{lost: n}, true
	}
	if len(s) < 18 || s[16] != '-' {
		return l, false
	}
	l.comm = strings.TrimLeft(s[:16], " ")
	tid, rest, found := strings.Cut(s[17:], " ")
	if !found {
		return l, false
	}
	n, err := strconv.ParseInt(tid, 10, 32)
	if err != nil {
		return l, false
	}
	l.tid = int32(n)
	rest = strings.TrimLeft(rest, " ")
	if strings.HasPrefix(rest, "(") {
		group, after, found := strings.Cut(rest[1:], ")")
		if !found {
			return l, false
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(group), 10, 32); err == nil {
			l.pid = int32(n)
		}
		rest = strings.TrimLeft(after, " ")
	}
	if !strings.HasPrefix(rest, "[") { // CPU
		return l, false
	}
	if _, rest, found = strings.Cut(rest, "] "); !found {
		return l, false
	}
	if _, rest, found = strings.Cut(strings.TrimLeft(rest, " "), " "); !found { // irqs-off and the like
		return l, false
	}
	stamp, rest, found := strings.Cut(strings.TrimLeft(rest, " "), ": ")
	if !found {
		return l, false
	}
	if l.at, ok = parseStamp(stamp); !ok {
		return l, false
	}
	end := strings.IndexAny(rest, ":( ")
	if end <= 0 {
		return l, false
	}
	l.event, l.rest = rest[:end], rest[end:]
	return l, true
}

// parseStamp reads seconds and microseconds of the clock mono.
func parseStamp(s string) (ns int64, ok bool) {
	whole, part, found := strings.Cut(s, ".")
	if !found || len(part) != 6 {
		return 0, false
	}
	sec, err1 := strconv.ParseUint(whole, 10, 32)
	us, err2 := strconv.ParseUint(part, 10, 32)
	if err1 != nil || err2 != nil {
		return 0, false
	}
	return int64(sec)*1e9 + int64(us)*1e3, true
}

// blockFields are those of a block event.
type blockFields struct {
	device  device
	rwbs    string
	sector  int64
	sectors int64
	comm    string // of block_io_start
	status  int32  // of block_rq_complete: negative errno
}

// parseBlock reads what follows the name of a block event, of the forms
//
//	: 254,0 WS 4096 () 344501704 + 8 be,0,5 [etcd]
//	: 254,0 WS () 344501704 + 8 be,0,4 [0]
//	: 254,0 WS 344501704 + 8 [etcd]
func parseBlock(s string) (f blockFields, ok bool) {
	s, ok = strings.CutPrefix(s, ": ")
	if !ok {
		return f, false
	}
	dev, s, ok := strings.Cut(s, " ")
	major, minor, comma := strings.Cut(dev, ",")
	a, err1 := strconv.ParseUint(major, 10, 32)
	b, err2 := strconv.ParseUint(minor, 10, 32)
	if !ok || !comma || err1 != nil || err2 != nil {
		return f, false
	}
	f.device = device{uint32(a), uint32(b)}
	if f.rwbs, s, ok = strings.Cut(s, " "); !ok || f.rwbs == "" {
		return f, false
	}
	place, size, ok := strings.Cut(s, " + ")
	if !ok {
		return f, false
	}
	n, err := strconv.ParseUint(place[strings.LastIndexByte(place, ' ')+1:], 10, 64)
	if err != nil {
		return f, false
	}
	f.sector = sector(n)
	count, s, ok := strings.Cut(size, " ")
	sectors, err := strconv.ParseUint(count, 10, 32)
	open, end := strings.IndexByte(s, '['), strings.LastIndexByte(s, ']')
	if !ok || err != nil || open < 0 || end < open {
		return f, false
	}
	f.sectors = int64(sectors)
	f.comm = s[open+1 : end]
	if n, err := strconv.ParseInt(f.comm, 10, 32); err == nil && n <= 0 {
		f.status = int32(n)
	}
	return f, true
}

// letters of blk_fill_rwbs in block/blk-core.c: [F] operation [F] [A] [S] [M].
func parseRWBS(s string, bytes int64) (operation, flags string) {
	var on []string
	if len(s) > 1 && s[0] == 'F' {
		on = append(on, "preflush")
		s = s[1:]
	}
	op, rest := s[:min(1, len(s))], s[min(1, len(s)):]
	switch op {
	case "R":
		operation = "read"
	case "W":
		operation = "write"
		if bytes == 0 && len(on) > 0 {
			operation = "flush"
		}
	case "F":
		operation = "flush"
	case "D":
		operation = "discard"
		rest = strings.TrimPrefix(rest, "E")
	default:
		return "other", strings.Join(on, ",")
	}
	for _, letter := range rest {
		switch letter {
		case 'F':
			on = append(on, "fua")
		case 'A':
			on = append(on, "ahead")
		case 'S':
			on = append(on, "sync")
		case 'M':
			on = append(on, "meta")
		}
	}
	var names []string // in the order of the other source
	for _, f := range flagBits {
		for _, name := range on {
			if name == f.name {
				names = append(names, name)
			}
		}
	}
	return operation, strings.Join(names, ",")
}

// place tells requests in flight apart: trace lines have no better key. Two at
// once at one place are taken in the order in which they came.
type place struct {
	device    device
	sector    int64
	operation byte // R, W, D, F …
	empty     bool // a flush that waits beside data at sector 0
}

// place reads the operation behind the F of PREFLUSH, which the block layer
// takes off on the way.
func (f blockFields) place() place {
	op := f.rwbs
	if len(op) > 1 && op[0] == 'F' {
		op = op[1:]
	}
	return place{f.device, f.sector, op[0], f.sectors == 0}
}

// matcher puts lines together to events.
type matcher struct {
	inflight map[place][]*event
	left     map[*event]int64 // bytes that the device still owes, of a request that completes in parts
	calling  map[int32]*event // by thread
	// thread finds a thread's process and command, where the line has none.
	process func(tid int32) int32
	comm    func(tid int32) string
	skipped int64 // lines that could not be read
}

func newMatcher() *matcher {
	return &matcher{
		inflight: map[place][]*event{}, left: map[*event]int64{}, calling: map[int32]*event{},
		process: func(tid int32) int32 { return tid }, comm: func(int32) string { return "" },
	}
}

// bound is how many requests, and calls, are remembered at most: what is above
// belongs to lines that were lost.
const bound = 8192

func (m *matcher) who(l line) (pid int32, comm string) {
	pid, comm = l.pid, l.comm
	if pid == 0 && l.tid != 0 {
		pid = m.process(l.tid)
	}
	if comm == "<...>" {
		comm = m.comm(l.tid)
	}
	return pid, strings.ToValidUTF8(comm, "\uFFFD")
}

// add takes a line and calls f with the event that it ends, if any.
func (m *matcher) add(l line, f func(*event)) {
	if name, ok := strings.CutPrefix(l.event, "sys_"); ok {
		m.call(l, name, f)
		return
	}
	b, ok := parseBlock(l.rest)
	if !ok {
		m.skipped++
		return
	}
	at := b.place()
	switch l.event {
	case "block_io_start":
		e := &event{start: l.at, tid: l.tid, device: b.device, sector: b.sector, bytes: b.sectors * 512}
		e.pid, _ = m.who(l)
		e.comm = strings.ToValidUTF8(b.comm, "\uFFFD")
		e.operation, e.flags = parseRWBS(b.rwbs, e.bytes)
		m.put(at, e)
	case "block_rq_issue":
		e := m.next(at)
		if e == nil && at.operation == 'F' { // the block layer's own; see kernel.bpf.c
			e = &event{start: l.at, device: b.device, sector: b.sector}
			e.operation, e.flags = parseRWBS(b.rwbs, 0)
			m.put(at, e)
		}
		if e != nil {
			e.issued = l.at
			if at.operation == 'F' && e.pid == 0 {
				e.start = l.at
			}
			e.bytes = b.sectors * 512
		}
	case "block_bio_frontmerge": // the request behind begins earlier from now on
		behind := at
		behind.sector += b.sectors
		if e := m.take(behind); e != nil {
			e.sector = b.sector
			m.put(at, e)
		}
	case "block_rq_merge":
		m.take(at)
	case "block_rq_complete":
		m.complete(l, b, at, f)
	}
}

func (m *matcher) complete(l line, b blockFields, at place, f func(*event)) {
	e := m.take(at)
	if e == nil {
		return
	}
	if e.errno == 0 {
		e.errno = -b.status
	}
	left, partly := m.left[e]
	if !partly {
		left = e.bytes
	}
	if left -= b.sectors * 512; left > 0 && b.sectors > 0 && e.issued > 0 {
		m.left[e] = left
		at.sector += b.sectors
		m.put(at, e)
		return
	}
	delete(m.left, e)
	e.done = l.at
	f(e)
}

func (m *matcher) call(l line, name string, f func(*event)) {
	if ret, ok := strings.CutPrefix(l.rest, " -> "); ok {
		e := m.calling[l.tid]
		if e == nil || e.call != name {
			return
		}
		delete(m.calling, l.tid)
		if n, err := strconv.ParseUint(strings.TrimPrefix(ret, "0x"), 16, 64); err == nil && int64(n) < 0 {
			e.errno = int32(-int64(n))
		}
		e.done = l.at
		f(e)
		return
	}
	if len(m.calling) >= bound {
		clear(m.calling)
	}
	e := &event{start: l.at, tid: l.tid, call: name}
	e.pid, e.comm = m.who(l)
	m.calling[l.tid] = e
}

func (m *matcher) put(at place, e *event) {
	if len(m.inflight) >= bound {
		clear(m.inflight)
		clear(m.left)
	}
	m.inflight[at] = append(m.inflight[at], e)
}

// next is the request at a place that was not issued, else the oldest.
func (m *matcher) next(at place) *event {
	queue := m.inflight[at]
	for _, e := range queue {
		if e.issued == 0 {
			return e
		}
	}
	if len(queue) > 0 {
		return queue[0]
	}
	return nil
}

func (m *matcher) take(at place) *event {
	queue := m.inflight[at]
	switch len(queue) {
	case 0:
		return nil
	case 1:
		delete(m.inflight, at)
	default:
		m.inflight[at] = queue[1:]
	}
	return queue[0]
}

// rest calls f with what is not over.
func (m *matcher) rest(f func(*event)) {
	for _, queue := range m.inflight {
		for _, e := range queue {
			f(e)
		}
	}
	for _, e := range m.calling {
		f(e)
	}
}
