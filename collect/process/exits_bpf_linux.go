package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/kubedyno/kubedyno/collect/internal/kerneltypes"
)

// The programs below are written in BPF's instructions, not in C: they copy a
// dozen fields out of the kernel's structures, whose offsets come from the
// running kernel's BTF. So nothing has to be compiled, here or by whoever
// builds the program, and every architecture runs the same instructions.

// ringBytes holds what all processes of a machine can do between two looks: a
// thousand processes a second leave about 1 MB a second.
const ringBytes = 4 << 20

// Offsets of an event's fields, as the programs write them. Numbers are in the
// machine's byte order.
const (
	evKind     = 0   // u32
	evPID      = 4   // u32
	evPPID     = 8   // u32
	evCode     = 12  // u32, of the task
	evTime     = 16  // u64, ns since boot
	evStart    = 24  // u64, ns since boot
	evUser     = 32  // u64, ns in ticks
	evSystem   = 40  // u64, ns in ticks
	evRuntime  = 48  // u64, ns
	evRSS      = 56  // u64, pages
	evRead     = 64  // u64
	evWrite    = 72  // u64
	evGroup    = 80  // u32, exit code of the group
	evFlags    = 84  // u32, of the signal struct
	evComm     = 88  // 16 bytes
	evTotal    = 104 // u64, length of the command line
	evArgs     = 112
	eventBytes = 112
	// argsBytes must be a power of two less one: the verifier wants a mask.
	argsBytes = maxCommand - 1

	// groupExit says that signal.group_exit_code is the process's, as wait(2)
	// reads it: SIGNAL_GROUP_EXIT in include/linux/sched/signal.h.
	groupExit = 4
)

// layout is where the running kernel keeps what the programs read.
type layout struct {
	pid, tgid, comm, leader, parent, signal, exitCode, mm, start, utime, stime, runtime int32
	live, sigUser, sigSystem, sigRuntime, sigRSS, sigCode, sigFlags                     int32
	argStart, argEnd                                                                    int32
	sigRead, sigWrite, taskRead, taskWrite                                              int32 // -1: a kernel without I/O accounting
}

// offsetOf finds a member by name, also inside members without a name.
func offsetOf(t btf.Type, name string) (int32, btf.Type, bool) {
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		if m.Name == name {
			return int32(m.Offset.Bytes()), m.Type, true
		}
		if m.Name == "" {
			if off, typ, ok := offsetOf(m.Type, name); ok {
				return int32(m.Offset.Bytes()) + off, typ, true
			}
		}
	}
	return 0, nil, false
}

// memberAt is the offset of a member of a member.
func memberAt(t btf.Type, path ...string) (int32, error) {
	var sum int32
	for _, name := range path {
		off, typ, ok := offsetOf(t, name)
		if !ok {
			return -1, fmt.Errorf("this kernel's %s has no %s", t.TypeName(), name)
		}
		sum, t = sum+off, typ
	}
	return sum, nil
}

