package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// A Detector looks for one cause. Detect is pure: the View in, an Outcome out;
// no clock, no client, no log.
type Detector struct {
	Name  string // stable ID, kebab-case
	Title string // what it finds, in a few words
	// Doc is the detector's chapter of docs/detectors.md: mechanism, evidence,
	// thresholds with their reasons, look-alikes and what tells them apart.
	Doc string
	// Detect judges a run. earlier are the findings of the detectors before it:
	// All is in causal order, so they hold what may explain this cause away.
	Detect func(v *View, earlier []Finding) Outcome
}

// Outcome is found, clear or not assessed.
type Outcome struct {
	Found   []Finding
	Clear   string // why the cause is not there
	Missing string // what would be needed to tell
}

// Found is the outcome of a detector that found its cause.
func Found(fs ...Finding) Outcome { return Outcome{Found: fs} }

// NotThere is the outcome of a detector that can say its cause is absent.
func NotThere(why string, args ...any) Outcome { return Outcome{Clear: fmt.Sprintf(why, args...)} }

// NotAssessed is the outcome of a detector that lacks data.
func NotAssessed(missing string, args ...any) Outcome {
	return Outcome{Missing: fmt.Sprintf(missing, args...)}
}

// worthNaming is the least share of the lost pod-seconds that a finding must
// explain after explaining-away (research/faults.md 3.5: stage share ≥ 10 %).
const worthNaming = 0.10

// Run diagnoses a recording with the given detectors, which must be in causal
// order. An error means that the recording could not be read.
func Run(src Source, detectors []Detector) (*Diagnosis, error) {
	v, err := NewView(src)
	if err != nil {
		return nil, err
	}
	invalid := v.Invalid() // may add to v.Warnings
	d := &Diagnosis{
		Schema: Schema, Run: v.Meta.ID, Name: v.Meta.Name,
		InvalidReasons: invalid, Harness: v.Harness, Stages: v.Stages,
		Findings: []Finding{}, RuledOut: []Clear{}, NotAssessed: []Unknown{},
		Pods: v.Counts, Window: WindowOf{Seconds: v.Span(), PlateauSeconds: v.Plateau.Seconds()},
		Throughput: v.Throughput, SchedulerPerf: v.SchedulerPerf, Scheduler: v.SchedulerWork(), EndsBound: v.EndsBound, Latencies: v.Latencies, Lost: v.Lost,
		Resources: v.Resources, Limits: v.Limits, Objectives: v.judgeObjectives(len(invalid) == 0),
		Warnings: append(append([]string{}, v.Meta.Warnings...), v.Warnings...),
		Claims:   v.Claims,
		Healthy:  v.compared(),
		Features: v.Features(),
		Slopes:   append([]Slope{}, v.Slopes...),
	}
	if d.InvalidReasons == nil {
		d.InvalidReasons = []string{}
	}
	if d.Resources == nil {
		d.Resources = []Resource{}
	}
	if t := v.Together; t.WaitSeconds != nil && !v.Known(Bind) {
		d.Unsplit = &Unsplit{Stages: []string{Queue, Decide, Bind}, WaitSeconds: *t.WaitSeconds, Share: *t.Share, ExcessSeconds: *t.ExcessSeconds, Reason: v.Stage(Bind).Reason}
	}
	if !v.StagesOK {
		d.Warnings = append(d.Warnings, "stage accounting rejected: "+v.StagesWhy)
	}

	var found []Finding
	for _, det := range detectors {
		o := det.Detect(v, slices.Clone(found))
		if v.Span() < shortest && len(o.Found) > 0 && !slices.ContainsFunc(o.Found, func(f Finding) bool { return f.Class != Waste }) {
			o = NotAssessed("a longer load: waste goes on and on, and this one lasted %.1f s", v.Span())
		}
		switch {
		case len(o.Found) > 0:
			for _, f := range o.Found {
				f.ID = det.Name
				found = append(found, f)
			}
		case o.Missing != "":
			d.NotAssessed = append(d.NotAssessed, Unknown{det.Name, o.Missing})
		default:
			d.RuledOut = append(d.RuledOut, Clear{det.Name, o.Clear})
		}
	}
	if v.err != nil {
		return nil, v.err
	}
	kept, dropped := settle(v, found)
	for _, f := range kept {
		if f.Invalidates {
			d.InvalidReasons = append(d.InvalidReasons, f.Summary)
		}
		d.Lost.Explained += f.Explains
	}
	d.Lost.Explained = min(1, d.Lost.Explained)
	d.Findings = append(d.Findings, kept...)
	d.RuledOut = append(d.RuledOut, dropped...)
	slices.SortStableFunc(d.RuledOut, func(a, b Clear) int { return strings.Compare(a.ID, b.ID) })
	slices.SortStableFunc(d.NotAssessed, func(a, b Unknown) int { return strings.Compare(a.ID, b.ID) })
	d.Valid = len(d.InvalidReasons) == 0
	return d, nil
}

