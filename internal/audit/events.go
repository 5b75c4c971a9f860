package audit

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/record"
)

// maxOpen bounds the long-running requests that are remembered.
const maxOpen = 1 << 18

// Events joins the audit events of requests into rows: one for each request
// that is done or has panicked. The zero value is ready.
type Events struct {
	decoder *Decoder
	open    map[string]record.Request

	Panics int64
	// Forgotten requests were open beyond what is remembered.
	Forgotten int64
	// Lost lines could not be written, a lab's log of requests says.
	Lost int64
	// Newest is the latest stage seen, in microseconds.
	Newest int64
}

// Line takes one line of the log. done says that row is a finished request.
func (e *Events) Line(line []byte) (row record.Request, done bool, err error) {
	if e.decoder == nil {
		e.decoder, e.open = NewDecoder(), map[string]record.Request{}
	}
	event, err := e.decoder.Decode(line)
	if err != nil {
		return record.Request{}, false, err
	}
	if event.Lost > 0 {
		e.Lost += event.Lost
		return record.Request{}, false, nil
	}
	e.Newest = max(e.Newest, event.Row.DoneMicros)
	switch string(event.Stage) {
	case "ResponseStarted": // the answer of a watch has begun
		if len(e.open) >= maxOpen {
			e.Forgotten++
			return record.Request{}, false, nil
		}
		event.Row.DoneMicros, event.Row.ResponseBytes = 0, -1
		e.open[string(event.ID)] = event.Row
	case "Panic":
		e.Panics++
		fallthrough
	case "ResponseComplete":
		if len(e.open) > 0 {
			delete(e.open, string(event.ID))
		}
		return event.Row, true, nil
	}
	return record.Request{}, false, nil
}

// Open are the requests whose answer has begun and not ended, oldest first.
func (e *Events) Open() []record.Request {
	return slices.SortedFunc(maps.Values(e.open), func(a, b record.Request) int {
		return cmp.Or(cmp.Compare(a.ReceivedMicros, b.ReceivedMicros),
			strings.Compare(a.User, b.User), strings.Compare(a.Resource, b.Resource), strings.Compare(a.URI, b.URI))
	})
}
