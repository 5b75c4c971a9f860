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
	majorFault int64
	utime      int64 // in 1/userHz s
	stime      int64
	threads    int32
	start      uint64 // in 1/userHz s since boot
	rssPages   int64
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
	s.majorFault = v[8]
	s.utime, s.stime = v[10], v[11]
	s.threads = int32(v[16])
	s.start = uint64(v[18])
	s.rssPages = v[20]
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

// cpuTimes is the first line of /proc/stat in seconds.
type cpuTimes struct{ user, system, idle, iowait, steal float64 }

func parseCPU(b []byte) (cpuTimes, error) {
	var t cpuTimes
	if !bytes.HasPrefix(b, []byte("cpu ")) {
		return t, errFormat
	}
	line, _, _ := bytes.Cut(b[4:], []byte{'\n'})
	var v [8]float64 // user nice system idle iowait irq softirq steal; guest is inside user
	for i := range v {
		n, ok := integer(field(&line))
		if !ok {
			return t, errFormat
		}
		v[i] = float64(n) / userHz
	}
	return cpuTimes{user: v[0] + v[1], system: v[2] + v[5] + v[6], idle: v[3], iowait: v[4], steal: v[7]}, nil
}

// disk is one line of /proc/diskstats.
type disk struct {
	name                  []byte // aliases the input
	readBytes, writeBytes int64
	busyMillis            int64
	flushes, flushMillis  int64 // -1: a kernel before 5.5 does not count them
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
		d.readBytes, d.writeBytes, d.busyMillis = v[2]*sector, v[6]*sector, v[9]
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
