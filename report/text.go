package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// Options say how to write text. The zero value is plain text for 80 columns.
type Options struct {
	Format string // text or json; empty is text
	Color  bool   // the caller knows whether w is a terminal and what NO_COLOR says
	Width  int    // columns; 0 = 80
}

// WriteDiagnosis writes d as text or JSON.
func WriteDiagnosis(w io.Writer, o Options, d *diagnose.Diagnosis) error {
	if o.Format == "json" {
		return writeJSON(w, d)
	}
	t := newText(o)
	t.diagnosis(cleaned(d))
	_, err := io.WriteString(w, t.String())
	return err
}

// WriteSummary writes what a finished run says, and where to go from here. dir
// is the recording's folder as the user would name it.
func WriteSummary(w io.Writer, o Options, m record.Meta, d *diagnose.Diagnosis, dir string) error {
	d, m = cleaned(d), cleaned(m)
	t := newText(o)
	t.verdict(d)
	t.line("")
	var facts []string
	if c := d.Claims; c != nil {
		text := fmt.Sprintf("%d of %d claims were bound", c.Bound, c.Expected)
		if d.Pods.Expected > 0 {
			text += ";"
		}
		facts = append(facts, text)
	}
	if d.Claims == nil || d.Pods.Expected > 0 {
		facts = append(facts, arrived(d))
	}
	if d.Window.Seconds > 0 {
		facts = append(facts, "in "+seconds(d.Window.Seconds))
	}
	if m.Nodes.Count > 0 {
		kind := "nodes"
		switch {
		case m.Nodes.Seeded == m.Nodes.Count:
			kind = "seeded nodes"
		case m.Nodes.Simulated:
			kind = "simulated nodes"
		}
		facts = append(facts, fmt.Sprintf("on %d %s", m.Nodes.Count, kind))
	}
	line := strings.Join(facts, " ")
	if m.Machine.CPUs > 0 {
		line += fmt.Sprintf("; this machine has %s", plural(m.Machine.CPUs, "CPU"))
	}
	t.wrap("", "", line+".")
	if m.Nodes.Fidelity != "" {
		t.wrap("", "", fmt.Sprintf("What simulated nodes leave out is in the recording (%d things); %s.", len(m.LeftOut), m.Nodes.Fidelity))
	}
	t.numbers(d)
	t.claims(d)
	t.notAssessed(d)
	for _, wn := range d.Warnings {
		t.wrap("", t.paint(yellow, "warning: "), wn)
	}
	t.line("")
	t.line("recording  " + dir)
	t.line("more       kubedyno diagnose " + quote(dir))
	if d.Valid && len(d.Findings) > 0 && len(d.Findings[0].Advice.Set) > 0 {
		t.line("prove it   kubedyno prove " + quote(dir))
	}
	_, err := io.WriteString(w, t.String())
	return err
}

// quote makes a path safe to paste into a shell.
func quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,=", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (t *text) diagnosis(d *diagnose.Diagnosis) {
	t.verdict(d)
	t.numbers(d)
	t.claims(d)
	t.stages(d)
	for i, f := range d.Findings {
		t.finding(i+1, f)
	}
	t.notAssessed(d)
	if len(d.RuledOut) > 0 {
		t.head("Ruled out")
		for _, c := range d.RuledOut {
			t.wrap("  ", c.ID+": ", c.Why)
		}
	}
	t.resources(d)
	t.slopes(d)
	t.healthy(d)
	if len(d.Warnings) > 0 {
		t.head("Warnings")
		for _, w := range d.Warnings {
			t.wrap("  ", "", w)
		}
	}
}

// verdict is the first line: what a reader takes away who reads no further.
func (t *text) verdict(d *diagnose.Diagnosis) {
	c := green
	switch {
	case !d.Valid:
		c = red
	case len(d.Findings) > 0:
		c = bold
	case len(d.NotAssessed) > 0:
		c = yellow
	}
	t.wrapStyled(c, Verdict(d))
	if !d.Valid {
		for _, r := range d.InvalidReasons[min(1, len(d.InvalidReasons)):] {
			t.wrapStyled(c, "Not valid: "+sentence(r))
		}
		t.wrap("", "", "The numbers of this run must not be used.")
		if len(d.Findings) > 0 {
			t.wrap("", "", sentence(d.Findings[0].Summary))
		}
	}
}

