package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/kubedyno/kubedyno/compare"
)

// WriteOverhead writes what a cluster or a command costs an idle machine, as
// text or JSON.
func WriteOverhead(w io.Writer, o Options, c *compare.Overhead) error {
	if o.Format == "json" {
		return writeJSON(w, c)
	}
	t := newText(o)
	t.overhead(cleaned(c))
	_, err := io.WriteString(w, t.String())
	return err
}

// overheadVerdict is an overhead in one sentence.
func overheadVerdict(o *compare.Overhead) string {
	what := "The cluster of " + o.Of
	if o.Command {
		what = o.Of
	}
	verdict := fmt.Sprintf("%s costs %s at rest", what, withInterval(o.Total, "cores"))
	if o.Machine.CPUs > 0 {
		verdict += fmt.Sprintf(": %s %% of this machine's %s", number(100*o.Total.Value/float64(o.Machine.CPUs)), plural(o.Machine.CPUs, "CPU"))
	}
	return verdict + "."
}

func (t *text) overhead(o *compare.Overhead) {
	if err := o.Err(); err != nil {
		t.wrapStyled(red, "Not valid: "+sentence(err.Error()))
	}
	t.wrapStyled(bold, overheadVerdict(o))
	t.wrap("", "", t.paint(dim, overheadNote(o)))
	t.waterfall(o)
	t.alternatives(o)

	t.head("Do the numbers add up?")
	for _, c := range o.Checks {
		mark := t.paint(green, "yes")
		switch {
		case !c.Assessed:
			mark = t.paint(yellow, "not assessed")
		case !c.OK:
			mark = t.paint(red, "NO")
		}
		text := c.Text
		if c.Name == "layers" && o.Apart != nil {
			text = fmt.Sprintf("%s: %s by layers, %s apart, difference %s", text, cores(o.Total.Value), withInterval(*o.Apart, "cores"), withInterval(c.Difference, "cores"))
		} else {
			text = fmt.Sprintf("%s: %s", text, withInterval(c.Difference, "cores"))
		}
		if !c.Assessed {
			text = "one round only; " + text
		}
		t.wrap("  ", mark+"  ", text)
	}

	t.processes(o)
	if len(o.Warnings) > 0 {
		t.head("Warnings")
		for _, w := range o.Warnings {
			t.wrap("  ", t.paint(yellow, "! "), w)
		}
	}
}

// overheadNote explains the numbers.
func overheadNote(o *compare.Overhead) string {
	return fmt.Sprintf("A core is one CPU-second a second; wake/s are wakeups a second. n counts rounds: in each, every line was looked at for %s. … is the 95 %% interval.", seconds(o.WindowSeconds))
}

// plusMinus is cores with a sign.
func plusMinus(x float64) string { return fmt.Sprintf("%+.4f", x) }

func cores(x float64) string { return fmt.Sprintf("%.4f", x) }

// withInterval is an estimate with all that belongs to it.
func withInterval(e compare.Average, unit string) string {
	switch {
	case e.N == 0:
		return "unknown"
	case e.Interval == nil:
		return fmt.Sprintf("%s %s (n=%d, no interval)", cores(e.Value), unit, e.N)
	}
	return fmt.Sprintf("%s %s (%s…%s, n=%d)", cores(e.Value), unit, cores(e.Interval.Lo), cores(e.Interval.Hi), e.N)
}

// waterfall draws the layers, each bar from where the one below ended.
func (t *text) waterfall(o *compare.Overhead) {
	t.head("Layer by layer")
	if len(o.Layers) == 0 {
		return
	}
	const nameColumns, numbers = 24, 38
	ground := o.Layers[0].Cores.Value
	most := 0.0
	for _, l := range o.Layers {
		most = max(most, l.Cores.Value-ground)
	}
	if o.Apart != nil {
		most = max(most, o.Apart.Value)
	}
	width := t.width - nameColumns - numbers - 2
	below := width < 16 // a narrow terminal gets the bars in lines of their own
	if below {
		width = t.width - 6
	}
	t.line(t.paint(dim, fmt.Sprintf("  %-*s%9s  %-17s %2s %6s", nameColumns-2, "", "cores", "", "n", "wake/s")))
	row := func(name string, value string, e compare.Average, wakeups compare.Average, from, to float64, s style) {
		interval, n, wakes := "", "", ""
		if e.N > 0 {
			n = fmt.Sprint(e.N)
		}
		if e.Interval != nil {
			interval = plusMinus(e.Interval.Lo) + "…" + plusMinus(e.Interval.Hi)
		}
		if wakeups.N > 0 {
			wakes = fmt.Sprintf("%+.0f", wakeups.Value)
		}
		line := fmt.Sprintf("  %-*s%9s  %-17s %2s %6s", nameColumns-2, t.cut(name, nameColumns-3), value, interval, n, wakes)
		drawn := t.paint(s, bar(from, to, most, width))
		if below {
			t.line(line)
			t.line("    " + drawn)
			return
		}
		t.line(line + "  " + drawn)
	}
	for i, l := range o.Layers {
		if i == 0 {
			row("machine "+l.Name, cores(l.Cores.Value), compare.Average{N: l.Cores.N}, compare.Average{}, 0, 0, dim)
			continue
		}
		from, to := o.Layers[i-1].Cores.Value-ground, l.Cores.Value-ground
		s := blue
		if to < from {
			s = yellow
		}
		row("+ "+l.Name, plusMinus(l.Step.Value), l.Step, l.Wakeups, from, to, s)
	}
	row("= all layers", plusMinus(o.Total.Value), o.Total, compare.Average{}, 0, o.Total.Value, bold)
	if o.Apart != nil {
		row("  the whole, apart", plusMinus(o.Apart.Value), *o.Apart, compare.Average{}, 0, o.Apart.Value, dim)
	}
	if o.Paused != nil {
		row("  "+o.Paused.Name, plusMinus(o.Paused.Cores.Value), o.Paused.Cores, compare.Average{}, 0, o.Paused.Cores.Value, green)
	}
	for _, a := range o.Instead {
		row("  "+a.Name, plusMinus(a.Cores.Value), a.Cores, compare.Average{}, 0, a.Cores.Value, green)
	}
}

