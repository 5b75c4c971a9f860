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
	init                  bool   // it is an init container

	first time.Time // of the event that this one repeats, or zero
	count int       // with this one
}

// A repeatedEvent is one that a kubelet has sent before and then counts up.
type repeatedEvent struct {
	first time.Time
	count int
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
	n.correlate(&e)
	n.events = append(n.events, e)
	if !n.sending {
		n.sending = n.fleet.start(n.sendEvents)
	}
}

// correlate makes an event that was sent before a repetition of it, as client-go's
// recorder does. Only pods whose containers end have such; the others need no memory.
func (n *node) correlate(e *podEvent) {
	p := n.pods[e.uid]
	if p == nil || p.shape == nil || !p.shape.ends {
		return
	}
	key := e.reason + "/" + e.container
	before := p.repeated[key]
	if before == nil {
		if p.repeated == nil {
			p.repeated = map[string]*repeatedEvent{}
		}
		p.repeated[key] = &repeatedEvent{first: e.at, count: 1}
		return
	}
	before.count++
	e.first, e.count = before.first, before.count
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
	path, what, kind := "/api/v1/namespaces/"+e.namespace+"/events", createEvent, protobufBody
	body, err := e.object(n.name)
	if e.count > 1 {
		path, what, kind = path+"/"+eventName(e.name, e.first), patchEvent, patchBody
		body = e.repetition()
	}
	if err != nil {
		return
	}
	for try := 1; ; try++ {
		answer, err := n.client.do(ctx, what, path, kind, body)
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
			Name:      eventName(e.name, e.at),
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
		if e.init {
			event.InvolvedObject.FieldPath = "spec.initContainers{" + e.container + "}"
		}
	}
	return wrap("v1", "Event", event.Size(), event.MarshalToSizedBuffer)
}

func eventName(pod string, at time.Time) string { return fmt.Sprintf("%s.%x", pod, at.UnixNano()) }

// repetition is the patch that counts an event up.
func (e *podEvent) repetition() []byte {
	b := appendTime([]byte(`{"lastTimestamp":`), e.at.Unix())
	b = appendString(append(b, `,"message":`...), e.message)
	return fmt.Appendf(b, `,"count":%d}`, e.count)
}

// isAnswer says that the server has answered, so that repeating helps nobody.
func isAnswer(err error) bool {
	var s *statusError
	return errors.As(err, &s)
}
