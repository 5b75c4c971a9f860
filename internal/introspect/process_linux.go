package introspect

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ofProcess are what the kernel knows of this process. They have the names, and say
// what, prometheus' collector of these does, which takes ten times as long: it reads
// when the machine was started, the limits and the whole namespace's network counters
// as text, in each scrape.
func ofProcess() []prometheus.Collector {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	began := float64(time.Now().UnixMicro()) / 1e6
	return []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "process_cpu_seconds_total", Help: "User and system CPU of this process."}, cpuSeconds),
		gauge("process_resident_memory_bytes", "Memory of this process that is resident.", residentBytes),
		gauge("process_open_fds", "Files that this process has open.", openFiles),
		gauge("process_max_fds", "Files that this process may have open.", maxFiles),
		gauge("process_start_time_seconds", "When this process began to be observed, since 1970.", func() float64 { return began }),
	}
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func residentBytes() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(b)
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(string(fields[1]), 64)
	return pages * float64(os.Getpagesize())
}

func openFiles() float64 {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer d.Close()
	if info, err := d.Stat(); err == nil && info.Size() > 0 { // Linux 6.2
		return float64(info.Size())
	}
	names, _ := d.Readdirnames(-1)
	return float64(len(names))
}

func maxFiles() float64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return float64(limit.Cur)
}
