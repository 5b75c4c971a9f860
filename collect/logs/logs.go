// Package logs copies the logs of components into the recording while they
// grow, without secrets and up to a bound.
//
// Start with New.
package logs

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/internal/tail"
	"github.com/kubedyno/kubedyno/internal/redact"
	"github.com/kubedyno/kubedyno/record"
)

// MaxBytes is what is kept of one component's log. A component at -v=4 writes
// that in a minute, and nobody reads more.
const MaxBytes = 16 << 20

// A File is the log of one component.
type File struct {
	Component string
	Path      string
	// FromStart takes what the file holds already: the component was started
	// for this run.
	FromStart bool
}

// A Missing log cannot be read here, and why.
type Missing struct{ Component, Reason string }

// Options of a Collector.
type Options struct {
	Files    []File
	Missing  []Missing
	MaxBytes int64 // for each component
}

// A Collector follows log files.
type Collector struct {
	o Options

	mu    sync.Mutex
	files []*followed
	begin func(*followed) // while Collect runs
	ended bool
	acct  record.Observer
}

// followed is a file and what came of it.
type followed struct {
	File
	tail     *tail.Follower
	keeper   *keeper
	unopened error
	result
}

// New returns a collector of the given files. What is written to them from now
// on is collected, though Collect is called later.
func New(o Options) *Collector {
	if o.MaxBytes <= 0 {
		o.MaxBytes = MaxBytes
	}
	c := &Collector{o: o}
	c.Add(o.Files...)
	return c
}

// Add adds files, such as those of a component that was started later. Once
// Collect has ended, it does nothing.
func (c *Collector) Add(files ...File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	for _, file := range files {
		f := &followed{File: file, keeper: &keeper{room: c.o.MaxBytes}}
		f.tail, f.unopened = tail.Open(f.Path, tail.Options{FromStart: f.FromStart, Idle: f.keeper.flush})
		c.files = append(c.files, f)
		if c.begin != nil {
			c.begin(f)
		}
	}
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return "logs" }

// sink is what the collector writes to.
type sink interface {
	LogFile(component string) (io.WriteCloser, error)
	Gap(record.Gap)
}

// Collect implements collect.Collector.
func (c *Collector) Collect(ctx context.Context, w *record.Writer) error { return c.collect(ctx, w) }

func (c *Collector) collect(ctx context.Context, w sink) error {
	for _, m := range c.o.Missing {
		w.Gap(record.Gap{Collector: c.Name(), Subject: m.Component, Reason: m.Reason})
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	begin := func(f *followed) {
		if f.unopened != nil {
			w.Gap(record.Gap{Collector: c.Name(), Subject: f.Component, Reason: "log cannot be read: " + f.unopened.Error()})
			return
		}
		all.Go(func() {
			if f.result = c.copy(ctx, w, f); f.err != nil {
				cancel(f.err)
			}
		})
	}
	c.mu.Lock()
	if len(c.files) == 0 {
		c.mu.Unlock()
		return collect.NotSupported("no component's log is a file on this machine")
	}
	for _, f := range c.files {
		begin(f)
	}
	c.begin = begin
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.begin, c.ended = nil, true
	files := c.files
	c.mu.Unlock()
	all.Wait()

	var a record.Observer
	var notes []string
	var failed error
	for _, f := range files {
		a.Samples += f.lines
		a.CPUSeconds += f.cpu
		switch {
		case f.err != nil && failed == nil:
			failed = fmt.Errorf("log of %s: %w", f.Component, f.err)
		case f.note != "":
			notes = append(notes, f.Component+": "+f.note)
		}
	}
	slices.Sort(notes)
	a.Note = strings.Join(notes, "; ")
	c.mu.Lock()
	c.acct = a
	c.mu.Unlock()
	return failed
}

type result struct {
	lines int64
	cpu   float64 // seconds
	note  string
	err   error // of the recording: the run must end
}

// copy follows one file.
func (c *Collector) copy(ctx context.Context, w sink, f *followed) (r result) {
	k := f.keeper
	out, err := w.LogFile(f.Component)
	if err != nil {
		return result{err: err}
	}
	k.out = out
	stats, err := f.tail.Follow(ctx, k.line)
	switch {
	case err != nil && err == k.err:
		r.err = err
	case err != nil:
		w.Gap(record.Gap{Collector: c.Name(), Subject: f.Component, Reason: "log could not be read to its end: " + err.Error()})
	case stats.Missing:
		w.Gap(record.Gap{Collector: c.Name(), Subject: f.Component, Reason: "there was no log file"})
	}
	if k.cut {
		text := fmt.Sprintf("kubedyno: log cut here: %d more lines, %d bytes, were not kept\n", k.cutLines, k.cutBytes)
		if _, err := io.WriteString(out, text); err != nil && r.err == nil {
			r.err = err
		}
		w.Gap(record.Gap{Collector: c.Name(), Subject: f.Component,
			Reason: fmt.Sprintf("log cut after %d bytes: %d lines, %d bytes, were not kept", c.o.MaxBytes, k.cutLines, k.cutBytes)})
	}
	if err := out.Close(); err != nil && r.err == nil {
		r.err = err
	}
	r.lines, r.cpu = stats.Lines, stats.CPUSeconds
	var notes []string
	if stats.Rotated > 0 {
		notes = append(notes, fmt.Sprintf("rotated %d times", stats.Rotated))
	}
	if stats.Truncated > 0 {
		notes = append(notes, fmt.Sprintf("truncated %d times", stats.Truncated))
	}
	r.note = strings.Join(notes, ", ")
	return r
}

// keeper takes the lines of one log.
type keeper struct {
	out                io.Writer
	redact             redact.Lines
	room               int64
	cut                bool
	cutLines, cutBytes int64
	text               []byte // the line in hand, with its newline
	pending            []byte
	err                error
}

func (k *keeper) line(l tail.Line) error {
	end := 1
	if l.Partial { // a line in pieces counts once, with its last one
		end = 0
	}
	if k.cut { // nothing more is kept, so nothing is looked for
		k.cutLines += int64(end)
		k.cutBytes += int64(len(l.Text) + end)
		return nil
	}
	k.text = append(k.text[:0], l.Text...)
	if !l.Partial {
		k.text = append(k.text, '\n')
	}
	b := k.redact.Line(k.text)
	if int64(len(b)) > k.room {
		k.cut = true
		k.cutLines += int64(end)
		k.cutBytes += int64(len(b))
		return k.flush()
	}
	k.room -= int64(len(b))
	k.pending = append(k.pending, b...)
	if len(k.pending) > 64<<10 {
		return k.flush()
	}
	return nil
}

// flush writes what was gathered: one write for many lines.
func (k *keeper) flush() error {
	if len(k.pending) == 0 {
		return nil
	}
	_, k.err = k.out.Write(k.pending)
	k.pending = k.pending[:0]
	return k.err
}

// Account implements collect.Accountant.
func (c *Collector) Account() record.Observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acct
}
