package process

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/cluster/cgroup"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// repeat is after how long an idle process is read in full and written
	// again, though nothing moved.
	repeat = 10 * time.Second
	// young processes may still exec: their command line is read again.
	young = 5 * time.Second
	// maxCommand bounds a command line: a classpath of 100 KiB each second
	// tells nobody anything.
	maxCommand = 4096
)

// scanner reads /proc once per scan and keeps what it needs to tell one scan
// from the last. It is used by one goroutine.
type scanner struct {
	root, sys string
	out       sink
	redact    func([]string) []string
	dir       *os.File
	buf       []byte
	boot      time.Time // so that a process's start does not move with the clock
	page      int64
	procs     map[int32]*proc
	ended     map[int32]*proc // that the last scan no longer found
	// born is the component of a process whose parent may be gone; nil where
	// nobody knows.
	born   func(pid int32, start uint64) string
	gen    uint64
	rows   int64
	hidden int64 // processes whose io could not be read
	gaps   gaps
	mounts string // /proc/self/mountinfo

	census    census                 // nil where threads are read file by file
	now       map[int32][]threadStat // of this scan
	uncounted error                  // why there is no census

	disks    map[string]bool // whether a device is a disk of its own
	busy     map[string]int64
	diskBusy int64 // ms, see machine
}

type proc struct {
	path      string
	pid       int32
	start     uint64
	startUS   int64
	gen       uint64
	component string
	attached  bool // named by the run, not inherited from the parent
	seq       int  // of that naming
	cgroup    string
	groups    groups
	comm      string
	command   string
	threads   map[int32]*thread
	counted   int32 // threads at the last listing
	gone      thread
	schedOK   bool
	switchOK  bool
	last      record.ProcessSample
	written   time.Time
	held      bool // last was not written
}

type thread struct {
	dir                    string
	start                  int64 // where a census tells, else 0
	sched                  sched
	voluntary, involuntary int64
}

// groups are the cgroups that hold a process, and what the quota of one of them did
// to it.
type groups struct {
	text string   // /proc/PID/cgroup
	dirs []string // with their parents, nearest first
	dir  string   // whose quota holds it; "" for none
	last throttle // that group's account
	sum  throttle // what is written: it goes on from where it was in another group
}

// A named process is one that the run knows.
type named struct {
	component, cgroup string
	seq               int // tells a PID that was attached again from one that was used again
}

func newScanner(root, sys string, out sink, redact func([]string) []string) (*scanner, error) {
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	mounts, _ := os.ReadFile(filepath.Join(root, "self/mountinfo")) // without, only the cgroups that we are told of are known
	return &scanner{
		mounts: string(mounts),
		root:   root, sys: sys, out: out, redact: redact, dir: dir,
		buf: make([]byte, 16<<10), boot: bootTime(), page: int64(os.Getpagesize()),
		procs: map[int32]*proc{}, gaps: gaps{out: out}, disks: map[string]bool{}, busy: map[string]int64{},
	}, nil
}

func (s *scanner) close() error {
	if s.census != nil {
		return errors.Join(s.census.close(), s.dir.Close())
	}
	return s.dir.Close()
}

// count takes the census of this scan. One that fails once is not taken again.
func (s *scanner) count() {
	s.now = nil
	if s.census == nil {
		return
	}
	now, err := s.census.read()
	if err != nil {
		s.uncounted = errors.Join(err, s.census.close())
		s.census = nil
		return
	}
	s.now = now
}

// rests says that a process of nobody's did nothing since the last scan, by the census
// alone: none of its threads ran, and it has the same parent. Memory that others took
// from it is seen with its next row.
func (s *scanner) rests(p *proc, now time.Time, known map[int32]named) bool {
	threads := s.now[p.pid]
	if len(threads) == 0 || len(threads) != len(p.threads) || p.component != "" || p.written.IsZero() || now.Sub(p.written) >= repeat {
		return false
	}
	for _, t := range threads {
		old := p.threads[t.tid]
		if old == nil || old.start != t.start || old.sched != t.sched || t.ppid != p.last.PPID {
			return false
		}
	}
	_, named := known[p.pid]
	return !named && s.inherited(p.last.PPID) == "" && (s.born == nil || s.born(p.pid, p.start) == "")
}

