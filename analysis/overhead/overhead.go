// Package overhead derives from a recording what making it has cost: the CPU
// of each collector, the CPU that it caused inside the observed components,
// and its bytes. It states what was; detectors judge.
//
// A collector that works on a thread of its own has counted its CPU. For the
// others, and for what happens inside components, sampled stacks tell: n
// samples in a collector's functions are n × their interval in CPU-s, known to about ± 1/√n
// of themselves. Without samples these are unknown, never zero.
//
// Start with Of.
package overhead

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/record"
)

// Rows beside those of collectors: what they share.
const (
	Writer  = "writer"            // of the recording
	Garbage = "garbage collector" // of Go, for all collectors
	Rest    = "rest"              // conduct of the run, TLS, the runtime
	Whole   = "kubedyno"          // the process that all these are in
)

// Unknown is a number that nothing tells.
const Unknown = -1

// A Cost is what one collector, or what they share, has cost.
type Cost struct {
	Collector       string  `json:"collector"`
	IntervalSeconds float64 `json:"intervalSeconds,omitempty"`
	Samples         int64   `json:"samples"`
	// CPUSeconds are its own. Sampled are from stack samples; others it has
	// counted. Unknown where neither tells.
	CPUSeconds float64 `json:"cpuSeconds"`
	Sampled    bool    `json:"sampled,omitempty"`
	// InsideSeconds are the CPU-seconds that it caused inside the processes
	// that it observes; Unknown where nothing tells. Where says in which.
	InsideSeconds float64 `json:"insideSeconds"`
	Where         string  `json:"where,omitempty"`
	Bytes         int64   `json:"bytes"` // of its files in the recording
	Note          string  `json:"note,omitempty"`
}

// A Table is what a recording has cost.
type Table struct {
	Costs []Cost // collectors by name, what they share, the whole process last
	// RunSeconds is the CPU of all processes of the run, ours included;
	// Unknown where the recording does not tell.
	RunSeconds float64
}

// Total is the CPU of our process and what the collectors caused inside
// others; ok is false where a part of that is unknown.
func (t *Table) Total() (seconds float64, ok bool) {
	ok = len(t.Costs) > 0
	for _, c := range t.Costs {
		if c.Collector == Whole {
			seconds += max(0, c.CPUSeconds)
			ok = ok && c.CPUSeconds != Unknown
			continue
		}
		seconds += max(0, c.InsideSeconds)
		ok = ok && c.InsideSeconds != Unknown
	}
	return seconds, ok
}

// Collectors is the CPU of collectors themselves, where it is known: without what they
// share and what the process does beside them.
func (t *Table) Collectors() (seconds float64) {
	for _, c := range t.Costs {
		if rank(c.Collector) < 0 {
			seconds += max(0, c.CPUSeconds)
		}
	}
	return seconds
}

