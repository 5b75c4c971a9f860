package use

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// hardware checks the machine.
func (a *assessment) hardware() {
	m := a.r.rec.Meta()
	if m.Cluster.Kind == "existing" && a.r.processes["kube-apiserver"] == nil {
		const reason = "the control plane runs elsewhere: this machine only watched it"
		for _, id := range []string{"cpu", "memory", "disk", "network"} {
			a.miss(id, "", Machine, "table machine", reason)
		}
		return
	}
	rows := within(a.r.machine, a.w, func(s record.MachineSample) int64 { return s.TimeMicros })
	if len(rows) < 2 {
		reason := fmt.Sprintf("%d samples in the window: a share needs two", len(rows))
		if a.r.noMachine != nil {
			reason = why(a.r.noMachine)
		}
		for _, id := range []string{"cpu", "memory", "disk-pressure", "network"} {
			a.miss(id, "", Machine, "table machine", reason)
		}
	} else {
		a.cpu(rows)
		a.memory(rows)
		a.network(rows)
		a.pressure("disk-pressure", rows, "io_pressure_s", func(s record.MachineSample) float64 { return s.IOPressureSeconds })
	}
	a.cores()
	a.starved()
	a.disks()
	a.miss("cpu-errors", "", Machine, "–", "/proc does not count them: see the kernel's log, or rasdaemon")
}

// within are the rows of a window, from the one nearest to its start on:
// counters differ between rows.
func within[T any](rows []T, w record.Window, at func(T) int64) []T {
	from, to := w.Start.UnixMicro(), w.End.Add(time.Second/2).UnixMicro()
	lo, _ := slices.BinarySearchFunc(rows, from, func(r T, t int64) int { return int(min(max(at(r)-t, -1), 1)) })
	hi, _ := slices.BinarySearchFunc(rows, to, func(r T, t int64) int { return int(min(max(at(r)-t, -1), 1)) })
	if lo > 0 && (lo == len(rows) || from-at(rows[lo-1]) < at(rows[lo])-from) {
		lo--
	}
	return rows[lo:max(hi, lo)]
}

// shares are the busy share of each step, and of all of them.
func shares(times []int64, busy, whole []float64) (mean, busiest, full float64) {
	n, high := 0.0, 0.0
	for i := 1; i < len(times); i++ {
		d := whole[i] - whole[i-1]
		if d <= 0 {
			continue
		}
		x := (busy[i] - busy[i-1]) / d
		busiest = max(busiest, x)
		dt := float64(times[i] - times[i-1])
		n += dt
		if x >= 0.9 {
			high += dt
		}
	}
	if d := whole[len(whole)-1] - whole[0]; d > 0 {
		mean = (busy[len(busy)-1] - busy[0]) / d
	}
	if n > 0 {
		full = high / n
	}
	return mean, min(busiest, 1), full
}

func (a *assessment) cpu(rows []record.MachineSample) {
	first, last := rows[0], rows[len(rows)-1]
	seconds := float64(last.TimeMicros-first.TimeMicros) / 1e6
	var times []int64
	var busy, whole []float64
	for _, s := range rows {
		times = append(times, s.TimeMicros)
		busy = append(busy, s.User+s.System)
		whole = append(whole, s.User+s.System+s.Idle+s.IOWait+s.Steal)
	}
	mean, busiest, full := shares(times, busy, whole)
	cpus := a.r.rec.Meta().Machine.CPUs
	a.add("cpu", "all", Machine, mean, "table machine: user_s + system_s", fmt.Sprintf("busiest second %s, %s of the seconds at 90 %% or more", Format(busiest, "share"), Format(full, "share")))
	a.add("cpu-busy-seconds", "all", Machine, full, "table machine: user_s + system_s", "")
	if d := whole[len(whole)-1] - whole[0]; d > 0 {
		a.add("cpu-steal", "all", Machine, (last.Steal-first.Steal)/d, "table machine: steal_s", "")
	}
	if first.RunDelaySeconds < 0 || last.RunDelaySeconds < 0 {
		a.miss("cpu-run-queue", "all", Machine, "table machine: run_delay_s", a.r.gap("the machine's run delay was not recorded", "schedstat"))
	} else if cpus > 0 {
		a.add("cpu-run-queue", "all", Machine, (last.RunDelaySeconds-first.RunDelaySeconds)/seconds/float64(cpus), "table machine: run_delay_s", "")
	}
	a.pressure("cpu-pressure", rows, "cpu_pressure_s", func(s record.MachineSample) float64 { return s.CPUPressureSeconds })
}

