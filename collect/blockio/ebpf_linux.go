//go:build linux && (amd64 || arm64)

package blockio

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/kubedyno/kubedyno/collect/internal/kerneltypes"
	"golang.org/x/sys/unix"
)

// ebpfSource reads the ring that the programs of kernel.bpf.c fill.
//
// The programs live as long as their links: a link that nobody refers to is
// finalised, and detached, without a word.
type ebpfSource struct {
	coll   *ebpf.Collection
	links  []link.Link
	reader *ringbuf.Reader
	rec    ringbuf.Record
	dec    decoder
	why    string // system calls are not observed
	start  bool   // the kernel tells who submitted a request
}

func openEBPF(syncs bool) (source, error) {
	s, err := loadKernelHalf(syncs)
	if err != nil {
		return nil, err // not s: it would not be nil in an interface
	}
	return s, nil
}

func loadKernelHalf(syncs bool) (*ebpfSource, error) {
	types := kerneltypes.Shared()
	kernel, err := types.Kernel()
	if err != nil {
		return nil, fmt.Errorf("the kernel's type information (BTF) cannot be read: %w", err)
	}
	if !tracesRequest(kernel) {
		return nil, errors.New("the kernel is older than Linux 5.11, whose block tracepoints have another form")
	}
	s, err := loadEBPF(types, kernel, syncs)
	if err == nil || !syncs || errors.Is(err, os.ErrPermission) {
		return s, err
	}
	why := err
	if s, err = loadEBPF(types, kernel, false); err != nil {
		return nil, err
	}
	s.why = why.Error()
	return s, nil
}

// tracesRequest says whether block_rq_issue passes the request first.
func tracesRequest(kernel *btf.Spec) bool {
	var t *btf.Typedef
	if kernel.TypeByName("btf_trace_block_rq_issue", &t) != nil {
		return false
	}
	p, ok := t.Type.(*btf.Pointer)
	if !ok {
		return false
	}
	f, ok := p.Target.(*btf.FuncProto)
	if !ok || len(f.Params) < 2 { // the first is the tracepoint's own
		return false
	}
	rq, ok := f.Params[1].Type.(*btf.Pointer)
	return ok && rq.Target.TypeName() == "request"
}

// flushSequence is RQF_FLUSH_SEQ: an enumerator since Linux 6.11, and a macro
// of that value before.
func flushSequence(kernel *btf.Spec) uint32 {
	var t *btf.Enum
	if kernel.TypeByName("rqf_flags", &t) == nil {
		for _, v := range t.Values {
			if v.Name == "__RQF_FLUSH_SEQ" {
				return 1 << v.Value
			}
		}
	}
	return 1 << 4
}

func loadEBPF(types *btf.Cache, kernel *btf.Spec, syncs bool) (_ *ebpfSource, err error) {
	spec, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("read the eBPF programs: %w", err)
	}
	var start *btf.Typedef
	s := &ebpfSource{start: kernel.TypeByName("btf_trace_block_io_start", &start) == nil}
	// The order of calls in numbers is that of the variable calls.
	numbers := [len(calls)]int32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_MSYNC, unix.SYS_SYNCFS, unix.SYS_SYNC}
	for name, value := range map[string]any{"flush_sequence": flushSequence(kernel), "numbers": numbers} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s of the eBPF programs: %w", name, err)
		}
	}
	if !s.start {
		delete(spec.Programs, "io_start")
	}
	if !syncs {
		delete(spec.Programs, "sys_enter")
		delete(spec.Programs, "sys_exit")
	}
	s.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return nil, fmt.Errorf("load the eBPF programs: %w", short(err))
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.reader, err = ringbuf.NewReader(s.coll.Maps["events"]); err != nil {
		return nil, fmt.Errorf("read the eBPF programs' ring: %w", err)
	}
	names := make([]string, 0, len(s.coll.Programs))
	for name := range s.coll.Programs {
		names = append(names, name)
	}
	// What ends a request or a call before what begins it: else one that is
	// over before all are attached would seem to be in flight for ever.
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(begins[a], begins[b]), cmp.Compare(a, b)) })
	for _, name := range names {
		l, err := link.AttachTracing(link.TracingOptions{Program: s.coll.Programs[name]})
		if err != nil {
			return nil, fmt.Errorf("attach the eBPF program %s: %w", name, err)
		}
		s.links = append(s.links, l)
	}
	return s, nil
}

// begins orders programs: those that begin something come last.
var begins = map[string]int{"rq_issue": 1, "io_start": 2, "sys_enter": 2}

// short leaves out of a verifier's error all but its first line: a gap's
// reason is read by people.
func short(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return os.ErrPermission // the loader guesses at a memory limit, which no kernel that we support has
	}
	var v *ebpf.VerifierError
	if !errors.As(err, &v) {
		return err
	}
	line, _, _ := strings.Cut(v.Error(), "\n")
	return fmt.Errorf("%s (%w)", line, v.Cause)
}

func (s *ebpfSource) note() string {
	n := "eBPF"
	if !s.start {
		n += "; a kernel before Linux 6.5 does not tell who submits a request: who passed it to the driver stands for that, and there is no queue time"
	}
	return n
}

func (s *ebpfSource) noSyncs() string { return s.why }

// drain calls f with each event until the deadline, or until ctx ends.
func (s *ebpfSource) drain(f func(*event)) error {
	s.reader.SetDeadline(time.Now()) // what is there is read all the same
	for {
		switch err := s.reader.ReadInto(&s.rec); {
		case err == nil:
			if e, ok := s.dec.decode(s.rec.RawSample); ok {
				f(&e)
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		default:
			return fmt.Errorf("read the eBPF programs' ring: %w", err)
		}
	}
}

func (s *ebpfSource) lost() int64 {
	var n []uint64
	if s.coll.Maps["lost"].Lookup(uint32(0), &n) != nil {
		return 0
	}
	sum := int64(0)
	for _, v := range n {
		sum += int64(v)
	}
	// A program that an interrupt would run inside itself is left out.
	for _, p := range s.coll.Programs {
		if st, err := p.Stats(); err == nil {
			sum += int64(st.RecursionMisses)
		}
	}
	return sum
}

// finish detaches, and calls f with what is left: events on their way, then
// requests and calls that are not over.
func (s *ebpfSource) finish(f func(*event)) error {
	for _, l := range s.links {
		l.Close()
	}
	s.links = nil
	if err := s.drain(f); err != nil {
		return err
	}
	var key uint64
	var value []byte
	for it := s.coll.Maps["inflight"].Iterate(); it.Next(&key, &value); {
		if e, ok := s.dec.decode(value); ok && e.done == 0 {
			f(&e)
		}
	}
	for it := s.coll.Maps["calling"].Iterate(); it.Next(&key, &value); {
		since, call := binary.LittleEndian.Uint64(value), binary.LittleEndian.Uint32(value[8:])
		if int(call) < len(calls) {
			f(&event{start: int64(since), pid: int32(key >> 32), tid: int32(key), call: calls[call], comm: commOf(int32(key))})
		}
	}
	return nil
}

func (s *ebpfSource) close() {
	for _, l := range s.links {
		l.Close()
	}
	if s.reader != nil {
		s.reader.Close()
	}
	if s.coll != nil {
		s.coll.Close()
	}
}
