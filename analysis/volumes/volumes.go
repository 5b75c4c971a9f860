// Package volumes derives how persistent volume claims came to be bound,
// attached and used from the lives of objects in a recording. It states what
// was; detectors judge.
//
// Start with Of, then Summarize.
package volumes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// A Claim is one PersistentVolumeClaim's way. Times are microseconds as
// everywhere in a recording, when a watch showed it; 0 means not observed.
// Durations are seconds; -1 means that an end of them was not observed in time.
type Claim struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	State     string `json:"state"` // the last: Pending, Bound, Lost, or deleted
	Volume    string `json:"volume,omitempty"`
	Node      string `json:"node,omitempty"` // that it was attached to first, else that the scheduler chose for it
	Class     string `json:"class,omitempty"`
	// Mode is immediate or wait-for-first-consumer, from how the claim came to
	// its volume; empty where neither can be told.
	Mode string `json:"mode,omitempty"`
	// DueMicros is when the load had to ask for it; 0 where nothing tells.
	DueMicros int64 `json:"due,omitempty"`
	// CreatedMicros is 0 of a claim that was there before the recording.
	CreatedMicros     int64 `json:"created,omitempty"`
	SelectedMicros    int64 `json:"selected,omitempty"`    // the scheduler chose its node
	ProvisionedMicros int64 `json:"provisioned,omitempty"` // its volume was created, which may be before it was
	BoundMicros       int64 `json:"bound,omitempty"`
	ScheduledMicros   int64 `json:"scheduled,omitempty"` // the first pod that uses it had a node
	RequestedMicros   int64 `json:"requested,omitempty"` // its attachment was asked for
	AttachedMicros    int64 `json:"attached,omitempty"`
	RunningMicros     int64 `json:"running,omitempty"` // the first pod that uses it was running
	DeletedMicros     int64 `json:"deleted,omitempty"`

	ProvisionSeconds float64 `json:"provisionSeconds"` // created to provisioned; -1 too where the volume was there before
	BindSeconds      float64 `json:"bindSeconds"`      // created to bound
	AttachSeconds    float64 `json:"attachSeconds"`    // created to attached
	RunSeconds       float64 `json:"runSeconds"`       // created to running

	// Failures are the warnings of which Events about the claim tell, such as
	// ProvisioningFailed; -1 where Events were not recorded.
	Failures    int    `json:"failures"`
	LastFailure string `json:"lastFailure,omitempty"` // reason of the last of them
	// Late: a time is that of sight after a broken watch, so that there are no
	// durations.
	Late bool `json:"late,omitempty"`
}

// Of derives the claims of a recording, sorted by creation, namespace and
// name. It fails with record.ErrMissing where claims were not watched.
func Of(rec *record.Recording) ([]Claim, error) {
	objects, err := rec.Objects()
	if err != nil {
		return nil, err
	}
	for _, g := range rec.Meta().Gaps {
		// A gap with times is a stretch; one without, all of the recording.
		if g.Subject == "persistentvolumeclaims" && g.Start.IsZero() {
			return nil, fmt.Errorf("claims of recording %s: %w: %s", rec.Dir(), record.ErrMissing, g.Reason)
		}
	}
	events, err := rec.Events()
	watched := err == nil
	pods, err := rec.Pods()
	if err != nil {
		pods = nil // who uses a claim is then not observed
	}
	claims := Derive(objects, events, watched, pods)
	if ops, err := rec.Operations(); err == nil {
		Due(claims, ops)
	}
	return claims, nil
}

// Due gives claims the times at which the load had to ask for them.
func Due(claims []Claim, ops []record.Operation) {
	type key struct{ namespace, name string }
	asked := map[key][]record.Operation{}
	for _, op := range ops {
		if op.Resource == "persistentvolumeclaims" && (op.Verb == "create" || op.Verb == "apply") && op.SentMicros != 0 {
			k := key{op.Namespace, op.Name}
			asked[k] = append(asked[k], op)
		}
	}
	for i := range claims {
		c := &claims[i]
		for _, op := range asked[key{c.Namespace, c.Name}] { // the last that was sent before
			if c.CreatedMicros != 0 && op.SentMicros <= c.CreatedMicros {
				c.DueMicros = op.DueMicros
			}
		}
	}
}