// Of makes the table of a finished recording.
func Of(rec *record.Recording) (*Table, error) {
	sizes, err := bytesBy(rec.Dir())
	if err != nil {
		return nil, err
	}
	run, err := runSeconds(rec)
	if err != nil {
		return nil, err
	}
	t := &Table{RunSeconds: run}
	m := rec.Meta()
	samples, err := functions.Samples(rec, "", record.Window{Start: m.Started, End: m.Ended})
	if err != nil && !errors.Is(err, record.ErrMissing) {
		return nil, err
	}
	sampled := err == nil
	seen := attribute(samples, audits(m))
	sent, _, err := rec.Increase("apiserver_watch_events_total", nil, record.Window{Start: m.Started, End: m.Ended})
	if err != nil && !errors.Is(err, record.ErrMissing) {
		return nil, err
	}
	period := functions.Period(rec)
	watched := int64(0)
	for _, a := range m.Collectors {
		if a.Name == "objects" || a.Name == "lives" {
			watched += a.Samples
		}
	}
	named := map[string]bool{}
	for _, a := range m.Collectors {
		c := Cost{
			Collector: a.Name, IntervalSeconds: a.IntervalSeconds, Samples: a.Samples, Note: a.Note,
			CPUSeconds: Unknown, InsideSeconds: Unknown, Bytes: sizes[a.Name],
		}
		named[a.Name] = true
		if sampled {
			c.CPUSeconds, c.Sampled = float64(seen.own[a.Name])*period, true
			c.InsideSeconds, c.Where = float64(total(seen.inside[a.Name]))*period, where(seen.inside[a.Name])
		}
		if a.CPUSeconds > 0 {
			c.CPUSeconds, c.Sampled = a.CPUSeconds, false
		}
		switch a.Name {
		case "objects", "lives":
			c.InsideSeconds, c.Where = Unknown, ""
			if sampled && sent > 0 {
				n := min(1, float64(a.Samples)/sent) * float64(seen.watches)
				if watched > 0 {
					n += float64(a.Samples) / float64(watched) * float64(seen.stamped)
				}
				c.InsideSeconds, c.Where = n*period, "kube-apiserver, by its share of the watch events"
			}
		case "stacks":
			c.InsideSeconds, c.Where = float64(a.Samples)*sampleSeconds, "whatever was interrupted, 10 µs a sample"
		case "logs":
			c.InsideSeconds = 0 // the components write them anyway
		}
		if a.Name == Whole {
			c.InsideSeconds, c.Bytes = Unknown, 0
			for _, size := range sizes {
				c.Bytes += size
			}
		}
		t.Costs = append(t.Costs, c)
	}
	if sampled {
		for _, name := range []string{Writer, Garbage, Rest} {
			t.Costs = append(t.Costs, Cost{Collector: name, CPUSeconds: float64(seen.own[name]) * period, Sampled: true, Bytes: sizes[name]})
		}
	}
	slices.SortStableFunc(t.Costs, func(a, b Cost) int {
		return cmp.Or(cmp.Compare(rank(a.Collector), rank(b.Collector)), cmp.Compare(a.Collector, b.Collector))
	})
	return t, nil
}

// rank puts collectors first and the whole last.
func rank(name string) int { return slices.Index([]string{Writer, Garbage, Rest, Whole}, name) }

// seen counts samples by collector.
type seen struct {
	own    map[string]int
	inside map[string]map[string]int // and component
	// Of the API server: what it does for watches, everybody's, and what is known to be
	// for ours, which have its clock. Where they have, the former is what feeds watches
	// alone, for what serves another's is not ours.
	watches, stamped int
}

// sampleSeconds is what one sampled stack costs whoever is interrupted, as
// measured (docs/collectors.md): the kernel does not sample its own sampling.
const sampleSeconds = 10e-6

// Where the code of collectors is, in a process that is called kubedyno.
const (
	module    = "github.com/kubedyno/kubedyno/"
	collectAt = module + "collect/"
	stampsAt  = module + "lab/stamps.(*stamper)."
)

// Who works for watches in an API server.
const (
	handlesWatch = "k8s.io/apiserver/pkg/endpoints/handlers.(*WatchServer)."
	feedsWatch   = "k8s.io/apiserver/pkg/storage/cacher.(*cacheWatcher)."
	// encodesOnce encodes an event for all watches of one form, on behalf of the first
	// that comes for it, and takesEncoding comes for it.
	takesEncoding = "k8s.io/apiserver/pkg/storage/cacher.(*cachingObject).CacheEncode"
	encodesOnce   = takesEncoding + ".func1"
	ofTypes       = "k8s.io/api/"
)

// encodings are samples in which the API server encodes events for watches. What ours
// comes for first is not added by it where others come for the same.
type encodings struct {
	ours   map[string]int  // by type of object, "" where the stack does not show it
	others map[string]bool // types that others come for; "" where they come at all
}

// add counts a stack of our watch, or of another; ok is false where it encodes nothing.
func (e *encodings) add(frames []string, ours bool, n int) (ok bool) {
	takes := slices.Index(frames, takesEncoding)
	if takes < 0 {
		return false
	}
	encodes := slices.Contains(frames[takes:], encodesOnce)
	of := ""
	for _, f := range frames[takes:] {
		if name, ok := strings.CutPrefix(f, ofTypes); ok {
			of, _, _ = strings.Cut(name, ").") // core/v1.(*Pod).Size and what else it has
			break
		}
	}
	if !ours {
		e.others[""], e.others[of] = true, true
	} else if encodes {
		e.ours[of] += n
	}
	return encodes
}

// added are the samples of what we came for alone.
func (e *encodings) added() (n int) {
	for of, count := range e.ours {
		if !e.others[of] {
			n += count
		}
	}
	return n
}

