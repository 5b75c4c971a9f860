package record

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"
	"github.com/klauspost/compress/gzip" // in half the time that compress/gzip takes

	"github.com/kubedyno/kubedyno/internal/beat"
	"github.com/kubedyno/kubedyno/internal/table"
	"github.com/kubedyno/kubedyno/internal/tsdb"
)

// flushInterval bounds what a kill -9 can lose of rows and of our own
// samples. Scraped samples are safe at each commit.
const flushInterval = 500 * time.Millisecond

// A Writer writes one recording. All its methods may be called at the same
// time from any goroutine. Appends do not return errors, so that collectors
// stay simple: the first error is kept, and Err and Finish return it.
type Writer struct {
	dir     string
	lock    *lock
	metrics *tsdb.Store

	stop    chan struct{} // closed by Finish; ends the flusher
	flushed chan struct{} // closed when the flusher has ended

	metaMu    sync.Mutex
	meta      Meta
	metaDirty bool

	logsMu sync.Mutex
	logs   map[Table]*table.Log
	closed bool

	samplesMu sync.Mutex
	samples   []tsdb.Sample

	profilesMu sync.Mutex
	profiles   *table.Log
	taken      map[string]bool // names of profile files

	errMu sync.Mutex
	err   error

	finish    sync.Once
	finishErr error
}

// ErrFinished is kept for observations that arrive after Finish.
var ErrFinished = errors.New("recording is finished")

// Create starts a recording in dir, which must be empty or not exist. It sets
// the schema and the status, and the ID and the start where they are missing.
// The caller must call Finish.
func Create(dir string, meta Meta) (_ *Writer, err error) {
	made, err := makeEmpty(dir)
	if err != nil {
		return nil, err
	}
	w := &Writer{
		dir:     dir,
		stop:    make(chan struct{}),
		flushed: make(chan struct{}),
		logs:    map[Table]*table.Log{},
		taken:   map[string]bool{},
	}
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("create recording %s: %w", dir, err)
		if w.metrics != nil {
			_ = w.metrics.Close()
		}
		if w.lock != nil {
			_ = w.lock.release()
		}
		if w.profiles != nil {
			_, _ = w.profiles.Close()
		}
		for _, name := range []string{MetaFile, liveDir, metricsDir, profilesDir, logsDir} { // it was empty
			_ = os.RemoveAll(filepath.Join(dir, name))
		}
		if made {
			_ = os.Remove(dir)
		}
	}()
	for _, sub := range []string{liveDir, metricsDir, profilesDir, logsDir} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	if w.lock, _, err = takeLock(dir); err != nil {
		return nil, err
	}
	if err := w.lock.sign(false); err != nil {
		return nil, err
	}
	if w.metrics, err = tsdb.Create(filepath.Join(dir, metricsDir)); err != nil {
		return nil, err
	}
	if w.profiles, err = table.CreateLog(filepath.Join(dir, profilesLog)); err != nil {
		return nil, err
	}
	if meta.Started.IsZero() {
		meta.Started = time.Now()
	}
	meta.Started = meta.Started.UTC()
	meta.ID = cmp.Or(meta.ID, NewID(meta.Started, rand.Reader))
	meta.Schema, meta.Status, meta.Ended, meta.EndReason = Schema, StatusRunning, time.Time{}, ""
	w.meta = meta.clone()
	if err := writeMeta(dir, w.meta); err != nil {
		return nil, err
	}
	go w.flushAlways()
	return w, nil
}

// makeEmpty makes dir or accepts an empty one.
func makeEmpty(dir string) (made bool, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return false, fmt.Errorf("create recording: %w", err)
		}
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("create recording: %w", err)
	}
	if len(entries) == 0 {
		return false, nil
	}
	holds := "other files (" + entries[0].Name() + ")"
	if len(entries) > 1 {
		holds = "other files (" + entries[0].Name() + ", …)"
	}
	if m, err := readMeta(dir); err == nil {
		holds = "the recording " + m.ID
	}
	return false, &ExistsError{Dir: dir, Holds: holds}
}

