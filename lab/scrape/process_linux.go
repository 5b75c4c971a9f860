package scrape

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/procfs"
)

// networkAge is how old the network's counters may be: they are of the whole network
// namespace, and the kernel writes hundreds of numbers for these two.
const networkAge = 5 * time.Second

// process gives the metrics of prometheus' own collector of that name for a third of
// what it takes: that collector reads when the machine was started and the limits of
// the process anew each time, as text. A quarter of what telling changes took was that.
type process struct {
	proc  procfs.Proc
	start float64 // seconds since 1970
	now   func() time.Time

	cpu, openFDs, maxFDs, vsize, maxVsize, rss, started, in, out *prometheus.Desc

	mu                sync.Mutex
	at                time.Time // of the network's counters
	inBytes, outBytes float64
}

// LeanProcess replaces the collector of a process's own metrics in a registry. Where it
// fails the registry is as it was.
func LeanProcess(r prometheus.Registerer) error {
	full := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	lean, err := newProcess(full)
	if err != nil {
		return fmt.Errorf("metrics of the process: %w", err)
	}
	if !r.Unregister(full) {
		return nil // it never had them
	}
	return r.Register(lean)
}

func newProcess(full prometheus.Collector) (*process, error) {
	proc, err := procfs.Self()
	if err != nil {
		return nil, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return nil, err
	}
	start, err := stat.StartTime()
	if err != nil {
		return nil, err
	}
	p := &process{proc: proc, start: start, now: time.Now}
	descs := make(chan *prometheus.Desc, 32)
	full.Describe(descs)
	close(descs)
	byName := map[string]**prometheus.Desc{
		"process_cpu_seconds_total": &p.cpu, "process_open_fds": &p.openFDs, "process_max_fds": &p.maxFDs,
		"process_virtual_memory_bytes": &p.vsize, "process_virtual_memory_max_bytes": &p.maxVsize, "process_resident_memory_bytes": &p.rss,
		"process_start_time_seconds": &p.started, "process_network_receive_bytes_total": &p.in, "process_network_transmit_bytes_total": &p.out,
	}
	for d := range descs {
		name := nameOf(d)
		if byName[name] == nil {
			return nil, fmt.Errorf("%s is not known", name)
		}
		*byName[name] = d
		delete(byName, name)
	}
	for name := range byName {
		return nil, fmt.Errorf("%s is missing", name)
	}
	return p, nil
}

// Describe implements prometheus.Collector.
func (p *process) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.cpu, p.openFDs, p.maxFDs, p.vsize, p.maxVsize, p.rss, p.started, p.in, p.out} {
		to <- d
	}
}

// Collect implements prometheus.Collector. What cannot be read is left out.
func (p *process) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		to <- prometheus.MustNewConstMetric(d, kind, v)
	}
	if stat, err := p.proc.Stat(); err == nil {
		send(p.cpu, prometheus.CounterValue, stat.CPUTime())
		send(p.vsize, prometheus.GaugeValue, float64(stat.VirtualMemory()))
		send(p.rss, prometheus.GaugeValue, float64(stat.ResidentMemory()))
	}
	send(p.started, prometheus.GaugeValue, p.start)
	if n, err := p.proc.FileDescriptorsLen(); err == nil {
		send(p.openFDs, prometheus.GaugeValue, float64(n))
	}
	for d, resource := range map[*prometheus.Desc]int{p.maxFDs: syscall.RLIMIT_NOFILE, p.maxVsize: syscall.RLIMIT_AS} {
		var limit syscall.Rlimit
		if syscall.Getrlimit(resource, &limit) == nil {
			send(d, prometheus.GaugeValue, float64(limit.Cur)) // 2⁶⁴ where there is none, as the full collector has it
		}
	}
	if in, out, ok := p.network(); ok {
		send(p.in, prometheus.CounterValue, in)
		send(p.out, prometheus.CounterValue, out)
	}
}

func (p *process) network() (in, out float64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.now(); p.at.IsZero() || now.Sub(p.at) >= networkAge {
		n, err := p.proc.Netstat()
		if err != nil || n.InOctets == nil || n.OutOctets == nil {
			return 0, 0, false
		}
		p.at, p.inBytes, p.outBytes = now, *n.InOctets, *n.OutOctets
	}
	return p.inBytes, p.outBytes, true
}