// scan reads every process once. known maps the PIDs that the run has named.
// all writes each process, moved or not.
func (s *scanner) scan(now time.Time, known map[int32]named, all bool) error {
	if _, err := s.dir.Seek(0, io.SeekStart); err != nil {
		return err
	}
	names, err := s.dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	s.gen++
	s.ended = map[int32]*proc{}
	s.count()
	at := now.UnixMicro()
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		pid, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			continue
		}
		if p := s.procs[int32(pid)]; p != nil && !all && s.rests(p, now, known) {
			p.gen = s.gen
			p.last.TimeMicros, p.held = at, true
			continue
		}
		s.process(int32(pid), name, now, at, known, all)
	}
	for pid, p := range s.procs {
		if p.gen != s.gen {
			// It ended since the last scan. What it used after that is lost
			// to a scan; the last row stands for it.
			if p.held {
				s.write(p, p.written)
			}
			delete(s.procs, pid)
			s.ended[pid] = p
		}
	}
	return nil
}

// seen is the process that a scan showed under this PID and start, in ns since
// boot and good to within, or nil.
func (s *scanner) seen(pid int32, start, within int64) *proc {
	for _, p := range []*proc{s.procs[pid], s.ended[pid]} {
		if p != nil && p.start >= toTicks(max(start-within, 0)) && p.start <= toTicks(start+within) {
			return p
		}
	}
	return nil
}

