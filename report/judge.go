package report

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// judge fills the part of a round that the diagnosis tells.
func (r *Round) judge(d *diagnose.Diagnosis) {
	r.Assessed = true
	r.Valid, r.Invalid = d.Valid, d.InvalidReasons
	r.Verdict = Verdict(d)
	r.Stages = pageStages(d)
	r.Rates.Bounds = bounds(d)
	for _, f := range d.Findings {
		r.Findings = append(r.Findings, pageFinding(f))
	}
	for _, c := range d.RuledOut {
		r.RuledOut = append(r.RuledOut, Reason{c.ID, c.Why})
	}
	for _, u := range d.NotAssessed {
		r.NotAssessed = append(r.NotAssessed, Reason{u.ID, u.Missing})
	}
	for _, w := range d.Warnings {
		if !contains(r.Warnings, w) {
			r.Warnings = append(r.Warnings, w)
		}
	}
	// One number for one thing: where the diagnosis counted it, its count stands.
	h := d.Harness
	r.Harness = HarnessCost{}
	if h.CPUSeconds != nil && h.MillisecondsPerPod != nil {
		r.Harness = HarnessCost{Measured: true, CPUSeconds: *h.CPUSeconds, PerPodMs: *h.MillisecondsPerPod}
		if h.CPUShare != nil {
			r.Harness.Share = *h.CPUShare
		}
	}
	for i := range r.Headline {
		switch r.Headline[i].ID {
		case "harness-per-pod":
			r.Headline[i].Value = h.MillisecondsPerPod
		case "cpu-per-pod":
			if ms, ok := planePerPod(h.ByProcess); ok {
				r.Headline[i].Value = &ms
			} else if h.CPUSeconds != nil { // and no pod came
				r.Headline[i].Value = nil
			}
		case "rate":
			if d.Throughput != nil {
				mean := d.Throughput.Mean
				r.Headline[i].Value, r.Headline[i].Label = &mean, "Scheduling throughput, mean"
			}
		}
	}
}