// An ExistsError refuses a folder that is not empty.
type ExistsError struct{ Dir, Holds string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("folder %s already holds %s: choose another folder, or remove this one", e.Dir, e.Holds)
}

// Dir is the recording's folder.
func (w *Writer) Dir() string { return w.dir }

// Meta returns a copy of the meta data as they are now.
func (w *Writer) Meta() Meta {
	w.metaMu.Lock()
	defer w.metaMu.Unlock()
	return w.meta.clone()
}

// Update changes the meta data and rewrites recording.json. Schema, status
// and end are the writer's own. Values of environment variables and secrets
// on command lines are taken out (see RedactArgs).
func (w *Writer) Update(change func(*Meta)) error {
	w.metaMu.Lock()
	defer w.metaMu.Unlock()
	if w.finished() {
		return w.keep("", ErrFinished)
	}
	m := w.meta.clone()
	change(&m)
	m.Schema, m.Status, m.Ended, m.EndReason = w.meta.Schema, w.meta.Status, w.meta.Ended, w.meta.EndReason
	w.meta = m
	return w.saveMeta()
}

// saveMeta needs metaMu.
func (w *Writer) saveMeta() error {
	w.metaDirty = false
	return w.keep(MetaFile, writeMeta(w.dir, w.meta))
}

// Gap notes something that was not observed. The same gap is noted once.
func (w *Writer) Gap(g Gap) {
	w.metaMu.Lock()
	defer w.metaMu.Unlock()
	if !slices.Contains(w.meta.Gaps, g) {
		w.meta.Gaps = append(w.meta.Gaps, g)
		w.metaDirty = true // the flusher writes: gaps may come in a rush
	}
}

// Experiment stores the experiment file with all settings applied and without secrets.
func (w *Writer) Experiment(data []byte) error {
	return w.keep(experimentFile, writeFile(filepath.Join(w.dir, experimentFile), data))
}

// Observes declares that tables are being filled, so that no row in them means
// "none happened". A table with neither rows nor this declaration is missing.
func (w *Writer) Observes(names ...Table) {
	for _, t := range names {
		_, err := w.log(t)
		w.keep(t.live(), err)
	}
}

// Pod appends a pod. It may be appended again as it lives: the last row with
// its UID wins.
func (w *Writer) Pod(row Pod) { w.append(TablePods, &row) }

// Operation appends an operation, once it is done or missed.
func (w *Writer) Operation(row Operation) { w.append(TableOperations, &row) }

// Process appends a sample of a process.
func (w *Writer) Process(row ProcessSample) { w.append(TableProcesses, &row) }

// Machine appends a sample of the machine.
func (w *Writer) Machine(row MachineSample) { w.append(TableMachine, &row) }

// Request appends a request.
func (w *Writer) Request(row Request) { w.append(TableRequests, &row) }

// Node appends a node. The last row with its name wins.
func (w *Writer) Node(row NodeSample) { w.append(TableNodes, &row) }

// Exit appends the end of a process.
func (w *Writer) Exit(row ProcessExit) { w.append(TableExits, &row) }

// Core appends a sample of a CPU.
func (w *Writer) Core(row CoreSample) { w.append(TableCores, &row) }

// Disk appends a sample of a disk.
func (w *Writer) Disk(row DiskSample) { w.append(TableDisks, &row) }

// StackSample appends a sample of what a CPU was doing.
func (w *Writer) StackSample(row StackSample) { w.append(TableStackSamples, &row) }

// Stack appends a call stack, once for each ID.
func (w *Writer) Stack(row Stack) { w.append(TableStacks, &row) }

// BlockIO appends a request to a block device, once it is done.
func (w *Writer) BlockIO(row BlockIO) { w.append(TableBlockIO, &row) }

