package process

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// Ends of processes come from the kernel, in one of two ways:
//
//   - Four BPF programs on the scheduler's tracepoints (fork, exec, exit, free)
//     copy what we need while it exists: the command line at exec, so that the
//     shortest life has one, and the sums of all threads when the process is
//     freed, which are those that wait(2) gave to its parent.
//   - Netlink's taskstats, where BPF is not allowed: CPU, memory and I/O of each
//     thread as it ends, but a name only, and no children of dead parents.
//
// Netlink's proc connector would tell of exec as well, but its reader must win
// a race against the process to read /proc/PID/cmdline, and loses it just when
// the machine is busy. The programs cost less, too: threads, the most of what
// ends, are passed over in the kernel, and nobody is woken.

const (
	// lookEvery is how often the kernel's events are read.
	lookEvery = 250 * time.Millisecond
	// zombieAfter is when a process that its parent has not waited for is
	// taken as ended: its times are in /proc by then.
	zombieAfter = time.Second
	// maxExits bounds the rows of one second. What is beyond is counted.
	maxExits = 2000
	// closingWait bounds the wait, at the end, for the last ones to be freed.
	closingWait = 100 * time.Millisecond
)

var errPIDNamespace = errors.New("this process runs in a PID namespace, where the kernel's PIDs are other than those of /proc; run on the host, or with hostPID: true")

type eventKind uint32

const (
	forkedEvent eventKind = iota + 1
	execedEvent
	exitedEvent
	freedEvent
	goneEvent // exit and free in one
)

// exitEvent is one event of a process. Not every kind has all fields.
type exitEvent struct {
	kind         eventKind
	pid, ppid    int32 // ppid of a fork: who made it
	time, start  int64 // ns since boot
	user, system int64 // ns, counted in ticks: only their ratio is good
	runtime      int64 // ns on a CPU, exact
	peakRSS      int64 // -1 unknown, as the next two
	read, write  int64
	code         int32
	comm         [16]byte
	args         []byte // valid during the call
	cut          bool   // args are longer than that
}

// exitSource is where events come from.
type exitSource interface {
	// drain calls f for each event since the last call, and says how many have
	// been lost so far.
	drain(f func(*exitEvent)) (lost int64, err error)
	// partial says what it does not tell, and the way out; empty for nothing.
	partial() string
	close() error
}

// shellCode is an exit code as a shell has it, from wait(2)'s status.
func shellCode(status uint32) int32 {
	if sig := status & 0x7f; sig != 0 {
		return int32(128 + sig)
	}
	return int32(status >> 8 & 0xff)
}

// life is a process that was born while we looked, or that ended.
type life struct {
	pid, ppid int32
	start     int64 // ns since boot
	component string
	command   string // of the parent, until it executes
	args      []byte
	inherited int64 // peak RSS of what it was before it executed
	cut       bool
	proc      *proc // as the scan knows it, or nil
}

// ending is a process that ended and was not yet freed.
type ending struct {
	*life
	event exitEvent
}

type birth struct {
	pid   int32
	start int64
}

// tracker turns events into rows. It is used by the scanner's goroutine.
type tracker struct {
	s      *scanner
	src    exitSource
	out    sink
	lives  map[int32]*life
	ending map[birth]*ending
	rows   int64
	lost   int64

	boot     time.Time
	second   time.Time // of the limit
	inSecond int
	missed   stretch // events that the kernel had no room for
	limited  stretch // rows beyond maxExits
}

// stretch is a time in which something was left out.
type stretch struct {
	from, last time.Time
	n          int64
	cpu        float64
}

func (x *stretch) add(from, to time.Time, n int64, cpu float64) {
	if x.n == 0 {
		x.from = from
	}
	x.last = to
	x.n += n
	x.cpu += cpu
}

func newTracker(s *scanner, src exitSource, out sink) *tracker {
	t := &tracker{s: s, src: src, out: out, lives: map[int32]*life{}, ending: map[birth]*ending{}, boot: s.boot}
	s.born = t.born
	return t
}

// look reads the events up to now.
func (t *tracker) look(now time.Time, known map[int32]named) error {
	from := t.second
	if b := bootTime(); !b.IsZero() {
		t.boot = b // the clock may have been set
	}
	if now.Sub(t.second) >= time.Second || now.Before(t.second) {
		t.second, t.inSecond = now, 0
	}
	lost, err := t.src.drain(func(e *exitEvent) { t.handle(e, known) })
	if err != nil {
		return fmt.Errorf("read the kernel's events of processes: %w", err)
	}
	if lost > t.lost {
		if from.IsZero() {
			from = now
		}
		t.missed.add(from, now, lost-t.lost, 0)
		t.lost = lost
	}
	t.zombies(now, known)
	t.note(now, false)
	return nil
}

