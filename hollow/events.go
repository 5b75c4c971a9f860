package hollow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Limits of a kubelet's event sink: eventRecordQPS, eventBurst, and how many
// events its broadcaster queues before it drops. Events of a node go out one
// after the other.
const (
	eventQPS   = 50
	eventBurst = 100
	eventQueue = 1000
)

// A podEvent is an event to be: the object is built when it is sent.
type podEvent struct {
	at                    time.Time
	namespace, name       string
	uid, version          string
	kind, reason, message string
	container             string // field path, "" for the pod itself
}

// emit queues an event. n.mu is held.
func (n *node) emit(e podEvent) {
	if !*n.fleet.conf.Events {
		return
	}
	if len(n.events) >= eventQueue {
		n.fleet.metrics.eventsLost.Inc()
		return
	}
	// The time is part of the event's name and has to be its own.
	if !e.at.After(n.lastEvent) {
		e.at = n.lastEvent.Add(time.Microsecond)
	}
	n.lastEvent = e.at
	n.events = append(n.events, e)
	if !n.sending {
		n.sending = n.fleet.start(n.sendEvents)
	}
}

// sendEvents empties the queue and ends. When the bucket is empty it leaves
// the rest to a timer.
func (n *node) sendEvents(ctx context.Context) {
	for {
		n.mu.Lock()
		if len(n.events) == 0 {
			n.events, n.sending = nil, false
			n.mu.Unlock()
			return
		}
		if wait := n.takeToken(time.Now()); wait > 0 {
			n.mu.Unlock()
			n.fleet.timers.add(timer{at: time.Now().Add(wait), what: eventsDue, node: n})
			return // n.sending stays true: the timer goes on
		}
		e := n.events[0]
		n.events = n.events[1:]
		n.mu.Unlock()
		n.sendEvent(ctx, &e)
	}
}

// takeToken takes from the event bucket or says how long until there is one.
// n.mu is held.
func (n *node) takeToken(now time.Time) time.Duration {
	n.tokens = min(eventBurst, n.tokens+now.Sub(n.tokensAt).Seconds()*eventQPS)
	n.tokensAt = now
	if n.tokens < 1 {
		return time.Duration((1 - n.tokens) / eventQPS * float64(time.Second))
	}
	n.tokens--
	return 0
}

// An event that could not be delivered is tried again as client-go's recorder
// does it, and given up for any answer that says no.
const (
	eventTries = 12
	eventRetry = 10 * time.Second
)

func (n *node) sendEvent(ctx context.Context, e *podEvent) {
	body, err := e.object(n.name)
	if err != nil {
		return
	}
	path := "/api/v1/namespaces/" + e.namespace + "/events"
	for try := 1; ; try++ {
		answer, err := n.client.do(ctx, createEvent, path, protobufBody, body)
		release(answer)
		if err == nil || isAnswer(err) || try == eventTries {
			return
		}
		wait := eventRetry
		if try == 1 { // spread, so that a returned server meets no herd
			wait = time.Duration(rand.Float64() * float64(eventRetry))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (e *podEvent) object(node string) ([]byte, error) {
	at := metav1.Time{Time: e.at}
	event := v1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.%x", e.name, e.at.UnixNano()),
			Namespace: e.namespace,
		},
		InvolvedObject: v1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: e.namespace, Name: e.name,
			UID: types.UID(e.uid), ResourceVersion: e.version,
		},
		Reason: e.reason, Message: e.message, Type: e.kind,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source:              v1.EventSource{Component: "kubelet", Host: node},
		ReportingController: "kubelet",
		ReportingInstance:   node,
	}
	if e.container != "" {
		event.InvolvedObject.FieldPath = "spec.containers{" + e.container + "}"
	}
	return wrap("v1", "Event", event.Size(), event.MarshalToSizedBuffer)
}

// isAnswer says that the server has answered, so that repeating helps nobody.
func isAnswer(err error) bool {
	var s *statusError
	return errors.As(err, &s)
}
