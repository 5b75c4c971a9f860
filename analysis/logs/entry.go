package logs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/internal/klog"
)

const (
	// maxLine is how much of a line is read; the rest is passed over.
	maxLine = 64 << 10
	// maxMore is how much of an entry's further lines is kept: the steps of a
	// trace or a value of several lines, not the stacks of all goroutines.
	maxMore = 32 << 10
	// maxFields bounds the pairs of one entry.
	maxFields = 64
)

// Format is how a log is written.
type Format string

// The formats.
const (
	FormatKlog  Format = "klog"
	FormatJSON  Format = "json" // klog's or zap's
	FormatPlain Format = "plain"
)

// A Field is one key=value of a structured entry.
type Field struct{ Key, Value string }

// An Entry is one message of a log, with the lines that continue it.
type Entry struct {
	Component string
	Format    Format
	Time      time.Time // zero unknown; a line of an HTTP server has the earliest that it can have
	Severity  byte      // D, I, W, E, F; 0 unknown
	Source    string    // file:line
	Message   string
	Fields    []Field
	Text      []byte // the first line as it stands
	More      string // further lines, without the last newline
	// Offset of the first line in the log, in bytes, and its number from 1.
	Offset, Line int64
}

// Field returns the value of a key, or "".
func (e *Entry) Field(key string) string {
	for _, f := range e.Fields {
		if f.Key == key {
			return f.Value
		}
	}
	return ""
}

// Stats tell how a log read.
type Stats struct {
	Lines, Bytes, Entries int64
	// Long lines were cut at 64 KiB; LongBytes were passed over.
	Long, LongBytes int64
	First, Last     time.Time // of entries with a time
}

// Clock turns what a log says of time into times. klog writes neither year nor
// zone.
type Clock struct {
	// Started and Ended bound what was recorded.
	Started, Ended time.Time

	zone *time.Location
}

// slack is how far a log may reach beyond what was recorded and still be
// believed to be in UTC.
const slack = 10 * time.Minute

// klogTime gives a line its year, and its zone: UTC where the first line then
// falls into the recording, otherwise the zone, in quarters of an hour, that
// brings the first line closest to the recording's start.
func (c *Clock) klogTime(l *klog.Line) time.Time {
	if c.zone == nil {
		c.zone = time.UTC
		t := l.Time(c.Started, time.UTC)
		if !c.Started.IsZero() && (t.Before(c.Started.Add(-slack)) || !c.Ended.IsZero() && t.After(c.Ended.Add(slack))) {
			quarters := math.Round(t.Sub(c.Started).Minutes() / 15)
			if math.Abs(quarters) <= 14*4 {
				c.zone = time.FixedZone("", int(quarters)*15*60)
			}
		}
	}
	return l.Time(c.Started, c.zone)
}

// Read calls each for every entry of a log, in order. What each is given is
// good until it returns. Memory is bounded whatever the log holds.
func Read(in io.Reader, component string, clock Clock, each func(*Entry) error) (Stats, error) {
	r := reader{each: each, clock: clock}
	r.entry.Component = component
	lines := bufio.NewReaderSize(in, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		n := int64(len(line))
		if n > 0 {
			kept := line
			if errors.Is(err, bufio.ErrBufferFull) {
				kept = bytes.Clone(line)
				r.stats.Long++
				for errors.Is(err, bufio.ErrBufferFull) {
					line, err = lines.ReadSlice('\n')
					n += int64(len(line))
					r.stats.LongBytes += int64(len(line))
				}
			}
			if e := r.line(bytes.TrimSuffix(bytes.TrimSuffix(kept, []byte("\n")), []byte("\r"))); e != nil {
				return r.stats, e
			}
			r.stats.Lines++
			r.stats.Bytes += n
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r.stats, err
		}
	}
	return r.stats, r.flush()
}

// reader gathers lines into entries.
type reader struct {
	each  func(*Entry) error
	clock Clock
	stats Stats

	entry   Entry
	pending bool
	text    []byte // the first line
	more    []byte
	rest    []byte        // of a klog line: the message and its pairs
	last    time.Time     // of the next entry, at the earliest
	rests   time.Duration // of a server, after the entry in hand
	crashed bool          // after a panic, until the next header: all is its stack
}