func (t *tracker) handle(e *exitEvent, known map[int32]named) {
	switch e.kind {
	case forkedEvent:
		l := &life{pid: e.pid, ppid: e.ppid, start: e.start, component: t.bequeathed(e.ppid, known)}
		if p := t.lives[e.ppid]; p != nil {
			l.args, l.cut, l.command = p.args, p.cut, p.command
		} else if p := t.s.procs[e.ppid]; p != nil {
			l.command = p.command
		}
		t.lives[e.pid] = l
	case execedEvent:
		l := t.life(e)
		l.args, l.cut, l.command, l.inherited = bytes.Clone(e.args), e.cut, "", e.peakRSS
		t.lives[e.pid] = l
	case exitedEvent:
		// Of two threads that end at once both may be the last: the later has
		// the times, and what was known of the process the first has taken.
		k := birth{e.pid, e.start}
		if x := t.ending[k]; x != nil {
			x.event = *e
			return
		}
		l := t.life(e)
		delete(t.lives, e.pid)
		if l.component == "" {
			// The parent may have got its name, or an heir's, meanwhile.
			l.component = t.bequeathed(l.ppid, known)
		}
		if n, ok := known[e.pid]; ok && l.proc == nil {
			l.component = n.component
		}
		t.ending[k] = &ending{l, *e}
	case freedEvent:
		k := birth{e.pid, e.start}
		x := t.ending[k]
		if x == nil {
			return // it ended before we looked
		}
		delete(t.ending, k)
		e.time = x.event.time
		t.write(x.life, e)
	case goneEvent:
		l := t.life(e)
		delete(t.lives, e.pid)
		if l.component == "" {
			l.component = t.bequeathed(l.ppid, known)
		}
		t.write(l, e)
	}
}

// life is what is known of an event's process.
func (t *tracker) life(e *exitEvent) *life {
	l := t.lives[e.pid]
	if l == nil || l.start != e.start {
		l = &life{pid: e.pid, ppid: e.ppid, start: e.start}
	}
	if l.proc == nil {
		var within int64
		if e.kind == goneEvent { // whose times are those of our look
			within = int64(time.Second)
		}
		if l.proc = t.s.seen(e.pid, e.start, within); l.proc != nil && l.args == nil && l.command == "" {
			l.command = l.proc.command
		}
	}
	if l.proc != nil && l.proc.component != "" {
		l.component = l.proc.component
	}
	return l
}

// bequeathed is the component that a child of pid belongs to.
func (t *tracker) bequeathed(pid int32, known map[int32]named) string {
	component := ""
	if n, ok := known[pid]; ok {
		component = n.component
	}
	if l := t.lives[pid]; component == "" && l != nil {
		component = l.component
	}
	if p := t.s.procs[pid]; component == "" && p != nil {
		component = p.component
	}
	switch component {
	case Self, Keeper:
		return ""
	}
	return component
}

// born is the component of a process whose parent may be gone.
func (t *tracker) born(pid int32, ticks uint64) string {
	if l := t.lives[pid]; l != nil && toTicks(l.start) == ticks {
		return l.component
	}
	return ""
}

// zombies writes those that nobody waits for, and those whose freeing was not
// told: a kernel may run programs not in each context (one did not where the
// softirq that frees had interrupted a process of the machine's supervisor).
// Such a row has the CPU that was booked when it ended, up to a tick less than
// it used. zombies forgets lives whose end was lost, too.
func (t *tracker) zombies(now time.Time, known map[int32]named) {
	since := int64(now.Sub(t.boot))
	for k, x := range t.ending {
		if since-x.event.time < int64(zombieAfter) {
			continue
		}
		st, err := t.s.stat(k.pid)
		if err == nil && st.start == toTicks(k.start) {
			tick := int64(time.Second / userHz)
			x.event.user, x.event.system = st.utime*tick, st.stime*tick
			x.event.runtime = x.event.user + x.event.system
		} else if since-x.event.time < int64(5*zombieAfter) {
			continue // it was waited for, so that it will be freed soon
		}
		delete(t.ending, k)
		t.write(x.life, &x.event)
	}
	if t.lost == 0 {
		return
	}
	for pid, l := range t.lives {
		if t.s.procs[pid] == nil && since-l.start > int64(10*time.Second) {
			delete(t.lives, pid)
		}
	}
}

