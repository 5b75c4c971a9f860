package campaign

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// An Arm is one of the things that a series runs in turns: a side of a
// comparison, a value of a sweep, a layer of a cluster.
type Arm struct {
	Name string // as reports call it
	// Folder, below the series', is for its recordings; empty: made of Name.
	Folder string
	// Experiment returns a fresh copy of what is run, with everything applied.
	Experiment func() (*experiment.Experiment, error)
	// Settings are the --set values that Experiment has already, kept with each
	// recording.
	Settings []string
}

// SeriesOptions say what to run in turns. Arms, Blocks, Out and Run are needed.
type SeriesOptions struct {
	// Kind says what the series is for, and Plan, in JSON, whatever else must be
	// the same for it to go on where it was. Both are kept in its book.
	Kind string
	Plan any

	Arms   []Arm
	Blocks int    // each runs every arm once
	Seed   uint64 // of the order
	// Out is the folder for the recordings. An interrupted series that is in it
	// already goes on.
	Out string
	// Budget is for all runs together; no block begins that would not end within
	// it. The first one always does. 0 is none.
	Budget time.Duration
	// Spare is how many bad runs of one arm are made again, each; one more ends
	// the series. 0 is the larger one of 2 and a quarter of Blocks.
	Spare int

	// Check refuses an experiment that could not be run, before the first run of
	// any arm; nil: none is refused.
	Check func(ctx context.Context, e *experiment.Experiment) error
	// Run performs one run and keeps it in a folder.
	Run func(ctx context.Context, e *experiment.Experiment, settings []string, out, parent string) error
	// Judge says why the recording in a folder does not count; nil asks its
	// diagnosis whether the run is valid.
	Judge func(dir string) (why []string, err error)
	// After is asked after each complete block whether the series may end, and
	// why. nil: it may not.
	After func(s *Series) (ended string, err error)
	Tell  SeriesTeller
	Now   func() time.Time // nil: time.Now
}

// A SeriesTeller follows a series.
type SeriesTeller interface {
	// Starting is told before each run.
	Starting(SeriesStep)
	// Ran is told after it. What came of runs that were made before is not told.
	Ran(SeriesRun)
}

// SeriesStep is a run that is about to start.
type SeriesStep struct {
	Run    int // from 1, bad ones with
	Block  int // from 1
	Blocks int
	Arm    string
	Again  bool // in place of a bad one
	// Left is what the rest of the series takes at most, this run with it, as far
	// as the runs so far tell; 0: not known yet.
	Left time.Duration
}

// Outcome is what came of a run of a series.
type Outcome string

// The outcomes. Only runs that count are in the folders of their arms.
const (
	Running     Outcome = "running" // or its series was killed meanwhile
	Counts      Outcome = "counts"
	Invalid     Outcome = "invalid"     // its numbers must not be used
	Failed      Outcome = "failed"      // it ended by an error
	Interrupted Outcome = "interrupted" // on request; made again, and no fault of its arm's
)

func (o Outcome) bad() bool { return o == Invalid || o == Failed }

// SeriesRun is one run of a series, as its book has it.
type SeriesRun struct {
	Number int     `json:"number"` // from 1, in the order in which they were made
	Block  int     `json:"block"`  // from 1
	Arm    string  `json:"arm"`
	Out    string  `json:"recording,omitempty"` // folder, below the series'; empty: nothing was recorded
	Result Outcome `json:"result"`
	Why    string  `json:"why,omitempty"` // it does not count
	// Seconds is what it took, start of the control plane and all.
	Seconds float64 `json:"seconds,omitempty"`
}