// Derive is Of for rows in order of time. Without watched there are no Events
// because nobody looked.
func Derive(objects []record.ObjectChange, events []record.Event, watched bool, pods []record.Pod) []Claim {
	type key struct{ namespace, name string }
	var (
		claims   = map[string]*way{} // by UID
		named    = map[key][]*way{}
		order    []*way
		born     = map[string]int64{}  // when a volume was created
		volumes  = map[key]int64{}     // the same, by its claim and its name
		asked    = map[string][]mark{} // attachments, by volume
		attached = map[string][]mark{} // by volume
		users    = map[string]record.Pod{}
		placed   = map[key][]mark{} // by claim: when a pod had a node
		uses     = map[key][]mark{} // by claim: when a pod was running
	)
	for _, p := range pods {
		users[p.UID] = p
	}
	for _, o := range objects {
		switch o.Kind {
		case "PersistentVolumeClaim":
			c := claims[o.UID]
			if c == nil {
				c = &way{Claim: Claim{Namespace: o.Namespace, Name: o.Name, UID: o.UID}}
				if !watched {
					c.Failures = -1
				}
				claims[o.UID] = c
				named[key{o.Namespace, o.Name}] = append(named[key{o.Namespace, o.Name}], c)
				order = append(order, c)
			}
			c.take(o)
		case "PersistentVolume":
			if o.Change == "added" && !o.Late {
				born[o.Name] = o.TimeMicros
			}
			if at := born[o.Name]; at != 0 && o.Ref != "" {
				volumes[key{o.Ref, o.Name}] = at
			}
		case "VolumeAttachment":
			if o.Change == "added" {
				asked[o.Ref] = append(asked[o.Ref], mark{o.TimeMicros, o.Node, o.Late})
			}
			if o.State == "attached" && o.Change != "existing" && o.Change != "deleted" {
				attached[o.Ref] = append(attached[o.Ref], mark{o.TimeMicros, o.Node, o.Late})
			}
		case "Pod":
			k, p := key{o.Namespace, o.Ref}, users[o.UID]
			if p.BoundMicros != 0 {
				placed[k] = append(placed[k], mark{at: p.BoundMicros})
			}
			if p.RunningMicros != 0 {
				uses[k] = append(uses[k], mark{at: p.RunningMicros})
			}
		}
	}
	for _, e := range events {
		if e.Kind != "PersistentVolumeClaim" || e.Type != "Warning" {
			continue
		}
		// An Event of a name that was used again is of the claim of its time.
		for _, c := range slices.Backward(named[key{e.Namespace, e.Name}]) {
			if c.CreatedMicros <= e.TimeMicros {
				c.Failures += int(e.Count)
				c.LastFailure = e.Reason
				break
			}
		}
	}
	out := make([]Claim, len(order))
	for i, c := range order {
		c.ProvisionedMicros = volumes[key{c.Namespace + "/" + c.Name, c.Volume}]
		if m, ok := c.first(attached[c.Volume]); ok && c.Volume != "" {
			c.AttachedMicros, c.Node = m.at, m.node
			c.Late = c.Late || m.late
		}
		if m, ok := c.first(asked[c.Volume]); ok && c.Volume != "" {
			c.RequestedMicros = m.at
			c.Late = c.Late || m.late
		}
		if m, ok := c.first(placed[key{c.Namespace, c.Name}]); ok {
			c.ScheduledMicros = m.at
		}
		if m, ok := c.first(uses[key{c.Namespace, c.Name}]); ok {
			c.RunningMicros = m.at
		}
		switch {
		case c.selectedBefore || c.SelectedMicros != 0:
			c.Mode = "wait-for-first-consumer"
		case c.ProvisionedMicros != 0:
			c.Mode = "immediate"
		}
		c.ProvisionSeconds = c.since(c.ProvisionedMicros)
		c.BindSeconds = c.since(c.BoundMicros)
		c.AttachSeconds = c.since(c.AttachedMicros)
		c.RunSeconds = c.since(c.RunningMicros)
		out[i] = c.Claim
	}
	slices.SortStableFunc(out, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.CreatedMicros, b.CreatedMicros), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// way is a claim while its rows are read.
type way struct {
	Claim
	// What it had when the recording began has no time, and must not get that
	// of a later row.
	selectedBefore, boundBefore bool
}

// mark is something that happened to a volume or claim.
type mark struct {
	at   int64
	node string
	late bool
}

// first is the earliest mark of the claim's own life: names and volumes are
// used again.
func (c *way) first(marks []mark) (found mark, ok bool) {
	for _, m := range marks {
		if m.at < c.CreatedMicros || c.DeletedMicros != 0 && m.at > c.DeletedMicros {
			continue
		}
		if !ok || m.at < found.at {
			found, ok = m, true
		}
	}
	return found, ok
}

// take follows the claim by one row of its own.
func (c *way) take(o record.ObjectChange) {
	c.Late = c.Late || o.Late
	c.State = o.State
	if o.Ref != "" {
		c.Volume = o.Ref
	}
	if o.Node != "" {
		c.Node = o.Node
	}
	if o.Class != "" {
		c.Class = o.Class
	}
	selected, bound := o.Node != "", o.State == "Bound"
	switch o.Change {
	case "existing":
		c.selectedBefore, c.boundBefore = selected, bound
		return
	case "deleted":
		c.DeletedMicros, c.State = o.TimeMicros, "deleted"
		return
	case "added":
		c.CreatedMicros = o.TimeMicros
	}
	if selected && !c.selectedBefore && c.SelectedMicros == 0 {
		c.SelectedMicros = o.TimeMicros
	}
	if bound && !c.boundBefore && c.BoundMicros == 0 {
		c.BoundMicros = o.TimeMicros
	}
}

// since is how long after the claim's creation something was.
func (c *way) since(at int64) float64 {
	if c.Late || c.CreatedMicros == 0 || at == 0 || at < c.CreatedMicros {
		return -1
	}
	return float64(at-c.CreatedMicros) / 1e6
}

// A Summary is of several claims. Seconds are -1 where unknown.
type Summary struct {
	Claims   int
	Created  int // seen to be created
	Bound    int // of those
	Failures int // -1: Events were not recorded
	Late     int // left out of the stages, for their times are those of sight
	// MakespanSeconds is from the first creation to the last binding of the
	// claims that were created.
	MakespanSeconds float64
	// PerSecond is how many claims were bound in a second of that time.
	PerSecond float64
	Stages    []Stage
	Steps     []Stage
}

// A Stage is how long claims took from their creation to a point, or, of a
// summary's steps, from one point to the next. P99 needs 100 samples; with fewer
// it is -1.
type Stage struct {
	Name     string  `json:"name"` // provisioned, bound, attached, running; of a step one of Steps
	N        int     `json:"n"`
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	MaxValue float64 `json:"max"`
}

// Steps are what happens to a claim, in order, and who does it.
var Steps = []struct{ Name, What string }{
	{"provision", "from created, or from the scheduler's choice of a node where the claim waits for that, to its volume made: the provisioner"},
	{"bind", "from its volume made to Bound: the controller manager"},
	{"request", "from Bound and its pod on a node to its attachment asked for: the controller manager"},
	{"attach", "from its attachment asked for to attached: the attacher"},
	{"start", "from attached to its pod running: the node reports the volume in use, mounts it and starts the containers"},
}

// watchSkew is how much later the watch of one kind may show what happened than
// that of another: a claim may be seen bound before its volume is seen made.
const watchSkew = int64(500_000)

// steps are the claim's, in the order of Steps; -1 is unknown. A step that the
// watches show in the wrong order took no time that they could tell.
func (c *Claim) steps() []float64 {
	between := func(from, to int64) float64 {
		if c.Late || from == 0 || to == 0 || to < from-watchSkew {
			return -1
		}
		return float64(max(0, to-from)) / 1e6
	}
	usable := int64(0)
	if c.BoundMicros != 0 && c.ScheduledMicros != 0 {
		usable = max(c.BoundMicros, c.ScheduledMicros)
	}
	start := between(c.AttachedMicros, c.RunningMicros)
	if c.RequestedMicros == 0 && c.AttachedMicros == 0 { // it needs no attachment
		start = between(usable, c.RunningMicros)
	}
	return []float64{
		between(max(c.CreatedMicros, c.SelectedMicros), c.ProvisionedMicros),
		between(c.ProvisionedMicros, c.BoundMicros),
		between(usable, c.RequestedMicros),
		between(c.RequestedMicros, c.AttachedMicros),
		start,
	}
}

// A Group is the claims of one storage class and binding mode.
type Group struct {
	Class, Mode string
	Claims      []Claim
}

// Groups sorts claims by class and mode.
func Groups(claims []Claim) []Group {
	var groups []Group
	for _, c := range claims {
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Class == c.Class && g.Mode == c.Mode })
		if i < 0 {
			i = len(groups)
			groups = append(groups, Group{Class: c.Class, Mode: c.Mode})
		}
		groups[i].Claims = append(groups[i].Claims, c)
	}
	slices.SortFunc(groups, func(a, b Group) int { return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Mode, b.Mode)) })
	return groups
}

