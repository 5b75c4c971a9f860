package report

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/kubedyno/kubedyno/analysis/blockio"
	"github.com/kubedyno/kubedyno/analysis/use"
	"github.com/kubedyno/kubedyno/analysis/volumes"
	"github.com/kubedyno/kubedyno/record"
)

const (
	// maxHeatSteps bounds the columns of a heat map: it is as wide as a chart.
	maxHeatSteps = 240
	// maxHeatMaps bounds the processes that are told apart; the rest is one more.
	maxHeatMaps = 12
	// maxClaims bounds the claims whose ways a page holds.
	maxClaims = 1000
)

// useChecks is the checklist of the whole run and of its phases.
func useChecks(rec *record.Recording, c clock) ([]UseCheck, error) {
	m := rec.Meta()
	phases := []string{""}
	for _, p := range rec.Phases() {
		// What is shorter has too few samples to say anything.
		if !slices.Contains(phases, p.Name) && p.End.Sub(p.Start) >= 5*time.Second {
			phases = append(phases, p.Name)
		}
	}
	checks, err := use.Assess(rec, phases...)
	if err != nil {
		return nil, err
	}
	zero := c.at(m.Started.UnixMicro())
	var out []UseCheck
	for _, k := range checks {
		u := UseCheck{
			Phase: k.Phase, From: k.Start + zero, To: k.End + zero, Resource: k.Resource, Instance: k.Instance, Component: k.Component,
			Kind: k.Kind, Aspect: k.Aspect, Unit: k.Unit, Watch: k.Watch, Bad: k.Bad, Verdict: k.Verdict, Detail: k.Detail,
			Evidence: k.Evidence, Source: k.Source, Reason: k.Reason,
		}
		if k.Verdict != use.NotMeasurable {
			u.Value = &k.Value
		}
		out = append(out, u)
	}
	return out, nil
}

// heat counts block requests and syncs by when they began, how long they took
// and whose they were.
func heat(rec *record.Recording, c clock) (Heat, error) {
	rows, err := rec.BlockIO()
	if err != nil && !errors.Is(err, record.ErrMissing) {
		return Heat{}, err
	}
	missing := err
	syncs, err := rec.Syncs()
	if err != nil && !errors.Is(err, record.ErrMissing) {
		return Heat{}, err
	}
	if missing != nil && err != nil {
		return Heat{}, missing
	}
	m := rec.Meta()
	seconds := m.Ended.Sub(m.Started).Seconds()
	h := Heat{Start: c.at(m.Started.UnixMicro()), Step: heatStep(seconds)}
	h.Steps = int(math.Ceil(seconds/h.Step)) + 1
	top := 0
	type key struct{ process, kind string }
	by := map[key]map[[2]int]int{}
	add := func(process, kind string, from, to int64) {
		at := int((c.at(from) - h.Start) / h.Step)
		if from == 0 || to == 0 || at < 0 || at >= h.Steps {
			return
		}
		k := key{process, kind}
		if by[k] == nil {
			by[k] = map[[2]int]int{}
		}
		b := blockio.Bucket(float64(to - from))
		top = max(top, b)
		by[k][[2]int{at, b}]++
	}
	for _, r := range rows {
		add(cmp.Or(r.Component, r.Command, "the kernel"), "requests", r.TimeMicros, r.DoneMicros)
	}
	for _, r := range syncs {
		add(cmp.Or(r.Component, r.Command, "the kernel"), "syncs", r.TimeMicros, r.DoneMicros)
	}
	total := func(cells map[[2]int]int) (n int) {
		for _, v := range cells {
			n += v
		}
		return n
	}
	var keys []key
	for k := range by {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(total(by[b]), total(by[a])), cmp.Compare(a.process, b.process), cmp.Compare(a.kind, b.kind))
	})
	for len(keys) > maxHeatMaps { // the lightest go into one of their kind
		last := keys[len(keys)-1]
		keys = keys[:len(keys)-1]
		rest := key{"all others", last.kind}
		if by[rest] == nil {
			by[rest] = map[[2]int]int{}
		}
		for at, n := range by[last] {
			by[rest][at] += n
		}
	}
	for _, kind := range []string{"requests", "syncs"} {
		if by[key{"all others", kind}] != nil {
			keys = append(keys, key{"all others", kind})
		}
	}
	for i := range top + 1 {
		h.Edges = append(h.Edges, blockio.BucketStart(i))
	}
	for _, k := range keys {
		one := HeatMap{Process: k.process, Kind: k.kind, Count: total(by[k])}
		var cells [][2]int
		for at := range by[k] {
			cells = append(cells, at)
		}
		slices.SortFunc(cells, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
		before := 0
		for _, at := range cells {
			one.Cells = append(one.Cells, at[0]-before, at[1], by[k][at])
			before = at[0]
		}
		h.Maps = append(h.Maps, one)
	}
	return h, nil
}

func heatStep(seconds float64) float64 {
	for _, step := range []float64{0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 600} {
		if seconds/step <= maxHeatSteps {
			return step
		}
	}
	return 3600
}

// claimTable is the way of each claim, and how long claims took for each step.
func claimTable(rec *record.Recording, c clock) (ClaimTable, error) {
	all, err := volumes.Of(rec)
	if err != nil {
		return ClaimTable{}, err
	}
	var t ClaimTable
	for _, g := range volumes.Groups(all) {
		name := cmp.Or(g.Class, "no class")
		if g.Mode != "" {
			name += ", " + g.Mode
		}
		for i, s := range volumes.Summarize(g.Claims).Steps {
			one := ClaimStep{Class: name, Name: s.Name, What: volumes.Steps[i].What, N: s.N}
			known := func(v float64) *float64 {
				if v < 0 {
					return nil
				}
				return &v
			}
			one.P50, one.P99, one.Max = known(s.P50), known(s.P99), known(s.MaxValue)
			t.Steps = append(t.Steps, one)
		}
	}
	all = slices.DeleteFunc(all, func(v volumes.Claim) bool { return v.CreatedMicros == 0 }) // there before the recording
	length := func(v volumes.Claim) int64 {
		end := max(v.BoundMicros, v.AttachedMicros, v.RunningMicros)
		if v.BoundMicros == 0 {
			return math.MaxInt64
		}
		return end - v.CreatedMicros
	}
	slices.SortStableFunc(all, func(a, b volumes.Claim) int { return cmp.Compare(length(b), length(a)) })
	if len(all) > maxClaims {
		t.Left = len(all) - maxClaims
		all = all[:maxClaims]
	}
	ms := func(micros int64) int {
		if micros == 0 {
			return NotSeen
		}
		return int(math.Round(c.at(micros) * 1000))
	}
	for _, v := range all {
		t.Names = append(t.Names, v.Namespace+"/"+v.Name)
		t.Class = append(t.Class, v.Class)
		t.Created = append(t.Created, ms(v.CreatedMicros))
		t.Provisioned = append(t.Provisioned, ms(v.ProvisionedMicros))
		t.Bound = append(t.Bound, ms(v.BoundMicros))
		t.Attached = append(t.Attached, ms(v.AttachedMicros))
		t.Running = append(t.Running, ms(v.RunningMicros))
	}
	return t, nil
}
