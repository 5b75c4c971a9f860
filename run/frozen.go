package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

// frozen lets the control plane stand still for a while, asks the cluster's name
// service meanwhile where there is one, and notes both.
func (s *session) frozen(ctx context.Context, phase string, length time.Duration) (err error) {
	lab, ok := s.target.(interface {
		Pause(context.Context) error
		Unpause(context.Context) error
	})
	if !ok {
		return errors.New("only a lab can be frozen")
	}
	p := record.Pause{Phase: phase}
	began := s.o.Now()
	if err := lab.Pause(ctx); err != nil {
		return fmt.Errorf("freeze the control plane: %w", err)
	}
	p.FreezeSeconds = s.o.Now().Sub(began).Seconds()
	asking, enough := context.WithTimeout(ctx, length)
	defer enough()
	s.askFrozen(asking, &p)
	<-asking.Done()
	// Also where the run was interrupted: what is frozen cannot end in order.
	thaw, cancel := context.WithTimeout(context.WithoutCancel(ctx), thawTimeout)
	defer cancel()
	began = s.o.Now()
	if err := lab.Unpause(thaw); err != nil {
		return fmt.Errorf("let the control plane go on: %w", err)
	}
	p.ThawSeconds = s.o.Now().Sub(began).Seconds()
	s.note("control plane frozen in %.0f ms, going on in %.0f ms; %d of %d questions answered meanwhile", 1000*p.FreezeSeconds, 1000*p.ThawSeconds, p.Answered, p.Asked)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.w.Update(func(m *record.Meta) { m.Pauses = append(m.Pauses, p) })
}

const (
	// thawTimeout bounds the way back, which takes milliseconds.
	thawTimeout = 10 * time.Second
	// askEvery is how often the name service is asked, and askTimeout how long it
	// has for an answer, of which most come in less than a millisecond.
	askEvery, askTimeout = 100 * time.Millisecond, time.Second
)

// askFrozen asks until ctx ends. A question that was cut off by that counts for
// nothing.
func (s *session) askFrozen(ctx context.Context, p *record.Pause) {
	if s.o.Experiment.Cluster.DNS == 0 {
		return
	}
	resolver := dnsResolver(s.real[0])
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		began := s.o.Now()
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		_, err := resolver.LookupHost(ask, dnsQuestion)
		cancel()
		took := s.o.Now().Sub(began).Seconds()
		if ctx.Err() != nil {
			return
		}
		p.Asked++
		if err == nil {
			p.Answered++
			p.WorstSeconds = max(p.WorstSeconds, took)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
