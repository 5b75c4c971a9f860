package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubedyno/kubedyno/experiment"
)

// errDeadline is what a sidecar gets when the backend does not answer in time.
var errDeadline = errors.New("rpc error: code = DeadlineExceeded desc = context deadline exceeded")

// A backend is the storage behind the driver. An operation goes on when nobody
// waits for it any more, and one that is done is done at once when it is asked
// for again, as CSI wants it.
type backend struct {
	seed    int64
	seconds *prometheus.HistogramVec
	clock   func() time.Time

	mu   sync.Mutex
	ends map[string]time.Time // of operations, by UID and operation
}

// Of operations that ended long ago nobody asks again.
const (
	longAgo = 10 * time.Minute
	many    = 10_000
)

func newBackend(seed int64, seconds *prometheus.HistogramVec) *backend {
	return &backend{seed: seed, seconds: seconds, clock: time.Now, ends: map[string]time.Time{}}
}

// do performs an operation on an object, or waits for the one that an earlier
// call began, for at most patience.
func (b *backend) do(ctx context.Context, method, uid, operation string, d experiment.Distribution, patience time.Duration) error {
	key := uid + "/" + operation
	began := b.clock()
	b.mu.Lock()
	end, underWay := b.ends[key]
	if !underWay {
		end = began.Add(draw(b.seed, uid, operation, d))
		if len(b.ends) >= many {
			maps.DeleteFunc(b.ends, func(_ string, end time.Time) bool { return began.Sub(end) > longAgo })
		}
		b.ends[key] = end
	}
	b.mu.Unlock()

	left := end.Sub(began)
	late := left > patience
	timer := time.NewTimer(min(left, patience))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("rpc error: code = Canceled desc = %w", context.Cause(ctx))
	}
	code := "OK"
	if late {
		code = "DeadlineExceeded"
	}
	b.seconds.WithLabelValues(method, code).Observe(b.clock().Sub(began).Seconds())
	if late {
		return errDeadline
	}
	return nil
}