// Sync appends a call that made data durable.
func (w *Writer) Sync(row Sync) { w.append(TableSyncs, &row) }

// Object appends a change of an API object.
func (w *Writer) Object(row ObjectChange) { w.append(TableObjects, &row) }

// Event appends a Kubernetes Event.
func (w *Writer) Event(row Event) { w.append(TableEvents, &row) }

func (w *Writer) append(t Table, row any) {
	log, err := w.log(t)
	if err == nil {
		err = log.Append(row)
	}
	w.keep(t.live(), err)
}

// log returns the table's live file, and creates it the first time.
func (w *Writer) log(t Table) (*table.Log, error) {
	w.logsMu.Lock()
	defer w.logsMu.Unlock()
	if w.closed {
		return nil, ErrFinished
	}
	if log, ok := w.logs[t]; ok {
		return log, nil
	}
	log, err := table.CreateLog(filepath.Join(w.dir, t.live()))
	if err != nil {
		return nil, err
	}
	w.logs[t] = log
	return log, nil
}

// Metrics takes scraped samples: it implements storage.AppendableV2 of
// Prometheus, for a scrape manager. Whoever scrapes labels every series with
// component and instance.
func (w *Writer) Metrics() *tsdb.Store { return w.metrics }

// AppendSample adds a sample of a series of our own. Samples of a series must
// come in order of time within half a second; one that is later is dropped,
// and the recording says how many were.
func (w *Writer) AppendSample(name string, labels map[string]string, at time.Time, v float64) {
	w.samplesMu.Lock()
	defer w.samplesMu.Unlock()
	if w.finished() {
		w.keep(metricsDir, ErrFinished)
		return
	}
	w.samples = append(w.samples, tsdb.Sample{Name: name, Labels: labels, At: at, Value: v})
}

// flushSamples commits what AppendSample gathered, in order of time.
func (w *Writer) flushSamples() error {
	w.samplesMu.Lock()
	samples := w.samples
	w.samples = nil
	w.samplesMu.Unlock()
	slices.SortStableFunc(samples, func(a, b tsdb.Sample) int { return a.At.Compare(b.At) })
	return w.metrics.Append(samples)
}

// Profile stores a pprof profile, packed or not. Data that is not a profile
// is refused, which the caller may note as a gap: it does not end the
// recording.
func (w *Writer) Profile(ref ProfileRef, data []byte) error {
	if _, err := profile.ParseData(data); err != nil {
		return fmt.Errorf("%s profile of %s: %w", ref.Kind, ref.Component, err)
	}
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(data) // to memory
		_ = z.Close()
		data = packed.Bytes()
	}
	return w.profile(ref, data)
}

// ProfileMessage stores a pprof profile as its message, not packed. Its caller has
// checked that it is one.
func (w *Writer) ProfileMessage(ref ProfileRef, message []byte) error {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // a tenth larger, for a quarter of the CPU
	if err == nil {
		_, err = z.Write(message)
		err = errors.Join(err, z.Close())
	}
	if err != nil {
		return fmt.Errorf("pack %s profile of %s: %w", ref.Kind, ref.Component, err)
	}
	return w.profile(ref, packed.Bytes())
}

// profile stores what is a profile, packed.
func (w *Writer) profile(ref ProfileRef, data []byte) error {
	w.profilesMu.Lock()
	defer w.profilesMu.Unlock()
	if w.finished() {
		return w.keep("", ErrFinished)
	}
	name := fileName(cmp.Or(filepath.Base(ref.File), "."))
	if ref.File == "" {
		name = fileName(ref.Component) + "-" + fileName(ref.Phase) + "-" + fileName(ref.Kind) + ".pb.gz"
	}
	for n, stem := 2, strings.TrimSuffix(name, ".pb.gz"); w.taken[name]; n++ {
		name = fmt.Sprintf("%s-%d.pb.gz", stem, n)
	}
	ref.File = profilesDir + "/" + name
	if err := writeFile(filepath.Join(w.dir, ref.File), data); err != nil {
		return w.keep(ref.File, err)
	}
	w.taken[name] = true
	err := w.profiles.Append(ref)
	if err == nil {
		err = w.profiles.Flush()
	}
	return w.keep(profilesLog, err)
}

