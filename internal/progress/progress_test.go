package progress

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// play drives a run of 300 pods at 20/s through p, on a made-up clock.
func play(p *Progress, now *time.Time) {
	step := func(d time.Duration) { *now = now.Add(d) }
	p.Note("recording to r")
	p.Phase("start")
	step(4 * time.Second)
	p.Phase("load")
	for tick := 0; tick <= 40; tick++ {
		at := float64(tick) / 2
		running := min(300, max(0, int((at-1)*20)))
		p.Update(State{
			Total: 300, Created: min(300, int(at*20)), Scheduled: min(300, int(at*20)), Running: running,
			ControlPlaneCores: 0.42, OwnCores: 0.11,
		})
		if tick == 12 {
			p.Note("warning: 2 audit events were dropped")
		}
		step(500 * time.Millisecond)
	}
	p.Phase("drain")
	step(2 * time.Second)
	p.Done()
	p.Note("done")
}

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name  string
		tty   bool
		width int
		plain bool // NO_COLOR
	}{{"log", false, 0, false}, {"tty", true, 80, false}, {"tty-nocolor", true, 80, true}, {"narrow", true, 28, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", "")
			if c.plain {
				t.Setenv("NO_COLOR", "1")
			}
			now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
			var b bytes.Buffer
			play(New(&b, c.tty, func() int { return c.width }, func() time.Time { return now }), &now)
			got := strings.ReplaceAll(b.String(), "\x1b", "␛")
			file := filepath.Join("testdata", c.name+".golden")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("differs from %s (run with -update, then read the diff):\n%s", file, got)
			}
		})
	}
}

// TestScreen replays the escape sequences and checks what a reader sees: one
// block, nothing left over, no line wider than the terminal.
func TestScreen(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	for _, width := range []int{12, 20, 40, 80, 200} {
		now := time.Unix(0, 0)
		s := &screen{}
		p := New(s, true, func() int { return width }, func() time.Time { return now })
		play(p, &now)
		// What stays: the notes and one line for the phase that counted.
		want := []string{"recording to r", "warning: 2 audit events were dropped", "0:24 300 of 300 created", "done"}
		if len(s.lines) != len(want) {
			t.Fatalf("width %d: the screen shows %q", width, s.lines)
		}
		for i, w := range want {
			if !strings.HasPrefix(s.lines[i], w) {
				t.Errorf("width %d: line %d is %q, want %q", width, i, s.lines[i], w)
			}
		}
		if s.widest >= width {
			t.Errorf("width %d: the block has a line of %d columns", width, s.widest)
		}
	}
}

// screen understands the two sequences that Progress uses.
type screen struct {
	lines  []string
	widest int // line that was erased again: a block's
}

func (s *screen) Write(b []byte) (int, error) {
	text := string(b)
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			n := 0
			for rest[0] >= '0' && rest[0] <= '9' {
				n = n*10 + int(rest[0]-'0')
				rest = rest[1:]
			}
			switch rest[0] {
			case 'A':
				for _, l := range s.lines[len(s.lines)-n:] {
					s.widest = max(s.widest, len([]rune(l)))
				}
				s.lines = s.lines[:len(s.lines)-n] // what follows clears below
			}
			text = strings.TrimPrefix(rest[1:], "\r")
			continue
		}
		line, rest, _ := strings.Cut(text, "\n")
		s.lines = append(s.lines, line)
		text = rest
	}
	return len(b), nil
}

func TestETA(t *testing.T) {
	now := time.Unix(0, 0)
	p := New(&bytes.Buffer{}, false, nil, func() time.Time { return now })
	p.Update(State{Total: 100})
	if got := p.figures().eta; got != unknown {
		t.Errorf("ETA without a rate is %q", got)
	}
	now = now.Add(10 * time.Second)
	p.Update(State{Total: 100, Running: 50})
	if got := p.figures(); got.eta != "10s" || got.rate != "5.0" || got.mean != "5.0" {
		t.Errorf("%+v", got)
	}
	// Nothing moves any more: no ETA is better than the old one.
	for range 6 {
		now = now.Add(time.Second)
		p.Update(State{Total: 100, Running: 50})
	}
	if got := p.figures(); got.eta != unknown || got.rate != "0.0" {
		t.Errorf("%+v", got)
	}
	if got := cores(-1); got != unknown {
		t.Errorf("unknown cores show as %q", got)
	}
}

// Of claims the display tells how many are bound: they do not run.
func TestClaims(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var log, screen bytes.Buffer
	wide := func() int { return 100 }
	for _, p := range []*Progress{New(&log, false, wide, func() time.Time { return now }), New(&screen, true, wide, func() time.Time { return now })} {
		p.Phase("claims")
		for bound := range 11 {
			p.Update(State{Claims: true, Total: 20, Created: 15, Scheduled: bound, ControlPlaneCores: -1, OwnCores: -1})
			now = now.Add(time.Second)
		}
		p.Done()
	}
	if got := log.String(); !strings.Contains(got, "15 of 20 claims created, 10 bound, 5 pending, 5 waiting  (1.0/s, mean 1.0/s, ETA 10s") || strings.Contains(got, "running") {
		t.Errorf("%s", got)
	}
	if got := screen.String(); !strings.Contains(got, "15 of 20 claims created, 10 bound, 5 waiting") || !strings.Contains(got, "claims/s now") {
		t.Errorf("%s", got)
	}
}
