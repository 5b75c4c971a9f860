// Package progress shows how a run goes while it goes.
//
// On a terminal a block of a few lines is redrawn in place; elsewhere a plain
// line is written every few seconds, and at each new phase, so that a log
// stays readable. Nothing moves unless the caller calls Update.
//
// Start with New and State.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// State is where a phase of a run stands.
type State struct {
	Claims    bool // the numbers are of claims: Scheduled are those that are bound
	Total     int  // pods that the phase asks for; 0 = unknown
	Created   int  // seen by the watch
	Scheduled int
	Running   int // including those that ran and are gone
	Gone      int // deleted again
	// EndsBound says that pods are done when they are scheduled; Running is then
	// as many as Scheduled.
	EndsBound bool

	// CPU used since the last state, in cores; negative where unknown.
	ControlPlaneCores, OwnCores float64
}

const (
	// redraw is the fastest rate that a person still reads, and slow enough to cost nothing.
	redraw = 100 * time.Millisecond
	// plainEvery spaces the lines of a log.
	plainEvery = 5 * time.Second
	// recent is the stretch over which the rate now, the ETA and the sparkline are taken.
	recent = 30 * time.Second
	// rateWindow is the stretch of "now": short enough to show a change, long
	// enough to smooth a controller's bursts.
	rateWindow = 5 * time.Second
	// assumedWidth is what is assumed where the terminal does not tell.
	assumedWidth = 80
)

// Progress draws one run. Its methods may be called at the same time.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer
	tty   bool
	color bool
	width func() int
	now   func() time.Time

	phase     string
	start     time.Time // of the run
	state     State
	seen      bool // a state has arrived in this phase
	samples   []sample
	first     sample // the last moment before the first pod ran
	last      sample // the last moment at which one more pod ran
	drawn     int    // lines of the block on the terminal
	written   time.Time
	announced bool // the present phase has a plain line
	done      bool
}

type sample struct {
	at      time.Time
	running int
}

// New returns a Progress that writes to w. width tells the terminal's columns,
// or 0 where it does not know; it may be nil. now is the clock; nil is time.Now.
// NO_COLOR in the environment switches colours off.
func New(w io.Writer, isTTY bool, width func() int, now func() time.Time) *Progress {
	if now == nil {
		now = time.Now
	}
	if width == nil {
		width = func() int { return 0 }
	}
	return &Progress{
		w: w, tty: isTTY, color: isTTY && os.Getenv("NO_COLOR") == "", width: width, now: now,
		start: now(),
	}
}

// Phase begins a phase of the run.
func (p *Progress) Phase(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || name == p.phase {
		return
	}
	p.settle()
	p.phase, p.announced = name, false
	p.restart()
	p.draw(true)
}

// Update shows a new state.
func (p *Progress) Update(s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	now := p.now()
	if s.Claims { // they are done when they are bound
		s.Running = s.Scheduled
	}
	if s.Running < p.state.Running || s.Claims != p.state.Claims { // counting began anew
		p.restart()
	}
	if s.Running > p.state.Running || !p.seen {
		if p.state.Running == 0 || !p.seen {
			p.first = sample{now, s.Running}
			if n := len(p.samples); n > 0 && s.Running > 0 {
				p.first = p.samples[n-1] // the rate counts from before the first pod
			}
		}
		p.last = sample{now, s.Running}
	}
	p.state, p.seen = s, true
	p.samples = append(p.samples, sample{now, s.Running})
	for len(p.samples) > 2 && now.Sub(p.samples[1].at) >= recent {
		p.samples = p.samples[1:]
	}
	p.draw(false)
}

// settle replaces the block by one line of how the phase ended.
func (p *Progress) settle() {
	p.erase()
	if p.seen && p.active() && (p.tty || p.now().Sub(p.written) >= time.Second) {
		fmt.Fprintln(p.w, p.plain())
	}
}

// restart forgets what a phase before told: its rate is not this one's.
func (p *Progress) restart() {
	p.samples, p.state, p.seen = nil, State{}, false
	p.first, p.last = sample{}, sample{}
}

// Note prints a line that stays, above the block.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	fmt.Fprintln(p.w, text)
	if !p.done {
		p.draw(true)
	}
}

// Done ends the display: the block goes, and one plain line of where things
// stand remains. Later calls write notes only.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	p.settle()
	p.done = true
}