func readLayout() (*layout, error) {
	spec, err := kerneltypes.Shared().Kernel()
	if err != nil {
		return nil, err
	}
	var task, signal, mm *btf.Struct
	for name, s := range map[string]**btf.Struct{"task_struct": &task, "signal_struct": &signal, "mm_struct": &mm} {
		if err := spec.TypeByName(name, s); err != nil {
			return nil, err
		}
	}
	l := &layout{}
	for _, f := range []struct {
		off  *int32
		in   btf.Type
		path []string
		may  bool // be missing
	}{
		{&l.pid, task, []string{"pid"}, false},
		{&l.tgid, task, []string{"tgid"}, false},
		{&l.comm, task, []string{"comm"}, false},
		{&l.leader, task, []string{"group_leader"}, false},
		{&l.parent, task, []string{"real_parent"}, false},
		{&l.signal, task, []string{"signal"}, false},
		{&l.exitCode, task, []string{"exit_code"}, false},
		{&l.mm, task, []string{"mm"}, false},
		{&l.start, task, []string{"start_boottime"}, false},
		{&l.utime, task, []string{"utime"}, false},
		{&l.stime, task, []string{"stime"}, false},
		{&l.runtime, task, []string{"se", "sum_exec_runtime"}, false},
		{&l.live, signal, []string{"live", "counter"}, false},
		{&l.sigUser, signal, []string{"utime"}, false},
		{&l.sigSystem, signal, []string{"stime"}, false},
		{&l.sigRuntime, signal, []string{"sum_sched_runtime"}, false},
		{&l.sigRSS, signal, []string{"maxrss"}, false},
		{&l.sigCode, signal, []string{"group_exit_code"}, false},
		{&l.sigFlags, signal, []string{"flags"}, false},
		{&l.argStart, mm, []string{"arg_start"}, false},
		{&l.argEnd, mm, []string{"arg_end"}, false},
		{&l.sigRead, signal, []string{"ioac", "read_bytes"}, true},
		{&l.sigWrite, signal, []string{"ioac", "write_bytes"}, true},
		{&l.taskRead, task, []string{"ioac", "read_bytes"}, true},
		{&l.taskWrite, task, []string{"ioac", "write_bytes"}, true},
	} {
		if *f.off, err = memberAt(f.in, f.path...); err != nil && !f.may {
			return nil, err
		}
	}
	return l, nil
}

// read copies size bytes at offset off of what src points to.
func read(to asm.Instruction, add int32, size int32, src asm.Register, off int32) []asm.Instruction {
	return []asm.Instruction{
		to, asm.Add.Imm(asm.R1, add),
		asm.Mov.Imm(asm.R2, size),
		asm.Mov.Reg(asm.R3, src), asm.Add.Imm(asm.R3, off),
		asm.FnProbeReadKernel.Call(),
	}
}

// The programs keep the task in R6, its signal struct in R7 and another task
// in R8. The event lies at the bottom of the stack; scratch is above it.
const (
	event   = -(eventBytes + 16)
	scratch = -16
)

func toStack(slot int32, size int32, src asm.Register, off int32) []asm.Instruction {
	return read(asm.Mov.Reg(asm.R1, asm.RFP), slot, size, src, off)
}

// pointer loads a pointer field into dst.
func pointer(dst, src asm.Register, off int32) []asm.Instruction {
	return append(toStack(scratch, 8, src, off), asm.LoadMem(dst, asm.RFP, scratch, asm.DWord))
}

// begin clears the event and sets what all kinds have.
func begin(kind eventKind) (p []asm.Instruction) {
	p = append(p, asm.Mov.Imm(asm.R1, 0))
	for off := int16(event); off < 0; off += 8 {
		p = append(p, asm.StoreMem(asm.RFP, off, asm.R1, asm.DWord))
	}
	return append(p,
		asm.StoreImm(asm.RFP, event+evKind, int64(kind), asm.Word),
		asm.FnKtimeGetBootNs.Call(),
		asm.StoreMem(asm.RFP, event+evTime, asm.R0, asm.DWord),
	)
}

// onlyLeader ends the program for a thread that is not its process's first.
func (l *layout) onlyLeader() []asm.Instruction {
	return cat(
		toStack(scratch, 4, asm.R6, l.pid), toStack(scratch+4, 4, asm.R6, l.tgid),
		[]asm.Instruction{
			asm.LoadMem(asm.R1, asm.RFP, scratch, asm.Word),
			asm.LoadMem(asm.R2, asm.RFP, scratch+4, asm.Word),
			asm.JNE.Reg(asm.R1, asm.R2, "out"),
		})
}

// identity sets PID, parent, start and name of the task in R6.
func (l *layout) identity() []asm.Instruction {
	return cat(
		toStack(event+evPID, 4, asm.R6, l.tgid),
		pointer(asm.R8, asm.R6, l.parent), toStack(event+evPPID, 4, asm.R8, l.tgid),
		pointer(asm.R8, asm.R6, l.leader), toStack(event+evStart, 8, asm.R8, l.start),
		toStack(event+evComm, 16, asm.R8, l.comm), // the leader's, as /proc/PID/comm
	)
}

