package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/kubedyno/kubedyno/internal/table"
	"github.com/kubedyno/kubedyno/internal/tsdb"
)

// Names inside a recording.
const (
	MetaFile       = "recording.json"
	experimentFile = "experiment.yaml"
	metricsDir     = "metrics"
	profilesDir    = "profiles"
	logsDir        = "logs"
	liveDir        = "live"
	lockFile       = "live/writer.lock"
	profilesLog    = "live/profiles.jsonl"
	profilesIndex  = "profiles/index.json"
)

// Table names a table of a recording; its file is the name with .parquet.
type Table string

// The tables.
const (
	TablePods         Table = "pods"
	TableOperations   Table = "operations"
	TableProcesses    Table = "processes"
	TableMachine      Table = "machine"
	TableRequests     Table = "requests"
	TableNodes        Table = "nodes"
	TableExits        Table = "exits"
	TableCores        Table = "cores"
	TableDisks        Table = "disks"
	TableStackSamples Table = "stack_samples"
	TableStacks       Table = "stacks"
	TableBlockIO      Table = "blockio"
	TableSyncs        Table = "syncs"
	TableObjects      Table = "objects"
	TableEvents       Table = "events"
)

func (t Table) parquet() string { return string(t) + ".parquet" }
func (t Table) live() string    { return liveDir + "/" + string(t) + ".jsonl" }

// tableOf is all that the format knows of one table's rows.
type tableOf[T any] struct {
	name Table
	// key tells rows apart of which the last one wins; nil where each row
	// stands for itself.
	key     func(*T) string
	compare func(a, b *T) int
	// seen is the row's latest observation in microseconds. Due times are
	// none: they may lie in the future.
	seen func(*T) int64
}