// audits says whether an API server may have written an audit log: its command
// line says so, or is not known. One that does not passes through the same
// functions, for a moment each.
func audits(m record.Meta) bool {
	for _, c := range m.Cluster.Components {
		if c.Name == "kube-apiserver" && len(c.Args) > 0 {
			return slices.ContainsFunc(c.Args, func(arg string) bool {
				return strings.HasPrefix(arg, "--audit-log-path=") || strings.HasPrefix(arg, "--audit-webhook-config-file=")
			})
		}
	}
	return true
}

// scrapes are the samples of one component that answer for its metrics.
type scrapes struct {
	told, asked int // at a lab's socket, where nobody else asks, and at /metrics
	// Those of them that go through what was gathered, which is as much work for
	// the one as for the other.
	toldGather, askedGather int
	apart                   int // in goroutines that gather for either
}

// add counts a stack; ok is false where it answers no scrape.
func (s *scrapes) add(frames []string, n int) (ok bool) {
	begins := func(prefix string) bool {
		return slices.ContainsFunc(frames, func(f string) bool { return strings.HasPrefix(f, prefix) })
	}
	gathers := begins("github.com/prometheus/client_golang/prometheus.(*Registry).Gather")
	switch {
	case begins("github.com/kubedyno/kubedyno/lab/scrape."):
		s.told += n
		if gathers {
			s.toldGather += n
		}
	case begins("github.com/prometheus/client_golang/prometheus/promhttp."):
		s.asked += n
		if gathers {
			s.askedGather += n
		}
	case gathers:
		s.apart += n
	default:
		return false
	}
	return true
}

// ours are the samples that we have caused. Where we ask at a socket, whoever asks
// at /metrics is somebody else. Elsewhere all of it counts, with the scrapes of a
// Prometheus of the cluster's own.
func (s *scrapes) ours() int {
	if s.told == 0 {
		return s.asked + s.apart
	}
	mine, all := s.toldGather, s.toldGather+s.askedGather
	if all == 0 {
		mine, all = s.told, s.told+s.asked
	}
	return s.told + (s.apart*mine+all/2)/all
}

func attribute(samples []functions.Sample, audited bool) seen {
	s := seen{own: map[string]int{}, inside: map[string]map[string]int{}}
	scraped := map[string]*scrapes{}
	handled := 0 // by who writes to one watch
	encoded := encodings{map[string]int{}, map[string]bool{}}
	for _, x := range samples {
		frames := strings.Split(x.Frames, ";")
		if x.Component == Whole {
			s.own[ownPart(frames)] += x.Count
			continue
		}
		if x.Component == "kube-apiserver" {
			ours := slices.ContainsFunc(frames, func(f string) bool { return strings.HasPrefix(f, stampsAt) })
			encodes := encoded.add(frames, ours, x.Count)
			switch {
			case ours && encodes: // see added
			case ours:
				s.stamped += x.Count
			case slices.ContainsFunc(frames, func(f string) bool { return strings.HasPrefix(f, handlesWatch) }):
				handled += x.Count
			case slices.ContainsFunc(frames, func(f string) bool { return strings.HasPrefix(f, feedsWatch) }):
				s.watches += x.Count
			}
		}
		component := cmp.Or(x.Component, "others")
		if scraped[component] == nil {
			scraped[component] = &scrapes{}
		}
		if scraped[component].add(frames, x.Count) {
			continue
		}
		if by := cause(frames, audited); by != "" {
			s.charge(by, component, x.Count)
		}
	}
	s.stamped += encoded.added() // the rest would have been encoded for others a moment later
	if s.stamped == 0 {
		s.watches += handled
	}
	for component, sc := range scraped {
		if n := sc.ours(); n > 0 {
			s.charge("metrics", component, n)
		}
	}
	return s
}

// charge counts samples inside a component for a collector.
func (s *seen) charge(collector, component string, n int) {
	if s.inside[collector] == nil {
		s.inside[collector] = map[string]int{}
	}
	s.inside[collector][component] += n
}