func (a *assessment) pressure(id string, rows []record.MachineSample, column string, of func(record.MachineSample) float64) {
	first, last := rows[0], rows[len(rows)-1]
	evidence := "table machine: " + column
	if of(first) < 0 || of(last) < 0 {
		a.miss(id, "", Machine, evidence, a.r.gap("the kernel has no PSI; boot it with psi=1", "pressure", "psi"))
		return
	}
	a.add(id, "", Machine, (of(last)-of(first))/(float64(last.TimeMicros-first.TimeMicros)/1e6), evidence, "")
}

func (a *assessment) cores() {
	rows := within(a.r.cores, a.w, func(s record.CoreSample) int64 { return s.TimeMicros })
	by := map[int32][]record.CoreSample{}
	var order []int32
	for _, s := range rows {
		if by[s.CPU] == nil {
			order = append(order, s.CPU)
		}
		by[s.CPU] = append(by[s.CPU], s)
	}
	slices.Sort(order)
	if len(order) == 0 {
		reason := "no samples in the window"
		if a.r.noCores != nil {
			reason = why(a.r.noCores)
		}
		a.miss("cpu", "each CPU", Machine, "table cores", reason)
	}
	for _, cpu := range order {
		ss := by[cpu]
		if len(ss) < 2 {
			continue
		}
		var times []int64
		var busy, whole []float64
		for _, s := range ss {
			b := s.UserSeconds + s.NiceSeconds + s.GuestSeconds + s.SystemSeconds + s.IRQSeconds + s.SoftIRQSeconds
			times, busy, whole = append(times, s.TimeMicros), append(busy, b), append(whole, b+s.StealSeconds+s.IOWaitSeconds+s.IdleSeconds)
		}
		mean, busiest, full := shares(times, busy, whole)
		a.add("cpu", fmt.Sprintf("CPU %d", cpu), Machine, mean, "table cores", fmt.Sprintf("busiest second %s, %s of the seconds at 90 %% or more", Format(busiest, "share"), Format(full, "share")))
	}
}