// Series is the book of runs in turns, kept as series.json beside their
// recordings: what is to be done, what is done, and how it ended.
type Series struct {
	Schema int             `json:"schema"`
	Kind   string          `json:"kind"`
	Plan   json.RawMessage `json:"plan,omitempty"`
	Seed   uint64          `json:"seed"`
	Blocks int             `json:"blocks"`
	Arms   []SeriesArm     `json:"arms"`
	Runs   []SeriesRun     `json:"runs"`
	// Looked is after how many blocks it was asked whether to end.
	Looked int `json:"looked,omitempty"`
	// Ended says why the series is over; empty: it is not.
	Ended string `json:"ended,omitempty"`
	// Clear says that it was After that ended it, before all runs were made.
	Clear bool `json:"clear,omitempty"`
	// GaveUp says that too many runs were bad.
	GaveUp bool `json:"gaveUp,omitempty"`

	dir string
}

// SeriesArm is an arm as the book has it.
type SeriesArm struct {
	Name   string `json:"name"`
	Folder string `json:"folder"`
	// Digest is of the experiment and of components' own binaries. Secrets are
	// not in it.
	Digest string `json:"digest"`
}

const (
	// SeriesFile is the book's name.
	SeriesFile   = "series.json"
	seriesSchema = 1
	// SetAside is the folder of recordings that do not count.
	SetAside = "not-counted"
)

// The errors of series.
var (
	// ErrOtherSeries is returned for a folder in which another series was made.
	ErrOtherSeries = errors.New("another series is in the folder")
	// ErrManyBad is returned, with the series, where too many runs do not count.
	ErrManyBad = errors.New("too many runs do not count")
)

// RunSeries runs arms in turns, each on a fresh control plane, and returns the
// book, also with an error that ended it early. What does not count is set
// aside, named, and made again within the same block.
//
// A series that was interrupted goes on where it was. One that has ended is
// returned as it is, and nothing is run: what was planned is part of what its
// numbers mean, and going on until something shows would find something.
func RunSeries(ctx context.Context, o SeriesOptions) (*Series, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Judge == nil {
		o.Judge = invalidBecause
	}
	if o.Spare == 0 {
		o.Spare = max(2, o.Blocks/4)
	}
	s, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	for s.Ended == "" {
		if err := s.step(ctx, o); err != nil {
			return s, err
		}
	}
	if s.GaveUp {
		return s, fmt.Errorf("%w: %s", ErrManyBad, s.Ended)
	}
	return s, nil
}