// cut shortens a name to a number of columns.
func (t *text) cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// bar is drawn from one value to another on a scale of width columns. Its right
// end has eighths of a column; what is there at all has at least one of them.
func bar(from, to, most float64, width int) string {
	if most <= 0 || from == to {
		return ""
	}
	block := '█'
	if to < from {
		from, to, block = to, from, '░'
	}
	eighths := func(x float64) int { return int(math.Round(8 * float64(width) * max(0, x) / most)) }
	a, b := eighths(from)/8, eighths(to)
	full := b/8 - a
	rest := b % 8
	if full <= 0 && rest == 0 {
		full, rest = 0, 1
	}
	out := strings.Repeat(" ", a) + strings.Repeat(string(block), max(0, full))
	if rest > 0 && full >= 0 {
		if block == '█' {
			out += string([]rune("▏▎▍▌▋▊▉")[rest-1])
		} else {
			out += "░"
		}
	}
	return out
}

// alternatives say what the cluster costs in another state, and what that saves.
func (t *text) alternatives(o *compare.Overhead) {
	all := o.Instead
	if o.Paused != nil {
		all = append([]compare.Alternative{*o.Paused}, all...)
	}
	if len(all) == 0 {
		return
	}
	t.head("What it saves")
	for _, a := range all {
		text := fmt.Sprintf("%s less than %s", withInterval(a.Saved, "cores"), a.Than)
		if !a.Saved.Excludes(0) {
			text = fmt.Sprintf("~ no difference that %s can show: %s less than %s", plural(a.Saved.N, "round"), withInterval(a.Saved, "cores"), a.Than)
		} else if a.Share != nil {
			text += fmt.Sprintf(", %.0f %% of its cost", 100**a.Share)
		}
		t.wrap("  ", t.paint(bold, a.Name)+"  ", text)
		if len(a.Set) > 0 {
			t.wrap("    ", "", t.paint(dim, strings.Join(a.Set, " ")))
		}
	}
}

// leastShown is from how many cores on a process has a line, mostOthers how many
// have one that do not belong here.
const (
	leastShown = 0.0005
	mostOthers = 4
)

func (t *text) processes(o *compare.Overhead) {
	t.head("Where it is used")
	t.line(t.paint(dim, fmt.Sprintf("  %-26s %8s %8s %9s  %-17s %3s %10s", "", "without", "with", "more", "", "n", "wakeups/s")))
	row := func(name string, a, b, d, w compare.Average) {
		interval, wakes := "", "–"
		if d.Interval != nil {
			interval = plusMinus(d.Interval.Lo) + "…" + plusMinus(d.Interval.Hi)
		}
		if w.N > 0 {
			wakes = fmt.Sprintf("%.0f", w.Value)
		}
		t.line(fmt.Sprintf("  %-26s %8s %8s %9s  %-17s %3d %10s", t.cut(name, 26), cores(a.Value), cores(b.Value), plusMinus(d.Value), interval, d.N, wakes))
	}
	titles := map[string]string{
		compare.OfCluster: "the cluster's", compare.OfKernel: "the kernel's",
		compare.OfObserver: "ours, who measure: not counted", compare.OfOthers: "others': not counted",
	}
	if o.Command {
		titles[compare.OfCluster] = "the command's"
	}
	owner, hidden, others := "", 0, 0
	for _, p := range o.Processes {
		if p.Owner == compare.OfOthers {
			others++
		}
		if p.With.Value < leastShown && p.Without.Value < leastShown || others > mostOthers {
			hidden++
			continue
		}
		if p.Owner != owner {
			owner = p.Owner
			t.line(t.paint(dim, " "+titles[owner]))
		}
		row(p.Name, p.Without, p.With, p.Difference, p.Wakeups)
	}
	t.line(t.paint(dim, " the machine's own count"))
	for _, m := range o.Modes {
		row(m.Name, m.Without, m.With, m.Difference, compare.Average{})
	}
	if hidden > 0 {
		t.line(t.paint(dim, fmt.Sprintf("  %s more, below %g cores or others', in -o csv", plural(hidden, "line"), leastShown)))
	}
}
