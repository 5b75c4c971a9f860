package process

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// machine reads the machine's own counters, and writes a row of the machine,
// of each CPU and of each disk. Each file is read once.
func (s *scanner) machine(now time.Time) error {
	at := now.UnixMicro()
	m := record.MachineSample{
		TimeMicros: at, MemoryAvailableBytes: -1, MemoryDirtyBytes: -1, MemoryCachedBytes: -1, SwapUsedBytes: -1,
		MajorFaults: -1, OOMKills: -1,
		DiskReadBytes: -1, DiskWriteBytes: -1, DiskBusySeconds: -1, FlushCount: -1, FlushSeconds: -1,
		CPUPressureSeconds: -1, MemoryPressureSeconds: -1, IOPressureSeconds: -1, RunDelaySeconds: -1,
		NetReceivedBytes: -1, NetSentBytes: -1, LoopbackBytes: -1, NetErrors: -1,
		TCPOpensActive: -1, TCPOpensPassive: -1, TCPSegmentsSent: -1, TCPRetransmits: -1, TCPListenDrops: -1,
		TCPEstablished: -1, TCPTimeWait: -1, Sockets: -1,
	}
	b, err := s.read(s.root + "/stat")
	if err != nil {
		return err
	}
	seconds := func(n int64) float64 { return float64(n) / userHz }
	st, err := parseMachineStat(b, func(cpu int32, t cpuTimes) {
		s.out.Core(record.CoreSample{
			TimeMicros: at, CPU: cpu,
			// The kernel counts guests twice; the modes here do not overlap.
			UserSeconds: seconds(max(t.user-t.guest, 0)), NiceSeconds: seconds(max(t.nice-t.guestNice, 0)),
			GuestSeconds: seconds(t.guest + t.guestNice), SystemSeconds: seconds(t.system),
			IRQSeconds: seconds(t.irq), SoftIRQSeconds: seconds(t.softirq), StealSeconds: seconds(t.steal),
			IOWaitSeconds: seconds(t.iowait), IdleSeconds: seconds(t.idle),
		})
	})
	if err != nil {
		return err
	}
	t := st.all
	m.User, m.System, m.Guest = seconds(t.user+t.nice), seconds(t.system+t.irq+t.softirq), seconds(t.guest+t.guestNice)
	m.Idle, m.IOWait, m.Steal = seconds(t.idle), seconds(t.iowait), seconds(t.steal)
	m.ContextSwitches, m.Forks, m.Runnable, m.Blocked = st.switches, st.forks, st.running, st.blocked
	if b, ok := s.file("meminfo", "memory of the machine"); ok {
		s.memory(b, &m)
	}
	if b, ok := s.file("vmstat", "major faults and out-of-memory kills"); ok {
		m.MajorFaults, m.OOMKills = number(b, "\npgmajfault "), number(b, "\noom_kill ")
		if m.OOMKills < 0 {
			s.gaps.once("oom", "out-of-memory kills: this kernel does not count them in /proc/vmstat; use Linux 4.13 or later")
		}
	}
	if b, ok := s.file("diskstats", "disks"); ok {
		s.addDisks(b, &m)
	}
	for _, p := range []struct {
		name string
		to   *float64
	}{{"cpu", &m.CPUPressureSeconds}, {"memory", &m.MemoryPressureSeconds}, {"io", &m.IOPressureSeconds}} {
		b, err := s.read(s.root + "/pressure/" + p.name)
		if err == nil {
			var us int64
			if us, err = parsePressure(b); err == nil {
				*p.to = float64(us) / 1e6
			}
		}
		if err != nil {
			s.gaps.once("psi", "pressure (PSI) of "+p.name+": "+reason(err)+"; start the kernel with psi=1 (it needs CONFIG_PSI)")
		}
	}
	if b, err := s.read(s.root + "/schedstat"); err != nil {
		s.gaps.once("schedstat", "run delay of the machine: /proc/schedstat: "+reason(err)+"; use a kernel with CONFIG_SCHEDSTATS (the run delay of each process is there without it)")
	} else if ns, ok := parseRunDelay(b); ok {
		m.RunDelaySeconds = float64(ns) / 1e9
	}
	s.network(&m)
	s.out.Machine(m)
	return nil
}

// file reads one of /proc. What it would have told is a gap where it is not
// there.
func (s *scanner) file(name, what string) ([]byte, bool) {
	b, err := s.read(s.root + "/" + name)
	if err != nil {
		s.gaps.once(name, what+": /proc/"+name+": "+reason(err)+"; give this process the host's /proc")
		return nil, false
	}
	return b, true
}

// number is the value after key, or -1.
func number(b []byte, key string) int64 {
	if n, ok := keyed(b, key); ok {
		return n
	}
	return -1
}