var (
	pods = tableOf[Pod]{
		name: TablePods,
		key: func(p *Pod) string {
			if p.UID != "" {
				return p.UID
			}
			return p.Namespace + "/" + p.Name
		},
		compare: func(a, b *Pod) int {
			return cmp.Or(cmp.Compare(cmp.Or(a.DueMicros, a.CreatedMicros), cmp.Or(b.DueMicros, b.CreatedMicros)),
				cmp.Compare(a.CreatedMicros, b.CreatedMicros), cmp.Compare(a.Namespace, b.Namespace),
				cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		},
		seen: func(p *Pod) int64 {
			return max(p.SentMicros, p.AckedMicros, p.CreatedMicros, p.BoundMicros, p.RunningMicros, p.ReadyMicros, p.DeletedMicros)
		},
	}
	operations = tableOf[Operation]{
		name: TableOperations,
		compare: func(a, b *Operation) int {
			return cmp.Or(cmp.Compare(a.DueMicros, b.DueMicros), cmp.Compare(a.SentMicros, b.SentMicros),
				cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		},
		seen: func(o *Operation) int64 { return max(o.SentMicros, o.DoneMicros) },
	}
	processes = tableOf[ProcessSample]{
		name: TableProcesses,
		compare: func(a, b *ProcessSample) int {
			return cmp.Or(cmp.Compare(a.TimeMicros, b.TimeMicros), cmp.Compare(a.PID, b.PID), cmp.Compare(a.StartMicros, b.StartMicros))
		},
		seen: func(s *ProcessSample) int64 { return s.TimeMicros },
	}
	machine = tableOf[MachineSample]{
		name:    TableMachine,
		compare: func(a, b *MachineSample) int { return cmp.Compare(a.TimeMicros, b.TimeMicros) },
		seen:    func(s *MachineSample) int64 { return s.TimeMicros },
	}
	requests = tableOf[Request]{
		name: TableRequests,
		compare: func(a, b *Request) int {
			return cmp.Or(cmp.Compare(a.ReceivedMicros, b.ReceivedMicros), cmp.Compare(a.DoneMicros, b.DoneMicros))
		},
		seen: func(r *Request) int64 { return max(r.ReceivedMicros, r.DoneMicros) },
	}
	nodes = tableOf[NodeSample]{
		name:    TableNodes,
		key:     func(n *NodeSample) string { return n.Name },
		compare: func(a, b *NodeSample) int { return cmp.Compare(a.Name, b.Name) },
		seen:    func(n *NodeSample) int64 { return max(n.CreatedMicros, n.ReadyMicros, n.SchedulableMicros) },
	}
	exits = tableOf[ProcessExit]{
		name: TableExits,
		compare: func(a, b *ProcessExit) int {
			return cmp.Or(cmp.Compare(a.TimeMicros, b.TimeMicros), cmp.Compare(a.PID, b.PID))
		},
		seen: func(e *ProcessExit) int64 { return e.TimeMicros },
	}
	cores = tableOf[CoreSample]{
		name: TableCores,
		compare: func(a, b *CoreSample) int {
			return cmp.Or(cmp.Compare(a.TimeMicros, b.TimeMicros), cmp.Compare(a.CPU, b.CPU))
		},
		seen: func(s *CoreSample) int64 { return s.TimeMicros },
	}
	disks = tableOf[DiskSample]{
		name: TableDisks,
		compare: func(a, b *DiskSample) int {
			return cmp.Or(cmp.Compare(a.TimeMicros, b.TimeMicros), cmp.Compare(a.Device, b.Device))
		},
		seen: func(s *DiskSample) int64 { return s.TimeMicros },
	}
	stackSamples = tableOf[StackSample]{
		name: TableStackSamples,
		compare: func(a, b *StackSample) int {
			return cmp.Or(cmp.Compare(a.TimeMicros, b.TimeMicros), cmp.Compare(a.CPU, b.CPU))
		},
		seen: func(s *StackSample) int64 { return s.TimeMicros },
	}
	stacks = tableOf[Stack]{
		name:    TableStacks,
		compare: func(a, b *Stack) int { return cmp.Compare(a.ID, b.ID) },
		seen:    func(*Stack) int64 { return 0 },
	}
	blockIO = tableOf[BlockIO]{
		name: TableBlockIO,
		compare: func(a, b *BlockIO) int {
			return cmp.Or(cmp.Compare(a.TimeMicros, b.TimeMicros), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Sector, b.Sector))
		},
		seen: func(b *BlockIO) int64 { return max(b.TimeMicros, b.IssuedMicros, b.DoneMicros) },
	}
	syncs = tableOf[Sync]{
		name: TableSyncs,
		compare: func(a, b *Sync) int {
			return cmp.Or(cmp.Compare(a.TimeMicros, b.TimeMicros), cmp.Compare(a.TID, b.TID))
		},
		seen: func(s *Sync) int64 { return max(s.TimeMicros, s.DoneMicros) },
	}
	objects = tableOf[ObjectChange]{
		name: TableObjects,
		compare: func(a, b *ObjectChange) int {
			return cmp.Or(cmp.Compare(a.TimeMicros, b.TimeMicros), cmp.Compare(a.Kind, b.Kind),
				cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		},
		seen: func(o *ObjectChange) int64 { return o.TimeMicros },
	}
	events = tableOf[Event]{
		name: TableEvents,
		compare: func(a, b *Event) int {
			return cmp.Or(cmp.Compare(a.TimeMicros, b.TimeMicros), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		},
		seen: func(e *Event) int64 { return e.TimeMicros },
	}
)

// tables lists them all, for what is done to each alike.
var tables = []interface {
	convert(dir string) (lastSeen int64, err error)
	eachAny(root *os.Root, f func(any) error) error
	rewrite(root *os.Root, dir string, change func(any)) error
	table() Table
}{pods, operations, processes, machine, requests, nodes, exits, cores, disks, stackSamples, stacks, blockIO, syncs, objects, events}

func (t tableOf[T]) table() Table { return t.name }

// convert writes the table's live file as Parquet and returns its latest
// observation. Without a live file it does nothing.
func (t tableOf[T]) convert(dir string) (lastSeen int64, err error) {
	live := filepath.Join(dir, t.name.live())
	if _, err := os.Stat(live); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	rows := func(yield func(T, error) bool) {
		errStop := errors.New("stop")
		err := table.ReadLog(live, func(row T) error {
			lastSeen = max(lastSeen, t.seen(&row))
			if !yield(row, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && err != errStop {
			yield(*new(T), err)
		}
	}
	if t.key != nil {
		rows, err = t.latest(rows)
		if err != nil {
			return 0, err
		}
	}
	// Rows without a key pass through as they come, nearly in order of time:
	// a run has millions of requests, and readers sort anyway.
	err = table.Write(filepath.Join(dir, t.name.parquet()), rows, map[string]string{"kubedyno.schema": fmt.Sprint(Schema)})
	return lastSeen, err
}

// latest keeps the last row of each key, sorted.
func (t tableOf[T]) latest(rows iter.Seq2[T, error]) (iter.Seq2[T, error], error) {
	last := map[string]*T{}
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		last[t.key(&row)] = &row
	}
	sorted := slices.SortedFunc(maps.Values(last), t.compare)
	return func(yield func(T, error) bool) {
		for _, row := range sorted {
			if !yield(*row, nil) {
				return
			}
		}
	}, nil
}

// read reads the table's Parquet file, sorted.
func (t tableOf[T]) read(root *os.Root) ([]T, error) {
	f, err := root.Open(t.name.parquet())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := table.Read[T](f, filepath.Join(root.Name(), t.name.parquet()))
	if err != nil {
		return nil, err
	}
	t.sort(rows)
	return rows, nil
}

// sort sorts rows in place and keeps the order of equal ones. Rows are large, and
// a table has hundreds of thousands: their places are sorted, not they.
func (t tableOf[T]) sort(rows []T) {
	sorted := true
	for i := 1; i < len(rows) && sorted; i++ {
		sorted = t.compare(&rows[i-1], &rows[i]) <= 0
	}
	if sorted {
		return
	}
	from := make([]int32, len(rows)) // of each place, where its row is now
	for i := range from {
		from[i] = int32(i)
	}
	slices.SortFunc(from, func(a, b int32) int {
		return cmp.Or(t.compare(&rows[a], &rows[b]), cmp.Compare(a, b))
	})
	for start := range from {
		if from[start] < 0 {
			continue
		}
		first, to := rows[start], start
		for {
			next := int(from[to])
			from[to] = -1
			if next == start {
				break
			}
			rows[to] = rows[next]
			to = next
		}
		rows[to] = first
	}
}

// each calls row for each of the table's rows, in the order of its file.
func (t tableOf[T]) each(root *os.Root, row func(*T) error) error {
	f, err := root.Open(t.name.parquet())
	if err != nil {
		return err
	}
	defer f.Close()
	return table.Each(f, filepath.Join(root.Name(), t.name.parquet()), row)
}

// writeFile replaces the file at path: after a crash it holds the old or the
// new content, whole.
func writeFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil { // CreateTemp makes private files
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return f.Close()
}

// syncDir makes renames in dir durable. Not every file system can, and none
// needs it for more than power loss, so errors do not count.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

func writeMeta(dir string, m Meta) error {
	m.scrub()
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, MetaFile), append(data, '\n')); err != nil {
		return err
	}
	syncDir(dir)
	return nil
}

func readMeta(dir string) (Meta, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Meta{}, fmt.Errorf("no recording at %s", dir)
	} else if err != nil {
		return Meta{}, fmt.Errorf("open recording: %w", err)
	}
	if !info.IsDir() {
		return Meta{}, fmt.Errorf("%s is not a recording: it is a file, and a recording is a folder", dir)
	}
	path := filepath.Join(dir, MetaFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Meta{}, fmt.Errorf("%s is not a recording: it has no %s", dir, MetaFile)
	} else if err != nil {
		return Meta{}, fmt.Errorf("open recording: %w", err)
	}
	// The version comes first: a newer schema may change any other field.
	var version struct {
		Schema *int `json:"schema"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return Meta{}, fmt.Errorf("%s is damaged: %w", path, err)
	}
	switch {
	case version.Schema == nil || *version.Schema < 1:
		return Meta{}, fmt.Errorf("%s is not a recording: %s has no schema", dir, MetaFile)
	case *version.Schema > Schema:
		return Meta{}, fmt.Errorf("%s was written by a newer kubedyno: it has schema %d, and this one reads up to %d; update kubedyno",
			dir, *version.Schema, Schema)
	}
	var m Meta
	if err := json.Unmarshal(data, &m); err != nil {
		return Meta{}, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return m, nil
}

// clone returns a copy that shares nothing.
func (m Meta) clone() Meta {
	data, err := json.Marshal(m)
	if err != nil {
		return m // a NaN; writing it will say so
	}
	var c Meta
	if err := json.Unmarshal(data, &c); err != nil {
		return m
	}
	return c
}

// fileName makes a string safe as part of a file's name.
func fileName(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
	return cmp.Or(strings.TrimLeft(s, "."), "_")
}

// noRoomError says in one sentence what a full disk did: each file that could
// not be written has its own error, and they all say the same.
type noRoomError struct {
	text string
	err  error
}

func (e *noRoomError) Error() string { return e.text }
func (e *noRoomError) Unwrap() error { return e.err }

// noRoom reports whether err is the disk's or a quota's end.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, io.ErrShortWrite)
}

// unfinished says that the recording in dir could not be finished, and the way
// out where there is one.
func unfinished(dir string, err error) error {
	if noRoom(err) {
		why := "the disk is full"
		var room *tsdb.RoomError
		if errors.As(err, &room) {
			why = fmt.Sprintf("the disk has %.1f MiB free, and its metrics may take %.1f", float64(room.FreeBytes)/(1<<20), float64(room.NeedBytes)/(1<<20))
		}
		return &noRoomError{fmt.Sprintf("recording %s could not be finished, for %s; its live files are kept: "+
			"make room, and the next command that opens it finishes it", dir, why), err}
	}
	return fmt.Errorf("recording %s could not be finished; its live files are kept: %w", dir, err)
}
