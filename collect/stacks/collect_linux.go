package stacks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/internal/beat"
	"github.com/kubedyno/kubedyno/record"
)

func (c *Collector) collect(ctx context.Context, w sink, observes func()) error {
	period := time.Duration(float64(time.Second) / c.o.Rate)
	rings, err := openRings(period)
	if err != nil {
		return err
	}
	defer closeRings(rings)
	observes()
	s := newSampler(w)
	defer s.close()
	a := record.Observer{IntervalSeconds: period.Seconds()}
	a.CPUSeconds += collect.CPU(s.askKernel)
	defer func() {
		s.tellLost()
		if n := len(s.noMaps); n > 0 {
			w.Gap(record.Gap{Collector: c.Name(), Subject: "functions of other users' processes",
				Reason: fmt.Sprintf("/proc/PID/maps of %d processes may not be read, so that their frames have no names: run as root, or grant CAP_SYS_PTRACE", n)})
		}
		a.Samples = s.samples
		a.Note = s.note(len(rings))
		c.mu.Lock()
		c.acct = a
		c.mu.Unlock()
	}()
	tick := beat.NewTicker(drainInterval)
	defer tick.Stop()
	var waiting []event
	swept := time.Now()
	for last := false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			for _, r := range rings {
				r.stop()
			}
			last = true
		}
		a.CPUSeconds += collect.CPU(func() {
			waiting = c.drain(s, rings, waiting, last)
			if now := time.Now(); now.Sub(swept) > sweepInterval {
				swept = now
				s.sweep()
			}
		})
		if last {
			return nil
		}
	}
}

// drain empties the buffers and handles what they held in order of time: a
// process may have been started on one CPU and sampled on another. What came
// while the buffers were being read waits for the next time.
func (c *Collector) drain(s *sampler, rings []*ring, waiting []event, last bool) []event {
	c.mu.Lock()
	known := maps.Clone(c.known)
	c.mu.Unlock()
	s.attach(known)
	until := s.clock.set()
	now := time.Now()
	for _, r := range rings {
		r.drain(func(b []byte) {
			e, ok, err := parseEvent(b)
			if err != nil {
				s.lose(1, now)
				return
			}
			if ok {
				e.chain = slices.Clone(e.chain)
				waiting = append(waiting, e)
			}
		})
	}
	slices.SortStableFunc(waiting, func(a, b event) int { return cmp.Compare(a.time, b.time) })
	n := 0
	for n < len(waiting) && (last || waiting[n].time <= until) {
		s.handle(waiting[n], now)
		n++
	}
	c.forget(s.ended)
	s.ended = s.ended[:0]
	return slices.Delete(waiting, 0, n)
}

// forget gives up the names of processes that ended; their PIDs may be used
// again, and one that was attached after that is somebody else.
func (c *Collector) forget(ends []ended) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range ends {
		if n, ok := c.known[e.pid]; ok && n.seq == e.seq && n.at.UnixMicro() < e.micros {
			delete(c.known, e.pid)
		}
	}
}

// note says how good the stacks are, for people.
func (s *sampler) note(cpus int) string {
	share := 0.0
	if s.frames > 0 {
		share = float64(s.unknown) / float64(s.frames)
	}
	symbols := int64(cap(s.kernel.syms.list))*16 + int64(cap(s.kernel.syms.names))
	for _, f := range s.files {
		if f.object != nil {
			symbols += int64(cap(f.object.syms.list)) * 16
		}
	}
	return fmt.Sprintf("%d CPUs; %d stacks of %d KiB; %.1f %% of their frames without a name; %d records lost; buffers %d KiB, symbol tables %d KiB",
		cpus, len(s.written), s.bytes>>10, share*100, s.lost, cpus*ringPages*4, symbols>>10)
}