// step makes the next run, or ends the series.
func (s *Series) step(ctx context.Context, o SeriesOptions) error {
	block, arm, again, more := s.next()
	if done := s.Done(); done > s.Looked && o.After != nil {
		ended, err := o.After(s)
		if err != nil {
			return err
		}
		s.Looked = done
		if ended != "" {
			s.Clear = more
			return s.end(ended)
		}
	}
	if worst, n := s.worst(); n > o.Spare {
		s.GaveUp = true
		return s.end(fmt.Sprintf("%d runs of %s are bad, the last one since %s", n, worst.Arm, worst.Why))
	}
	if !more {
		return s.end(fmt.Sprintf("all %d runs of each were made", s.Blocks))
	}
	if begins := !slices.ContainsFunc(s.Runs, func(r SeriesRun) bool { return r.Block == block+1 && r.Result != Interrupted }); begins && block > 0 && o.Budget > 0 {
		if spent, next := s.spent(), s.expected(block, block+1); spent+next > o.Budget {
			return s.end(fmt.Sprintf("the budget of %v is spent after %d of %d runs of each", o.Budget, block, s.Blocks))
		}
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return s.perform(ctx, o, block, o.Arms[arm], s.Arms[arm], again)
}

func (s *Series) end(why string) error {
	s.Ended = why
	return s.write()
}

// perform makes one run and books it.
func (s *Series) perform(ctx context.Context, o SeriesOptions, block int, a Arm, booked SeriesArm, again bool) error {
	e, err := a.Experiment()
	if err != nil {
		return fmt.Errorf("experiment of %s: %w", a.Name, err)
	}
	n := len(s.Runs) + 1
	r := SeriesRun{Number: n, Block: block + 1, Arm: a.Name, Out: filepath.Join(booked.Folder, fmt.Sprintf("%03d", n)), Result: Running}
	if o.Tell != nil {
		o.Tell.Starting(SeriesStep{Run: n, Block: block + 1, Blocks: s.Blocks, Arm: a.Name, Again: again, Left: s.left(block, a.Name, again)})
	}
	s.Runs = append(s.Runs, r)
	if err := s.write(); err != nil {
		return err
	}
	began := o.Now()
	err = o.Run(ctx, e, a.Settings, filepath.Join(s.dir, r.Out), "")
	took := o.Now().Sub(began)
	switch {
	case err == nil:
		return s.judge(o, n, took)
	case ctx.Err() != nil:
		booked := s.book(o, n, Interrupted, "interrupted", took)
		if out := s.Runs[n-1].Out; out != "" {
			err = fmt.Errorf("%w, which was set aside as %s", err, filepath.Join(s.dir, out))
		}
		return errors.Join(err, booked)
	case errors.Is(err, syscall.ENOSPC):
		return errors.Join(fmt.Errorf("run %d, %s: %w", n, a.Name, err), s.book(o, n, Interrupted, "the disk was full", took))
	}
	if booked := s.book(o, n, Failed, err.Error(), took); booked != nil {
		return errors.Join(err, booked)
	}
	if s.Runs[n-1].Out == "" && len(s.Counted(a.Name)) == 0 {
		// It has not even begun, and never did: that is no bad luck.
		return fmt.Errorf("run %d, %s: %w", n, a.Name, err)
	}
	return nil
}

// judge books a run that was made.
func (s *Series) judge(o SeriesOptions, n int, took time.Duration) error {
	why, err := o.Judge(filepath.Join(s.dir, s.Runs[n-1].Out))
	switch {
	case err != nil:
		return fmt.Errorf("judge run %d: %w", n, err)
	case len(why) > 0:
		return s.book(o, n, Invalid, strings.Join(why, "; "), took)
	}
	return s.book(o, n, Counts, "", took)
}

// book keeps what came of run n, and sets its recording aside where it does not
// count.
func (s *Series) book(o SeriesOptions, n int, result Outcome, why string, took time.Duration) error {
	r := &s.Runs[n-1]
	r.Result, r.Why, r.Seconds = result, why, took.Seconds()
	if result != Counts {
		aside := filepath.Join(SetAside, strings.ReplaceAll(r.Out, string(filepath.Separator), "-"))
		if err := os.MkdirAll(filepath.Join(s.dir, SetAside), 0o755); err != nil {
			return fmt.Errorf("set run %d aside: %w", n, err)
		}
		switch err := os.Rename(filepath.Join(s.dir, r.Out), filepath.Join(s.dir, aside)); {
		case err == nil:
			r.Out = aside
		case errors.Is(err, fs.ErrNotExist):
			r.Out = ""
		default:
			return fmt.Errorf("set run %d aside: %w", n, err)
		}
	}
	if o.Tell != nil {
		o.Tell.Ran(*r)
	}
	return s.write()
}

// invalidBecause asks a recording's diagnosis.
func invalidBecause(dir string) ([]string, error) {
	d, _, err := diagnosed(dir)
	if err != nil {
		return nil, err
	}
	return d.InvalidReasons, nil
}

// open begins a series, or goes on with the one that is in the folder.
func (o SeriesOptions) open(ctx context.Context) (*Series, error) {
	if len(o.Arms) == 0 || o.Blocks < 1 {
		return nil, fmt.Errorf("a series of %d arms and %d runs of each: there is nothing to run", len(o.Arms), o.Blocks)
	}
	s := &Series{Schema: seriesSchema, Kind: o.Kind, Seed: o.Seed, Blocks: o.Blocks, Runs: []SeriesRun{}, dir: o.Out}
	if o.Plan != nil {
		plan, err := json.Marshal(o.Plan)
		if err != nil {
			return nil, fmt.Errorf("plan of the series: %w", err)
		}
		s.Plan = plan
	}
	taken := map[string]bool{SetAside: true}
	for i, a := range o.Arms {
		if slices.ContainsFunc(o.Arms[:i], func(b Arm) bool { return b.Name == a.Name }) {
			return nil, fmt.Errorf("%s is there twice", a.Name)
		}
		e, err := a.Experiment()
		if err != nil {
			return nil, fmt.Errorf("experiment of %s: %w", a.Name, err)
		}
		digest, err := digestOf(e)
		if err != nil {
			return nil, err
		}
		folder := a.Folder
		if folder == "" {
			folder = folderOf(a.Name, taken)
		}
		taken[folder] = true
		s.Arms = append(s.Arms, SeriesArm{a.Name, folder, digest})
	}
	before, err := ReadSeries(o.Out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := o.Verify(ctx); err != nil {
			return nil, err
		}
		if err := makeEmpty(o.Out, "--out"); err != nil {
			return nil, err
		}
		return s, s.write()
	case err != nil:
		return nil, err
	}
	if differs := before.differs(s); differs != "" {
		return nil, fmt.Errorf("%s: %w, with other %s; name another with --out, or remove it", o.Out, ErrOtherSeries, differs)
	}
	return before, before.settle(o)
}

// Verify refuses what cannot be run.
func (o SeriesOptions) Verify(ctx context.Context) error {
	if o.Check == nil {
		return nil
	}
	for _, a := range o.Arms {
		e, err := a.Experiment()
		if err == nil {
			err = o.Check(ctx, e)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return nil
}

// differs says in what a series is another one; empty: it is the same.
func (s *Series) differs(t *Series) string {
	switch {
	case s.Kind != t.Kind:
		return "runs: they were made by " + s.Kind
	case s.Blocks != t.Blocks:
		return fmt.Sprintf("repetitions: %d", s.Blocks)
	case s.Seed != t.Seed:
		return fmt.Sprintf("seed: %d", s.Seed)
	case !slices.Equal(s.Arms, t.Arms):
		if len(s.Arms) == len(t.Arms) {
			for i, a := range s.Arms {
				if a.Name == t.Arms[i].Name && a.Folder == t.Arms[i].Folder {
					continue
				}
				return fmt.Sprintf("sides: %s, not %s", a.Name, t.Arms[i].Name)
			}
			return "experiments behind the same names"
		}
		return fmt.Sprintf("sides: %d of them", len(s.Arms))
	case !sameJSON(s.Plan, t.Plan):
		return "options: " + string(s.Plan)
	}
	return ""
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, err1 := json.Marshal(x)
	q, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && string(p) == string(q)
}

// settle books a run that was under way when its series was killed.
func (s *Series) settle(o SeriesOptions) error {
	for _, r := range s.Runs {
		if r.Result != Running {
			continue
		}
		rec, err := record.Open(filepath.Join(s.dir, r.Out))
		var live *record.LiveError
		switch {
		case errors.As(err, &live):
			return fmt.Errorf("the series in %s is being run: %w", s.dir, err)
		case err != nil: // nothing that could be read was left
			o.Tell = nil
			err = s.book(o, r.Number, Interrupted, "killed", 0)
		default:
			m := rec.Meta()
			rec.Close()
			o.Tell = nil
			if m.Status == record.StatusComplete {
				err = s.judge(o, r.Number, m.Ended.Sub(m.Started))
			} else {
				err = s.book(o, r.Number, Interrupted, "killed", m.Ended.Sub(m.Started))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ReadSeries reads the book in a folder.
func ReadSeries(dir string) (*Series, error) {
	data, err := os.ReadFile(filepath.Join(dir, SeriesFile))
	if err != nil {
		return nil, fmt.Errorf("read series: %w", err)
	}
	s := &Series{dir: dir}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read series %s: %w", filepath.Join(dir, SeriesFile), err)
	}
	if s.Schema > seriesSchema {
		return nil, fmt.Errorf("series %s has schema %d, written by a newer kubedyno; this one knows up to %d", dir, s.Schema, seriesSchema)
	}
	return s, nil
}

// write keeps the book in its folder, all of it or as it was.
func (s *Series) write() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write series: %w", err)
	}
	name := filepath.Join(s.dir, SeriesFile)
	if err := os.WriteFile(name+".tmp", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write series: %w", err)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return fmt.Errorf("write series: %w", err)
	}
	return nil
}

// Counted are the runs of an arm that count, in the order of their blocks.
func (s *Series) Counted(arm string) []SeriesRun {
	var runs []SeriesRun
	for _, r := range s.Runs {
		if r.Arm == arm && r.Result == Counts {
			runs = append(runs, r)
		}
	}
	slices.SortStableFunc(runs, func(a, b SeriesRun) int { return a.Block - b.Block })
	return runs
}

// Recordings are the folders of the runs of an arm that count.
func (s *Series) Recordings(arm string) []string {
	var dirs []string
	for _, r := range s.Counted(arm) {
		dirs = append(dirs, filepath.Join(s.dir, r.Out))
	}
	return dirs
}

// Bad are the runs that do not count, in the order in which they were made.
// Those that were interrupted are not among them.
func (s *Series) Bad() []SeriesRun {
	return slices.DeleteFunc(slices.Clone(s.Runs), func(r SeriesRun) bool { return !r.Result.bad() })
}

// Doubts say of a series what makes its numbers less sure than they look: which
// runs do not count, and that they are more of one arm than of another.
func (s *Series) Doubts() []string {
	bad := map[string]int{}
	var doubts []string
	for _, r := range s.Bad() {
		bad[r.Arm]++
		doubts = append(doubts, fmt.Sprintf("run %d, %s, does not count (%s): %s", r.Number, r.Arm, r.Result, r.Why))
	}
	if len(bad) == 0 {
		return nil
	}
	most, least := s.Arms[0].Name, s.Arms[0].Name
	for _, a := range s.Arms {
		if bad[a.Name] > bad[most] {
			most = a.Name
		}
		if bad[a.Name] < bad[least] {
			least = a.Name
		}
	}
	if bad[most] > bad[least] {
		doubts = append(doubts, fmt.Sprintf("more runs of %s do not count (%d) than of %s (%d): where what spoils a run also makes it slow or costly, those that count look better than they should",
			most, bad[most], least, bad[least]))
	}
	return doubts
}

// Done is how many blocks are complete: every arm has a run that counts.
func (s *Series) Done() int {
	block, _, _, more := s.next()
	if !more {
		return s.Blocks
	}
	return block
}

// next is the run to be made: in its block each arm comes once, in the block's
// order, and those whose run was bad come again after that.
func (s *Series) next() (block, arm int, again, ok bool) {
	tried, counts := map[[2]int]bool{}, map[[2]int]bool{}
	index := map[string]int{}
	for i, a := range s.Arms {
		index[a.Name] = i
	}
	for _, r := range s.Runs {
		at := [2]int{r.Block - 1, index[r.Arm]}
		tried[at] = tried[at] || r.Result.bad() || r.Result == Counts
		counts[at] = counts[at] || r.Result == Counts
	}
	for block := range s.Blocks {
		order := TurnsOf(len(s.Arms), block, s.Seed)
		for _, arm := range order {
			if !tried[[2]int{block, arm}] {
				return block, arm, false, true
			}
		}
		for _, arm := range order {
			if !counts[[2]int{block, arm}] {
				return block, arm, true, true
			}
		}
	}
	return 0, 0, false, false
}

// TurnsOf is the order in which a block, from 0, runs its arms. Over as many
// blocks as there are arms, or twice as many where their number is odd, each arm
// has each place and follows each other arm equally often (Williams 1949), so
// that neither a machine that drifts nor what a run leaves behind falls on one of
// them. Which of these orders it is, and which arm is which, the seed decides.
func TurnsOf(arms, block int, seed uint64) []int {
	square := block / arms
	rng := rand.New(rand.NewPCG(seed, uint64(square/2+1)))
	if arms%2 == 0 { // of an odd number, the second square is the first one's mirror
		rng = rand.New(rand.NewPCG(seed, uint64(square+1)))
	}
	names, rows := rng.Perm(arms), rng.Perm(arms)
	order := make([]int, arms)
	for i := range order {
		// 0, 1, n−1, 2, n−2, …: each step is of another length.
		zigzag := (i + 1) / 2
		if i%2 == 0 {
			zigzag = (arms - i/2) % arms
		}
		order[i] = names[(zigzag+rows[block%arms])%arms]
	}
	if arms%2 == 1 && square%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// worst is the last bad run of the arm with the most of them.
func (s *Series) worst() (last SeriesRun, n int) {
	count := map[string]int{}
	for _, r := range s.Bad() {
		if count[r.Arm]++; count[r.Arm] >= n { // of equal ones the last
			last, n = r, count[r.Arm]
		}
	}
	return last, n
}

// spent is what all runs took so far.
func (s *Series) spent() time.Duration {
	sum := 0.0
	for _, r := range s.Runs {
		sum += r.Seconds
	}
	return seconds(sum)
}

func seconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }

// expected is what the blocks from one to before another take, as far as the
// runs so far tell.
func (s *Series) expected(from, to int) time.Duration {
	sum := 0.0
	for _, a := range s.Arms {
		sum += s.typical(a.Name) * float64(to-from)
	}
	return seconds(sum)
}

// typical is what a run of an arm takes: the mean of its own, or of all.
func (s *Series) typical(arm string) float64 {
	var own, all []float64
	for _, r := range s.Runs {
		if r.Seconds > 0 && (r.Result == Counts || r.Result == Invalid) {
			all = append(all, r.Seconds)
			if r.Arm == arm {
				own = append(own, r.Seconds)
			}
		}
	}
	switch {
	case len(own) > 0:
		return stat.Mean(own)
	case len(all) > 0:
		return stat.Mean(all)
	}
	return 0
}

// left is what is still to be run at most, from a run of a block on.
func (s *Series) left(block int, arm string, again bool) time.Duration {
	type place struct {
		block int
		arm   string
	}
	made := map[place]bool{} // of later blocks, too: a run of an early one can be made anew
	for _, r := range s.Runs {
		if r.Result == Counts || r.Block == block+1 && r.Result.bad() && !again {
			made[place{r.Block, r.Arm}] = true
		}
	}
	delete(made, place{block + 1, arm})
	rest := 0.0
	for b := block + 1; b <= s.Blocks; b++ {
		for _, a := range s.Arms {
			if !made[place{b, a.Name}] {
				rest += s.typical(a.Name)
			}
		}
	}
	return seconds(rest)
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._=-]+`)

// folderOf is a name that a folder can have, and that none has yet.
func folderOf(name string, taken map[string]bool) string {
	base := strings.Trim(unfit.ReplaceAllString(name, "-"), ".-")
	if len(base) > 80 {
		base = base[:80]
	}
	if base == "" {
		base = "arm"
	}
	folder := base
	for n := 2; taken[folder]; n++ {
		folder = fmt.Sprintf("%s-%d", base, n)
	}
	return folder
}

// digestOf stands for what is run: the experiment, and the contents of binaries
// that are not the lab's own.
func digestOf(e *experiment.Experiment) (string, error) {
	data, err := e.WithoutSecrets(record.RedactArgs).YAML()
	if err != nil {
		return "", fmt.Errorf("experiment %s: %w", e.Name, err)
	}
	h := sha256.New()
	h.Write(data)
	for _, c := range experiment.ComponentNames() {
		binary := e.Cluster.Components[c].Binary
		if binary == "" {
			continue
		}
		f, err := os.Open(binary)
		if err != nil {
			return "", fmt.Errorf("binary of %s: %w", c, err)
		}
		_, err = io.Copy(h, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("binary of %s: %w", c, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}
