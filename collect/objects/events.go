package objects

import (
	"bytes"
	"fmt"
	"time"

	"github.com/kubedyno/kubedyno/internal/redact"
	"github.com/kubedyno/kubedyno/record"
	"google.golang.org/protobuf/encoding/protowire"
)

// MaxEvents bounds the rows of Events of one recording: a cluster whose pods
// cannot be scheduled reports it for each of them, again and again.
const MaxEvents = 100_000

// maxMessage is as long as the API lets a message be.
const maxMessage = 1024

// eventLog takes Events. Those from before are not asked for: their reporter's
// times are all that would be known of them.
type eventLog struct {
	all      *Lives
	w        sink
	counts   map[string]int32 // by UID, what was said last
	revision uint64           // the highest seen
	rows     int
	leftOut  int64
	full     time.Time // since when
	e        occurrence
}

// occurrence is what is taken from an Event of core/v1, which holds what
// events.k8s.io/v1 does and what older reporters say.
type occurrence struct {
	meta
	typ, reason, message        []byte
	component, source           []byte
	kind, namespace, name       []byte // of the object that it is about
	first, last, at, lastSeries int64  // microseconds
	count, series               int32
}

func (e *occurrence) read(m []byte) error {
	*e = occurrence{}
	return fields(m, func(num protowire.Number, b []byte, n uint64) (err error) {
		switch num {
		case 1:
			err = e.meta.read(b)
		case 2:
			err = fields(b, func(num protowire.Number, b []byte, _ uint64) error {
				switch num {
				case 1:
					e.kind = b
				case 2:
					e.namespace = b
				case 3:
					e.name = b
				}
				return nil
			})
		case 3:
			e.reason = b
		case 4:
			e.message = b
		case 5:
			e.source, err = text(b, 1)
		case 6:
			e.first, err = micros(b)
		case 7:
			e.last, err = micros(b)
		case 8:
			e.count = int32(n)
		case 9:
			e.typ = b
		case 10:
			e.at, err = micros(b)
		case 11:
			err = fields(b, func(num protowire.Number, b []byte, n uint64) (err error) {
				switch num {
				case 1:
					e.series = int32(n)
				case 2:
					e.lastSeries, err = micros(b)
				}
				return err
			})
		case 14:
			e.component = b
		}
		return err
	})
}

// micros reads a Time or MicroTime; 0 where it is not set.
func micros(m []byte) (us int64, err error) {
	var seconds, nanos int64
	err = fields(m, func(num protowire.Number, _ []byte, n uint64) error {
		switch num {
		case 1:
			seconds = int64(n)
		case 2:
			nanos = int64(int32(n))
		}
		return nil
	})
	if seconds <= 0 {
		return 0, err
	}
	return seconds*1e6 + nanos/1e3, err
}

// from is told the version that the stream begins with.
func (l *eventLog) from(version string) { l.revision = revisionOf([]byte(version)) }

func (l *eventLog) listed(at time.Time, object []byte, _ int) error {
	if err := l.e.read(object); err != nil {
		return err
	}
	// Only a stream that was broken asks for a list. What is older than the
	// last version seen was seen, or was there before.
	if revisionOf(l.e.version) > l.revision {
		l.all.late.Add(1)
		l.observe(at, false)
	}
	return nil
}

func (l *eventLog) unlisted(time.Time, int) {}

func (l *eventLog) seen(at time.Time, typ string, object []byte, late bool) ([]byte, error) {
	if err := l.e.read(object); err != nil {
		return nil, err
	}
	if typ == typeDeleted { // its time to live is over
		delete(l.counts, string(l.e.uid))
		return l.e.version, nil
	}
	if late {
		l.all.late.Add(1)
	}
	l.observe(at, typ == typeAdded)
	return l.e.version, nil
}

func (l *eventLog) opened(again bool) {
	if again {
		l.all.breaks.Add(1)
	}
	l.w.Observes(record.TableEvents)
}

func (l *eventLog) closed() {}

// observe takes one sight of an Event. How often it had been reported before
// the recording is unknown of one that is not new: then this is one more.
func (l *eventLog) observe(at time.Time, added bool) {
	defer l.all.shown.Add(1)
	e := &l.e
	l.revision = max(l.revision, revisionOf(e.version))
	said := max(e.count, e.series, 1)
	before, known := l.counts[string(e.uid)]
	more := said - before
	switch {
	case known && more <= 0:
		return // no occurrence more
	case !known && !added:
		more = 1
	}
	if l.rows >= l.all.o.MaxEvents {
		if l.leftOut++; l.leftOut == 1 {
			l.full = at
		}
		return
	}
	l.rows++
	l.counts[string(e.uid)] = said
	l.w.Event(e.row(at, more))
}

func (e *occurrence) row(at time.Time, count int32) record.Event {
	reporter := e.component
	if len(reporter) == 0 {
		reporter = e.source
	}
	message := new(redact.Lines).Line(e.message)
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	r := record.Event{
		TimeMicros: at.UnixMicro(), FirstMicros: e.first, LastMicros: max(e.last, e.lastSeries),
		Type: string(e.typ), Reason: string(e.reason), Reporter: string(reporter),
		Kind: string(e.kind), Namespace: string(e.namespace), Name: string(e.name),
		Message: string(bytes.ToValidUTF8(message, nil)), Count: count,
	}
	if r.FirstMicros == 0 {
		r.FirstMicros = e.at
	}
	if r.LastMicros == 0 {
		r.LastMicros = r.FirstMicros
	}
	return r
}

func (l *eventLog) finish() {
	if l.leftOut > 0 {
		l.w.Gap(record.Gap{
			Collector: l.all.Name(), Subject: string(record.TableEvents), Start: l.full, End: time.Now(),
			Reason: fmt.Sprintf("%d Events more were left out: %d are kept", l.leftOut, l.all.o.MaxEvents),
		})
	}
}
