package hollow

import (
	"context"
	"sync"
	"time"
)

// A timers runs what is due, for all nodes and pods, on one goroutine. A
// time.Timer each would cost a goroutine or a closure per delay, and would not
// tell how late it fired.
type timers struct {
	mu    sync.Mutex
	heap  []timer
	wake  chan struct{}
	fire  func(t timer, late time.Duration)
	clock func() time.Time
}

// A timer is one thing to do. It cannot be cancelled: whoever receives it
// checks whether it still matters.
type timer struct {
	at    time.Time
	what  timerKind
	node  *node
	pod   *pod
	run   int32  // the pod's restarts when this was planned
	image string // of a pull
}

type timerKind uint8

const (
	leaseDue timerKind = iota
	statusDue
	recoverDue
	admitDue
	diskDue
	sandboxDue
	pullDue
	initDue
	startDue
	readyDue
	endDue
	completeDue
	backOffDue
	restartDue
	evictDue
	evictedDue
	stopDue
	settleDue
	cleanupDue
	retryDue
	eventsDue
	volumesDue
)

func newTimers(fire func(timer, time.Duration)) *timers {
	return &timers{wake: make(chan struct{}, 1), fire: fire, clock: time.Now}
}

func (q *timers) add(t timer) {
	q.mu.Lock()
	q.heap = append(q.heap, t)
	i := len(q.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !q.heap[i].at.Before(q.heap[up].at) {
			break
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
	q.mu.Unlock()
	if i == 0 {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// next pops the first timer if it is due, and otherwise says how long to wait.
func (q *timers) next(now time.Time) (t timer, due bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heap) == 0 {
		return timer{}, false, time.Hour
	}
	if wait := q.heap[0].at.Sub(now); wait > 0 {
		return timer{}, false, wait
	}
	t = q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = timer{} // let go of the pod
	q.heap = q.heap[:last]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < last && q.heap[child].at.Before(q.heap[least].at) {
				least = child
			}
		}
		if least == i {
			return t, true, 0
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}

func (q *timers) run(ctx context.Context) {
	sleep := time.NewTimer(time.Hour)
	defer sleep.Stop()
	for ctx.Err() == nil {
		now := q.clock()
		t, due, wait := q.next(now)
		if due {
			q.fire(t, now.Sub(t.at))
			continue
		}
		sleep.Reset(wait)
		select {
		case <-ctx.Done():
		case <-q.wake:
		case <-sleep.C:
		}
	}
}