// LogFile opens the component's log for appending. What it takes is in the
// hands of the system at once. The caller closes it before Finish.
func (w *Writer) LogFile(component string) (io.WriteCloser, error) {
	name := logsDir + "/" + fileName(component) + ".log"
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, w.keep(name, err)
	}
	return &logFile{f, name, w}, nil
}

type logFile struct {
	*os.File
	name string
	w    *Writer
}

// Write implements io.Writer and tells the Writer of a full disk.
func (l *logFile) Write(p []byte) (int, error) {
	n, err := l.File.Write(p)
	return n, l.w.keep(l.name, err)
}

// Err is the first error that an observation met, such as a full disk. The
// recording is whole up to there and takes no more; a run should end.
func (w *Writer) Err() error {
	w.errMu.Lock()
	err := w.err
	w.errMu.Unlock()
	if err == nil {
		if err = w.metrics.Err(); errors.Is(err, tsdb.ErrFinished) {
			err = nil
		}
	}
	return w.explain(err)
}

func (w *Writer) explain(err error) error {
	if noRoom(err) {
		return &noRoomError{fmt.Sprintf("recording %s: the disk is full; what was recorded up to now is kept", w.dir), err}
	}
	if err != nil {
		return fmt.Errorf("recording %s: %w", w.dir, err)
	}
	return nil
}

// keep notes the first error, and returns err as it is.
func (w *Writer) keep(what string, err error) error {
	if err == nil {
		return nil
	}
	w.errMu.Lock()
	defer w.errMu.Unlock()
	if w.err == nil {
		if w.err = err; what != "" {
			w.err = fmt.Errorf("write %s: %w", what, err)
		}
	}
	return err
}

func (w *Writer) finished() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

func (w *Writer) flushAlways() {
	defer close(w.flushed)
	tick := beat.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			w.flush()
		}
	}
}

func (w *Writer) flush() {
	w.logsMu.Lock()
	logs := make(map[Table]*table.Log, len(w.logs))
	for t, log := range w.logs {
		logs[t] = log
	}
	w.logsMu.Unlock()
	for t, log := range logs {
		w.keep(t.live(), log.Flush())
	}
	w.keep(metricsDir, w.flushSamples())
	w.metaMu.Lock()
	defer w.metaMu.Unlock()
	if w.metaDirty {
		_ = w.saveMeta() // kept
	}
}

// Finish ends the recording: it turns the live files into their final form
// and sets the end. Where that fails, as on a full disk, the live files stay,
// the status stays running, and a later Open finishes the recording; the
// error says so. The error is also that of Err, where observations were lost
// but the recording could be finished.
//
// All collectors must have ended: what arrives later is refused.
func (w *Writer) Finish(status Status, reason string) error {
	switch status {
	case StatusComplete, StatusInterrupted, StatusFailed:
	default:
		return fmt.Errorf("finish recording %s: %q is not a way to end", w.dir, status)
	}
	w.finish.Do(func() { w.finishErr = w.end(status, reason) })
	return w.finishErr
}