func (t *text) numbers(d *diagnose.Diagnosis) {
	rows := [][]string{}
	row := func(label, value, note string) { rows = append(rows, []string{label, value, note}) }
	n := func(n int) string { return fmt.Sprintf("n %d", n) }
	if tp := d.Throughput; tp != nil {
		row("throughput", number(tp.Mean)+" pods/s", fmt.Sprintf("mean; 1 s samples p50 %s, max %s, %s", number(tp.P50), number(tp.Max), n(tp.N)))
	} else {
		row("throughput", "not assessed", "too short to sample")
	}
	lat := func(label string, l diagnose.LatencyOf) {
		if l.N == 0 {
			row(label, "not assessed", "no sample")
			return
		}
		var parts []string
		for _, q := range []struct {
			name string
			v    *float64
		}{{"p50", l.P50}, {"p90", l.P90}, {"p99", l.P99}, {"max", l.Max}} {
			if q.v != nil {
				parts = append(parts, q.name+" "+seconds(*q.v))
			}
		}
		note := n(l.N)
		if l.P99 == nil {
			note += "; too few for a p99"
		}
		if l.Incomplete > 0 {
			note += fmt.Sprintf("; %d never arrived", l.Incomplete)
		}
		row(label, strings.Join(parts, ", "), note)
	}
	if l := d.Latencies.Scheduling; l != nil {
		t.scheduler(d, row)
		lat("created→bound", *l)
	} else {
		lat("pod startup", d.Latencies.PodStartup)
		lat("intent latency", d.Latencies.Intent)
	}
	if h := d.Harness; h.MillisecondsPerPod != nil {
		v := number(*h.MillisecondsPerPod) + " ms CPU/pod"
		note := ""
		if h.CPUShare != nil {
			note = fmt.Sprintf("%.0f %% of harness and control plane", 100**h.CPUShare)
		}
		row("harness cost", v, note)
	} else if h.CPUSeconds != nil {
		note := ""
		if h.CPUShare != nil {
			note = fmt.Sprintf("%.0f %% of harness and control plane", 100**h.CPUShare)
		}
		row("harness cost", number(*h.CPUSeconds)+" CPU-s", note)
	} else {
		row("harness cost", "not assessed", "processes were not recorded")
	}
	if ms, ok := planePerPod(d.Harness.ByProcess); ok {
		row("control plane", number(ms)+" ms CPU/pod", "")
	}
	p := d.Pods
	var bad []string
	for _, c := range []struct {
		n    int
		what string
	}{{p.Lost, "never seen"}, {p.Stuck, neverArrived(d)}, {p.Missed, "requests never sent"}, {p.Errors, "requests refused"}} {
		if c.n > 0 {
			bad = append(bad, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(bad) > 0 {
		row("incomplete", strings.Join(bad, ", "), "")
	}
	for _, ob := range d.Objectives {
		switch {
		case !ob.Assessed:
			row("objective", ob.Name, "not assessed, and so not met: "+ob.Reason)
		case ob.Met:
			row("objective", ob.Name, fmt.Sprintf("met: %s, limit %s, n %d%s", valueOf(ob), number(ob.Limit), ob.N, because(ob.Reason)))
		default:
			row("objective", ob.Name, fmt.Sprintf("MISSED: %s, limit %s, n %d%s", valueOf(ob), number(ob.Limit), ob.N, because(ob.Reason)))
		}
	}
	t.line("")
	for _, r := range rows {
		text := r[1]
		if r[2] != "" {
			text += "  (" + r[2] + ")"
		}
		t.wrap("", fmt.Sprintf("%-15s ", r[0]), text)
	}
}

func (t *text) stages(d *diagnose.Diagnosis) {
	stages := pageStages(d)
	if len(stages) == 0 {
		return
	}
	t.head("Where pods waited")
	name := 10
	for _, s := range stages {
		name = max(name, len(s.Name))
	}
	top := 0.0
	for _, s := range stages {
		top = max(top, s.PerPod)
	}
	// name, bar, wait, share, in, out
	bar := max(6, min(30, t.width-2-name-1-1-9-7-9-9))
	t.line(t.paint(dim, fmt.Sprintf("  %-*s %-*s %9s %6s %8s %8s", name, "stage", bar, "", "s/pod", "share", "in/s", "out/s")))
	for _, s := range stages {
		if !s.Measured {
			t.wrap("  ", fmt.Sprintf("%-*s ", name, s.Name), t.paint(yellow, "not measured")+": "+s.Why)
			continue
		}
		in := "–"
		if s.RateIn == nil && s.RateOut != nil && arrivesAtOnce(s.Name) {
			in = "at once"
		}
		if s.RateIn != nil {
			in = number(*s.RateIn)
		}
		out := "–"
		if s.RateOut != nil {
			out = number(*s.RateOut)
		}
		length := 0.0
		if top > 0 {
			length = s.PerPod / top * float64(bar)
		}
		t.line(fmt.Sprintf("  %-*s %s %9s %5.0f%% %8s %8s", name, s.Name, t.paint(blue, pad(blocks(length), bar)), number(s.PerPod), 100*s.Share, in, out))
	}
	if d.Unsplit != nil {
		t.wrap("  ", t.paint(yellow, strings.Join(d.Unsplit.Stages, "+"))+": ", d.Unsplit.Reason)
	}
}

// arrivesAtOnce: the stages at which a whole Deployment arrives in one request,
// so that a missing rate means that and not ignorance.
func arrivesAtOnce(stage string) bool {
	return stage == diagnose.Submit || stage == diagnose.Accept || stage == diagnose.Controller
}

// blocks draws a bar of that many columns, to an eighth.
func blocks(columns float64) string {
	eighths := int(math.Round(columns * 8))
	s := strings.Repeat("█", eighths/8)
	if r := eighths % 8; r > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[r-1])
	}
	return s
}

func pad(s string, columns int) string {
	return s + strings.Repeat(" ", max(0, columns-utf8.RuneCountInString(s)))
}

func (t *text) finding(i int, f diagnose.Finding) {
	t.head(fmt.Sprintf("Finding %d · %s · %s", i, f.Class, f.Grade))
	t.wrap("  ", "", sentence(f.Summary))
	if f.Cause != "" {
		t.wrap("  ", "", sentence(f.Cause))
	}
	where := []string{f.Component}
	if f.Stage != "" {
		where = append(where, "stage "+f.Stage)
	}
	if f.Resource != "" {
		where = append(where, f.Resource)
	}
	switch {
	case f.Class == diagnose.Waste || f.Class == diagnose.Risk:
	case f.RemovalShare > 0:
		where = append(where, fmt.Sprintf("holds up %.0f %% of the load", 100*f.RemovalShare))
	case f.MissingShare > 0:
		where = append(where, fmt.Sprintf("explains %.0f %% of the pods that never ran", 100*f.MissingShare))
	case f.ClaimShare > 0 && f.Explains == 0:
		where = append(where, fmt.Sprintf("leaves %.0f %% of the claims without a volume", 100*f.ClaimShare))
	default:
		where = append(where, fmt.Sprintf("explains %.0f %% of the lost pod-seconds", 100*f.Explains))
	}
	if f.RequestShare > 0 {
		where = append(where, fmt.Sprintf("and %.0f %% of what requests took too long", 100*f.RequestShare))
	}
	t.wrap("  ", "", t.paint(dim, strings.Join(where, ", ")))
	if f.RequestShare > 0 || f.RemovalShare > 0 || f.MissingShare > 0 {
		t.wrap("  ", "suffered: ", f.Suffered)
	}
	if f.Cost != nil {
		t.wrap("  ", "costs: ", f.Cost.String())
	}
	if f.CodePath != "" {
		t.wrap("  ", "", t.paint(dim, f.CodePath))
	}
	width := 0
	values := make([]string, len(f.Evidence))
	for k, e := range f.Evidence {
		if e.Kind != "pattern" {
			value, unit := readable(e)
			values[k] = strings.TrimSpace(number(value) + " " + unit)
		}
		width = max(width, utf8.RuneCountInString(values[k]))
	}
	for k, e := range f.Evidence {
		what := e.Text
		if what == "" {
			what = e.Ref
		}
		t.wrap("    ", strings.Repeat(" ", width-utf8.RuneCountInString(values[k]))+values[k]+"  ", what)
	}
	if f.Advice.Text != "" {
		t.wrap("  ", t.paint(bold, "change: "), f.Advice.Text)
	}
	for _, s := range settings(f.Advice.Set) {
		t.line("    --set " + s) // never wrapped: to be copied
	}
	if f.Prediction != nil && f.Prediction.Text != "" {
		t.wrap("  ", "then: ", f.Prediction.Text)
	}
	if f.RefutedBy != "" {
		t.wrap("  ", "refuted by: ", f.RefutedBy)
	}
	if f.HitRate != "" {
		t.wrap("  ", t.paint(dim, string(f.Grade)+": "), f.HitRate)
	}
}

func (t *text) notAssessed(d *diagnose.Diagnosis) {
	if len(d.NotAssessed) == 0 {
		return
	}
	t.head("Not assessed")
	for _, u := range d.NotAssessed {
		t.wrap("  ", t.paint(yellow, u.ID)+": ", u.Missing)
	}
}

func (t *text) resources(d *diagnose.Diagnosis) {
	var bounded []diagnose.Resource
	for _, r := range d.Resources {
		if r.Bound > 0 {
			bounded = append(bounded, r)
		}
	}
	if len(bounded) == 0 {
		return
	}
	sort.SliceStable(bounded, func(i, j int) bool { return bounded[i].Bound < bounded[j].Bound })
	t.head("Bounds, lowest first")
	name := 8
	for _, r := range bounded {
		name = max(name, utf8.RuneCountInString(r.Name))
	}
	name = min(name, t.width-32)
	t.line(t.paint(dim, fmt.Sprintf("  %-*s %9s %8s %8s", name, "resource", "pods/s", "reached", "busy")))
	for _, r := range bounded {
		t.line(fmt.Sprintf("  %-*s %9s %7.0f%% %7.0f%%", name, cut(r.Name, name), number(r.Bound), 100*r.Reached, 100*r.Utilisation))
		if r.Note != "" {
			t.wrap("    ", "", t.paint(dim, r.Note))
		}
	}
}

// seconds is a duration with its unit, in three digits.
func seconds(s float64) string {
	switch a := math.Abs(s); {
	case a >= 1:
		return number(s) + " s"
	case a >= 0.001 || a == 0:
		return number(s*1000) + " ms"
	default:
		return number(s*1e6) + " µs"
	}
}

func cut(s string, columns int) string {
	r := []rune(s)
	if len(r) <= columns {
		return s
	}
	return string(r[:columns-1]) + "…"
}

// text builds output for a terminal.
type text struct {
	strings.Builder
	width int
	color bool
}

// maxWidth keeps lines readable on wide terminals.
const maxWidth = 100

func newText(o Options) *text {
	w := o.Width
	if w <= 0 {
		w = 80
	}
	return &text{width: max(40, min(w, maxWidth)), color: o.Color}
}

type style string

const (
	bold   style = "1"
	dim    style = "2"
	red    style = "1;31"
	green  style = "1;32"
	yellow style = "33"
	blue   style = "34"
)

func (t *text) paint(s style, text string) string {
	if !t.color || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func (t *text) line(s string) {
	t.WriteString(strings.TrimRight(s, " "))
	t.WriteByte('\n')
}

func (t *text) head(s string) {
	t.line("")
	t.line(t.paint(bold, s))
}

func (t *text) wrapStyled(s style, body string) {
	for _, l := range fold(body, t.width) {
		t.line(t.paint(s, l))
	}
}

// wrap writes indent, then lead, then body; what does not fit goes on below the body.
func (t *text) wrap(indent, lead, body string) {
	hang := columns(indent) + columns(lead)
	first := indent + lead
	if hang > t.width/2 { // a long name gets a line of its own
		t.line(first)
		hang = columns(indent) + 2
		first = strings.Repeat(" ", hang)
	}
	for i, l := range fold(body, t.width-hang) {
		if i > 0 {
			first = strings.Repeat(" ", hang)
		}
		t.line(first + l)
	}
}

// fold breaks text at spaces. A word that is too long stays whole: paths and
// flags are there to be copied.
func fold(body string, width int) []string {
	var lines []string
	line, n := "", 0
	for _, word := range strings.Fields(body) {
		c := columns(word)
		if n > 0 && n+1+c > width {
			lines = append(lines, line)
			line, n = "", 0
		}
		if n > 0 {
			line, n = line+" ", n+1
		}
		line, n = line+word, n+c
	}
	return append(lines, line)
}

// columns counts what a reader sees: no escape sequences.
func columns(s string) int {
	n, escape := 0, false
	for _, r := range s {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			n++
		}
	}
	return n
}

// clean takes control characters out of text that came from a cluster: a name
// must not move the cursor, colour the screen or reorder a line.
func clean(s string) string {
	if !strings.ContainsFunc(s, suspicious) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if suspicious(r) {
			return '�'
		}
		return r
	}, s)
}

