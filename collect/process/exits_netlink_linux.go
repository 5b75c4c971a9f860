package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/btf"
	"github.com/kubedyno/kubedyno/collect/internal/kerneltypes"
	"golang.org/x/sys/unix"
)

// listener gets the accounts of ended threads from netlink's taskstats
// (Documentation/accounting/taskstats.rst in the kernel's sources) and sums
// them by process.
type listener struct {
	fd       int
	overruns int64
	groups   map[uint32]*exitEvent // processes of which a thread has ended
	buf      []byte
	layout   *accountLayout
}

// newListener needs CAP_NET_ADMIN in the initial namespaces, and Linux 5.18,
// from which on an account names its process.
func newListener() (_ *listener, err error) {
	if err := hostPIDs(); err != nil {
		return nil, err
	}
	layout, err := newAccountLayout()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	l := &listener{fd: fd, layout: layout, groups: map[uint32]*exitEvent{}, buf: make([]byte, 64<<10)}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, ringBytes); err != nil {
		return nil, fmt.Errorf("give the netlink socket a buffer (needs CAP_NET_ADMIN): %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("bind the netlink socket: %w", err)
	}
	wait := unix.NsecToTimeval(int64(time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return nil, fmt.Errorf("bound the wait for netlink: %w", err)
	}
	family, err := l.family(unix.TASKSTATS_GENL_NAME)
	if err != nil {
		return nil, fmt.Errorf("find taskstats (needs CONFIG_TASKSTATS and the host's network namespace): %w", err)
	}
	// A mask of more CPUs than there can be is refused on some kernels, and
	// one of fewer misses the rest.
	cpus, err := possibleCPUs()
	if err != nil {
		return nil, err
	}
	mask := append([]byte(cpus), 0)
	if err := l.request(family, unix.TASKSTATS_CMD_GET, unix.TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, mask, nil); err != nil {
		return nil, fmt.Errorf("listen to the ends of CPUs %s (needs CAP_NET_ADMIN): %w", cpus, err)
	}
	return l, nil
}

func possibleCPUs() (string, error) {
	var s scanner
	s.buf = make([]byte, 256)
	b, err := s.read("/sys/devices/system/cpu/possible")
	if err != nil {
		return "", fmt.Errorf("read the list of CPUs: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// request sends one message and waits for its acknowledgement. Answers before
// that go to answer.
func (l *listener) request(family uint16, cmd uint8, attr uint16, value []byte, answer func([]byte)) error {
	n := binary.NativeEndian
	length := unix.NLMSG_HDRLEN + unix.GENL_HDRLEN + unix.SizeofNlAttr + len(value)
	b := make([]byte, (length+3)&^3)
	n.PutUint32(b, uint32(len(b)))
	n.PutUint16(b[4:], family)
	n.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b[unix.NLMSG_HDRLEN] = cmd
	b[unix.NLMSG_HDRLEN+1] = 1
	a := b[unix.NLMSG_HDRLEN+unix.GENL_HDRLEN:]
	n.PutUint16(a, uint16(unix.SizeofNlAttr+len(value)))
	n.PutUint16(a[2:], attr)
	copy(a[unix.SizeofNlAttr:], value)
	if err := unix.Sendto(l.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for {
		m, _, err := unix.Recvfrom(l.fd, l.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		done := false
		eachMessage(l.buf[:m], func(typ uint16, body []byte) {
			switch {
			case typ == unix.NLMSG_ERROR && len(body) >= 4:
				done = true
				if code := int32(n.Uint32(body)); code != 0 {
					err = syscall.Errno(-code)
				}
			case answer != nil && len(body) > unix.GENL_HDRLEN:
				answer(body[unix.GENL_HDRLEN:])
			}
		})
		if done || err != nil {
			return err
		}
	}
}

func (l *listener) family(name string) (id uint16, err error) {
	err = l.request(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, unix.CTRL_ATTR_FAMILY_NAME, append([]byte(name), 0), func(b []byte) {
		eachAttribute(b, func(typ uint16, value []byte) {
			if typ == unix.CTRL_ATTR_FAMILY_ID && len(value) >= 2 {
				id = binary.NativeEndian.Uint16(value)
			}
		})
	})
	if err == nil && id == 0 {
		err = errors.New("the kernel names no such family")
	}
	return id, err
}

// eachMessage calls f with the type and the body of each netlink message.
func eachMessage(b []byte, f func(typ uint16, body []byte)) {
	for len(b) >= unix.NLMSG_HDRLEN {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:n])
		b = b[min((n+3)&^3, len(b)):]
	}
}

func eachAttribute(b []byte, f func(typ uint16, value []byte)) {
	const flags = 0xc000 // nested, byte order
	for len(b) >= unix.SizeofNlAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofNlAttr || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^flags, b[unix.SizeofNlAttr:n])
		b = b[min((n+3)&^3, len(b)):]
	}
}

func (l *listener) drain(f func(*exitEvent)) (lost int64, err error) {
	for {
		n, _, err := unix.Recvfrom(l.fd, l.buf, unix.MSG_DONTWAIT)
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return l.overruns, nil
		case unix.ENOBUFS:
			l.overruns++
			continue
		default:
			return l.overruns, err
		}
		now := sinceBoot()
		eachMessage(l.buf[:n], func(typ uint16, body []byte) {
			if typ == unix.NLMSG_ERROR || len(body) < unix.GENL_HDRLEN {
				return
			}
			l.account(body[unix.GENL_HDRLEN:], now, f)
		})
	}
}

// accountLayout is where struct taskstats has what we read.
type accountLayout struct {
	tgid, pid, ppid, code, flag, utime, stime, runtime, read, write, rss, comm, age, size int
	versions                                                                              func(uint16) bool
}

// publishedLayout is that of include/uapi/linux/taskstats.h. Versions 15 and
// 16 had moved fields, and ac_tgid came with 12.
func publishedLayout() *accountLayout {
	var t unix.Taskstats
	l := &accountLayout{
		tgid: int(unsafe.Offsetof(t.Ac_tgid)), pid: int(unsafe.Offsetof(t.Ac_pid)), ppid: int(unsafe.Offsetof(t.Ac_ppid)),
		code: int(unsafe.Offsetof(t.Ac_exitcode)), flag: int(unsafe.Offsetof(t.Ac_flag)),
		utime: int(unsafe.Offsetof(t.Ac_utime)), stime: int(unsafe.Offsetof(t.Ac_stime)), runtime: int(unsafe.Offsetof(t.Cpu_run_virtual_total)),
		read: int(unsafe.Offsetof(t.Read_bytes)), write: int(unsafe.Offsetof(t.Write_bytes)), rss: int(unsafe.Offsetof(t.Hiwater_rss)),
		comm: int(unsafe.Offsetof(t.Ac_comm)), age: int(unsafe.Offsetof(t.Ac_tgetime)),
		versions: func(v uint16) bool { return v >= 12 && v != 15 && v != 16 },
	}
	l.size = l.age + 8
	return l
}

// newAccountLayout asks the running kernel's types, which anybody may read,
// and takes the published layout where it has none.
func newAccountLayout() (*accountLayout, error) {
	var t *btf.Struct
	spec, err := kerneltypes.Shared().Kernel()
	if err != nil || spec.TypeByName("taskstats", &t) != nil {
		return publishedLayout(), nil
	}
	l := &accountLayout{size: int(t.Size), versions: func(uint16) bool { return true }}
	for name, to := range map[string]*int{
		"ac_tgid": &l.tgid, "ac_pid": &l.pid, "ac_ppid": &l.ppid, "ac_exitcode": &l.code, "ac_flag": &l.flag,
		"ac_utime": &l.utime, "ac_stime": &l.stime, "cpu_run_virtual_total": &l.runtime, "read_bytes": &l.read,
		"write_bytes": &l.write, "hiwater_rss": &l.rss, "ac_comm": &l.comm, "ac_tgetime": &l.age,
	} {
		off, _, ok := offsetOf(t, name)
		if !ok {
			return nil, fmt.Errorf("this kernel's taskstats has no %s; use Linux 5.18 or later", name)
		}
		*to = int(off)
	}
	return l, nil
}

// account takes one message: the account of a thread, and with the last one of
// a process the sum of what is summed in the kernel.
func (l *listener) account(b []byte, now int64, f func(*exitEvent)) {
	n := binary.NativeEndian
	var thread, group []byte
	eachAttribute(b, func(typ uint16, value []byte) {
		eachAttribute(value, func(inner uint16, stats []byte) {
			if inner != unix.TASKSTATS_TYPE_STATS || len(stats) < l.layout.size || !l.layout.versions(n.Uint16(stats)) {
				return
			}
			switch typ {
			case unix.TASKSTATS_TYPE_AGGR_PID:
				thread = stats
			case unix.TASKSTATS_TYPE_AGGR_TGID:
				group = stats
			}
		})
	})
	if thread == nil {
		return
	}
	at := l.layout
	u64 := func(off int) int64 { return int64(n.Uint64(thread[off:])) }
	u32 := func(off int) uint32 { return n.Uint32(thread[off:]) }
	pid, tgid := u32(at.pid), u32(at.tgid)
	e := l.groups[tgid]
	if e == nil {
		e = &exitEvent{kind: goneEvent, pid: int32(tgid)}
		l.groups[tgid] = e
	}
	e.user += u64(at.utime) * 1e3
	e.system += u64(at.stime) * 1e3
	e.runtime += u64(at.runtime)
	e.read += u64(at.read)
	e.write += u64(at.write)
	e.peakRSS = max(e.peakRSS, u64(at.rss)<<10)
	e.ppid = int32(u32(at.ppid))
	if pid == tgid {
		e.code = shellCode(u32(at.code))
	}
	if pid == tgid || e.comm[0] == 0 {
		copy(e.comm[:], thread[at.comm:])
	}
	const wholeGroup = 0x20 // AGROUP in include/uapi/linux/acct.h
	if thread[at.flag]&wholeGroup == 0 {
		return
	}
	delete(l.groups, tgid)
	if group != nil { // has the threads that ended before we listened
		e.runtime = max(e.runtime, int64(n.Uint64(group[at.runtime:])))
	}
	e.time = now
	e.start = now - u64(at.age)*1e3
	f(e)
}

func sinceBoot() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

func (l *listener) partial() string {
	return "command lines of processes that no scan has seen, children of processes that ended before them, and the moment of an end to better than " +
		strconv.FormatInt(lookEvery.Milliseconds(), 10) + " ms"
}

func (l *listener) close() error { return unix.Close(l.fd) }
