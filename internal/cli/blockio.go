package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/analysis/blockio"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// blockEvents are the tables of single events.
var blockEvents = []string{"requests", "syncs"}

var blockOperations = []string{"read", "write", "flush", "discard", "other", "fsync", "fdatasync", "sync_file_range", "msync", "syncfs", "sync"}

func newBlockIOCommand(env *Env) *cobra.Command {
	var (
		f                    blockio.Filter
		phase, from, to      string
		events, format       string
		histogram, hasEvents bool
		limit                int
	)
	cmd := &cobra.Command{
		Use:   "blockio RECORDING",
		Short: "Say who wrote to which disk, what it took, and how long syncs waited",
		Long: `Blockio prints three views of the same disk: requests to block devices by the
process that submitted them, system calls that make data durable by the process
that waited in them, and etcd's own histograms of its syncs and commits.

QUEUE is from submission to the driver, DEVICE from there to completion, TOTAL
all of it. A flush that a process asked for waits for one that the block layer
sends on behalf of all: it has a TOTAL only, and the one that was sent stands
in a row without a process. Percentiles are nearest ranks in milliseconds; one
that too few samples carry is –. etcd's are interpolated in buckets that double.`,
		Example: `  kubedyno blockio r
  kubedyno blockio r --component etcd --histogram --phase load
  kubedyno blockio r --process jbd2/vda-8 --operation write
  kubedyno blockio r --events=syncs -o csv`,
		Args: exactlyOne("RECORDING", "a folder that 'kubedyno run' wrote"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			hasEvents = cmd.Flags().Changed("events")
			if hasEvents && !slices.Contains(blockEvents, events) {
				return Misusef("no events %q; there are %s", events, strings.Join(blockEvents, ", "))
			}
			if f.Operation != "" && !slices.Contains(blockOperations, f.Operation) {
				return Misusef("no operation %q; there are %s", f.Operation, strings.Join(blockOperations, ", "))
			}
			if hasEvents && histogram {
				return Misusef("--events and --histogram are two tables: ask for one at a time")
			}
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			if f.Window, err = logWindow(rec, phase, from, to); err != nil {
				return err
			}
			b, err := readBlocks(rec, f)
			if err != nil {
				return err
			}
			switch {
			case hasEvents:
				return b.printEvents(env, events, format, limit)
			case histogram && format != "text":
				return b.histogramTable().print(env, format, 0)
			case format != "text":
				return b.all().print(env, format, 0)
			}
			return b.print(env, histogram, limit)
		},
	}
	cmd.Flags().StringVar(&f.Component, "component", "", "only this `component` of the run")
	cmd.Flags().StringVar(&f.Process, "process", "", "only this process: a `PID`, or its name as the kernel has it")
	cmd.Flags().StringVar(&f.Device, "device", "", "only requests to this `device`, as vda")
	cmd.Flags().StringVar(&f.Operation, "operation", "", "only this `operation` of requests, or this system call")
	cmd.Flags().StringVar(&phase, "phase", "", "only this phase of the run")
	cmd.Flags().StringVar(&from, "from", "", "only from this `time` on: seconds or a duration since the run's start")
	cmd.Flags().StringVar(&to, "to", "", "only before this `time`")
	cmd.Flags().BoolVar(&histogram, "histogram", false, "print how long each process's requests and syncs took, as bars")
	cmd.Flags().StringVar(&events, "events", "", "print each event: `requests` or syncs")
	cmd.Flags().Lookup("events").NoOptDefVal = blockEvents[0]
	cmd.Flags().StringVarP(&format, "output", "o", "text", "table as text, csv or json (one object a line)")
	cmd.Flags().IntVar(&limit, "limit", 50, "most rows of a text table; 0 prints all")
	for name, values := range map[string][]string{"operation": blockOperations, "events": blockEvents, "output": tableFormats} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// blocks are the three views; one that could not be read has its reason.
type blocks struct {
	rec                   *record.Recording
	io                    []record.BlockIO
	calls                 []record.Sync
	requests, syncs       []blockio.Group
	etcd                  []blockio.Own
	noIO, noSyncs, noEtcd error
}

func readBlocks(rec *record.Recording, f blockio.Filter) (*blocks, error) {
	b := &blocks{rec: rec}
	rows, err := rec.BlockIO()
	switch {
	case errors.Is(err, record.ErrMissing):
		b.noIO = err
	case err != nil:
		return nil, err
	}
	calls, err := rec.Syncs()
	switch {
	case errors.Is(err, record.ErrMissing):
		b.noSyncs = err
	case err != nil:
		return nil, err
	}
	if b.noIO != nil && b.noSyncs != nil {
		return nil, fmt.Errorf("block I/O: not assessed: %w", b.noIO)
	}
	b.io, b.calls = f.Select(rows), f.SelectSyncs(calls)
	b.requests, b.syncs = blockio.Requests(b.io), blockio.Syncs(b.calls)

	in := f.Window
	if in.Start.IsZero() {
		if in, err = windowOf(rec, ""); err != nil {
			return nil, err
		}
	}
	b.etcd, err = blockio.EtcdOwn(rec, in)
	switch {
	case errors.Is(err, record.ErrMissing):
		b.noEtcd = err
	case err != nil:
		return nil, err
	case len(b.etcd) == 0:
		b.noEtcd = fmt.Errorf("the recording's metrics have no %s in this window", blockio.WALSync)
	}
	return b, nil
}

// carried is a percentile in milliseconds, or -1 where too few samples carry it.
func carried(l blockio.Latency, q, micros float64) float64 {
	if l.N == 0 || !stat.Carries(l.N, q) {
		return -1
	}
	return micros / 1e3
}

func ioMillis(v float64) string {
	if v < 0 {
		return "–"
	}
	return fmt.Sprintf("%.3f", v)
}

// blockRow is a row of any view, for programs. Milliseconds; -1 is unknown.
type blockRow struct {
	View        string  `json:"view"` // device, syscall, etcd
	Component   string  `json:"component"`
	PID         int32   `json:"pid"`
	Process     string  `json:"process"`
	Device      string  `json:"device"`
	Operation   string  `json:"operation"` // or the call, or etcd's metric
	Count       int     `json:"count"`
	Bytes       int64   `json:"bytes"` // -1 unknown
	Errors      int     `json:"errors"`
	Unfinished  int     `json:"unfinished"`
	QueueP50    float64 `json:"queueP50Milliseconds"`
	QueueP99    float64 `json:"queueP99Milliseconds"`
	QueueMax    float64 `json:"queueMaxMilliseconds"`
	InDeviceP50 float64 `json:"deviceP50Milliseconds"`
	InDeviceP90 float64 `json:"deviceP90Milliseconds"`
	InDeviceP99 float64 `json:"deviceP99Milliseconds"`
	InDeviceMax float64 `json:"deviceMaxMilliseconds"`
	P50         float64 `json:"p50Milliseconds"`
	P90         float64 `json:"p90Milliseconds"`
	P99         float64 `json:"p99Milliseconds"`
	Max         float64 `json:"maxMilliseconds"`
}

func rowOf(view string, g blockio.Group) blockRow {
	most := func(l blockio.Latency) float64 {
		if l.N == 0 {
			return -1
		}
		return l.Max / 1e3
	}
	q, d, t := g.Queue, g.InDevice, g.Total
	r := blockRow{
		View: view, Component: g.Component, PID: g.PID, Process: g.Command, Device: g.Device, Operation: g.Operation,
		Count: g.Count, Bytes: g.Bytes, Errors: g.Errors, Unfinished: g.Unfinished,
		QueueP50: carried(q, 0.5, q.P50), QueueP99: carried(q, 0.99, q.P99), QueueMax: most(q),
		InDeviceP50: carried(d, 0.5, d.P50), InDeviceP90: carried(d, 0.9, d.P90), InDeviceP99: carried(d, 0.99, d.P99), InDeviceMax: most(d),
		P50: carried(t, 0.5, t.P50), P90: carried(t, 0.9, t.P90), P99: carried(t, 0.99, t.P99), Max: most(t),
	}
	if view != "device" {
		r.Bytes = -1
	}
	return r
}

func etcdRow(o blockio.Own) blockRow {
	ms := func(micros float64) float64 {
		if micros < 0 {
			return -1
		}
		return micros / 1e3
	}
	return blockRow{
		View: "etcd", Component: o.Component, Process: o.Instance, Operation: o.Metric, Count: int(math.Round(o.Count)), Bytes: -1,
		QueueP50: -1, QueueP99: -1, QueueMax: -1, InDeviceP50: -1, InDeviceP90: -1, InDeviceP99: -1, InDeviceMax: -1,
		P50: ms(o.P50), P90: ms(o.P90), P99: ms(o.P99), Max: -1,
	}
}

func (b *blocks) all() *textTable {
	t := &textTable{}
	for _, g := range b.requests {
		t.add(rowOf("device", g))
	}
	for _, g := range b.syncs {
		t.add(rowOf("syscall", g))
	}
	for _, o := range b.etcd {
		t.add(etcdRow(o))
	}
	return t
}

// processName is who submitted, for people.
func processName(pid int32, command string) string {
	if pid == 0 && command == "" {
		return "(block layer)"
	}
	return printable(command, 20)
}

func pidText(pid int32) string {
	if pid == 0 {
		return "–"
	}
	return fmt.Sprint(pid)
}

func (b *blocks) print(env *Env, histogram bool, limit int) error {
	section := func(title string, missing error, t *textTable) error {
		fmt.Fprintln(env.Stdout, title)
		if missing != nil {
			fmt.Fprintf(env.Stdout, "not assessed: %v\n\n", missing)
			return nil
		}
		if len(t.rows) == 0 {
			fmt.Fprint(env.Stdout, "none\n\n")
			return nil
		}
		if err := t.print(env, "text", limit); err != nil {
			return err
		}
		fmt.Fprintln(env.Stdout)
		return nil
	}
	devices := &textTable{header: []string{"COMPONENT", "PROCESS", "PID", "DEVICE", "OPERATION", "COUNT", "MiB", "QUEUE p50", "p99", "DEVICE p50", "p90", "p99", "MAX", "TOTAL p50", "p99", "MAX ms"}}
	for _, g := range b.requests {
		r := rowOf("device", g)
		devices.add(r, dash(g.Component), processName(g.PID, g.Command), pidText(g.PID), g.Device, g.Operation, counted(g), fmt.Sprintf("%.2f", float64(g.Bytes)/(1<<20)),
			ioMillis(r.QueueP50), ioMillis(r.QueueP99), ioMillis(r.InDeviceP50), ioMillis(r.InDeviceP90), ioMillis(r.InDeviceP99), ioMillis(r.InDeviceMax), ioMillis(r.P50), ioMillis(r.P99), ioMillis(r.Max))
	}
	if err := section("Requests to block devices, by who submitted them", b.noIO, devices); err != nil {
		return err
	}
	syncs := &textTable{header: []string{"COMPONENT", "PROCESS", "PID", "CALL", "COUNT", "p50", "p90", "p99", "MAX ms"}}
	for _, g := range b.syncs {
		r := rowOf("syscall", g)
		syncs.add(r, dash(g.Component), processName(g.PID, g.Command), pidText(g.PID), g.Operation, counted(g), ioMillis(r.P50), ioMillis(r.P90), ioMillis(r.P99), ioMillis(r.Max))
	}
	if err := section("Syncs, by who waited", b.noSyncs, syncs); err != nil {
		return err
	}
	own := &textTable{header: []string{"COMPONENT", "INSTANCE", "METRIC", "COUNT", "MEAN", "p50", "p90", "p99 ms"}}
	for _, o := range b.etcd {
		r := etcdRow(o)
		own.add(r, dash(o.Component), dash(o.Instance), o.Metric, fmt.Sprint(r.Count), ioMillis(max(-1, o.Mean/1e3)), ioMillis(r.P50), ioMillis(r.P90), ioMillis(r.P99))
	}
	if err := section("etcd's own view", b.noEtcd, own); err != nil {
		return err
	}
	if histogram {
		b.bars(env, limit)
	}
	return nil
}

// counted says beside a count what failed and what was not over.
func counted(g blockio.Group) string {
	s := fmt.Sprint(g.Count)
	if g.Errors > 0 {
		s += fmt.Sprintf(" (%d failed)", g.Errors)
	}
	if g.Unfinished > 0 {
		s += fmt.Sprintf(" (%d not over)", g.Unfinished)
	}
	return s
}

const barWidth = 40

// bar is a share of the longest in eighths of a column.
func bar(n, most float64) string {
	if most <= 0 || n <= 0 {
		return ""
	}
	eighths := max(1, int(math.Round(n/most*barWidth*8)))
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s
}

// bars draws, for each process and operation, how many took how long.
func (b *blocks) bars(env *Env, limit int) {
	draw := func(title string, labels []string, counts []float64) {
		most := 0.0
		for _, n := range counts {
			most = max(most, n)
		}
		fmt.Fprintln(env.Stdout, title)
		for i, n := range counts {
			fmt.Fprintln(env.Stdout, strings.TrimRight(fmt.Sprintf("%10s %8.0f  %s", labels[i], n, bar(n, most)), " "))
		}
		fmt.Fprintln(env.Stdout)
	}
	groups := slices.Concat(b.requests, b.syncs)
	for i, g := range groups {
		if limit > 0 && i == limit {
			fmt.Fprintf(env.Stdout, "… and %d more; --limit 0 prints all\n", len(groups)-limit)
			break
		}
		var labels []string
		var counts []float64
		for j, n := range g.Total.Histogram {
			if n > 0 || len(counts) > 0 {
				labels = append(labels, "≥ "+microsText(blockio.BucketStart(j)))
				counts = append(counts, float64(n))
			}
		}
		what := g.Operation
		if g.Device != "" {
			what += " on " + g.Device
		}
		if len(counts) > 0 {
			draw(fmt.Sprintf("%s %s %s, %s", dash(g.Component), processName(g.PID, g.Command), pidText(g.PID), what), labels, counts)
		}
	}
	for _, o := range b.etcd {
		var labels []string
		var counts []float64
		start := 0.0
		for _, c := range o.Buckets {
			if c.Count > 0 || len(counts) > 0 {
				labels = append(labels, "≥ "+microsText(start*1e6))
				counts = append(counts, c.Count)
			}
			start = c.Le
		}
		for len(counts) > 0 && counts[len(counts)-1] == 0 {
			labels, counts = labels[:len(labels)-1], counts[:len(counts)-1]
		}
		if len(counts) > 0 {
			draw(fmt.Sprintf("%s %s, %s", dash(o.Component), o.Instance, o.Metric), labels, counts)
		}
	}
}

func microsText(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.3g s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.3g ms", us/1e3)
	}
	return fmt.Sprintf("%.0f µs", us)
}

