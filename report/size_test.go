package report

import (
	"bytes"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// long is a run of 25 minutes.
func long(pods int) rows {
	in := synthRows(0)
	base := in.meta.Phases[2].Start
	in.pods = nil
	for n := range pods {
		at := base.Add(25 * time.Minute * time.Duration(n) / time.Duration(pods)).UnixMicro()
		in.pods = append(in.pods, record.Pod{Phase: "load", DueMicros: base.UnixMicro(), SentMicros: base.UnixMicro(), CreatedMicros: at, BoundMicros: at + 5000, RunningMicros: at + 900_000})
	}
	var processes []record.ProcessSample
	for sec := range 1500 {
		for pid := range int32(8) {
			processes = append(processes, record.ProcessSample{
				TimeMicros: base.Add(time.Duration(sec) * time.Second).UnixMicro(), PID: pid, Component: componentOrder[pid], UserSeconds: 0.123 * float64(sec) * float64(pid),
			})
		}
	}
	in.processes = processes
	return in
}

// TestPageStaysSmall draws a long, large run: 30,000 pods over 25 minutes.
func TestPageStaysSmall(t *testing.T) {
	in := long(30_000)
	var rounds []Round
	start := time.Now()
	for range 3 {
		rounds = append(rounds, round(in, Input{}))
	}
	var b bytes.Buffer
	if err := WritePage(&b, assemble(rounds, RenderOptions{})); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kB in %v", b.Len()/1000, time.Since(start).Round(time.Millisecond))
	if b.Len() > 1<<20 {
		t.Errorf("three rounds of 30,000 pods make a page of %d kB", b.Len()/1000)
	}
}