// starved checks, for each component, how long it waited for a CPU and how
// often its quota stopped it.
func (a *assessment) starved() {
	if a.r.noProcess != nil {
		a.miss("cpu-run-delay", "", "", "table processes", why(a.r.noProcess))
		a.miss("cpu-throttled", "", "", "table processes", why(a.r.noProcess))
		return
	}
	const throttle = "table processes: throttled_periods ÷ periods"
	var free []string
	for _, name := range a.r.names {
		type life struct{ first, last *record.ProcessSample }
		by := map[[2]int64]*life{}
		rows := within(a.r.processes[name], a.w, func(s record.ProcessSample) int64 { return s.TimeMicros })
		for i := range rows {
			s := &rows[i]
			k := [2]int64{int64(s.PID), s.StartMicros}
			if by[k] == nil {
				by[k] = &life{first: s}
			}
			by[k].last = s
		}
		if len(rows) < 2 {
			continue
		}
		seconds := float64(rows[len(rows)-1].TimeMicros-rows[0].TimeMicros) / 1e6
		var cpu, delay, stopped, periods float64
		known, quota, seen := true, true, false
		for _, l := range by {
			if l.first == l.last {
				continue
			}
			seen = true
			cpu += l.last.UserSeconds + l.last.SystemSeconds - l.first.UserSeconds - l.first.SystemSeconds
			delay += l.last.RunDelaySeconds - l.first.RunDelaySeconds
			known = known && l.first.RunDelaySeconds >= 0 && l.last.RunDelaySeconds >= 0
			// Processes share their cgroup's counters: the largest has them all.
			quota = quota && l.first.Periods >= 0 && l.last.Periods >= 0
			stopped = max(stopped, float64(l.last.ThrottledPeriods-l.first.ThrottledPeriods))
			periods = max(periods, float64(l.last.Periods-l.first.Periods))
		}
		if !seen || seconds <= 0 {
			continue
		}
		const evidence = "table processes: run_delay_s"
		switch {
		case !known:
			a.miss("cpu-run-delay", name, name, evidence, a.r.gap("not readable; use a kernel with CONFIG_SCHED_INFO", "run_delay_s"))
		case cpu+delay > 0:
			a.add("cpu-run-delay", name, name, delay/seconds, evidence, fmt.Sprintf("%.2f s, beside %.2f CPU-s used", delay, cpu))
		}
		switch {
		case !quota:
			free = append(free, name)
		case periods == 0:
			a.add("cpu-throttled", name, name, 0, throttle, "no quota, or nothing ran")
		default:
			a.add("cpu-throttled", name, name, stopped/periods, throttle, fmt.Sprintf("%.0f of %.0f periods", stopped, periods))
		}
	}
	if len(free) > 0 {
		a.miss("cpu-throttled", fmt.Sprintf("%d components", len(free)), "", throttle, "no cgroup of their own with a CPU quota: "+strings.Join(free, ", "))
	}
}

func (a *assessment) memory(rows []record.MachineSample) {
	first, last := rows[0], rows[len(rows)-1]
	seconds := float64(last.TimeMicros-first.TimeMicros) / 1e6
	least := slices.MinFunc(rows, func(x, y record.MachineSample) int {
		return int(min(max(x.MemoryAvailableBytes-y.MemoryAvailableBytes, -1), 1))
	}).MemoryAvailableBytes
	if total := a.r.rec.Meta().Machine.MemoryBytes; total > 0 && least > 0 {
		a.add("memory", "", Machine, 1-float64(least)/float64(total), "table machine: memory_available_bytes", Format(float64(least), "bytes")+" available at least")
	} else {
		a.miss("memory", "", Machine, "table machine: memory_available_bytes", "the machine's memory is not in the recording")
	}
	a.pressure("memory-pressure", rows, "memory_pressure_s", func(s record.MachineSample) float64 { return s.MemoryPressureSeconds })
	grown := func(id, column string, of func(record.MachineSample) int64, per float64) {
		evidence := "table machine: " + column
		if of(first) < 0 || of(last) < 0 {
			a.miss(id, "", Machine, evidence, a.r.gap("the column is not in the recording", column))
			return
		}
		a.add(id, "", Machine, max(float64(of(last)-of(first)), 0)/per, evidence, "")
	}
	grown("memory-swap", "swap_used_bytes", func(s record.MachineSample) int64 { return s.SwapUsedBytes }, 1)
	grown("memory-faults", "major_faults", func(s record.MachineSample) int64 { return s.MajorFaults }, seconds)
	grown("memory-oom", "oom_kills", func(s record.MachineSample) int64 { return s.OOMKills }, 1)
}