// draw brings the terminal up to date. force skips the spacing in time.
func (p *Progress) draw(force bool) {
	now := p.now()
	if !p.tty {
		switch {
		case !p.announced && p.phase != "":
			// Every phase has its line at once, whatever the spacing.
			fmt.Fprintf(p.w, "%s %s\n", clock(now.Sub(p.start)), p.phase)
			p.announced, p.written = true, now
		case p.seen && !force && now.Sub(p.written) >= plainEvery && p.active():
			fmt.Fprintln(p.w, p.plain())
			p.written = now
		}
		return
	}
	if !force && now.Sub(p.written) < redraw {
		return
	}
	lines := p.block()
	var b strings.Builder
	p.eraseTo(&b)
	for _, l := range lines {
		b.WriteString(l)
		b.WriteString("\n")
	}
	io.WriteString(p.w, b.String())
	p.drawn, p.written = len(lines), now
}

// active says whether there is anything to tell beside the phase.
func (p *Progress) active() bool {
	s := p.state
	return s.Total > 0 || s.Created > 0 || s.Running > 0
}

func (p *Progress) erase() {
	var b strings.Builder
	p.eraseTo(&b)
	io.WriteString(p.w, b.String())
}

// eraseTo moves to the block's first line and clears to the end of the screen.
func (p *Progress) eraseTo(b *strings.Builder) {
	if p.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\r\x1b[J", p.drawn)
		p.drawn = 0
	}
}

// plain is the whole state in one line, after the 2015 study's
// "229 of 3000 created, 211 running, 18 pending, 0 waiting".
func (p *Progress) plain() string {
	s := p.state
	f := p.figures()
	if s.Claims {
		return fmt.Sprintf("%s %s claims created, %d bound, %d pending, %d waiting  (%s/s, mean %s/s, ETA %s; control plane %s cores, kubedyno %s)",
			clock(p.now().Sub(p.start)), totals(s), s.Running, f.pending, f.waiting, f.rate, f.mean, f.eta, cores(s.ControlPlaneCores), cores(s.OwnCores))
	}
	return fmt.Sprintf("%s %s, %d %s, %d pending, %d waiting  (%s/s, mean %s/s, ETA %s; control plane %s cores, kubedyno %s)",
		clock(p.now().Sub(p.start)), created(s), s.Running, s.done(), f.pending, f.waiting, f.rate, f.mean, f.eta, cores(s.ControlPlaneCores), cores(s.OwnCores))
}

// done is what pods are at the end of their way.
func (s State) done() string {
	if s.EndsBound {
		return "scheduled"
	}
	return "running"
}

func created(s State) string { return totals(s) + " created" }

// totals is how many of how many there are.
func totals(s State) string {
	if s.Total > 0 {
		return fmt.Sprintf("%d of %d", s.Created, s.Total)
	}
	return fmt.Sprint(s.Created)
}

func (p *Progress) block() []string {
	now := p.now()
	width := p.width()
	if width <= 0 {
		width = assumedWidth
	}
	width-- // a line as wide as the terminal wraps in some
	phase := p.phase
	if phase == "" {
		phase = "starting"
	}
	head := fmt.Sprintf("%s  %s", p.paint(bold, phase), p.paint(dim, clock(now.Sub(p.start))))
	if !p.seen || !p.active() {
		return []string{clip(head, width)}
	}
	s, f := p.state, p.figures()
	lines := []string{head}

	if s.Total > 0 {
		size := min(40, width-22)
		if size >= 8 {
			lines = append(lines, fmt.Sprintf("%s %3d %%  ETA %s", p.bar(size), 100*min(s.Running, s.Total)/s.Total, f.eta))
		} else {
			lines = append(lines, fmt.Sprintf("%d %%  ETA %s", 100*min(s.Running, s.Total)/s.Total, f.eta))
		}
	}
	counts, what := fmt.Sprintf("%s, %d scheduled, %d running, %d waiting", created(s), s.Scheduled, s.Running, f.waiting), "pods"
	switch {
	case s.Claims:
		counts, what = fmt.Sprintf("%s claims created, %d bound, %d waiting", totals(s), s.Running, f.waiting), "claims"
	case s.EndsBound:
		counts = fmt.Sprintf("%s, %d scheduled, %d waiting", created(s), s.Scheduled, f.waiting)
	}
	if s.Gone > 0 {
		counts += fmt.Sprintf(", %d gone", s.Gone)
	}
	lines = append(lines, wrap(counts, width)...)
	rate := fmt.Sprintf("%s %s/s now, mean %s", f.rate, what, f.mean)
	if spark := p.spark(min(30, width-len(rate)-2)); spark != "" {
		rate += "  " + p.paint(blue, spark)
	}
	lines = append(lines, rate)
	lines = append(lines, wrap(fmt.Sprintf("CPU: control plane %s cores, kubedyno %s", cores(s.ControlPlaneCores), cores(s.OwnCores)), width)...)
	for i := range lines {
		lines[i] = clip(lines[i], width)
	}
	return lines
}

type figures struct {
	pending, waiting int
	rate, mean, eta  string
}

// unknown stands for a number that is not known.
const unknown = "–"