// Summarize sums up claims.
func Summarize(claims []Claim) Summary {
	s := Summary{Claims: len(claims), MakespanSeconds: -1, PerSecond: -1}
	var from, to int64
	points := []struct {
		name string
		of   func(Claim) float64
	}{
		{"provisioned", func(c Claim) float64 { return c.ProvisionSeconds }},
		{"bound", func(c Claim) float64 { return c.BindSeconds }},
		{"attached", func(c Claim) float64 { return c.AttachSeconds }},
		{"running", func(c Claim) float64 { return c.RunSeconds }},
	}
	for _, c := range claims {
		if c.Failures < 0 {
			s.Failures = -1
		} else if s.Failures >= 0 {
			s.Failures += c.Failures
		}
		if c.CreatedMicros == 0 {
			continue
		}
		s.Created++
		if c.BoundMicros != 0 {
			s.Bound++
		}
		if c.Late {
			s.Late++
			continue
		}
		if from == 0 || c.CreatedMicros < from {
			from = c.CreatedMicros
		}
		to = max(to, c.BoundMicros)
	}
	if from != 0 && to >= from {
		s.MakespanSeconds = float64(to-from) / 1e6
		if s.MakespanSeconds > 0 {
			s.PerSecond = float64(s.Bound-s.Late) / s.MakespanSeconds
		}
	}
	for _, p := range points {
		s.Stages = append(s.Stages, stageOf(p.name, claims, p.of))
	}
	for i, step := range Steps {
		s.Steps = append(s.Steps, stageOf(step.Name, claims, func(c Claim) float64 { return c.steps()[i] }))
	}
	return s
}

func stageOf(name string, claims []Claim, of func(Claim) float64) Stage {
	st := Stage{Name: name, P50: -1, P99: -1, MaxValue: -1}
	var xs []float64
	for _, c := range claims {
		if v := of(c); v >= 0 {
			xs = append(xs, v)
			st.MaxValue = max(st.MaxValue, v)
		}
	}
	st.N = len(xs)
	if v, ok := stat.Quantile(xs, 0.5); ok {
		st.P50 = v
	}
	if v, ok := stat.Quantile(xs, 0.99); ok {
		st.P99 = v
	}
	return st
}