func (a *assessment) disks() {
	rows := within(a.r.disks, a.w, func(s record.DiskSample) int64 { return s.TimeMicros })
	by := map[string][]record.DiskSample{}
	var order []string
	for _, s := range rows {
		if by[s.Device] == nil {
			order = append(order, s.Device)
		}
		by[s.Device] = append(by[s.Device], s)
	}
	slices.Sort(order)
	if len(order) == 0 {
		reason := "no samples in the window"
		if a.r.noDisks != nil {
			reason = why(a.r.noDisks)
		}
		for _, id := range []string{"disk", "disk-queue", "disk-latency", "disk-flush"} {
			a.miss(id, "", Machine, "table disks", reason)
		}
	}
	for _, device := range order {
		ss := by[device]
		first, last := ss[0], ss[len(ss)-1]
		seconds := float64(last.TimeMicros-first.TimeMicros) / 1e6
		if seconds <= 0 {
			continue
		}
		busiest := 0.0
		for i := 1; i < len(ss); i++ {
			busiest = max(busiest, (ss[i].BusySeconds-ss[i-1].BusySeconds)/(float64(ss[i].TimeMicros-ss[i-1].TimeMicros)/1e6))
		}
		a.add("disk", device, Machine, (last.BusySeconds-first.BusySeconds)/seconds, "table disks: busy_s", "busiest second "+Format(min(busiest, 1), "share"))
		a.add("disk-queue", device, Machine, (last.QueueSeconds-first.QueueSeconds)/seconds, "table disks: queue_s", "")
		requests := float64(last.Reads + last.Writes - first.Reads - first.Writes)
		if requests > 0 {
			a.add("disk-latency", device, Machine, (last.ReadSeconds+last.WriteSeconds-first.ReadSeconds-first.WriteSeconds)/requests, "table disks: (read_s + write_s) ÷ (reads + writes)", fmt.Sprintf("%.0f requests", requests))
		}
		switch flushes := float64(last.Flushes - first.Flushes); {
		case first.Flushes < 0 || last.Flushes < 0:
			a.miss("disk-flush", device, Machine, "table disks: flush_s ÷ flushes", a.r.gap("the kernel does not count flushes; 5.5 and later do", "flushes"))
		case flushes > 0:
			a.add("disk-flush", device, Machine, (last.FlushSeconds-first.FlushSeconds)/flushes, "table disks: flush_s ÷ flushes", fmt.Sprintf("%.0f flushes", flushes))
		}
	}
	a.miss("disk-errors", strings.Join(order, ", "), Machine, "–", "/proc/diskstats does not count them: see the kernel's log, or smartctl")
}

func (a *assessment) network(rows []record.MachineSample) {
	first, last := rows[0], rows[len(rows)-1]
	seconds := float64(last.TimeMicros-first.TimeMicros) / 1e6
	if first.NetErrors < 0 || last.NetErrors < 0 {
		for _, id := range []string{"network", "network-retransmits", "network-errors", "network-listen"} {
			a.miss(id, "", Machine, "table machine", a.r.gap("the columns are not in the recording", "net_errors"))
		}
		return
	}
	a.miss("network", "", Machine, "table machine: net_*_bytes, loopback_bytes", fmt.Sprintf("the interface's speed is unknown (%s/s received, %s/s sent, %s/s over loopback)",
		Format(float64(last.NetReceivedBytes-first.NetReceivedBytes)/seconds, "bytes"), Format(float64(last.NetSentBytes-first.NetSentBytes)/seconds, "bytes"),
		Format(float64(last.LoopbackBytes-first.LoopbackBytes)/seconds, "bytes")))
	a.add("network-errors", "", Machine, float64(last.NetErrors-first.NetErrors)/seconds, "table machine: net_errors", "")
	if first.TCPSegmentsSent < 0 || last.TCPSegmentsSent < 0 || first.TCPRetransmits < 0 {
		a.miss("network-retransmits", "", Machine, "table machine: tcp_retransmits", a.r.gap("the columns are not in the recording", "tcp_retransmits"))
	} else if sent := float64(last.TCPSegmentsSent - first.TCPSegmentsSent); sent > 0 {
		again := float64(last.TCPRetransmits - first.TCPRetransmits)
		a.add("network-retransmits", "", Machine, again/sent, "table machine: tcp_retransmits ÷ tcp_segments_sent", fmt.Sprintf("%.0f of %.0f segments", again, sent))
	}
	if first.TCPListenDrops < 0 || last.TCPListenDrops < 0 {
		a.miss("network-listen", "", Machine, "table machine: tcp_listen_drops", a.r.gap("the column is not in the recording", "tcp_listen_drops"))
	} else {
		a.add("network-listen", "", Machine, float64(last.TCPListenDrops-first.TCPListenDrops), "table machine: tcp_listen_drops", "")
	}
}