func (p *Progress) figures() figures {
	s := p.state
	f := figures{pending: max(0, s.Created-s.Running), waiting: max(0, s.Total-s.Created), rate: unknown, mean: unknown, eta: unknown}
	if s.Total == 0 {
		f.waiting = 0
	}
	now, ok := p.rateNow()
	if ok {
		f.rate = rate(now)
	}
	if d := p.last.at.Sub(p.first.at).Seconds(); d >= 1 {
		f.mean = rate(float64(p.last.running-p.first.running) / d)
	}
	switch left := s.Total - s.Running; {
	case s.Total == 0:
	case left <= 0:
		f.eta = "0s"
	case ok && now > 0:
		f.eta = short(time.Duration(float64(left) / now * float64(time.Second)))
	}
	return f
}

// rateNow is pods that started per second over the last seconds.
func (p *Progress) rateNow() (float64, bool) {
	n := len(p.samples)
	if n < 2 {
		return 0, false
	}
	last := p.samples[n-1]
	i := n - 2
	for i > 0 && last.at.Sub(p.samples[i].at) < rateWindow {
		i--
	}
	d := last.at.Sub(p.samples[i].at).Seconds()
	if d < 1 {
		return 0, false
	}
	return float64(last.running-p.samples[i].running) / d, true
}

// spark draws the running rate of each of the last n seconds.
func (p *Progress) spark(n int) string {
	if n < 5 || len(p.samples) < 2 {
		return ""
	}
	last := p.samples[len(p.samples)-1].at
	per := make([]float64, n)
	known := make([]bool, n)
	for i := 1; i < len(p.samples); i++ {
		a, b := p.samples[i-1], p.samples[i]
		d := b.at.Sub(a.at).Seconds()
		if d <= 0 {
			continue
		}
		// Spread over each second that the two samples span.
		for k := range per {
			to := last.Add(-time.Duration(n-1-k) * time.Second)
			from := to.Add(-time.Second)
			lo, hi := a.at, b.at
			if from.After(lo) {
				lo = from
			}
			if to.Before(hi) {
				hi = to
			}
			if o := hi.Sub(lo).Seconds(); o > 0 {
				per[k] += float64(b.running-a.running) / d * o
				known[k] = true
			}
		}
	}
	top := 0.0
	for _, v := range per {
		top = max(top, v)
	}
	if top == 0 {
		return ""
	}
	levels := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for k, v := range per {
		if !known[k] {
			continue
		}
		b.WriteRune(levels[min(len(levels)-1, max(0, int(v/top*float64(len(levels)))))])
	}
	return b.String()
}

// bar shows created, scheduled and running as three depths of one bar.
func (p *Progress) bar(size int) string {
	at := func(n int) int { return min(size, n*size/max(1, p.state.Total)) }
	run, bound, made := at(p.state.Running), at(p.state.Scheduled), at(p.state.Created)
	var b strings.Builder
	b.WriteString(p.paint(blue, strings.Repeat("█", run)))
	b.WriteString(p.paint(blue, strings.Repeat("▓", max(0, bound-run))))
	b.WriteString(p.paint(dim, strings.Repeat("▒", max(0, made-max(bound, run)))))
	b.WriteString(p.paint(dim, strings.Repeat("░", max(0, size-max(made, bound, run)))))
	return b.String()
}

func rate(x float64) string { return fmt.Sprintf("%.1f", max(0, x)) }

func cores(x float64) string {
	if x < 0 || x != x {
		return unknown
	}
	return fmt.Sprintf("%.2f", x)
}

// clock is a running time that keeps its width: 0:07, 12:40, 1:02:03.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// short is a duration as one says it: 7s, 2m18s, 3h05m.
func short(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	switch {
	case s >= 100*3600:
		return unknown // so slow that the number would only pretend to know
	case s >= 3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	case s >= 60:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	return fmt.Sprintf("%ds", s)
}

type style string

const (
	bold style = "1"
	dim  style = "2"
	blue style = "34"
)

func (p *Progress) paint(s style, text string) string {
	if !p.color || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// wrap breaks text at commas, for terminals too narrow for one line.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, part := range strings.SplitAfter(text, ", ") {
		if line != "" && len([]rune(line+strings.TrimRight(part, " "))) > width {
			lines = append(lines, strings.TrimRight(line, " "))
			line = ""
		}
		line += part
	}
	return append(lines, line)
}

// clip cuts a line to width columns, counting no escape sequences. A longer
// line would wrap, and the next redraw would leave its rest on the screen.
func clip(line string, width int) string {
	var b strings.Builder
	columns, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
			b.WriteRune(r)
		case escape: // kept also beyond the cut, so that a colour ends
			escape = r != 'm'
			b.WriteRune(r)
		case columns < width:
			columns++
			b.WriteRune(r)
		}
	}
	return b.String()
}
