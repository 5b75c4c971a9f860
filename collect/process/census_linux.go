package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/kubedyno/kubedyno/collect/internal/kerneltypes"
)

// A bpfCensus reads all threads with a BPF iterator: the kernel calls a program with
// each, which writes a record to whoever reads.
type bpfCensus struct {
	prog *ebpf.Program
	iter *link.Iter
	buf  []byte
	seen map[int32][]threadStat
}

// Offsets of a record's fields, as the program writes them, in the machine's order of
// bytes.
const (
	thPID       = 0  // u32
	thTGID      = 4  // u32
	thStart     = 8  // u64, ns since boot
	thRun       = 16 // u64, ns
	thDelay     = 24 // u64, ns
	thCount     = 32 // u64
	thVoluntary = 40 // u64
	thForced    = 48 // u64
	thParent    = 56 // u32
	threadBytes = 64
)

// newCensus needs CAP_BPF and CAP_PERFMON, or root, and Linux 5.8 with BTF.
func newCensus() (_ census, err error) {
	if err := hostPIDs(); err != nil {
		return nil, err
	}
	types := kerneltypes.Shared()
	spec, err := types.Kernel()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's types: %w", err)
	}
	var task *btf.Struct
	if err := spec.TypeByName("task_struct", &task); err != nil {
		return nil, fmt.Errorf("read the kernel's types: %w", err)
	}
	const thread = asm.R7
	code := []asm.Instruction{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), // struct bpf_iter__task: meta, task
		asm.LoadMem(thread, asm.R1, 8, asm.DWord),
		asm.JEq.Imm(thread, 0, "out"), // once at the end
	}
	for _, f := range []struct {
		slot int16
		size asm.Size
		path []string
	}{
		{thPID, asm.Word, []string{"pid"}},
		{thTGID, asm.Word, []string{"tgid"}},
		{thStart, asm.DWord, []string{"start_boottime"}},
		{thRun, asm.DWord, []string{"se", "sum_exec_runtime"}},
		{thDelay, asm.DWord, []string{"sched_info", "run_delay"}},
		{thCount, asm.DWord, []string{"sched_info", "pcount"}},
		{thVoluntary, asm.DWord, []string{"nvcsw"}},
		{thForced, asm.DWord, []string{"nivcsw"}},
	} {
		off, err := memberAt(task, f.path...)
		if err != nil {
			return nil, err
		}
		code = append(code,
			asm.LoadMem(asm.R1, thread, int16(off), f.size),
			asm.StoreMem(asm.RFP, f.slot-threadBytes, asm.R1, f.size))
	}
	parent, err := memberAt(task, "real_parent")
	if err != nil {
		return nil, err
	}
	tgid, err := memberAt(task, "tgid")
	if err != nil {
		return nil, err
	}
	code = append(code,
		asm.LoadMem(asm.R1, thread, int16(parent), asm.DWord),
		asm.LoadMem(asm.R1, asm.R1, int16(tgid), asm.Word),
		asm.StoreMem(asm.RFP, thParent-threadBytes, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord), // struct bpf_iter_meta: seq
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -threadBytes),
		asm.Mov.Imm(asm.R3, threadBytes),
		asm.FnSeqWrite.Call(), // what finds no room comes again with the next read
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
	_ = rlimit.RemoveMemlock() // as in newTracer
	const name = "kd_threads"
	programs, err := ebpf.NewCollectionWithOptions(&ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{name: {
		Name: name, Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "task",
		Instructions: code, License: "Dual MIT/GPL",
	}}}, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return nil, fmt.Errorf("load the program for threads: %w", err)
	}
	c := &bpfCensus{prog: programs.DetachProgram(name), buf: make([]byte, 64<<10), seen: map[int32][]threadStat{}}
	programs.Close()
	if c.iter, err = link.AttachIter(link.IterOptions{Program: c.prog}); err != nil {
		return nil, errors.Join(fmt.Errorf("attach the program for threads: %w", err), c.prog.Close())
	}
	return c, nil
}

// read implements census.
func (c *bpfCensus) read() (map[int32][]threadStat, error) {
	for tgid, threads := range c.seen {
		if len(threads) == 0 {
			delete(c.seen, tgid) // it was gone the last time
			continue
		}
		c.seen[tgid] = threads[:0]
	}
	r, err := c.iter.Open()
	if err != nil {
		return nil, fmt.Errorf("look at threads: %w", err)
	}
	defer r.Close()
	n := binary.NativeEndian
	for {
		m, err := io.ReadAtLeast(r, c.buf, threadBytes)
		for b := c.buf[:m]; len(b) >= threadBytes; b = b[threadBytes:] {
			tgid := int32(n.Uint32(b[thTGID:]))
			c.seen[tgid] = append(c.seen[tgid], threadStat{
				tid: int32(n.Uint32(b[thPID:])), ppid: int32(n.Uint32(b[thParent:])), start: int64(n.Uint64(b[thStart:])),
				sched:     sched{int64(n.Uint64(b[thRun:])), int64(n.Uint64(b[thDelay:])), int64(n.Uint64(b[thCount:]))},
				voluntary: int64(n.Uint64(b[thVoluntary:])), involuntary: int64(n.Uint64(b[thForced:])),
			})
		}
		switch {
		case err == io.EOF:
			return c.seen, nil
		case err != nil:
			return nil, fmt.Errorf("look at threads: %w", err)
		}
	}
}

func (c *bpfCensus) close() error { return errors.Join(c.iter.Close(), c.prog.Close()) }
