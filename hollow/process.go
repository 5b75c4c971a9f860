package hollow

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
)

// An Event is one line of kubedyno-hollow's stdout.
type Event struct {
	Event string `json:"event"` // listening, progress, node, ready, error

	MetricsURL string `json:"metricsURL,omitempty"` // listening

	*Progress // progress

	Name              string `json:"name,omitempty"` // node
	CreatedMicros     int64  `json:"createdMicros,omitempty"`
	ReadyMicros       int64  `json:"readyMicros,omitempty"`
	SchedulableMicros int64  `json:"schedulableMicros,omitempty"`

	Nodes              int      `json:"nodes,omitempty"` // ready
	ReadySeconds       float64  `json:"readySeconds,omitempty"`
	SchedulableSeconds float64  `json:"schedulableSeconds,omitempty"`
	LeftOut            []string `json:"leftOut,omitempty"`

	Error string `json:"error,omitempty"` // error
}

// Progress says how many nodes have come how far.
type Progress struct {
	Registered  int `json:"registered"`
	Ready       int `json:"ready"`
	Schedulable int `json:"schedulable"`
}

// ProcessMain is kubedyno-hollow: it reads the Config from the first line of
// stdin, runs the fleet, and returns when stdin ends (the parent is gone), a
// command says stop, or ctx ends. stdout carries Events, one a line. It has told
// stderr of the error that it returns: who sees only that it ended knows why.
//
// One goroutine is left reading stdin if that is still open.
func ProcessMain(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var mu sync.Mutex
	out := json.NewEncoder(stdout)
	emit := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if out.Encode(e) != nil {
			cancel() // nobody listens
		}
	}
	fail := func(err error) error {
		emit(Event{Event: "error", Error: err.Error()})
		fmt.Fprintf(stderr, "%s: %v\n", UserAgent, err)
		return err
	}

	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if len(bytes.TrimSpace(line)) == 0 {
		return fail(fmt.Errorf("hollow config: stdin ended before the first line (%w)", err))
	}
	conf, err := ParseConfig(line)
	if err != nil {
		return fail(err)
	}
	debug.SetGCPercent(gcPercent(conf.Nodes))
	fleet, err := NewFleet(conf, emit)
	if err != nil {
		return fail(err)
	}
	go func() {
		defer cancel()
		if err := commands(in); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", UserAgent, err)
		}
	}()
	if err := fleet.Run(ctx); err != nil {
		return fail(err)
	}
	return nil
}

// gcPercent lets a small fleet's heap grow further before it is collected: with
// a few megabytes alive, the default collects every few hundred requests. A
// large fleet keeps Go's default, for memory is what it is short of.
func gcPercent(nodes int) int {
	const plenty, usual = 400, 100
	return max(usual, min(plenty, 20000/nodes))
}

// commands reads commands until one says stop or the input ends.
func commands(in *bufio.Reader) error {
	for {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var c struct {
				Do string `json:"do"`
			}
			switch bad := json.Unmarshal(line, &c); {
			case bad != nil:
				return fmt.Errorf("command %q: %w", line, bad)
			case c.Do == "stop":
				return nil
			default:
				return fmt.Errorf("command %q is not known", c.Do)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