// cleaned is a copy of v with every text in it clean.
func cleaned[T any](v T) T {
	out := reflect.New(reflect.TypeFor[T]()).Elem()
	cleanInto(out, reflect.ValueOf(&v).Elem())
	return out.Interface().(T)
}

func cleanInto(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.String:
		to.SetString(clean(from.String()))
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			cleanInto(to.Elem(), from.Elem())
		}
	case reflect.Struct:
		to.Set(from) // unexported fields, as time.Time has, travel as they are
		for i := range from.NumField() {
			if from.Type().Field(i).IsExported() {
				cleanInto(to.Field(i), from.Field(i))
			}
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				cleanInto(to.Index(i), from.Index(i))
			}
		}
	case reflect.Map:
		if !from.IsNil() {
			to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
			for k, v := range from.Seq2() {
				ck, cv := reflect.New(k.Type()).Elem(), reflect.New(v.Type()).Elem()
				cleanInto(ck, k)
				cleanInto(cv, v)
				to.SetMapIndex(ck, cv)
			}
		}
	default:
		to.Set(from)
	}
}

func suspicious(r rune) bool {
	return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 ||
		r == 0x200e || r == 0x200f || r == 0x061c || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// valueOf is what an objective came to; failures are counted and have no unit.
func valueOf(o record.Objective) string {
	switch {
	case o.Unit == "1":
		return number(o.Value)
	case o.Assessed && !o.Met && o.Value == 0 && o.Unit == "s":
		return "–" // of nothing that came, a latency is none
	}
	return number(o.Value) + " " + o.Unit
}

// because adds a reason where there is one.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return "; " + reason
}