func (w *Writer) end(status Status, reason string) error {
	ended := time.Now().UTC()
	before := w.Err()
	close(w.stop)
	<-w.flushed
	closeErr := w.closeLive()
	defer func() { _ = w.lock.release() }()
	if closeErr != nil {
		_ = w.metrics.Close() // fails as the others did
		return unfinished(w.dir, closeErr)
	}
	w.metaMu.Lock()
	defer w.metaMu.Unlock()
	m := w.meta
	m.Status, m.EndReason, m.Ended = status, reason, ended
	if before != nil {
		m.Invalid = append(m.Invalid, "observations were lost: "+before.Error())
	}
	if n := w.metrics.Dropped(); n > 0 {
		m.Warnings = append(m.Warnings, fmt.Sprintf("%d samples of our own series came out of order and were dropped", n))
	}
	_, err := settle(w.dir, w.metrics)
	_ = w.metrics.Close() // all of it is in the block by now, or in the log
	if err != nil {
		return unfinished(w.dir, err)
	}
	if err := seal(w.dir, &m); err != nil {
		return unfinished(w.dir, err)
	}
	w.meta = m
	return before
}

// closeLive completes the live files.
func (w *Writer) closeLive() error {
	w.logsMu.Lock()
	w.closed = true
	w.logsMu.Unlock()
	var errs []error
	for _, log := range w.logs {
		_, err := log.Close()
		errs = append(errs, err)
	}
	w.profilesMu.Lock()
	_, err := w.profiles.Close()
	w.profilesMu.Unlock()
	errs = append(errs, err)
	if w.metrics.Err() == nil {
		errs = append(errs, w.flushSamples())
	}
	return errors.Join(errs...)
}

// settle gives everything in dir its final form, but for recording.json: the
// live files still count until that says otherwise. It may be repeated. It
// returns the time of the last observation.
func settle(dir string, metrics *tsdb.Store) (last time.Time, err error) {
	var micros int64
	for _, t := range tables {
		seen, err := t.convert(dir)
		if err != nil {
			return last, fmt.Errorf("finish table %s: %w", t.table(), err)
		}
		micros = max(micros, seen)
	}
	if micros > 0 {
		last = time.UnixMicro(micros).UTC()
	}
	refs := []ProfileRef{}
	err = table.ReadLog(filepath.Join(dir, profilesLog), func(r ProfileRef) error {
		refs = append(refs, r)
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return last, fmt.Errorf("finish profiles: %w", err)
	}
	if len(refs) > 0 {
		slices.SortStableFunc(refs, compareProfiles)
		data, err := json.MarshalIndent(refs, "", "  ")
		if err != nil {
			return last, err
		}
		if err := writeFile(filepath.Join(dir, profilesIndex), append(data, '\n')); err != nil {
			return last, fmt.Errorf("finish profiles: %w", err)
		}
	}
	for _, r := range refs {
		last = latest(last, r.End)
	}
	if at, ok := metrics.MaxTime(); ok {
		last = latest(last, at)
	}
	if err := metrics.Cut(); err != nil {
		return last, fmt.Errorf("finish metrics: %w", err)
	}
	return last, nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b.UTC()
	}
	return a
}

// seal writes the final recording.json; from then on the recording is
// finished, and the live files are waste.
func seal(dir string, m *Meta) error {
	for i := range m.Phases {
		if m.Phases[i].End.IsZero() { // cut short
			m.Phases[i].End = m.Ended
		}
	}
	if err := writeMeta(dir, *m); err != nil {
		return fmt.Errorf("finish %s: %w", MetaFile, err)
	}
	tidy(dir)
	return nil
}

// tidy removes what only a live recording needs. What it cannot remove does
// no harm.
func tidy(dir string) {
	_ = os.RemoveAll(filepath.Join(dir, liveDir))
	_ = tsdb.Clean(filepath.Join(dir, metricsDir))
	for _, pattern := range []string{"*.tmp", profilesDir + "/*.tmp"} {
		leftovers, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range leftovers {
			_ = os.Remove(name)
		}
	}
	for _, sub := range []string{metricsDir, profilesDir, logsDir} {
		_ = os.Remove(filepath.Join(dir, sub)) // only where it is empty
	}
}

func compareProfiles(a, b ProfileRef) int {
	return cmp.Or(cmp.Compare(a.Component, b.Component), a.Start.Compare(b.Start), cmp.Compare(a.Phase, b.Phase),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.File, b.File))
}