// stat is the state of a process that scan need not have shown.
func (s *scanner) stat(pid int32) (stat, error) {
	b, err := s.read(s.root + "/" + strconv.Itoa(int(pid)) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

func (s *scanner) process(pid int32, name string, now time.Time, at int64, known map[int32]named, all bool) {
	p := s.procs[pid]
	var path string
	if p != nil {
		path = p.path
	} else {
		path = s.root + "/" + name
	}
	b, err := s.read(path + "/stat")
	if err != nil {
		return // it ended between the listing and now
	}
	st, err := parseStat(b)
	if err != nil {
		return
	}
	if p == nil || p.start != st.start { // new, or the PID was used again
		if p != nil {
			if p.held {
				s.write(p, p.written)
			}
			if n := known[pid]; p.attached && n.seq == p.seq {
				delete(known, pid) // the name went with the process
			}
		}
		p = &proc{
			path: path, pid: pid, start: st.start, threads: map[int32]*thread{},
			startUS: s.boot.Add(time.Duration(st.start) * (time.Second / userHz)).UnixMicro(),
			schedOK: true, switchOK: true,
		}
		s.procs[pid] = p
	}
	p.gen = s.gen
	if !p.attached {
		if n, ok := known[pid]; ok {
			p.component, p.cgroup, p.attached, p.seq = n.component, n.cgroup, true, n.seq
		} else if p.component == "" {
			p.component = s.inherited(st.ppid)
			if p.component == "" && s.born != nil {
				p.component = s.born(pid, st.start)
			}
		}
	}

	row := record.ProcessSample{
		TimeMicros: at, PID: pid, PPID: st.ppid, StartMicros: p.startUS, Component: p.component,
		UserSeconds: float64(st.utime) / userHz, SystemSeconds: float64(st.stime) / userHz,
		RSSBytes: st.rssPages * s.page, MajorFaults: st.majorFault, MinorFaults: st.minorFault,
		GuestSeconds: float64(st.guest) / userHz, Threads: st.threads,
		RunDelaySeconds: -1, ReadBytes: -1, WriteBytes: -1, VoluntarySwitches: -1, InvoluntarySwitches: -1,
		FDs: -1, ThrottledSeconds: -1, ThrottledPeriods: -1, Periods: -1,
	}
	if st.state == 'T' || st.state == 't' { // proc_pid_stat(5)
		row.Stopped = 1
	}
	idle := !p.written.IsZero() && unmoved(p.last, row)
	if idle && !all && p.component == "" && now.Sub(p.written) < repeat {
		// Idle: one read was enough. The row is held, and written when the
		// process moves, so that readers see exactly when that was.
		old := p.last
		row.RunDelaySeconds, row.ReadBytes, row.WriteBytes = old.RunDelaySeconds, old.ReadBytes, old.WriteBytes
		row.VoluntarySwitches, row.InvoluntarySwitches, row.FDs = old.VoluntarySwitches, old.InvoluntarySwitches, old.FDs
		row.ThrottledSeconds, row.ThrottledPeriods, row.Periods = old.ThrottledSeconds, old.ThrottledPeriods, old.Periods
		row.Command = p.command
		p.last, p.held = row, true
		return
	}
	if p.held && !idle {
		s.write(p, p.written)
	}

	comm := string(st.comm) // before the buffer is used again
	if comm != p.comm || p.command == "" || at-p.startUS < young.Microseconds() {
		p.comm = comm
		p.command = s.command(p, st.flags)
	}
	row.Command = p.command
	s.detail(p, &row, st.flags&kernelThread != 0)
	p.last = row
	s.write(p, now)
}

// unmoved reports that the process did nothing that its stat line shows.
func unmoved(a, b record.ProcessSample) bool {
	return a.UserSeconds == b.UserSeconds && a.SystemSeconds == b.SystemSeconds &&
		a.MajorFaults == b.MajorFaults && a.MinorFaults == b.MinorFaults && a.Threads == b.Threads && a.RSSBytes == b.RSSBytes && a.PPID == b.PPID &&
		a.Component == b.Component && a.Stopped == b.Stopped
}

func (s *scanner) write(p *proc, at time.Time) {
	s.out.Process(p.last)
	s.rows++
	p.written, p.held = at, false
}

// inherited is the component of a process that a component started: a wrapper
// script's real work counts for the component it stands for. The command and
// its keeper start everything, so nothing inherits from them.
func (s *scanner) inherited(ppid int32) string {
	parent := s.procs[ppid]
	if parent == nil {
		return ""
	}
	switch parent.component {
	case Self, Keeper:
		return ""
	}
	return parent.component
}

func (s *scanner) command(p *proc, flags uint64) string {
	if flags&kernelThread != 0 {
		return "[" + p.comm + "]"
	}
	b, err := s.read(p.path + "/cmdline")
	b = bytes.TrimRight(b, "\x00")
	if err != nil || len(b) == 0 {
		return "[" + p.comm + "]"
	}
	cut := len(b) > maxCommand
	if cut {
		b = b[:maxCommand]
	}
	return s.line(b, cut)
}

// line is a command line for people, from arguments that end in zeros.
func (s *scanner) line(b []byte, cut bool) string {
	b = bytes.TrimRight(b, "\x00")
	line := strings.ToValidUTF8(strings.Join(s.redact(strings.Split(string(b), "\x00")), " "), "�")
	if cut {
		line += " …"
	}
	return line
}

// detail fills what takes more than the stat line.
func (s *scanner) detail(p *proc, row *record.ProcessSample, kernel bool) {
	s.switches(p, row)
	if b, err := s.read(p.path + "/io"); err == nil {
		if r, w, err := parseIO(b); err == nil {
			row.ReadBytes, row.WriteBytes = r, w
		}
	} else if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		s.hidden++
		if os.Geteuid() != 0 { // root is refused by few, which the account counts
			s.gaps.once("io", "storage bytes and open files of other users' processes: "+reason(err)+"; run as root, or grant CAP_SYS_PTRACE")
		}
	}
	if !kernel {
		row.FDs = s.fds(p)
	}
	if p.attached {
		if t, ok := s.throttled(p); ok {
			row.ThrottledSeconds, row.ThrottledPeriods, row.Periods = t.seconds, t.throttled, t.periods
		}
	}
}

// throttled is how a quota held a process so far: that of the group it was started in,
// or where it is in another by now, the smallest of all that hold it. A process under no
// quota was never held. ok is false where its groups cannot be read.
func (s *scanner) throttled(p *proc) (_ throttle, ok bool) {
	g := &p.groups
	if b, err := s.read(p.path + "/cgroup"); err == nil && string(b) != g.text {
		g.text = string(b)
		g.dirs = cgroup.CPU(s.mounts, g.text)
	}
	dir := p.cgroup
	if len(g.dirs) > 0 && !slices.Contains(g.dirs, dir) {
		dir = ""
		least := math.Inf(1)
		for _, d := range g.dirs {
			if cores, ok := cgroup.Quota(d, s.read); ok && cores < least {
				dir, least = d, cores
			}
		}
	}
	if dir == "" {
		g.dir = ""
		return g.sum, len(g.dirs) > 0
	}
	b, err := s.read(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return throttle{}, false
	}
	t, err := parseThrottle(b)
	if err != nil {
		return throttle{}, false
	}
	switch {
	case p.written.IsZero(): // the group may be as old as the process
		g.sum = t
	case dir == g.dir && t.periods >= g.last.periods:
		g.sum.periods += t.periods - g.last.periods
		g.sum.throttled += t.throttled - g.last.throttled
		g.sum.seconds += t.seconds - g.last.seconds
	}
	g.dir, g.last = dir, t
	return g.sum, true
}

// switches sums run delay and context switches over the threads: the files of
// the process itself tell about its first thread only. What a thread had when
// it was last seen is kept after its end, so that the sums never fall.
func (s *scanner) switches(p *proc, row *record.ProcessSample) {
	if threads := s.now[p.pid]; len(threads) > 0 {
		s.counted(p, threads)
	} else {
		s.lookAtThreads(p, row)
	}
	delay, voluntary, involuntary, ran := p.gone.sched.delay, p.gone.voluntary, p.gone.involuntary, p.gone.sched.count
	for _, t := range p.threads {
		delay += t.sched.delay
		voluntary += t.voluntary
		involuntary += t.involuntary
		ran += t.sched.count
	}
	if p.schedOK && ran > 0 { // a kernel without CONFIG_SCHED_INFO has no file, or zeros
		row.RunDelaySeconds = float64(delay) / 1e9
	}
	if p.switchOK && len(p.threads) > 0 {
		row.VoluntarySwitches, row.InvoluntarySwitches = voluntary, involuntary
	}
}

// counted takes a process's threads from the census.
func (s *scanner) counted(p *proc, threads []threadStat) {
	p.counted = int32(len(threads))
	for _, t := range threads {
		x := p.threads[t.tid]
		if x != nil && x.start != 0 && x.start != t.start {
			s.bury(p, t.tid)
			x = nil
		}
		if x == nil {
			x = &thread{dir: p.path + "/task/" + strconv.Itoa(int(t.tid))}
			p.threads[t.tid] = x
		}
		x.start, x.sched, x.voluntary, x.involuntary = t.start, t.sched, t.voluntary, t.involuntary
	}
	if len(p.threads) == len(threads) {
		return
	}
	for tid := range p.threads {
		if !slices.ContainsFunc(threads, func(t threadStat) bool { return t.tid == tid }) {
			s.bury(p, tid)
		}
	}
}

// lookAtThreads reads them file by file.
func (s *scanner) lookAtThreads(p *proc, row *record.ProcessSample) {
	if row.Threads != p.counted || len(p.threads) == 0 {
		s.listThreads(p, row.Threads)
	}
	relist := false
	for tid, t := range p.threads {
		b, err := s.read(t.dir + "/schedstat")
		if err != nil {
			if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) {
				if gone(t.dir) {
					s.bury(p, tid)
					relist = true
					continue
				}
			}
			p.schedOK = false
			continue
		}
		sc, err := parseSchedstat(b)
		if err != nil {
			p.schedOK = false
			continue
		}
		if sc == t.sched && sc.count > 0 {
			continue // it did not run, so it did not switch
		}
		t.sched = sc
		b, err = s.read(t.dir + "/status")
		if err == nil {
			t.voluntary, t.involuntary, err = parseSwitches(b)
		}
		if err != nil && !gone(t.dir) {
			p.switchOK = false
		}
	}
	if relist {
		s.listThreads(p, row.Threads)
	}
}