// histogramTable is the histograms for programs: a row a bucket.
func (b *blocks) histogramTable() *textTable {
	type row struct {
		View      string  `json:"view"`
		Component string  `json:"component"`
		PID       int32   `json:"pid"`
		Process   string  `json:"process"`
		Device    string  `json:"device"`
		Operation string  `json:"operation"`
		From      float64 `json:"fromMicroseconds"` // to the next bucket's
		Count     float64 `json:"count"`
	}
	t := &textTable{}
	add := func(view string, groups []blockio.Group) {
		for _, g := range groups {
			for i, n := range g.Total.Histogram {
				t.add(row{view, g.Component, g.PID, g.Command, g.Device, g.Operation, blockio.BucketStart(i), float64(n)})
			}
		}
	}
	add("device", b.requests)
	add("syscall", b.syncs)
	for _, o := range b.etcd {
		start := 0.0
		for _, c := range o.Buckets {
			t.add(row{"etcd", o.Component, 0, o.Instance, "", o.Metric, start * 1e6, c.Count})
			start = c.Le
		}
	}
	return t
}

func (b *blocks) printEvents(env *Env, which, format string, limit int) error {
	started := b.rec.Meta().Started.UnixMicro()
	at := func(micros int64) string { return fmt.Sprintf("%.6f", float64(micros-started)/1e6) }
	took := func(from, to int64) string {
		if from == 0 || to == 0 {
			return "–"
		}
		return fmt.Sprintf("%.3f", float64(to-from)/1e3)
	}
	if which == "syncs" {
		if b.noSyncs != nil {
			return fmt.Errorf("syncs: not assessed: %w", b.noSyncs)
		}
		t := &textTable{header: []string{"TIME s", "COMPONENT", "PROCESS", "PID", "TID", "CALL", "TOOK ms", "ERROR"}}
		for _, r := range b.calls {
			t.add(r, at(r.TimeMicros), dash(r.Component), processName(r.PID, r.Command), pidText(r.PID), fmt.Sprint(r.TID), r.Call, took(r.TimeMicros, r.DoneMicros), errnoText(r.Error))
		}
		return t.print(env, format, limit)
	}
	if b.noIO != nil {
		return fmt.Errorf("block I/O: not assessed: %w", b.noIO)
	}
	t := &textTable{header: []string{"TIME s", "COMPONENT", "PROCESS", "PID", "DEVICE", "OPERATION", "FLAGS", "SECTOR", "BYTES", "QUEUE ms", "DEVICE ms", "TOTAL ms", "ERROR"}}
	for _, r := range b.io {
		t.add(r, at(r.TimeMicros), dash(r.Component), processName(r.PID, r.Command), pidText(r.PID), r.Device, r.Operation, dash(r.Flags), fmt.Sprint(r.Sector), fmt.Sprint(r.Bytes),
			took(r.TimeMicros, r.IssuedMicros), took(r.IssuedMicros, r.DoneMicros), took(r.TimeMicros, r.DoneMicros), errnoText(r.Error))
	}
	return t.print(env, format, limit)
}

func errnoText(n int32) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprint(n)
}
