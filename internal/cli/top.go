package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/record"
)

type topOptions struct {
	interval, length time.Duration
	lab, format      string
	components       []string
	csv, processes   bool
	rows             int
}

func newTopCommand(env *Env) *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what the processes of this machine, or of a lab, do now",
		Long: `top shows each interval what the processes of this machine did in it: CPU of one
core by mode, waiting for a CPU, context switches, memory, storage, and above them
the machine: each core by mode, pressure, run queue, disks, TCP. Processes that
came and went between two looks are listed with their whole command line and what
they used; that needs root, or CAP_BPF and CAP_PERFMON.

On a terminal the table is redrawn in place until Ctrl-C; elsewhere each interval
is printed below the last. With --csv there is one line an interval for the
machine, in percent of all CPUs, or with --processes one for each process. %CPU is
of one core, user includes guest. A "–" was not observed; -1 in CSV and JSON.`,
		Example: `  kubedyno top
  kubedyno top --name lab --interval 500ms
  kubedyno top --component etcd --component kube-apiserver --for 10s
  kubedyno top --csv --for 1m > machine.csv
  kubedyno top --csv --processes --for 1m > processes.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.csv {
				if cmd.Flags().Changed("output") && o.format != "csv" {
					return Misusef("--csv and -o %s exclude each other", o.format)
				}
				o.format = "csv"
			}
			return runTop(cmd.Context(), env, o)
		},
	}
	fs := cmd.Flags()
	fs.DurationVar(&o.interval, "interval", process.Interval, "time between two looks, at least 100ms")
	fs.DurationVar(&o.length, "for", 0, "end after this time (default: at Ctrl-C)")
	fs.StringVar(&o.lab, "name", "", "only processes of this lab")
	fs.StringArrayVar(&o.components, "component", nil, "only processes of this component, and what they start; may be repeated")
	fs.BoolVar(&o.csv, "csv", false, "the same as -o csv")
	fs.BoolVar(&o.processes, "processes", false, "with CSV or JSON: a line for each process, not for the machine")
	fs.IntVarP(&o.rows, "lines", "n", 20, "processes to show, 0 for all")
	fs.StringVarP(&o.format, "output", "o", "text", "format: text, csv or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(tableFormats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("name", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		labs, _ := lab.List("")
		var names []string
		for _, l := range labs {
			names = append(names, l.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.RegisterFlagCompletionFunc("component", cobra.FixedCompletions(
		[]string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", lab.Hollow}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runTop(ctx context.Context, env *Env, o topOptions) error {
	switch {
	case !slices.Contains(tableFormats, o.format):
		return Misusef("-o %s: the formats are %s", o.format, strings.Join(tableFormats, ", "))
	case o.interval < 100*time.Millisecond:
		return Misusef("--interval %v: want at least 100ms; times in /proc are in steps of 10ms", o.interval)
	case o.length < 0 || o.length > 0 && o.length < o.interval:
		return Misusef("--for %v is less than one interval of %v", o.length, o.interval)
	case o.rows < 0:
		return Misusef("-n %d: cannot be negative", o.rows)
	case o.processes && o.format == "text":
		return Misusef("--processes goes with --csv or -o json")
	}
	components, err := topComponents(o.lab)
	if err != nil {
		return err
	}
	if o.length > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, o.length)
		defer stop()
	}
	screen := newTopScreen(env, o)
	screen.open()
	err = process.New(process.Options{Interval: o.interval, Components: components}).Watch(ctx, screen.show)
	screen.close()
	if errors.Is(err, collect.ErrNotSupported) {
		return fmt.Errorf("top: not assessed: %w", err)
	}
	return err
}

// topComponents names the processes of one lab, or of all of them.
func topComponents(name string) (components []process.Component, err error) {
	var labs []*lab.State
	if name == "" {
		// Labs give names to processes. Where none can be listed there are none.
		labs, _ = lab.List("")
	} else {
		l, err := liveLab(name)
		if err != nil {
			return nil, labError(err)
		}
		labs = append(labs, l)
	}
	for _, l := range labs {
		for _, p := range l.Processes {
			c := process.Component{Name: p.Name, PID: p.PID}
			if l.ControlPlane != nil {
				if known := l.ControlPlane.Component(p.Name); known != nil {
					c.Cgroup = known.Cgroup
				}
			}
			components = append(components, c)
		}
		components = append(components, process.Component{Name: process.Keeper, PID: l.Keeper.PID})
	}
	return components, nil
}

// topScreen prints each interval.
type topScreen struct {
	env    *Env
	o      topOptions
	live   bool // redrawn in place
	before *process.Snapshot
	first  time.Time
	header bool // the CSV's is printed
	frames int
	gaps   []record.Gap
}

func newTopScreen(env *Env, o topOptions) *topScreen {
	return &topScreen{env: env, o: o, live: env.StdoutTTY && o.format == "text"}
}

func (s *topScreen) open() {
	if s.live { // the alternate screen, without a cursor
		fmt.Fprint(s.env.Stdout, "\x1b[?1049h\x1b[?25l\x1b[H\x1b[Jfirst interval…")
	}
}

func (s *topScreen) close() {
	if s.live {
		fmt.Fprint(s.env.Stdout, "\x1b[?25h\x1b[?1049l")
	}
	for _, g := range s.gaps {
		fmt.Fprintf(s.env.Stderr, "not observed: %s\n", g.Reason)
	}
}

// show prints what happened since the snapshot before.
func (s *topScreen) show(now *process.Snapshot) error {
	s.gaps = append(s.gaps, now.Gaps...)
	before := s.before
	if before == nil {
		s.before, s.first = now, now.Time
		return nil
	}
	// The last look comes when the time is over, which may be at once after
	// an ordinary one.
	if s.frames > 0 && now.Time.Sub(before.Time) < s.o.interval/2 {
		return nil
	}
	s.before = now
	s.frames++
	if s.o.format != "text" {
		return s.lines(before, now)
	}
	if !s.live {
		if s.frames > 1 {
			fmt.Fprintln(s.env.Stdout)
		}
		return s.frame(s.env, before, now, s.o.rows)
	}
	var b bytes.Buffer
	inner := *s.env
	inner.Stdout = &b
	width, height := 80, 24
	if f, ok := s.env.Stdout.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	rows := s.o.rows
	if most := max(height-len(now.Cores)-len(now.Disks)-14, 3); rows == 0 || rows > most {
		rows = most
	}
	if err := s.frame(&inner, before, now, rows); err != nil {
		return err
	}
	_, err := io.WriteString(s.env.Stdout, onScreen(b.String(), width, height))
	return err
}

// onScreen redraws from the corner, each line cut to the width and what was
// behind it cleared.
func onScreen(text string, width, height int) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width])
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// lines prints the interval for programs.
func (s *topScreen) lines(before, now *process.Snapshot) error {
	var t textTable
	if s.o.processes {
		for _, r := range topProcesses(before, now, s.wanted) {
			t.add(r)
		}
	} else {
		t.add(topMachineRow(before, now, s.first))
	}
	if s.o.format == "json" {
		enc := json.NewEncoder(s.env.Stdout)
		for _, v := range t.values {
			if err := enc.Encode(v); err != nil {
				return err
			}
		}
		return nil
	}
	var b bytes.Buffer
	inner := *s.env
	inner.Stdout = &b
	if err := t.csv(&inner); err != nil {
		return err
	}
	text := b.String()
	if s.header && text != "" {
		_, text, _ = strings.Cut(text, "\n")
	}
	s.header = s.header || text != ""
	_, err := io.WriteString(s.env.Stdout, text)
	return err
}

// wanted says whether a component's processes are asked for.
func (s *topScreen) wanted(component string) bool {
	if len(s.o.components) > 0 {
		return slices.Contains(s.o.components, component)
	}
	return s.o.lab == "" || component != "" && component != process.Self
}

// topMachine is the machine in one interval, in percent of all CPUs. Modes do
// not overlap.
type topMachine struct {
	Timestamp string  `json:"timestamp"`
	Elapsed   float64 `json:"elapsed"` // seconds since the first look
	User      float64 `json:"user"`
	Nice      float64 `json:"nice"`
	System    float64 `json:"system"`
	Idle      float64 `json:"idle"`
	IOWait    float64 `json:"iowait"`
	IRQ       float64 `json:"irq"`
	SoftIRQ   float64 `json:"softirq"`
	Steal     float64 `json:"steal"`
	Guest     float64 `json:"guest"`
	Busy      float64 `json:"busy%"` // all but idle, iowait and steal
}

// coreModes is the share of each mode between two samples, in percent: of one
// CPU, or of several added up.
func coreModes(before, now []record.CoreSample) topMachine {
	var m topMachine
	var sum float64
	for _, b := range now {
		i := slices.IndexFunc(before, func(a record.CoreSample) bool { return a.CPU == b.CPU })
		if i < 0 {
			continue // it came online within the interval
		}
		a := before[i]
		add := func(to *float64, from, until float64) {
			d := max(until-from, 0) // iowait may fall, as proc_stat(5) says
			*to += d
			sum += d
		}
		add(&m.User, a.UserSeconds, b.UserSeconds)
		add(&m.Nice, a.NiceSeconds, b.NiceSeconds)
		add(&m.System, a.SystemSeconds, b.SystemSeconds)
		add(&m.Idle, a.IdleSeconds, b.IdleSeconds)
		add(&m.IOWait, a.IOWaitSeconds, b.IOWaitSeconds)
		add(&m.IRQ, a.IRQSeconds, b.IRQSeconds)
		add(&m.SoftIRQ, a.SoftIRQSeconds, b.SoftIRQSeconds)
		add(&m.Steal, a.StealSeconds, b.StealSeconds)
		add(&m.Guest, a.GuestSeconds, b.GuestSeconds)
	}
	if sum == 0 {
		return m
	}
	for _, v := range []*float64{&m.User, &m.Nice, &m.System, &m.Idle, &m.IOWait, &m.IRQ, &m.SoftIRQ, &m.Steal, &m.Guest} {
		*v = hundredths(100 * *v / sum)
	}
	m.Busy = hundredths(max(100-m.Idle-m.IOWait-m.Steal, 0))
	return m
}

func hundredths(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

func topMachineRow(before, now *process.Snapshot, first time.Time) topMachine {
	m := coreModes(before.Cores, now.Cores)
	m.Timestamp = now.Time.UTC().Format("2006-01-02T15:04:05.000Z")
	m.Elapsed = float64(now.Time.Sub(first).Milliseconds()) / 1e3
	return m
}

// topProcess is one process in one interval. Rates are per second, CPU is in
// percent of one core; -1 is unknown.
type topProcess struct {
	Timestamp   string  `json:"timestamp"`
	PID         int32   `json:"pid"`
	Component   string  `json:"component"`
	CPU         float64 `json:"cpu%"`
	User        float64 `json:"usr%"` // guest included
	System      float64 `json:"sys%"`
	Guest       float64 `json:"guest%"`
	Wait        float64 `json:"wait%"` // runnable, all threads, but waiting for a CPU
	Voluntary   float64 `json:"cswch/s"`
	Involuntary float64 `json:"nvcswch/s"`
	RSSBytes    int64   `json:"rss"`
	ReadKiB     float64 `json:"readKiB/s"`
	WriteKiB    float64 `json:"writeKiB/s"`
	Threads     int32   `json:"threads"`
	FDs         int32   `json:"fds"`
	Command     string  `json:"command"`
}

// topProcesses is each process of now, the busiest first.
func topProcesses(before, now *process.Snapshot, wanted func(component string) bool) []topProcess {
	type key struct {
		pid   int32
		start int64
	}
	old := map[key]record.ProcessSample{}
	for _, p := range before.Processes {
		old[key{p.PID, p.StartMicros}] = p
	}
	seconds := now.Time.Sub(before.Time).Seconds()
	stamp := now.Time.UTC().Format("2006-01-02T15:04:05.000Z")
	rows := []topProcess{}
	for _, p := range now.Processes {
		if !wanted(p.Component) {
			continue
		}
		a, known := old[key{p.PID, p.StartMicros}]
		rate := func(from, until, unit float64) float64 {
			if until < 0 || known && from < 0 {
				return -1
			}
			return hundredths(max(until-from, 0) / seconds / unit)
		}
		r := topProcess{
			Timestamp: stamp, PID: p.PID, Component: p.Component,
			User: rate(a.UserSeconds, p.UserSeconds, 0.01), System: rate(a.SystemSeconds, p.SystemSeconds, 0.01),
			Guest: rate(a.GuestSeconds, p.GuestSeconds, 0.01), Wait: rate(a.RunDelaySeconds, p.RunDelaySeconds, 0.01),
			Voluntary:   rate(float64(a.VoluntarySwitches), float64(p.VoluntarySwitches), 1),
			Involuntary: rate(float64(a.InvoluntarySwitches), float64(p.InvoluntarySwitches), 1),
			RSSBytes:    p.RSSBytes, ReadKiB: rate(float64(a.ReadBytes), float64(p.ReadBytes), 1024),
			WriteKiB: rate(float64(a.WriteBytes), float64(p.WriteBytes), 1024),
			Threads:  p.Threads, FDs: p.FDs, Command: p.Command,
		}
		r.CPU = hundredths(r.User + r.System)
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b topProcess) int {
		return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.RSSBytes, a.RSSBytes), cmp.Compare(a.PID, b.PID))
	})
	return rows
}

// frame prints one interval for people.
func (s *topScreen) frame(env *Env, before, now *process.Snapshot, rows int) error {
	topHeader(env.Stdout, before, now)
	t := &textTable{header: []string{"PID", "COMPONENT", "%CPU", "USR", "SYS", "GUEST", "WAIT", "CSW/s", "NVCSW/s", "RSS MiB", "READ KiB/s", "WRITE KiB/s", "THREADS", "FDS", "COMMAND"}}
	for _, r := range topProcesses(before, now, s.wanted) {
		t.add(r, fmt.Sprint(r.PID), dash(r.Component), tenth(r.CPU), tenth(r.User), tenth(r.System), tenth(r.Guest), tenth(r.Wait),
			whole(r.Voluntary), whole(r.Involuntary), fmt.Sprintf("%.1f", float64(r.RSSBytes)/(1<<20)), whole(r.ReadKiB), whole(r.WriteKiB),
			fmt.Sprint(r.Threads), whole(float64(r.FDs)), shortened(r.Command))
	}
	all := len(t.rows)
	if rows > 0 && all > rows {
		t.rows = t.rows[:rows]
	}
	fmt.Fprintln(env.Stdout)
	if err := t.print(env, "text", 0); err != nil {
		return err
	}
	if more := all - len(t.rows); more > 0 {
		fmt.Fprintf(env.Stdout, "… and %d more; -n 0 shows all\n", more)
	}
	return s.ended(env, before, now, rows)
}

// ended prints the processes that ended in the interval.
func (s *topScreen) ended(env *Env, before, now *process.Snapshot, rows int) error {
	for _, g := range s.gaps {
		if g.Subject == string(record.TableExits) && g.Start.IsZero() && len(now.Exits) == 0 {
			_, err := fmt.Fprintln(env.Stdout, "\nprocesses that came and went: not observed (the reason is printed at the end)")
			return err
		}
	}
	ends, came := topEnds(before, now, s.wanted)
	var cpu float64
	for _, e := range ends {
		cpu += e.user + e.system
	}
	fmt.Fprintf(env.Stdout, "\n%d processes ended, %d of them had begun since the last look; CPU since then: %.0f ms\n", len(ends), came, cpu*1e3)
	if len(ends) == 0 {
		return nil
	}
	t := &textTable{header: []string{"PID", "COMPONENT", "LIVED ms", "USR ms", "SYS ms", "EXIT", "COMMAND"}}
	for i, e := range ends {
		if rows > 0 && i == max(rows/2, 3) {
			break
		}
		t.add(e, fmt.Sprint(e.PID), dash(e.Component), fmt.Sprintf("%.0f", float64(e.TimeMicros-e.StartMicros)/1e3),
			fmt.Sprintf("%.1f", e.user*1e3), fmt.Sprintf("%.1f", e.system*1e3), whole(float64(e.ExitCode)), shortened(e.Command))
	}
	if err := t.print(env, "text", 0); err != nil {
		return err
	}
	if more := len(ends) - len(t.rows); more > 0 {
		fmt.Fprintf(env.Stdout, "… and %d more\n", more)
	}
	return nil
}

// topEnd is a process that ended, with what it used since the last look.
type topEnd struct {
	record.ProcessExit
	user, system float64
}

// topEnds is the processes that ended, the busiest first, and how many of them
// the snapshot before has not seen.
func topEnds(before, now *process.Snapshot, wanted func(component string) bool) (ends []topEnd, came int) {
	for _, e := range now.Exits {
		if !wanted(e.Component) {
			continue
		}
		end := topEnd{e, e.UserSeconds, e.SystemSeconds}
		i := slices.IndexFunc(before.Processes, func(p record.ProcessSample) bool { return p.PID == e.PID && p.StartMicros == e.StartMicros })
		if i < 0 {
			came++
		} else {
			end.user, end.system = max(e.UserSeconds-before.Processes[i].UserSeconds, 0), max(e.SystemSeconds-before.Processes[i].SystemSeconds, 0)
		}
		ends = append(ends, end)
	}
	slices.SortFunc(ends, func(a, b topEnd) int {
		return cmp.Or(cmp.Compare(b.user+b.system, a.user+a.system), cmp.Compare(a.PID, b.PID))
	})
	return ends, came
}

// topHeader prints the machine.
func topHeader(w io.Writer, before, now *process.Snapshot) {
	seconds := now.Time.Sub(before.Time).Seconds()
	a, b := before.Machine, now.Machine
	rate := func(from, until float64) float64 {
		if from < 0 || until < 0 {
			return -1
		}
		return max(until-from, 0) / seconds
	}
	counts := func(from, until int64) float64 { return rate(float64(from), float64(until)) }
	percent := func(v float64) string {
		if v < 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f %%", 100*v)
	}
	gib := func(v int64) string {
		if v < 0 {
			return "–"
		}
		return fmt.Sprintf("%.2f GiB", float64(v)/(1<<30))
	}
	all := coreModes(before.Cores, now.Cores)
	fmt.Fprintf(w, "%s  %d CPUs  busy %.1f %%  run queue %s  blocked %s  waiting for a CPU %s of one  pressure cpu %s memory %s io %s\n",
		now.Time.Format("15:04:05"), len(now.Cores), all.Busy, whole(float64(b.Runnable)), whole(float64(b.Blocked)),
		percent(rate(a.RunDelaySeconds, b.RunDelaySeconds)), percent(rate(a.CPUPressureSeconds, b.CPUPressureSeconds)),
		percent(rate(a.MemoryPressureSeconds, b.MemoryPressureSeconds)), percent(rate(a.IOPressureSeconds, b.IOPressureSeconds)))
	for i, c := range now.Cores {
		m := coreModes(before.Cores, now.Cores[i:i+1])
		fmt.Fprintf(w, "cpu%-3d usr %5.1f  nice %5.1f  sys %5.1f  irq %4.1f  softirq %4.1f  steal %5.1f  guest %5.1f  iowait %5.1f  idle %5.1f\n",
			c.CPU, m.User, m.Nice, m.System, m.IRQ, m.SoftIRQ, m.Steal, m.Guest, m.IOWait, m.Idle)
	}
	fmt.Fprintf(w, "memory %s available  %s dirty  %s swapped  major faults/s %s  switches/s %s  forks/s %s\n",
		gib(b.MemoryAvailableBytes), gib(b.MemoryDirtyBytes), gib(b.SwapUsedBytes), whole(counts(a.MajorFaults, b.MajorFaults)),
		whole(counts(a.ContextSwitches, b.ContextSwitches)), whole(counts(a.Forks, b.Forks)))
	for _, d := range now.Disks {
		i := slices.IndexFunc(before.Disks, func(o record.DiskSample) bool { return o.Device == d.Device })
		if i < 0 {
			continue
		}
		o := before.Disks[i]
		latency := func(n0, n1 int64, s0, s1 float64) string {
			if n0 < 0 || n1 <= n0 {
				return "–"
			}
			return fmt.Sprintf("%.2f ms", (s1-s0)/float64(n1-n0)*1e3)
		}
		fmt.Fprintf(w, "%-7s busy %s  queue %.2f  read %s KiB/s %s  write %s KiB/s %s  flush %s/s %s\n", d.Device,
			percent(min(rate(o.BusySeconds, d.BusySeconds), 1)), rate(o.QueueSeconds, d.QueueSeconds),
			whole(counts(o.ReadBytes, d.ReadBytes)/1024), latency(o.Reads, d.Reads, o.ReadSeconds, d.ReadSeconds),
			whole(counts(o.WriteBytes, d.WriteBytes)/1024), latency(o.Writes, d.Writes, o.WriteSeconds, d.WriteSeconds),
			whole(counts(o.Flushes, d.Flushes)), latency(o.Flushes, d.Flushes, o.FlushSeconds, d.FlushSeconds))
	}
	fmt.Fprintf(w, "tcp    opens/s %s out %s in  established %s  time-wait %s  retransmits/s %s  listen drops/s %s  sockets %s\n",
		whole(counts(a.TCPOpensActive, b.TCPOpensActive)), whole(counts(a.TCPOpensPassive, b.TCPOpensPassive)), whole(float64(b.TCPEstablished)),
		whole(float64(b.TCPTimeWait)), whole(counts(a.TCPRetransmits, b.TCPRetransmits)), whole(counts(a.TCPListenDrops, b.TCPListenDrops)), whole(float64(b.Sockets)))
}

func tenth(v float64) string {
	if v < 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", v)
}

func whole(v float64) string {
	if v < 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f", v)
}

// shortened is a command line for a table.
func shortened(command string) string {
	if runes := []rune(command); len(runes) > 120 {
		return string(runes[:119]) + "…"
	}
	return command
}
