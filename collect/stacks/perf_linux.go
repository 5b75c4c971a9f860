package stacks

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/internal/epoch"
)

// bitKsymbol asks for a record when the kernel gains or loses a function, as
// by loading an eBPF program. Linux 5.1; package unix has no name for it.
const bitKsymbol = 1 << 29

// A ring is one CPU's event and the buffer that the kernel fills.
type ring struct {
	fd   int
	mem  []byte
	meta *unix.PerfEventMmapPage
	data []byte
}

// A clock turns the kernel's times into the recording's.
type clock struct{ offset int64 } // ns

// set reads how far the recording's clock is ahead of CLOCK_MONOTONIC, which
// the kernel stamps records with. That changes when somebody sets the clock.
func (c *clock) set() (now uint64) {
	offset, monotonic, ok := epoch.Offset()
	if !ok {
		return 0
	}
	c.offset = offset
	return uint64(monotonic)
}

func (c *clock) micros(t uint64) int64 { return (int64(t) + c.offset) / 1000 }

// openRings starts sampling on all CPUs, once a period.
func openRings(period time.Duration) (_ []*ring, err error) {
	cpus, err := onlineCPUs()
	if err != nil {
		return nil, err
	}
	var rings []*ring
	defer func() {
		if err != nil {
			closeRings(rings)
		}
	}()
	bits := uint64(bitKsymbol)
	for _, cpu := range cpus {
		r, err := openRing(cpu, period, bits)
		if errors.Is(err, unix.EINVAL) && bits != 0 { // an older kernel
			bits = 0
			r, err = openRing(cpu, period, bits)
		}
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
			continue // it went offline
		}
		if err != nil {
			return rings, refusal(err)
		}
		rings = append(rings, r)
	}
	if len(rings) == 0 {
		return nil, fmt.Errorf("none of %d CPUs can be sampled", len(cpus))
	}
	return rings, nil
}

func openRing(cpu int, period time.Duration, more uint64) (*ring, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample:      uint64(period.Nanoseconds()),
		Sample_type: unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_CALLCHAIN,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeIdle | unix.PerfBitSampleIDAll |
			unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitTask | unix.PerfBitMmap | unix.PerfBitMmap2 |
			unix.PerfBitUseClockID | unix.PerfBitWatermark | more,
		Clockid: unix.CLOCK_MONOTONIC,
		// We look by ourselves at our own interval, so nobody need be woken.
		Wakeup:           1 << 31,
		Sample_max_stack: maxFrames,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("sample CPU %d: %w", cpu, err)
	}
	page := os.Getpagesize()
	mem, err := unix.Mmap(fd, 0, page+ringPages*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map the buffer of CPU %d: %w", cpu, err)
	}
	r := &ring{fd: fd, mem: mem, meta: (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0])), data: mem[page:]}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		r.close()
		return nil, fmt.Errorf("start sampling CPU %d: %w", cpu, err)
	}
	return r, nil
}

// refusal makes an error that a recording notes as a gap out of one by which
// the kernel says that we may not.
func refusal(err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		level := "unknown"
		if b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err == nil {
			level = strings.TrimSpace(string(b))
		}
		return collect.NotSupported("the kernel refuses to sample the machine's CPUs (perf_event_paranoid is %s): run as root, grant CAP_PERFMON, "+
			"or set kernel.perf_event_paranoid to 0 or less; in a container its seccomp profile must allow perf_event_open too", level)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return collect.NotSupported("this kernel has no perf_event_open as it is needed here (CONFIG_PERF_EVENTS, Linux 4.3 or later): %v", err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENOMEM):
		return collect.NotSupported("sampling needs a file and %d KiB of locked memory for each CPU: raise the limit: %v", ringPages*4, err)
	}
	return err
}

func onlineCPUs() ([]int, error) {
	const name = "/sys/devices/system/cpu/online"
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, collect.NotSupported("which CPUs there are cannot be read: %v", err)
	}
	cpus, err := parseCPUs(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return cpus, nil
}

// parseCPUs reads the kernel's list format: 0-3,8.
func parseCPUs(list string) ([]int, error) {
	var cpus []int
	for _, part := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(to)
		}
		if err != nil || a < 0 || b < a || b > 1<<16 {
			return nil, fmt.Errorf("a list of CPUs reads %q", list)
		}
		for ; a <= b; a++ {
			cpus = append(cpus, a)
		}
	}
	return slices.Compact(cpus), nil
}

// drain calls f with each record since the last drain.
func (r *ring) drain(f func(b []byte)) {
	head := atomic.LoadUint64(&r.meta.Data_head)
	tail := eachRecord(r.data, r.meta.Data_tail, head, f)
	atomic.StoreUint64(&r.meta.Data_tail, tail)
}

func (r *ring) stop() { _ = unix.IoctlSetInt(r.fd, unix.PERF_EVENT_IOC_DISABLE, 0) }

func (r *ring) close() {
	_ = unix.Munmap(r.mem)
	_ = unix.Close(r.fd)
}

func closeRings(rings []*ring) {
	for _, r := range rings {
		r.close()
	}
}