// ownPart is whose work a stack of our own process is, outermost frame first.
func ownPart(frames []string) string {
	for _, f := range frames {
		if name, ok := strings.CutPrefix(f, collectAt); ok {
			name, function, _ := strings.Cut(name, ".")
			if name == "internal/tail" { // a goroutine of who asked for it
				continue
			}
			if name == "objects" && strings.HasPrefix(function, "(*Lives)") {
				return "lives"
			}
			return name
		}
		if strings.HasPrefix(f, module+"record.") {
			return Writer
		}
		for _, g := range []string{"runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcAssistAlloc"} {
			if strings.HasPrefix(f, g) {
				return Garbage
			}
		}
	}
	return Rest
}

// causes are the functions inside other processes that run for us alone, by
// how their names begin; those of a scrape are told apart, see scrapes.
var causes = []struct {
	prefix, collector string
	audit             bool // where the API server writes an audit log only
}{
	{"net/http/pprof.", "profile", false},
	{"runtime/pprof.", "profile", false},
	{"runtime.sigprof", "profile", false},
	{"k8s.io/apiserver/pkg/audit.", "requests", true},
	{"k8s.io/apiserver/pkg/audit/", "requests", true},
	{"k8s.io/apiserver/plugin/pkg/audit/", "requests", true},
	{"github.com/kubedyno/kubedyno/lab/requestlog.(*answer).line", "requests", false},
	{"github.com/kubedyno/kubedyno/lab/requestlog.(*Log).put", "requests", false},
	{"github.com/kubedyno/kubedyno/lab/requestlog.(*Log).flush", "requests", false},
	{"github.com/kubedyno/kubedyno/lab/requestlog.nameIn", "requests", false},
}

// programs are our programs inside the kernel, by the ends of their names.
var programs = map[string]string{
	"_kd_fork": "process", "_kd_exec": "process", "_kd_exit": "process", "_kd_free": "process",
	"_io_start": "blockio", "_rq_issue": "blockio", "_rq_merge": "blockio", "_rq_complete": "blockio",
	"_sys_enter": "blockio", "_sys_exit": "blockio",
}

// cause is the collector for which a stack of another process runs; empty
// where it runs for itself.
func cause(frames []string, audited bool) string {
	for _, f := range frames {
		if rest, ok := strings.CutPrefix(f, "bpf_prog_"); ok {
			rest = strings.TrimSuffix(rest, functions.KernelMark)
			for end, name := range programs {
				if strings.HasSuffix(rest, end) {
					return name
				}
			}
			continue
		}
		for _, c := range causes {
			if strings.HasPrefix(f, c.prefix) && (audited || !c.audit) {
				return c.collector
			}
		}
	}
	return ""
}

func total(by map[string]int) (n int) {
	for _, c := range by {
		n += c
	}
	return n
}

// where lists components, the most samples first.
func where(by map[string]int) string {
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b)) })
	return strings.Join(names, ", ")
}

// runSeconds is the CPU of the processes of the run while they were observed.
func runSeconds(rec *record.Recording) (float64, error) {
	samples, err := rec.Processes()
	if errors.Is(err, record.ErrMissing) {
		return Unknown, nil
	}
	if err != nil {
		return 0, err
	}
	type key struct {
		pid   int32
		start int64
	}
	first, last := map[key]float64{}, map[key]float64{}
	began := rec.Meta().Started.UnixMicro()
	for _, s := range samples {
		if s.Component == "" {
			continue
		}
		k, used := key{s.PID, s.StartMicros}, s.UserSeconds+s.SystemSeconds
		if _, ok := first[k]; !ok {
			first[k] = used
			if s.StartMicros >= began {
				first[k] = 0
			}
		}
		last[k] = used
	}
	sum := 0.0
	for k, v := range last {
		sum += v - first[k]
	}
	return sum, nil
}

// filesOf says which collector makes a file or folder of a recording.
var filesOf = map[string]string{
	"processes": "process", "machine": "process", "cores": "process", "disks": "process", "exits": "process",
	"metrics": "metrics", "profiles": "profile", "stack_samples": "stacks", "stacks": "stacks", "logs": "logs",
	"requests": "requests", "pods": "objects", "objects": "lives", "events": "lives", "blockio": "blockio", "syncs": "blockio",
}

// bytesBy sums the files of a recording by collector; what no collector makes
// is the writer's.
func bytesBy(dir string) (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name, _, _ = strings.Cut(filepath.ToSlash(name), "/")
		sizes[cmp.Or(filesOf[strings.TrimSuffix(name, ".parquet")], Writer)] += info.Size()
		return nil
	})
	return sizes, err
}