// totals sets what the process used. While a thread lives it is not yet in the
// sums of the signal struct, so that the one in R6 is added with own.
func (l *layout) totals(own bool) []asm.Instruction {
	p := cat(
		toStack(event+evCode, 4, asm.R6, l.exitCode),
		toStack(event+evUser, 8, asm.R7, l.sigUser),
		toStack(event+evSystem, 8, asm.R7, l.sigSystem),
		toStack(event+evRuntime, 8, asm.R7, l.sigRuntime),
		toStack(event+evRSS, 8, asm.R7, l.sigRSS),
		toStack(event+evGroup, 4, asm.R7, l.sigCode),
		toStack(event+evFlags, 4, asm.R7, l.sigFlags),
	)
	accounts := l.sigRead >= 0 && l.sigWrite >= 0 && l.taskRead >= 0 && l.taskWrite >= 0
	if accounts {
		p = cat(p, toStack(event+evRead, 8, asm.R7, l.sigRead), toStack(event+evWrite, 8, asm.R7, l.sigWrite))
	} else {
		p = append(p, asm.Mov.Imm(asm.R1, -1),
			asm.StoreMem(asm.RFP, event+evRead, asm.R1, asm.DWord), asm.StoreMem(asm.RFP, event+evWrite, asm.R1, asm.DWord))
	}
	if !own {
		return p
	}
	add := func(slot int16, off int32) {
		p = cat(p, pointer(asm.R1, asm.R6, off), []asm.Instruction{
			asm.LoadMem(asm.R2, asm.RFP, slot, asm.DWord),
			asm.Add.Reg(asm.R2, asm.R1),
			asm.StoreMem(asm.RFP, slot, asm.R2, asm.DWord),
		})
	}
	add(event+evUser, l.utime)
	add(event+evSystem, l.stime)
	add(event+evRuntime, l.runtime)
	if accounts {
		add(event+evRead, l.taskRead)
		add(event+evWrite, l.taskWrite)
	}
	return p
}

// send puts what R2 points to, R3 bytes, into the ring, and counts what the
// ring had no room for. We look at the ring by the clock: nobody is woken.
func send(ring, lost *ebpf.Map) []asm.Instruction {
	const noWakeup = 1 // BPF_RB_NO_WAKEUP
	return []asm.Instruction{
		asm.LoadMapPtr(asm.R1, ring.FD()),
		asm.Mov.Imm(asm.R4, noWakeup),
		asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.StoreImm(asm.RFP, scratch, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, lost.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, scratch),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}

func sendStack(ring, lost *ebpf.Map) []asm.Instruction {
	return cat([]asm.Instruction{
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, event),
		asm.Mov.Imm(asm.R3, eventBytes),
	}, send(ring, lost))
}

func argument(dst asm.Register, n int16) asm.Instruction {
	return asm.LoadMem(dst, asm.R1, 8*n, asm.DWord)
}

// forked runs on sched_process_fork(parent, child).
func (l *layout) forked(ring, lost *ebpf.Map) []asm.Instruction {
	return cat(
		[]asm.Instruction{argument(asm.R6, 1), argument(asm.R9, 0)},
		l.onlyLeader(),
		begin(forkedEvent), l.identity(),
		// Who made it, which is not its parent with CLONE_PARENT.
		toStack(event+evPPID, 4, asm.R9, l.tgid),
		sendStack(ring, lost))
}