// settle shares the lost pod-seconds out: a pod-second is explained once.
// Direct claims were measured at the cause and come first; where they are for more
// than there is, each gets its part, for both causes acted. The others follow in
// causal order and get what is left, those that claim the rest last. What then
// explains too little is ruled out in favour of what took it.
func settle(v *View, found []Finding) (kept []Finding, dropped []Clear) {
	left := map[string]float64{}
	for _, s := range v.LostStages() {
		left[s.Name] = *s.ExcessSeconds
	}
	direct := map[string]float64{}
	for i := range found {
		for stage, x := range found[i].Claims {
			if found[i].Direct {
				direct[stage] += min(x, left[stage])
			}
		}
	}
	whole, part := maps.Clone(left), map[string]float64{}
	for stage, x := range direct {
		part[stage] = min(1, left[stage]/max(x, 1e-9))
	}
	take := func(f *Finding) {
		for _, stage := range sortedKeys(f.Claims) {
			x := min(f.Claims[stage], left[stage])
			if f.Direct {
				x = min(min(f.Claims[stage], whole[stage])*part[stage], left[stage])
			}
			left[stage] -= x
			f.MassSeconds += x
		}
		if v.Lost.PodSeconds > 0 {
			f.Explains = min(1, f.MassSeconds/v.Lost.PodSeconds)
		}
	}
	for _, turn := range []func(*Finding) bool{
		func(f *Finding) bool { return f.Direct },
		func(f *Finding) bool { return !f.Direct && !f.Rest },
		func(f *Finding) bool { return !f.Direct && f.Rest },
	} {
		for i := range found {
			if turn(&found[i]) {
				take(&found[i])
			}
		}
	}
	for i := range found {
		f := &found[i]
		if f.RequestSeconds > 0 && v.API.LostSeconds > 0 && v.API.Slow() {
			f.RequestShare = min(1, f.RequestSeconds/v.API.LostSeconds)
		}
		if f.Spare != "" && f.slight() {
			f.Class, f.Stage, f.Summary, f.MassSeconds, f.Explains = Waste, "", f.Spare, 0, 0
		}
		if f.Explains < worthNaming && (f.Next != "" && beside(found, f) || f.slight() && follows(v, found, f)) {
			f.Class, f.Summary, f.MassSeconds, f.Explains = Risk, cmp.Or(f.Next, f.Summary+Behind), 0, 0
		}
		if f.Suffered == "" && !f.free() {
			f.Suffered, _ = v.Suffers()
			if f.Suffered == "" && v.Felt() {
				f.Suffered = v.lost()
			}
		}
	}
	for _, f := range found {
		if f.slight() && !f.Invalidates && !f.free() {
			why := fmt.Sprintf("would explain only %.0f %% of the lost time", 100*f.Explains)
			if first := strongest(found); first != nil && first.ID != f.ID {
				why += " beside " + first.ID
			}
			dropped = append(dropped, Clear{f.ID, why})
			continue
		}
		kept = append(kept, f)
	}
	absent := 0.0
	if n := v.Counts.Expected; n > 0 {
		absent = max(0, 1-float64(v.Arrived())/float64(n))
	}
	slices.SortStableFunc(kept, func(a, b Finding) int {
		// What makes the numbers unusable comes before what the numbers say.
		if a.Invalidates != b.Invalidates {
			if a.Invalidates {
				return -1
			}
			return 1
		}
		if a.free() != b.free() {
			if b.free() {
				return -1
			}
			return 1
		}
		// That pods come late matters less than that many never come.
		if x, y := a.MissingShare*absent >= gone, b.MissingShare*absent >= gone; x != y {
			if x {
				return -1
			}
			return 1
		}
		// A full resource is no cause where something can be named that fills it
		// for nothing.
		if x, y := a.fills(), b.fills(); x != y && (a.Class == Capacity || b.Class == Capacity) {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Explains, a.Explains), cmp.Compare(b.RequestShare, a.RequestShare), cmp.Compare(b.RemovalShare, a.RemovalShare), cmp.Compare(b.MissingShare, a.MissingShare), cmp.Compare(b.ClaimShare, a.ClaimShare), cmp.Compare(b.Cost.cpu(), a.Cost.cpu()), cmp.Compare(b.Cost.share(), a.Cost.share()))
	})
	for i := range kept {
		kept[i].Grade = grade(v, kept, i)
		kept[i].HitRate = hitRates.of(kept[i])
	}
	return kept, dropped
}

// beside says whether others' direct claims are why so little is left for f.
func beside(found []Finding, f *Finding) bool {
	return slices.ContainsFunc(found, func(o Finding) bool {
		return o.ID != f.ID && o.Direct && !o.Invalidates && o.Explains >= worthNaming
	})
}