func (s *scanner) memory(b []byte, m *record.MachineSample) {
	kib := func(key string) int64 {
		if n, ok := keyed(b, key); ok {
			return n << 10
		}
		return -1
	}
	m.MemoryAvailableBytes, m.MemoryCachedBytes = kib("\nMemAvailable:"), kib("\nCached:")
	if dirty, writing := kib("\nDirty:"), kib("\nWriteback:"); dirty >= 0 && writing >= 0 {
		m.MemoryDirtyBytes = dirty + writing
	}
	if total, free := kib("\nSwapTotal:"), kib("\nSwapFree:"); total >= 0 && free >= 0 {
		m.SwapUsedBytes = total - free
	}
}

var (
	snmpNames    = []string{"ActiveOpens", "PassiveOpens", "CurrEstab", "OutSegs", "RetransSegs"}
	netstatNames = []string{"ListenDrops"}
)

// network reads the counters of our network namespace: "net" in /proc is a
// link into the reader's own.
func (s *scanner) network(m *record.MachineSample) {
	if b, ok := s.file("net/dev", "network interfaces"); ok {
		if n, ok := parseNetwork(b); ok {
			m.NetReceivedBytes, m.NetSentBytes, m.LoopbackBytes, m.NetErrors = n.received, n.sent, n.loopback, n.errors
		}
	}
	if b, ok := s.file("net/snmp", "TCP connections"); ok {
		v := paired(b, "Tcp: ", snmpNames)
		m.TCPOpensActive, m.TCPOpensPassive, m.TCPEstablished, m.TCPSegmentsSent, m.TCPRetransmits = v[0], v[1], v[2], v[3], v[4]
	}
	if b, ok := s.file("net/netstat", "dropped TCP connections"); ok {
		m.TCPListenDrops = paired(b, "TcpExt: ", netstatNames)[0]
	}
	if b, ok := s.file("net/sockstat", "sockets"); ok {
		m.Sockets = number(b, "sockets: used ")
		if i := strings.Index(string(b), "\nTCP:"); i >= 0 {
			m.TCPTimeWait = number(b[i:], " tw ")
		}
	}
}

// addDisks writes a row of each disk and sums them. Busy time of the machine
// is the busiest disk's at each step, so that the counter's slope is a
// utilisation between 0 and 1 however many disks there are.
func (s *scanner) addDisks(b []byte, m *record.MachineSample) {
	var found, flushes bool
	var read, write, count, millis, most, first int64
	fresh := len(s.busy) == 0
	eachDisk(b, func(d disk) {
		if !s.isDisk(d.name) {
			return
		}
		found = true
		read += d.readBytes
		write += d.writeBytes
		name := string(d.name)
		row := record.DiskSample{
			TimeMicros: m.TimeMicros, Device: name,
			Reads: d.reads, ReadBytes: d.readBytes, ReadSeconds: float64(d.readMillis) / 1e3,
			Writes: d.writes, WriteBytes: d.writeBytes, WriteSeconds: float64(d.writeMillis) / 1e3,
			Flushes: d.flushes, FlushSeconds: -1, InFlight: d.inFlight,
			BusySeconds: float64(d.busyMillis) / 1e3, QueueSeconds: float64(d.queueMillis) / 1e3,
		}
		if d.flushes >= 0 {
			flushes = true
			count += d.flushes
			millis += d.flushMillis
			row.FlushSeconds = float64(d.flushMillis) / 1e3
		}
		s.out.Disk(row)
		if old, ok := s.busy[name]; ok {
			most = max(most, d.busyMillis-old)
		}
		first = max(first, d.busyMillis)
		s.busy[name] = d.busyMillis
	})
	if !found {
		return
	}
	if fresh {
		most = first
	}
	s.diskBusy += most
	m.DiskReadBytes, m.DiskWriteBytes, m.DiskBusySeconds = read, write, float64(s.diskBusy)/1e3
	if flushes {
		m.FlushCount, m.FlushSeconds = count, float64(millis)/1e3
	}
}

// isDisk tells whole hardware disks from partitions, loop devices and
// mappings, whose bytes would count twice.
func (s *scanner) isDisk(name []byte) bool {
	is, known := s.disks[string(name)]
	if !known {
		_, err := os.Stat(s.sys + "/block/" + strings.ReplaceAll(string(name), "/", "!") + "/device")
		is = err == nil
		s.disks[string(name)] = is
	}
	return is
}

// gaps notes each thing that cannot be observed once.
type gaps struct {
	out  sink
	seen []string
}

func (g *gaps) once(key, text string) {
	if slices.Contains(g.seen, key) {
		return
	}
	g.seen = append(g.seen, key)
	g.out.Gap(record.Gap{Collector: collectorName, Subject: key, Reason: text})
}

// reason is an error without the path that it repeats.
func reason(err error) string {
	var e syscall.Errno
	if errors.As(err, &e) {
		if e == syscall.EOPNOTSUPP {
			return "switched off"
		}
		return e.Error()
	}
	return err.Error()
}