// executed runs on sched_process_exec(task, …): by then the new program's
// arguments lie in its memory, as the kernel has just written them.
func (l *layout) executed(ring, lost, room *ebpf.Map) []asm.Instruction {
	return cat(
		[]asm.Instruction{argument(asm.R6, 0)},
		begin(execedEvent), l.identity(),
		pointer(asm.R7, asm.R6, l.signal), toStack(event+evRSS, 8, asm.R7, l.sigRSS),
		// The event is too large for the stack. R9 is this CPU's room for it.
		[]asm.Instruction{
			asm.StoreImm(asm.RFP, scratch, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, room.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, scratch),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Reg(asm.R9, asm.R0),
		},
		pointer(asm.R8, asm.R6, l.mm),
		pointer(asm.R7, asm.R8, l.argStart),
		pointer(asm.R8, asm.R8, l.argEnd),
		[]asm.Instruction{
			asm.Sub.Reg(asm.R8, asm.R7),
			asm.StoreMem(asm.RFP, event+evTotal, asm.R8, asm.DWord),
			asm.JLE.Imm(asm.R8, argsBytes, "fits"),
			asm.Mov.Imm(asm.R8, argsBytes),
			asm.And.Imm(asm.R8, argsBytes).WithSymbol("fits"),
			asm.Mov.Reg(asm.R1, asm.R9), asm.Add.Imm(asm.R1, evArgs),
			asm.Mov.Reg(asm.R2, asm.R8),
			asm.Mov.Reg(asm.R3, asm.R7),
			asm.FnProbeReadUser.Call(),
			asm.JEq.Imm(asm.R0, 0, "copied"),
			asm.Mov.Imm(asm.R8, 0), // its arguments cannot be read: none are sent
		},
		func() (p []asm.Instruction) {
			for off := int16(0); off < eventBytes; off += 8 {
				load := asm.LoadMem(asm.R1, asm.RFP, event+off, asm.DWord)
				if off == 0 {
					load = load.WithSymbol("copied")
				}
				p = append(p, load, asm.StoreMem(asm.R9, off, asm.R1, asm.DWord))
			}
			return p
		}(),
		[]asm.Instruction{
			asm.Mov.Reg(asm.R2, asm.R9),
			asm.Mov.Reg(asm.R3, asm.R8), asm.And.Imm(asm.R3, argsBytes),
			asm.Add.Imm(asm.R3, eventBytes),
		},
		send(ring, lost))
}

// exited runs on sched_process_exit(task), for each thread, and speaks of the
// last one of a process.
func (l *layout) exited(ring, lost *ebpf.Map) []asm.Instruction {
	return cat(
		[]asm.Instruction{argument(asm.R6, 0)},
		pointer(asm.R7, asm.R6, l.signal),
		toStack(scratch, 4, asm.R7, l.live),
		[]asm.Instruction{
			asm.LoadMem(asm.R1, asm.RFP, scratch, asm.Word),
			asm.JNE.Imm(asm.R1, 0, "out"),
		},
		begin(exitedEvent), l.identity(), l.totals(true),
		sendStack(ring, lost))
}

// freed runs on sched_process_free(task), after the parent has waited: only
// now the sums have all that the process used, the freeing of its memory
// included, and the sums are those that wait(2) gave to the parent.
func (l *layout) freed(ring, lost *ebpf.Map) []asm.Instruction {
	return cat(
		[]asm.Instruction{argument(asm.R6, 0)},
		l.onlyLeader(),
		begin(freedEvent),
		toStack(event+evPID, 4, asm.R6, l.tgid),
		toStack(event+evStart, 8, asm.R6, l.start),
		toStack(event+evComm, 16, asm.R6, l.comm),
		pointer(asm.R7, asm.R6, l.signal),
		l.totals(false),
		sendStack(ring, lost))
}

func cat(parts ...[]asm.Instruction) (p []asm.Instruction) {
	for _, x := range parts {
		p = append(p, x...)
	}
	return p
}

// tracer gets events from four programs on the scheduler's tracepoints.
type tracer struct {
	maps   []*ebpf.Map
	lost   *ebpf.Map
	links  []link.Link
	reader *ringbuf.Reader
	record ringbuf.Record
}