// following is the part of what is left to wait for, once the causes of more are
// mended, from which a claim is what to look at next: twice what is worth naming, for
// what is left is what others did not claim, and part of that is noise.
const following = 2 * worthNaming

// follows says whether f, whose claim was measured at its cause and is small beside
// others', is a good part of what pods would still wait for without these. In a stage of
// which others claim the most, what they leave is how well theirs is known.
func follows(v *View, found []Finding, f *Finding) bool {
	if !f.Direct || f.Invalidates || f.free() {
		return false
	}
	left := v.Lost.PodSeconds
	for _, o := range found {
		if o.ID == f.ID || o.Invalidates || o.free() || o.Explains < worthNaming {
			continue
		}
		if o.Claims[f.Stage] > 0 {
			return false
		}
		left -= o.MassSeconds
	}
	return left < v.Lost.PodSeconds && left >= feltMean*float64(max(1, v.Counts.Seen)) && f.MassSeconds >= following*left
}

// free says that a finding holds nobody up and so needs no symptom: it stands
// for its own cost, behind those that do.
func (f *Finding) free() bool { return f.Class == Waste || f.Class == Risk }

// slight says whether a finding explains too little of anything to be named for it.
func (f *Finding) slight() bool {
	return max(f.Explains, f.RequestShare, f.RemovalShare, f.MissingShare, f.ClaimShare) < worthNaming
}

// gone is the share of all pods from which one that keeps them away for good comes
// before what makes the others late.
const gone = 0.1

// filling is the share of the lost time from which what fills a resource comes
// before its being full: a tenth more or less is what runs differ by.
const filling = 0.15

// fills says whether the finding is why a resource at capacity is full.
func (f *Finding) fills() bool { return f.Consumes && f.Explains >= filling }

func strongest(fs []Finding) *Finding {
	var best *Finding
	for i := range fs {
		if best == nil || fs[i].Explains > best.Explains {
			best = &fs[i]
		}
	}
	return best
}

// grade follows research/faults.md 3.6. Without calibration nothing measured
// alone gets beyond likely; proven needs a second run.
func grade(v *View, kept []Finding, i int) Grade {
	f := kept[i]
	if f.Grade != "" { // a detector may cap itself
		return f.Grade
	}
	var excess, runnerUp float64
	for stage := range f.Claims {
		excess += v.Excess(stage)
	}
	coverage, mine := 1.0, f.Explains
	switch {
	case f.free():
		mine = 1 // nobody else explains what it costs
	case f.fills():
		// It claims its part of a full resource, and no more.
		claimed := 0.0
		for _, stage := range sortedKeys(f.Claims) {
			claimed += f.Claims[stage]
		}
		coverage = f.MassSeconds / claimed
	case f.RemovalShare > 0 || f.MissingShare > 0:
		mine = 1 // nobody else explains what the collector waits for, or what is gone
	case f.ClaimShare > 0 && f.Explains < worthNaming:
		coverage, mine = f.ClaimShare, f.ClaimShare
	case f.Explains < worthNaming && f.RequestShare > 0:
		coverage, mine = f.RequestShare, f.RequestShare
	case excess > 0:
		coverage = f.MassSeconds / excess
	}
	for j := range kept {
		switch {
		case j == i || f.free() || f.RemovalShare > 0 || f.MissingShare > 0 || f.ClaimShare > 0 || f.fills() && kept[j].Class == Capacity:
		case mine == f.RequestShare && mine != f.Explains:
			runnerUp = max(runnerUp, kept[j].RequestShare)
		default:
			runnerUp = max(runnerUp, kept[j].Explains)
		}
	}
	switch {
	case f.Sources >= 2 && coverage >= 0.6 && runnerUp <= mine/2 && v.StagesOK && !v.Cut:
		return Confirmed
	case f.Sources >= 1 && coverage >= 0.4:
		return Likely
	}
	return Possible
}