// write makes the row of a process that ended.
func (t *tracker) write(l *life, e *exitEvent) {
	user, system := split(e.user, e.system, e.runtime)
	row := record.ProcessExit{
		TimeMicros: t.boot.Add(time.Duration(e.time)).UnixMicro(), StartMicros: t.boot.Add(time.Duration(e.start)).UnixMicro(),
		PID: l.pid, PPID: l.ppid, Component: l.component,
		ExitCode: e.code, PeakRSSBytes: e.peakRSS, ReadBytes: e.read, WriteBytes: e.write,
		UserSeconds: float64(user) / 1e9, SystemSeconds: float64(system) / 1e9,
	}
	if row.PeakRSSBytes <= l.inherited {
		// getrusage(2) would say this too, but it is the peak of the program that
		// started it and whose memory it shared until it executed.
		row.PeakRSSBytes = -1
	}
	if p := l.proc; p != nil {
		// The scan has shown it: what it showed must not fall.
		row.StartMicros, row.PPID = p.startUS, p.last.PPID
		row.UserSeconds, row.SystemSeconds = notBelow(row.UserSeconds, row.SystemSeconds, p.last.UserSeconds, p.last.SystemSeconds)
	}
	if t.inSecond++; t.inSecond > maxExits {
		at := t.boot.Add(time.Duration(e.time))
		t.limited.add(at, at, 1, row.UserSeconds+row.SystemSeconds)
		return
	}
	switch {
	case len(l.args) > 0:
		row.Command = t.s.line(l.args, l.cut)
	case l.command != "":
		row.Command = l.command
	}
	if row.Command == "" {
		comm, _, _ := bytes.Cut(e.comm[:], []byte{0})
		row.Command = "[" + strings.ToValidUTF8(string(comm), "�") + "]"
	}
	t.out.Exit(row)
	t.rows++
}

// split divides the exact time on a CPU as the ticks say, which is how the
// kernel does it for getrusage(2).
func split(user, system, runtime int64) (u, s int64) {
	switch {
	case runtime <= 0:
		return user, system
	case system <= 0:
		return runtime, 0
	case user <= 0:
		return 0, runtime
	}
	u = int64(float64(runtime) * (float64(user) / (float64(user) + float64(system))))
	return u, runtime - u
}

// notBelow moves time between user and system, and adds to it, until neither
// is below what was shown before.
func notBelow(user, system, shownUser, shownSystem float64) (u, s float64) {
	total := max(user+system, shownUser+shownSystem)
	user = max(user, shownUser)
	if total-user < shownSystem {
		user = total - shownSystem
	}
	return user, total - user
}

// note makes gaps of stretches that are over.
func (t *tracker) note(now time.Time, last bool) {
	over := func(x *stretch) bool { return x.n > 0 && (last || now.Sub(x.last) >= 2*time.Second) }
	if x := &t.missed; over(x) {
		t.out.Gap(record.Gap{
			Collector: collectorName, Subject: string(record.TableExits), Start: x.from, End: x.last,
			Reason: fmt.Sprintf("%d events of processes were lost: more came than there was room for until we looked; give this process more CPU, or start fewer processes", x.n),
		})
		*x = stretch{}
	}
	if x := &t.limited; over(x) {
		t.out.Gap(record.Gap{
			Collector: collectorName, Subject: string(record.TableExits), Start: x.from, End: x.last,
			Reason: fmt.Sprintf("%d ends of processes with %.2f CPU-s are beyond the %d rows a second that are kept; start fewer processes", x.n, x.cpu, maxExits),
		})
		*x = stretch{}
	}
}

// finish writes what still waits, after the last look.
func (t *tracker) finish(known map[int32]named) error {
	for end := time.Now().Add(closingWait); ; time.Sleep(10 * time.Millisecond) {
		if err := t.look(time.Now(), known); err != nil {
			return err
		}
		waiting := false
		for k := range t.ending {
			if _, err := t.s.stat(k.pid); err != nil {
				waiting = true
			}
		}
		if !waiting || time.Now().After(end) {
			break
		}
	}
	t.zombies(time.Now().Add(10*zombieAfter), known)
	t.note(time.Now(), true)
	return nil
}

// toTicks is a start as /proc/PID/stat has it.
func toTicks(ns int64) uint64 { return uint64(ns) / uint64(time.Second/userHz) }