// newTracer starts the programs. It needs CAP_BPF and CAP_PERFMON, or root,
// and Linux 5.8 with BTF.
func newTracer() (_ *tracer, err error) {
	if err := hostPIDs(); err != nil {
		return nil, err
	}
	l, err := readLayout()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's types (needs a kernel with BTF, /sys/kernel/btf/vmlinux): %w", err)
	}
	// Kernels before 5.11 count maps as locked memory. Where it cannot be
	// lifted the maps fail, and say so.
	_ = rlimit.RemoveMemlock()
	t := &tracer{}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	var maps [3]*ebpf.Map
	for i, spec := range []ebpf.MapSpec{
		{Name: "kd_exit_ring", Type: ebpf.RingBuf, MaxEntries: ringBytes},
		{Name: "kd_exit_lost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		{Name: "kd_exit_room", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: eventBytes + argsBytes + 1, MaxEntries: 1},
	} {
		if maps[i], err = ebpf.NewMap(&spec); errors.Is(err, syscall.EPERM) {
			return nil, fmt.Errorf("start BPF programs: %w", syscall.EPERM)
		} else if err != nil {
			return nil, fmt.Errorf("make a BPF map: %w", err)
		}
		t.maps = append(t.maps, maps[i])
	}
	ring, lost, room := maps[0], maps[1], maps[2]
	t.lost = lost
	if t.reader, err = ringbuf.NewReader(ring); err != nil {
		return nil, fmt.Errorf("open the ring buffer: %w", err)
	}
	t.reader.SetDeadline(time.Unix(1, 0)) // never wait
	// The ends first: a fork without an end would be remembered for ever.
	for _, p := range []struct {
		on   string
		code []asm.Instruction
	}{
		{"sched_process_free", l.freed(ring, lost)},
		{"sched_process_exit", l.exited(ring, lost)},
		{"sched_process_exec", l.executed(ring, lost, room)},
		{"sched_process_fork", l.forked(ring, lost)},
	} {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "kd_" + p.on[len("sched_process_"):], Type: ebpf.RawTracepoint, Instructions: p.code,
			License: "Dual MIT/GPL", // the kernel lends its memory to programs under the GPL only
		})
		if err != nil {
			return nil, fmt.Errorf("load the program for %s: %w", p.on, err)
		}
		ln, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: p.on, Program: prog})
		prog.Close() // the link holds it
		if err != nil {
			return nil, fmt.Errorf("attach to %s: %w", p.on, err)
		}
		t.links = append(t.links, ln)
	}
	return t, nil
}

// hostPIDs fails where the kernel's own PIDs are not those of our /proc.
func hostPIDs() error {
	const initial = 0xEFFFFFFC // PROC_PID_INIT_INO in include/linux/proc_ns.h
	var st syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/pid", &st); err != nil {
		return err
	}
	if st.Ino != initial {
		return errPIDNamespace
	}
	return nil
}

func (t *tracer) drain(f func(*exitEvent)) (lost int64, err error) {
	var ev exitEvent
	for {
		err := t.reader.ReadInto(&t.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return 0, err
		}
		if ev.decode(t.record.RawSample) {
			f(&ev)
		}
	}
	var n uint64
	if err := t.lost.Lookup(uint32(0), &n); err != nil {
		return 0, err
	}
	return int64(n), nil
}

func (t *tracer) partial() string { return "" }

func (t *tracer) close() error {
	var errs []error
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	if t.reader != nil {
		errs = append(errs, t.reader.Close())
	}
	for _, m := range t.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// decode reads what a program sent. Args alias b.
func (e *exitEvent) decode(b []byte) bool {
	if len(b) < eventBytes {
		return false
	}
	n := binary.NativeEndian
	*e = exitEvent{
		kind: eventKind(n.Uint32(b[evKind:])), pid: int32(n.Uint32(b[evPID:])), ppid: int32(n.Uint32(b[evPPID:])),
		time: int64(n.Uint64(b[evTime:])), start: int64(n.Uint64(b[evStart:])),
		user: int64(n.Uint64(b[evUser:])), system: int64(n.Uint64(b[evSystem:])), runtime: int64(n.Uint64(b[evRuntime:])),
		peakRSS: int64(n.Uint64(b[evRSS:])) * int64(os.Getpagesize()),
		read:    int64(n.Uint64(b[evRead:])), write: int64(n.Uint64(b[evWrite:])),
	}
	copy(e.comm[:], b[evComm:evComm+16])
	status := n.Uint32(b[evCode:])
	if n.Uint32(b[evFlags:])&groupExit != 0 {
		status = n.Uint32(b[evGroup:])
	}
	e.code = shellCode(status)
	// The ring pads to eight bytes; the sample does not.
	e.args = b[evArgs:]
	e.cut = int64(n.Uint64(b[evTotal:])) > argsBytes
	return true
}