func planePerPod(by []diagnose.ProcessCPU) (ms float64, ok bool) {
	for _, p := range by {
		if !p.Harness && p.MillisecondsPerPod != nil {
			ms, ok = ms+*p.MillisecondsPerPod, true
		}
	}
	return ms, ok
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Verdict is the diagnosis in one sentence.
func Verdict(d *diagnose.Diagnosis) string {
	switch {
	case !d.Valid && len(d.InvalidReasons) > 0:
		return "Not valid: " + sentence(d.InvalidReasons[0])
	case !d.Valid:
		return "Not valid."
	case len(d.Findings) > 0:
		f := d.Findings[0]
		if f.Class == diagnose.Waste || f.Class == diagnose.Risk {
			return "Nothing held it back. " + sentence(f.Summary)
		}
		return sentence(f.Summary)
	case len(d.NotAssessed) > 0:
		return fmt.Sprintf("Nothing found that held it back; %s could not be assessed.", plural(len(d.NotAssessed), "cause"))
	}
	return "Nothing held it back."
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s != "" && !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return s
}

func pageStages(d *diagnose.Diagnosis) []PageStage {
	pods := float64(d.Pods.Seen)
	if pods == 0 { // those that were asked for wait all the same
		pods = float64(d.Pods.Expected)
	}
	var out []PageStage
	add := func(name string, wait, share float64, in, outRate *float64) {
		s := PageStage{Name: name, Measured: true, WaitSeconds: wait, Share: share, RateIn: in, RateOut: outRate}
		if pods > 0 {
			s.PerPod = wait / pods
		}
		out = append(out, s)
	}
	// Stages that are only known together stand as one, where the first of them would.
	together := map[string]bool{}
	if d.Unsplit != nil {
		for _, name := range d.Unsplit.Stages {
			together[name] = true
		}
	}
	shown := false
	for _, s := range d.Stages {
		if u := d.Unsplit; together[s.Name] && s.WaitSeconds == nil {
			if !shown {
				add(strings.Join(u.Stages, "+"), u.WaitSeconds, u.Share, nil, nil)
				out[len(out)-1].Why = u.Reason
				shown = true
			}
			continue
		}
		if s.WaitSeconds == nil {
			out = append(out, PageStage{Name: s.Name, Why: s.Reason, RateIn: s.RateIn, RateOut: s.RateOut})
			continue
		}
		share := 0.0
		if s.Share != nil {
			share = *s.Share
		}
		add(s.Name, *s.WaitSeconds, share, s.RateIn, s.RateOut)
	}
	return out
}

// maxBounds is how many ceilings the throughput chart may carry: the lowest
// ones matter, a dozen lines would hide the curves.
const maxBounds = 4

func bounds(d *diagnose.Diagnosis) []Bound {
	var out []Bound
	for _, r := range d.Resources { // lowest bound first
		if r.Bound > 0 && len(out) < maxBounds {
			out = append(out, Bound{Label: boundLabel(d, r), Component: r.Component, Value: r.Bound})
		}
	}
	return out
}

func boundLabel(d *diagnose.Diagnosis, r diagnose.Resource) string {
	if r.Kind == "client-limit" {
		// People know a limit by its setting, in requests; pods may need more than one.
		for _, l := range d.Limits {
			if l.Component == r.Component && l.QPS > 0 {
				label := fmt.Sprintf("%s client limit %s/s", r.Component, number(l.QPS))
				if math.Abs(r.Bound/l.QPS-1) > 0.02 {
					label += fmt.Sprintf(" = %s pods/s", number(r.Bound))
				}
				return label
			}
		}
		return fmt.Sprintf("%s client limit %s pods/s", r.Component, number(r.Bound))
	}
	return fmt.Sprintf("%s ≈ %s/s", r.Name, number(r.Bound))
}

func pageFinding(f diagnose.Finding) PageFinding {
	p := PageFinding{
		ID: f.ID, Class: string(f.Class), Component: f.Component, Stage: f.Stage, Resource: f.Resource,
		CodePath: f.CodePath, Cause: f.Cause, Summary: f.Summary, Grade: string(f.Grade), Explains: f.Explains,
		Advice: f.Advice.Text, Set: settings(f.Advice.Set), RefutedBy: f.RefutedBy, HitRate: f.HitRate,
	}
	if f.Prediction != nil {
		p.Next = f.Prediction.Text
	}
	for _, e := range f.Evidence {
		v, unit := readable(e)
		pe := PageEvidence{Kind: e.Kind, Ref: e.Ref, Unit: unit, Text: e.Text}
		if e.Kind != "pattern" { // a pattern has no number of its own
			pe.Value = &v
		}
		p.Evidence = append(p.Evidence, pe)
	}
	return p
}

// readable is a piece of evidence's number in the unit in which people read it:
// 10.2 GB/s is 10188291636 bytes/s.
func readable(e diagnose.Evidence) (float64, string) {
	base, per, _ := strings.Cut(e.Unit, "/")
	if base != "bytes" || e.Value < 1000 {
		return e.Value, unitOf(e.Unit)
	}
	digits, unit, _ := strings.Cut(diagnose.Bytes(e.Value), " ")
	value, err := strconv.ParseFloat(digits, 64)
	if err != nil { // an infinity
		return e.Value, e.Unit
	}
	if per != "" {
		unit += "/" + per
	}
	return value, unit
}

// unitOf is how a unit reads after a number: 20 /s, and nothing for a plain one.
func unitOf(unit string) string {
	switch unit {
	case "1":
		return ""
	case "1/s":
		return "/s"
	}
	return unit
}

// settings are PATH=VALUE lines, sorted.
func settings(set map[string]string) []string {
	out := make([]string, 0, len(set))
	for path, value := range set {
		out = append(out, path+"="+value)
	}
	sort.Strings(out)
	return out
}
