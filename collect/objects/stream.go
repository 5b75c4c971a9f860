package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
)

// A stream follows one resource: it lists, then watches, across disconnects:
// from the last version seen, and with a new list where the server has
// forgotten that.
type stream struct {
	api       *client
	collector string
	subject   string // the resource, as gaps and grants name it
	ahead     int    // frames that are read before they are decoded
	to        receiver
	// fresh, where it is set, takes the version that the stream begins with:
	// what exists then is not asked for.
	fresh func(version string)
	gap   func(record.Gap)
}

// A receiver takes what a stream shows. All but opened are called by the
// stream's goroutine, and messages are good until the call returns.
type receiver interface {
	// listed takes an object of a list. Lists are counted from 1: what the
	// first one has was there before; what a later one has anew is late.
	listed(at time.Time, object []byte, round int) error
	// unlisted comes after each list: what was not in it is gone.
	unlisted(at time.Time, round int)
	// seen takes an object of a watch and returns its version.
	seen(at time.Time, typ string, object []byte, late bool) (version []byte, err error)
	// opened says that a watch is open; again, that there was one before, or
	// should have been.
	opened(again bool)
	// closed says that it is not any more.
	closed()
}

// follow returns when ctx ends, or an error wrapping collect.ErrNotSupported
// where the resource is not there or may not be read.
func (s *stream) follow(ctx context.Context) error {
	version := ""
	var lost time.Time // since when there is no watch; zero at first
	var last error
	wait := firstWait
	round := 0
	for ctx.Err() == nil {
		var err error
		if version == "" {
			round++
			version, err = s.list(ctx, round)
		}
		if err == nil {
			var got string
			var open bool
			began := time.Now()
			got, open, err = s.watch(ctx, version, !lost.IsZero(), func() {
				now := time.Now()
				if !lost.IsZero() && now.Sub(lost) >= brief {
					s.lost("the watch was interrupted; what happened then was seen late", last, lost, now)
				}
				s.to.opened(!lost.IsZero())
			})
			if got != "" && got != version {
				// It brought something, so the next one goes on from there at
				// once: a starved server closes watches that it cannot serve,
				// and each moment without one makes what happens seem later.
				version, wait = got, 0
			}
			if errors.Is(err, errGone) {
				version, wait = "", time.Millisecond // the list has not been asked yet
			}
			if open {
				s.to.closed()
				lost, last = time.Now(), err
			}
			if time.Since(began) > time.Second {
				wait = firstWait
			}
		}
		if ctx.Err() != nil {
			break
		}
		var st *statusError
		if errors.As(err, &st) && lost.IsZero() {
			switch st.code {
			case http.StatusUnauthorized, http.StatusForbidden:
				return collect.NotSupported("%s cannot be watched: %s; grant list and watch on %s", s.subject, st.text, s.subject)
			case http.StatusNotFound:
				return collect.NotSupported("the server has no %s", s.subject)
			}
		}
		if err != nil {
			if lost.IsZero() {
				lost = time.Now()
			}
			last = err
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			wait = min(max(2*wait, firstWait), maxWait)
		}
	}
	if !lost.IsZero() && time.Since(lost) > brief {
		s.lost("the watch ended early", last, lost, time.Now())
	}
	return nil
}

func (s *stream) lost(reason string, cause error, from, to time.Time) {
	if cause != nil {
		reason += ": " + cause.Error()
	}
	s.gap(record.Gap{Collector: s.collector, Subject: s.subject, Reason: reason, Start: from, End: to})
}

func (s *stream) list(ctx context.Context, round int) (version string, err error) {
	if round == 1 && s.fresh != nil {
		if version, err = s.api.now(ctx); err == nil {
			s.fresh(version)
		}
		return version, err
	}
	version, err = s.api.list(ctx, func(object []byte) error { return s.to.listed(time.Now(), object, round) })
	if err == nil {
		s.to.unlisted(time.Now(), round)
	}
	return version, err
}

// watch reads one stream and returns the last version it saw, and whether the
// server had begun to answer.
func (s *stream) watch(ctx context.Context, version string, again bool, opened func()) (seen string, open bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames := make(chan frame, s.ahead) // so that decoding does not delay the clock
	done := make(chan error, 1)
	var from time.Time // from when events are in time
	go func() {
		defer close(frames)
		done <- s.api.watch(ctx, version, func() {
			if again {
				from = time.Now().Add(catchUp)
			}
			open = true
			opened()
		}, frames)
	}()
	var failed error
	latest := []byte(version)
	for f := range frames {
		latest, err = s.take(f, f.at.Before(from), latest)
		if err != nil {
			failed = err
			cancel()
			break
		}
	}
	for range frames { // until the reader has left
	}
	if err := <-done; failed == nil {
		failed = err
	}
	return string(latest), open, failed
}

// take gives one frame to the receiver and returns the version it brought.
func (s *stream) take(f frame, late bool, before []byte) ([]byte, error) {
	typ, object, err := decode(f.data)
	if err != nil {
		return before, err
	}
	var version []byte
	if typ == typeBookmark {
		version, err = versionOf(object)
	} else {
		version, err = s.to.seen(f.at, typ, object, late)
	}
	if err != nil {
		return before, fmt.Errorf("decode %s: %w", s.subject, err)
	}
	return version, nil
}