func gone(dir string) bool {
	var st syscall.Stat_t
	return syscall.Stat(dir, &st) != nil
}

func (s *scanner) bury(p *proc, tid int32) {
	t := p.threads[tid]
	p.gone.sched.delay += t.sched.delay
	p.gone.sched.count += t.sched.count
	p.gone.voluntary += t.voluntary
	p.gone.involuntary += t.involuntary
	delete(p.threads, tid)
}

// listThreads brings p.threads up to date.
func (s *scanner) listThreads(p *proc, count int32) {
	p.counted = count
	dir, err := os.Open(p.path + "/task")
	if err != nil {
		return
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return
	}
	live := make([]int32, 0, len(names))
	for _, name := range names {
		n, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			continue
		}
		tid := int32(n)
		live = append(live, tid)
		if p.threads[tid] == nil {
			p.threads[tid] = &thread{dir: p.path + "/task/" + name}
		}
	}
	for tid := range p.threads {
		if !slices.Contains(live, tid) {
			s.bury(p, tid)
		}
	}
}

// fds counts open files. Since Linux 6.2 the folder's size is the count.
func (s *scanner) fds(p *proc) int32 {
	var st syscall.Stat_t
	if err := syscall.Stat(p.path+"/fd", &st); err != nil {
		return -1
	}
	if st.Size > 0 {
		return int32(st.Size)
	}
	dir, err := os.Open(p.path + "/fd")
	if err != nil {
		return -1
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return -1
	}
	return int32(len(names))
}

// read returns the file's content until the next read. os.ReadFile would
// offer each file to the poller and allocate; this is three system calls.
func (s *scanner) read(path string) ([]byte, error) {
	fd, err := retry(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	n := 0
	for {
		if n == len(s.buf) {
			if n >= 1<<20 {
				return s.buf[:n], nil
			}
			s.buf = append(s.buf, make([]byte, len(s.buf))...)
		}
		m, err := retry(func() (int, error) { return syscall.Read(fd, s.buf[n:]) })
		if err != nil {
			return nil, err
		}
		if m == 0 {
			return s.buf[:n], nil
		}
		n += m
	}
}

func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != syscall.EINTR {
			return n, err
		}
	}
}
