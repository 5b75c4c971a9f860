package diagnose

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubedyno/kubedyno/analysis/volumes"
	"github.com/kubedyno/kubedyno/record"
)

// Claims is what became of the persistent volume claims that the measured
// phases made.
type Claims struct {
	Expected int `json:"expected"`
	Seen     int `json:"seen"`
	Bound    int `json:"bound"`
	Pending  int `json:"pending"` // seen, never bound
	Lost     int `json:"lost"`    // asked for, never seen
	// Failures are the load's operations on claims that failed, and warnings
	// about claims. Warnings is null where Events were not recorded.
	FailedOperations int    `json:"failedOperations"`
	Warnings         *int   `json:"warnings"`
	LastWarning      string `json:"lastWarning,omitempty"` // its reason
	// MakespanSeconds is from the first creation to the last binding; null where
	// none was bound.
	MakespanSeconds *float64 `json:"makespanSeconds"`
	PerSecond       *float64 `json:"perSecond"` // claims bound
	// ToBound is from a claim's due time until it is bound.
	ToBound LatencyOf    `json:"toBound"`
	Groups  []ClaimGroup `json:"groups"`
	// Missing says why claims could not be followed.
	Missing string `json:"missing,omitempty"`
}

// ClaimGroup is the claims of one storage class and binding mode.
type ClaimGroup struct {
	Class  string      `json:"class"`
	Mode   string      `json:"mode,omitempty"`
	Claims int         `json:"claims"`
	Steps  []ClaimStep `json:"steps"` // in the order in which they happen
}

// ClaimStep is how long claims took from one point to the next. Nulls are
// quantiles that the sample cannot carry.
type ClaimStep struct {
	Name string   `json:"name"`
	N    int      `json:"n"`
	P50  *float64 `json:"p50"`
	P99  *float64 `json:"p99"`
	Max  *float64 `json:"max"`
}

// accountClaims follows the claims of the measured phases.
func (v *View) accountClaims() error {
	expected := v.Meta.Workload.ExpectedClaims
	if expected == 0 || v.WarmUp != "" {
		return nil
	}
	k := &Claims{Expected: expected, Groups: []ClaimGroup{}}
	v.Claims = k
	ops, err := v.src.Operations()
	if ops, _, err = optional("operations", ops, err); err != nil {
		return err
	}
	asked := map[string]bool{} // namespace/name, of the measured phases
	named := map[string]bool{} // of all
	window, hasWindow := v.loadPhases()
	steady := v.steadyPhases()
	for _, o := range ops {
		if o.Resource != "persistentvolumeclaims" {
			continue
		}
		named[o.Namespace+"/"+o.Name] = true
		if !measured(steady, o.Phase, window, hasWindow, o.DueMicros) {
			continue
		}
		if o.SentMicros == 0 || o.Error != "" || o.Code >= 400 {
			k.FailedOperations++
		}
		if o.Verb == "create" || o.Verb == "apply" {
			asked[o.Namespace+"/"+o.Name] = true
		}
	}
	objects, err := v.src.Objects()
	if errors.Is(err, record.ErrMissing) {
		k.Missing = "claims were not watched"
		return nil
	}
	if err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	events, err := v.src.Events()
	watched := err == nil
	if err != nil && !errors.Is(err, record.ErrMissing) {
		return fmt.Errorf("read events: %w", err)
	}
	for _, g := range v.Meta.Gaps {
		if g.Subject == "persistentvolumeclaims" && g.Start.IsZero() {
			k.Missing = g.Reason
			return nil
		}
	}
	pods, err := v.src.Pods()
	if err != nil {
		pods = nil // who uses a claim is then not observed
	}
	// Nobody asks for a claim that a controller makes for a pod. One from before is
	// that of an earlier pod.
	mine, used := map[string]bool{}, map[string]bool{}
	for _, p := range v.Pods {
		mine[p.UID] = true
	}
	for _, o := range objects {
		if claim := o.Namespace + "/" + o.Ref; o.Kind == "Pod" && mine[o.UID] && !named[claim] {
			used[claim] = true
		}
	}
	all := volumes.Derive(objects, events, watched, pods)
	volumes.Due(all, ops)
	var claims []volumes.Claim
	for _, c := range all {
		name := c.Namespace + "/" + c.Name
		if c.CreatedMicros != 0 && (asked[name] || used[name] && c.CreatedMicros >= v.Load.Start.UnixMicro()) {
			claims = append(claims, c)
		}
	}
	k.follow(claims, watched)
	return nil
}

func (k *Claims) follow(claims []volumes.Claim, watched bool) {
	if watched {
		k.Warnings = new(int)
	}
	var ways []float64
	for _, c := range claims {
		k.Seen++
		if c.Failures > 0 && watched {
			*k.Warnings += c.Failures
			k.LastWarning = c.LastFailure
		}
		switch from := firstSet(c.DueMicros, c.CreatedMicros); {
		case c.BoundMicros == 0:
			k.Pending++
		default:
			k.Bound++
			ways = append(ways, time.Duration((c.BoundMicros-from)*1000).Seconds())
		}
	}
	k.Lost = max(0, k.Expected-k.Seen)
	k.ToBound = latencyOf(ways, k.Pending+k.Lost)
	k.ToBound.reached = "were bound"
	s := volumes.Summarize(claims)
	k.MakespanSeconds, k.PerSecond = known(s.MakespanSeconds), known(s.PerSecond)
	if k.Bound == 0 {
		k.MakespanSeconds, k.PerSecond = nil, nil
	}
	for _, g := range volumes.Groups(claims) {
		group := ClaimGroup{Class: g.Class, Mode: g.Mode, Claims: len(g.Claims)}
		for _, st := range volumes.Summarize(g.Claims).Steps {
			group.Steps = append(group.Steps, ClaimStep{Name: st.Name, N: st.N, P50: known(st.P50), P99: known(st.P99), Max: known(st.MaxValue)})
		}
		k.Groups = append(k.Groups, group)
	}
}

// known is nil for what is below zero, which stands for unknown.
func known(x float64) *float64 {
	if x < 0 {
		return nil
	}
	return &x
}

// judgeFailures compares the failures with the limit. Warnings that were not
// looked for are not none.
func (k *Claims) judgeFailures(o record.Objective) record.Objective {
	if k.Warnings == nil && float64(k.FailedOperations) <= o.Limit {
		o.Reason = "Events were not recorded, so that warnings about claims are unknown"
		return o
	}
	o.Assessed, o.N = true, k.Expected
	o.Value = float64(k.FailedOperations)
	if k.Warnings != nil {
		o.Value += float64(*k.Warnings)
	}
	if o.Met = o.Value <= o.Limit; !o.Met {
		o.Reason = fmt.Sprintf("%d operations failed", k.FailedOperations)
		if k.Warnings != nil && *k.Warnings > 0 {
			o.Reason += fmt.Sprintf(", %d warnings about claims, the last %s", *k.Warnings, k.LastWarning)
		}
	}
	return o
}

// steadyPhases are the names of the measured phases, or of what is judged in their place.
func (v *View) steadyPhases() map[string]bool {
	if v.WarmUp != "" {
		return map[string]bool{v.WarmUp: true}
	}
	steady := map[string]bool{}
	for _, p := range v.Meta.Phases {
		if p.Kind == record.PhaseSteady {
			steady[p.Name] = true
		}
	}
	return steady
}