// Invalid lists why the run's numbers must not be used.
func (v *View) Invalid() []string {
	var why []string
	m := v.Meta
	switch m.Status {
	case record.StatusComplete:
	case "":
		why = append(why, "the recording does not say how it ended")
	default:
		reason := string(m.Status)
		if m.EndReason != "" {
			reason += ": " + m.EndReason
		}
		why = append(why, "the recording is "+reason)
	}
	if v.WarmUp != "" {
		why = append(why, fmt.Sprintf("the load never began: what follows is of phase %s, which warms up", v.WarmUp))
	}
	why = append(why, m.Invalid...)
	c := v.Counts
	switch {
	case v.Observed:
	case v.HasOperations && c.Expected == 0 && c.Seen == 0:
		// The load was of other things: reads, objects without pods.
	case v.PodsWatched && c.Seen == 0 && c.Expected > 0:
		why = append(why, fmt.Sprintf("none of the %d pods that were asked for appeared", c.Expected))
	case !v.HasPods || c.Seen == 0:
		why = append(why, "no pod was observed")
	default:
		if c.Lost > 0 {
			why = append(why, fmt.Sprintf("%d of %d pods never appeared", c.Lost, c.Expected))
		}
		switch k := v.Claims; {
		case c.Stuck == 0:
		case k != nil && k.Missing == "" && c.Stuck <= k.Pending:
			// What they wait for was followed, and is what the run says.
			v.Warnings = append(v.Warnings, fmt.Sprintf("%d of %d pods never ran: %d of %d claims were never bound", c.Stuck, c.Seen, k.Pending, k.Expected))
		default:
			verb := "never ran"
			if v.EndsBound {
				verb = "were never scheduled"
			}
			why = append(why, fmt.Sprintf("%d of %d pods %s", c.Stuck, c.Seen, verb))
		}
	}
	if k := v.Claims; k != nil && k.Lost > 0 {
		why = append(why, fmt.Sprintf("%d of %d claims never appeared", k.Lost, k.Expected))
	}
	if c.Missed > 0 {
		why = append(why, fmt.Sprintf("the load generator never sent %d of %d requests", c.Missed, c.Requests))
	}
	if c.Errors > 0 {
		why = append(why, fmt.Sprintf("%d of %d requests of the load failed%s", c.Errors, c.Requests, v.refusal()))
	}
	if bad, text := v.watchGaps(); bad {
		why = append(why, text)
	} else if text != "" {
		v.Warnings = append(v.Warnings, text)
	}
	return why
}

// refusal is how most of the load's failed requests failed, with the first one's
// own words, which name who refused it: ", 27 with 403: …".
func (v *View) refusal() string {
	code, n, words := v.Refusals()
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf(", %d with %d", n, code)
	if code == 0 {
		text = fmt.Sprintf(", %d without an answer", n)
	}
	if words != "" {
		text += ": " + words
	}
	return text
}

// Refusals are the code with which most of the load's failed requests were answered (0
// is none), how many these are, and the first one's own words.
func (v *View) Refusals() (code int32, most int, words string) {
	n, first := map[int32]int{}, map[int32]string{}
	for _, o := range v.Operations {
		if o.SentMicros == 0 || o.Error == "" && o.Code < 400 {
			continue
		}
		if n[o.Code]++; n[o.Code] == 1 {
			first[o.Code] = o.Error
		}
	}
	for c, count := range n {
		if count > most || count == most && c < code {
			code, most = c, count
		}
	}
	// The words are those of whatever answered: nothing of them steers a terminal.
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, first[code]))
	const enough = 300
	if len(runes) > enough {
		runes = append(runes[:enough], '…')
	}
	return code, most, string(runes)
}

// blind bounds what a broken watch of pods may spoil. It resumes where it was,
// so that nothing is lost, but what happened meanwhile is seen late, by the
// length of the break at most. A starved API server breaks watches now and
// then. Times are not to be used when the watch was down for this share of the
// load and a break was this share of a typical pod's way.
const blind = 0.10

// watchGaps says whether the pods' own times cannot be trusted, and why.
func (v *View) watchGaps() (bad bool, text string) {
	var down, longest float64
	n := 0
	for _, g := range v.Meta.Gaps {
		if !blindCollector(g) {
			continue
		}
		start, end := g.Start, g.End
		if start.IsZero() {
			return true, fmt.Sprintf("the %s collector saw nothing: %s", g.Collector, g.Reason)
		}
		if end.IsZero() || end.After(v.Load.End) {
			end = v.Load.End
		}
		if start.Before(v.Load.Start) {
			start = v.Load.Start
		}
		if s := end.Sub(start).Seconds(); s > 0 {
			down += s
			longest = max(longest, s)
			n++
		}
	}
	if n == 0 {
		return false, ""
	}
	text = fmt.Sprintf("the watch of pods was down %d times for %.1f of %.1f s; what happened then was seen up to %.2f s late", n, down, v.Span(), longest)
	return down >= blind*v.Span() && longest >= blind*v.typicalWay(), text
}

// blindCollector says whether a gap is one of those that watch pods and
// remember what was asked for.
func blindCollector(g record.Gap) bool {
	return g.Collector == "objects" || g.Collector == "operations"
}

// typicalWay is the median time from a pod's due time to its running, in
// seconds; 0 where none ran.
func (v *View) typicalWay() float64 {
	var ways []float64
	for _, p := range v.Pods {
		if p.DueMicros != 0 && p.RunningMicros != 0 {
			ways = append(ways, float64(p.RunningMicros-p.DueMicros)/1e6)
		}
	}
	if len(ways) == 0 {
		return 0
	}
	return stat.Median(ways)
}

func sortedKeys[T any](m map[string]T) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
