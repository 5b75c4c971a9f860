package process

import (
	"bytes"
	"errors"
)

// The parsers below are written by hand for what one scan needs. procfs.Proc
// reads a process in about 60 µs and 40 allocations, and a scan meets each
// process of the machine each second.

var errFormat = errors.New("unexpected format")

// userHz is the unit of times in /proc. It is 100 on every Linux that Go runs
// on, whatever the kernel's own tick.
const userHz = 100

const kernelThread = 0x00200000 // PF_KTHREAD

// stat is /proc/PID/stat as far as it is used.
type stat struct {
	comm       []byte // aliases the input
	state      byte
	ppid       int32
	flags      uint64
	minorFault int64
	majorFault int64
	utime      int64 // in 1/userHz s
	stime      int64
	threads    int32
	start      uint64 // in 1/userHz s since boot
	rssPages   int64
	guest      int64 // in 1/userHz s, part of utime; -1: a kernel before 2.6.24
}

func parseStat(b []byte) (stat, error) {
	var s stat
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')') // a command may hold both
	if open < 0 || end < open {
		return s, errFormat
	}
	s.comm = b[open+1 : end]
	rest := b[end+1:]
	state := field(&rest)
	if len(state) != 1 {
		return s, errFormat
	}
	s.state = state[0]
	var v [21]int64 // ppid … rss
	for i := range v {
		n, ok := integer(field(&rest))
		if !ok {
			// vsize and its like may exceed int64 in theory; nothing we use does.
			if i != 19 && i != 4 {
				return s, errFormat
			}
		}
		v[i] = n
	}
	s.ppid = int32(v[0])
	s.flags = uint64(v[5])
	s.minorFault, s.majorFault = v[6], v[8]
	s.utime, s.stime = v[10], v[11]
	s.threads = int32(v[16])
	s.start = uint64(v[18])
	s.rssPages = v[20]
	// guest_time is field 43 of proc_pid_stat(5); rss is field 24.
	for range 18 {
		field(&rest)
	}
	s.guest = -1
	if n, ok := integer(field(&rest)); ok {
		s.guest = n
	}
	return s, nil
}

// sched is /proc/PID/task/TID/schedstat.
type sched struct {
	run   int64 // ns on a CPU
	delay int64 // ns runnable but waiting
	count int64 // times put on a CPU
}

func parseSchedstat(b []byte) (sched, error) {
	var s sched
	var a, c, d bool
	s.run, a = integer(field(&b))
	s.delay, c = integer(field(&b))
	s.count, d = integer(field(&b))
	if !a || !c || !d {
		return s, errFormat
	}
	return s, nil
}

// parseSwitches finds the context switches in /proc/PID/task/TID/status.
func parseSwitches(b []byte) (voluntary, involuntary int64, err error) {
	v, ok1 := keyed(b, "\nvoluntary_ctxt_switches:")
	n, ok2 := keyed(b, "\nnonvoluntary_ctxt_switches:")
	if !ok1 || !ok2 {
		return 0, 0, errFormat
	}
	return v, n, nil
}

// parseIO finds the storage bytes in /proc/PID/io.
func parseIO(b []byte) (read, write int64, err error) {
	r, ok1 := keyed(b, "\nread_bytes:")
	w, ok2 := keyed(b, "\nwrite_bytes:")
	if !ok1 || !ok2 {
		return 0, 0, errFormat
	}
	return r, w, nil
}

// throttle is the quota part of a cgroup's cpu.stat.
type throttle struct {
	periods, throttled int64
	seconds            float64
}

// parseThrottle reads cpu.stat of cgroup v1 (throttled_time in ns) or v2
// (throttled_usec). A v2 root group has no quota and none of the lines.
func parseThrottle(b []byte) (throttle, error) {
	var t throttle
	var ok1, ok2 bool
	b = append([]byte{'\n'}, b...)
	t.periods, ok1 = keyed(b, "\nnr_periods ")
	t.throttled, ok2 = keyed(b, "\nnr_throttled ")
	if !ok1 || !ok2 {
		return t, errFormat
	}
	if us, ok := keyed(b, "\nthrottled_usec "); ok {
		t.seconds = float64(us) / 1e6
	} else if ns, ok := keyed(b, "\nthrottled_time "); ok {
		t.seconds = float64(ns) / 1e9
	} else {
		return t, errFormat
	}
	return t, nil
}

// cpuTimes is one cpu line of /proc/stat, in 1/userHz s, as the kernel counts:
// guest is part of user, guestNice of nice.
type cpuTimes struct{ user, nice, system, idle, iowait, irq, softirq, steal, guest, guestNice int64 }

// parseCPU reads what follows the name of a CPU.
func parseCPU(line []byte) (cpuTimes, error) {
	var v [10]int64
	for i := range v {
		n, ok := integer(field(&line))
		if !ok {
			if i >= 8 { // kernels before 2.6.33 do not count guests
				break
			}
			return cpuTimes{}, errFormat
		}
		v[i] = n
	}
	return cpuTimes{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]}, nil
}

// machineStat is /proc/stat as far as it is used; -1 is what it has not.
type machineStat struct {
	all                               cpuTimes
	switches, forks, running, blocked int64
}