func (r *reader) line(b []byte) error {
	if l, ok := klog.Parse(b); ok {
		if err := r.flush(); err != nil {
			return err
		}
		r.begin(FormatKlog, b)
		r.crashed = false
		r.entry.Time, r.entry.Severity, r.entry.Source = r.clock.klogTime(&l), l.Severity, string(l.Source)
		r.rest = append(r.rest[:0], l.Rest...)
		return nil
	}
	if len(b) > 1 && b[0] == '{' && (!r.pending || r.entry.Format != FormatKlog) {
		if err := r.flush(); err != nil {
			return err
		}
		r.begin(FormatJSON, b)
		if r.json(b) {
			r.crashed = false
			return nil
		}
		r.entry.Format, r.entry.Message = FormatPlain, string(b)
		return nil
	}
	crash := bytes.HasPrefix(b, []byte("panic: ")) || bytes.HasPrefix(b, []byte("fatal error: ")) || bytes.HasPrefix(b, []byte("runtime: out of memory"))
	// Go's HTTP server writes this line past the component's logger, many times over.
	server := bytes.HasPrefix(b, []byte("http: Accept error"))
	own := server || bytes.HasPrefix(b, []byte("kubedyno: log cut here"))
	if r.pending && !crash && !own && (r.entry.Format == FormatKlog || r.crashed) {
		if len(r.more) < maxMore {
			r.more = append(append(r.more, b[:min(len(b), maxMore-len(r.more))]...), '\n')
		}
		return nil
	}
	if err := r.flush(); err != nil {
		return err
	}
	r.begin(FormatPlain, b)
	r.entry.Message = string(b)
	if server {
		r.entry.Time = r.last
		r.rests = pause(b)
	}
	if crash {
		r.crashed = true
		r.entry.Severity = 'F'
	}
	return nil
}

func (r *reader) begin(f Format, text []byte) {
	r.text = append(r.text[:0], text...)
	r.entry = Entry{Component: r.entry.Component, Format: f, Offset: r.stats.Bytes, Line: r.stats.Lines + 1, Text: r.text, Fields: r.entry.Fields[:0]}
	r.pending = true
	r.rests = 0
	r.more = r.more[:0]
}

// pause is how long a server says that it rests before it tries again (net/http: 5 ms,
// doubled each time, to a second): the next such line, which has no time either, is
// later by that at least.
func pause(line []byte) time.Duration {
	_, after, _ := bytes.Cut(line, []byte("retrying in "))
	d, err := time.ParseDuration(string(after))
	if err != nil {
		return 0
	}
	return min(max(d, 0), time.Second)
}

// flush hands over the entry in hand.
func (r *reader) flush() error {
	if !r.pending {
		return nil
	}
	r.pending = false
	e := &r.entry
	r.more = bytes.TrimSuffix(r.more, []byte("\n"))
	if e.Format == FormatKlog {
		// A value of several lines begins on the first one.
		text := r.rest
		if bytes.HasSuffix(text, []byte("=<")) && len(r.more) > 0 {
			r.rest = append(append(r.rest, '\n'), r.more...)
			text = r.rest
		}
		message, pairs, _ := klog.Message(text)
		e.Message = string(message)
		for len(e.Fields) < maxFields {
			key, value, rest, ok := klog.Pair(pairs)
			if !ok {
				break
			}
			e.Fields = append(e.Fields, Field{string(key), string(value)})
			pairs = rest
		}
	}
	e.More = string(r.more)
	r.stats.Entries++
	if !e.Time.IsZero() {
		r.last = e.Time.Add(r.rests)
		if r.stats.First.IsZero() || e.Time.Before(r.stats.First) {
			r.stats.First = e.Time
		}
		if e.Time.After(r.stats.Last) {
			r.stats.Last = e.Time
		}
	}
	return r.each(e)
}

// json reads an object that klog or zap wrote: {"ts":…,"level":…,"caller":…,
// "msg":…} and more keys.
func (r *reader) json(b []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	e := &r.entry
	found := false
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return false
		}
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			return false
		}
		value := string(raw)
		if len(raw) > 0 && raw[0] == '"' {
			if json.Unmarshal(raw, &value) != nil {
				return false
			}
		}
		switch key {
		case "ts", "time", "timestamp":
			e.Time = jsonTime(value)
		case "level", "severity":
			e.Severity = severity(value)
		case "v": // klog's verbosity comes instead of a level
			if e.Severity == 0 {
				e.Severity = 'I'
			}
		case "caller", "source":
			e.Source = value
		case "msg", "message":
			e.Message, found = value, true
		case "stacktrace": // says where in the program, at length
		default:
			if len(e.Fields) < maxFields {
				e.Fields = append(e.Fields, Field{key, value})
			}
		}
	}
	if e.Severity == 0 && e.Field("err") != "" {
		e.Severity = 'E'
	}
	return found
}

// jsonTime is RFC 3339, or a number of seconds or milliseconds since the
// epoch (zap's and klog's JSON).
func jsonTime(s string) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t.UTC()
	}
	if t, err := time.Parse("2006-01-02T15:04:05.999999999Z0700", s); err == nil {
		return t.UTC()
	}
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || math.IsNaN(f) || f <= 0 || f > 1e16:
		return time.Time{}
	case f > 1e11:
		return time.UnixMicro(int64(f * 1e3)).UTC()
	}
	return time.UnixMicro(int64(f * 1e6)).UTC()
}

func severity(s string) byte {
	switch strings.ToLower(s) {
	case "debug":
		return 'D'
	case "info":
		return 'I'
	case "warn", "warning":
		return 'W'
	case "error":
		return 'E'
	case "fatal", "panic", "dpanic":
		return 'F'
	}
	return 0
}