// parseMachineStat calls core with each CPU's line.
func parseMachineStat(b []byte, core func(cpu int32, t cpuTimes)) (machineStat, error) {
	m := machineStat{switches: -1, forks: -1, running: -1, blocked: -1}
	if !bytes.HasPrefix(b, []byte("cpu ")) {
		return m, errFormat
	}
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		name := field(&line)
		var to *int64
		switch string(name) {
		case "cpu":
			var err error
			if m.all, err = parseCPU(line); err != nil {
				return m, err
			}
		case "ctxt":
			to = &m.switches
		case "processes":
			to = &m.forks
		case "procs_running":
			to = &m.running
		case "procs_blocked":
			to = &m.blocked
		default:
			if n, ok := bytes.CutPrefix(name, []byte("cpu")); ok {
				if cpu, ok := integer(n); ok && cpu >= 0 {
					if t, err := parseCPU(line); err == nil {
						core(int32(cpu), t)
					}
				}
			}
		}
		if to != nil {
			if n, ok := integer(field(&line)); ok {
				*to = n
			}
		}
	}
	return m, nil
}

// parseRunDelay sums the run delay of all CPUs in /proc/schedstat, in ns: the
// eighth number of a cpu line, which all of its versions have there.
func parseRunDelay(b []byte) (ns int64, ok bool) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if !bytes.HasPrefix(line, []byte("cpu")) {
			continue
		}
		field(&line)
		for range 7 {
			field(&line)
		}
		n, good := integer(field(&line))
		if !good {
			return 0, false
		}
		ns, ok = ns+n, true
	}
	return ns, ok
}

// network is /proc/net/dev: loopback apart.
type network struct{ received, sent, loopback, errors int64 }

func parseNetwork(b []byte) (n network, ok bool) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		name, rest, colon := bytes.Cut(line, []byte{':'})
		if !colon {
			continue
		}
		var v [12]int64 // bytes packets errs drop fifo frame compressed multicast; bytes packets errs drop
		good := true
		for i := range v {
			x, is := integer(field(&rest))
			v[i], good = x, good && is
		}
		if !good {
			continue
		}
		ok = true
		n.errors += v[2] + v[3] + v[10] + v[11]
		if string(bytes.TrimSpace(name)) == "lo" {
			n.loopback += v[8]
			continue
		}
		n.received += v[0]
		n.sent += v[8]
	}
	return n, ok
}

// paired finds values in /proc/net/snmp and netstat, where a line of names is
// followed by one of values. What is not there stays -1.
func paired(b []byte, prefix string, names []string) []int64 {
	values := make([]int64, len(names))
	for i := range values {
		values[i] = -1
	}
	i := bytes.Index(b, []byte(prefix))
	if i < 0 {
		return values
	}
	heads, rest, _ := bytes.Cut(b[i+len(prefix):], []byte{'\n'})
	row, _, _ := bytes.Cut(rest, []byte{'\n'})
	row, ok := bytes.CutPrefix(row, []byte(prefix))
	if !ok {
		return values
	}
	for {
		head := field(&heads)
		value := field(&row)
		if len(head) == 0 || len(value) == 0 {
			return values
		}
		for k, name := range names {
			if string(head) == name {
				if n, ok := integer(value); ok {
					values[k] = n
				}
			}
		}
	}
}

// disk is one line of /proc/diskstats. Times are in ms.
type disk struct {
	name                            []byte // aliases the input
	reads, readBytes, readMillis    int64
	writes, writeBytes, writeMillis int64
	inFlight                        int64
	busyMillis, queueMillis         int64
	flushes, flushMillis            int64 // -1: a kernel before 5.5 does not count them
}

// eachDisk calls f with each line; f must not keep the name.
func eachDisk(b []byte, f func(disk)) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		field(&line)
		field(&line)
		d := disk{name: field(&line), flushes: -1, flushMillis: -1}
		var v [17]int64
		n := 0
		for ; n < len(v); n++ {
			x, ok := integer(field(&line))
			if !ok {
				break
			}
			v[n] = x
		}
		if n < 11 {
			continue
		}
		const sector = 512 // in this file, whatever the device's own
		d.reads, d.readBytes, d.readMillis = v[0], v[2]*sector, v[3]
		d.writes, d.writeBytes, d.writeMillis = v[4], v[6]*sector, v[7]
		d.inFlight, d.busyMillis, d.queueMillis = v[8], v[9], v[10]
		if n >= 17 {
			d.flushes, d.flushMillis = v[15], v[16]
		}
		f(d)
	}
}

// parsePressure is the total of the "some" line of a PSI file, in µs.
func parsePressure(b []byte) (int64, error) {
	if !bytes.HasPrefix(b, []byte("some ")) {
		return 0, errFormat
	}
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	v, ok := keyed(line, "total=")
	if !ok {
		return 0, errFormat
	}
	return v, nil
}

// field cuts the next blank-separated field off b.
func field(b *[]byte) []byte {
	s := *b
	i := 0
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	j := i
	for j < len(s) && s[j] != ' ' && s[j] != '\t' && s[j] != '\n' {
		j++
	}
	*b = s[j:]
	return s[i:j]
}

func integer(b []byte) (int64, bool) {
	neg := false
	if len(b) > 0 && b[0] == '-' {
		neg, b = true, b[1:]
	}
	if len(b) == 0 || len(b) > 18 { // 18 digits always fit
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if neg {
		n = -n
	}
	return n, true
}

// keyed is the number that follows key.
func keyed(b []byte, key string) (int64, bool) {
	i := bytes.Index(b, []byte(key))
	if i < 0 {
		return 0, false
	}
	b = b[i+len(key):]
	return integer(field(&b))
}
