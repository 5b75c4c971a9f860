package audit

import (
	"bytes"
	"errors"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/kubedyno/kubedyno/record"
)

// An Event is what is taken from one audit event.
type Event struct {
	ID    []byte // aliases the line
	Stage []byte // aliases the line
	// Row is the request so far: DoneMicros is the time of the stage.
	Row record.Request
	// Lost is how many lines a lab's log of requests says that it lost here;
	// then there is nothing else.
	Lost int64
}

var (
	errSyntax = errors.New("not JSON")
	errEvent  = errors.New("not an audit event")
)

// A Decoder reads audit events. It walks each line once, keeps the fields that
// a Request has and skips the rest, and it keeps one copy of each name that
// comes again and again. encoding/json takes 8 times as long.
type Decoder struct {
	b       []byte
	i       int
	names   map[string]string
	scratch []byte
}

// maxNames bounds what the decoder remembers.
const maxNames = 1 << 16

// NewDecoder returns a decoder, for one goroutine.
func NewDecoder() *Decoder { return &Decoder{names: map[string]string{}} }

// Decode reads one line. The result is good as long as the line is.
func (d *Decoder) Decode(line []byte) (e Event, err error) {
	d.b, d.i = line, 0
	var uri, verb []byte
	var kind string
	e.Row = record.Request{ServerMicros: -1, EtcdMicros: -1, QueueMicros: -1, WebhookMicros: -1, AuthenticationMicros: -1, AuthorizationMicros: -1, RequestBytes: -1, ResponseBytes: -1, Source: SourceAudit}
	var l latencies
	err = d.object(func(key []byte) error {
		switch string(key) {
		case "kind":
			kind, err = d.named()
		case "lines":
			if kind != "Lost" {
				return d.skip()
			}
			e.Lost, err = d.number(64)
		case "auditID":
			e.ID, err = d.hold()
		case "stage":
			e.Stage, err = d.hold()
		case "requestURI":
			uri, err = d.hold()
		case "verb":
			verb, err = d.hold()
			e.Row.Verb = d.name(verb)
		case "userAgent":
			e.Row.UserAgent, err = d.named()
		case "user":
			return d.object(func(key []byte) (err error) {
				if string(key) == "username" {
					e.Row.User, err = d.named()
					return err
				}
				return d.skip()
			})
		case "objectRef":
			return d.object(func(key []byte) (err error) {
				switch string(key) {
				case "resource":
					e.Row.Resource, err = d.named()
				case "namespace":
					e.Row.Namespace, err = d.named()
				case "name":
					var s []byte
					s, err = d.str()
					e.Row.Name = string(s)
				case "apiGroup":
					e.Row.Group, err = d.named()
				case "subresource":
					e.Row.Subresource, err = d.named()
				default:
					return d.skip()
				}
				return err
			})
		case "responseStatus":
			return d.object(func(key []byte) (err error) {
				if string(key) == "code" {
					code, err := d.number(32)
					e.Row.Code = int32(code)
					return err
				}
				return d.skip()
			})
		case "requestReceivedTimestamp":
			e.Row.ReceivedMicros, err = d.time()
		case "stageTimestamp":
			e.Row.DoneMicros, err = d.time()
		case "annotations":
			return d.object(func(key []byte) error { return d.annotation(key, &l, &e.Row) })
		default:
			return d.skip()
		}
		return err
	})
	if err != nil {
		return Event{}, err
	}
	d.space()
	if d.i != len(d.b) {
		return Event{}, errSyntax
	}
	if kind == "Lost" && e.Lost > 0 {
		return Event{Lost: e.Lost}, nil
	}
	if kind != "Event" || len(e.Stage) == 0 || e.Row.ReceivedMicros == 0 {
		return Event{}, errEvent
	}
	l.fill(&e.Row)
	path, query, _ := bytes.Cut(uri, []byte{'?'})
	switch {
	case e.Row.Resource == "":
		e.Row.URI = d.name(path) // a path such as /metrics is what was asked for
	case string(verb) == "list" || string(verb) == "watch" || string(verb) == "deletecollection":
		e.Row.URI = string(query)
	}
	return e, nil
}

// latencies are what the API server adds to the events of requests that took
// longer than 500 ms (apiserver's endpoints/filters/audit.go), and its log of
// requests to all.
type latencies struct {
	known, timed                  bool // there was a total, there was etcd's part
	total, etcd, queue, webhooks  time.Duration
	authentication, authorization time.Duration
}

// latencyPrefix begins the keys of its annotations.
const latencyPrefix = "apiserver.latency.k8s.io/"

// bytesKey and bodyKey are the annotations that a lab's log of requests has beside those
// of an audit log: bytes of the answer, and of the request's body where it has one,
// -1 where that was not told.
const (
	bytesKey = "kubedyno.io/response-bytes"
	bodyKey  = "kubedyno.io/request-bytes"
)

// size reads a number of bytes, of which least is the least.
func (d *Decoder) size(into *int64, least int64) error {
	s, err := d.str()
	if err != nil {
		return err
	}
	if *into, err = strconv.ParseInt(string(s), 10, 64); err != nil || *into < least {
		return errEvent
	}
	return nil
}

func (d *Decoder) annotation(key []byte, l *latencies, r *record.Request) error {
	switch string(key) {
	case bytesKey:
		r.Source = SourceRequests
		r.RequestBytes = max(0, r.RequestBytes) // left out where there is none
		return d.size(&r.ResponseBytes, 0)
	case bodyKey:
		return d.size(&r.RequestBytes, -1)
	}
	layer, ok := bytes.CutPrefix(key, []byte(latencyPrefix))
	if !ok {
		return d.skip()
	}
	var into *time.Duration
	switch string(layer) {
	case "total":
		into, l.known = &l.total, true
	case "etcd":
		into, l.timed = &l.etcd, true
	case "apf-queue-wait":
		into = &l.queue
	case "mutating-webhook", "validating-webhook":
		into = &l.webhooks
	case "authentication":
		into = &l.authentication
	case "authorization":
		into = &l.authorization
	default:
		return d.skip()
	}
	s, err := d.str()
	if err != nil {
		return err
	}
	took, err := time.ParseDuration(string(s))
	if err != nil || took < 0 {
		return errEvent
	}
	*into += took
	return nil
}

// fill sets the row's columns. The server leaves out layers that took no time,
// so beside a total a missing one is 0; without a total all are unknown.
func (l *latencies) fill(r *record.Request) {
	if !l.known {
		return
	}
	r.ServerMicros, r.EtcdMicros = l.total.Microseconds(), l.etcd.Microseconds()
	r.QueueMicros, r.WebhookMicros = l.queue.Microseconds(), l.webhooks.Microseconds()
	r.AuthenticationMicros, r.AuthorizationMicros = l.authentication.Microseconds(), l.authorization.Microseconds()
	if r.Source == SourceRequests {
		if !l.timed {
			r.EtcdMicros = -1 // it names etcd's part of what it knows
		}
		return
	}
	// An audit log tells these two since v1.33, and then of each request.
	if l.authentication == 0 {
		r.AuthenticationMicros = -1
	}
	if l.authorization == 0 {
		r.AuthorizationMicros = -1
	}
}

// object reads an object and calls field for each key; field reads its value.
// null is an object without fields.
func (d *Decoder) object(field func(key []byte) error) error {
	d.space()
	if d.literal("null") {
		return nil
	}
	if !d.take('{') {
		return errSyntax
	}
	d.space()
	if d.take('}') {
		return nil
	}
	for {
		d.space()
		key, err := d.str()
		if err != nil {
			return err
		}
		d.space()
		if !d.take(':') {
			return errSyntax
		}
		if err := field(key); err != nil {
			return err
		}
		d.space()
		if d.take(',') {
			continue
		}
		if d.take('}') {
			return nil
		}
		return errSyntax
	}
}

// skip passes over one value without recursion, so that depth costs nothing.
func (d *Decoder) skip() error {
	depth := 0
	for {
		d.space()
		if d.i >= len(d.b) {
			return errSyntax
		}
		switch c := d.b[d.i]; c {
		case '{', '[':
			depth++
			d.i++
		case '}', ']':
			depth--
			d.i++
		case ',', ':':
			if depth == 0 {
				return errSyntax
			}
			d.i++
			continue
		case '"':
			if _, _, err := d.raw(); err != nil {
				return err
			}
		default:
			start := d.i
			for d.i < len(d.b) && !delimiter(d.b[d.i]) {
				d.i++
			}
			if d.i == start {
				return errSyntax
			}
		}
		if depth == 0 {
			return nil
		}
		if depth < 0 {
			return errSyntax
		}
	}
}

func delimiter(c byte) bool {
	switch c {
	case ',', ':', '}', ']', '{', '[', '"', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

func (d *Decoder) space() {
	for d.i < len(d.b) {
		switch d.b[d.i] {
		case ' ', '\t', '\n', '\r':
			d.i++
		default:
			return
		}
	}
}

func (d *Decoder) take(c byte) bool {
	if d.i < len(d.b) && d.b[d.i] == c {
		d.i++
		return true
	}
	return false
}

func (d *Decoder) literal(s string) bool {
	if bytes.HasPrefix(d.b[d.i:], []byte(s)) {
		d.i += len(s)
		return true
	}
	return false
}

// raw passes over a string and returns what is between its quotes.
func (d *Decoder) raw() (s []byte, escaped bool, err error) {
	d.space()
	if !d.take('"') {
		return nil, false, errSyntax
	}
	start := d.i
	for {
		q := bytes.IndexByte(d.b[d.i:], '"')
		if q < 0 {
			return nil, false, errSyntax
		}
		s := d.b[d.i : d.i+q]
		back := bytes.IndexByte(s, '\\')
		if back < 0 {
			d.i += q + 1
			return d.b[start : d.i-1], escaped, nil
		}
		escaped = true
		d.i += back + 2 // over the backslash and what it escapes
		if d.i > len(d.b) {
			return nil, false, errSyntax
		}
	}
}

// str reads a string; the result is good until the next.
func (d *Decoder) str() ([]byte, error) {
	s, escaped, err := d.raw()
	if err != nil || !escaped {
		return s, err
	}
	d.scratch = d.scratch[:0]
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			d.scratch = append(d.scratch, s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case '"', '\\', '/':
			d.scratch = append(d.scratch, c)
		case 'b':
			d.scratch = append(d.scratch, '\b')
		case 'f':
			d.scratch = append(d.scratch, '\f')
		case 'n':
			d.scratch = append(d.scratch, '\n')
		case 'r':
			d.scratch = append(d.scratch, '\r')
		case 't':
			d.scratch = append(d.scratch, '\t')
		case 'u':
			r, ok := hex4(s[i+1:])
			if !ok {
				return nil, errSyntax
			}
			i += 4
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if bytes.HasPrefix(s[i+1:], []byte(`\u`)) {
					low, ok = hex4(s[i+3:])
				}
				if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
					r = pair
					i += 6
				} else {
					r = utf8.RuneError
				}
			}
			d.scratch = utf8.AppendRune(d.scratch, r)
		default:
			return nil, errSyntax
		}
	}
	return d.scratch, nil
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(n), err == nil
}

// hold reads a string that outlives the next.
func (d *Decoder) hold() ([]byte, error) {
	s, escaped, err := d.raw()
	if err != nil || !escaped {
		return s, err
	}
	d.i -= len(s) + 2
	s, err = d.str()
	return bytes.Clone(s), err
}

func (d *Decoder) named() (string, error) {
	s, err := d.str()
	return d.name(s), err
}

// name returns s as a string, the same one each time.
func (d *Decoder) name(b []byte) string {
	if s, ok := d.names[string(b)]; ok {
		return s
	}
	if len(d.names) >= maxNames {
		clear(d.names)
	}
	s := string(b)
	d.names[s] = s
	return s
}

// number reads an integer of so many bits.
func (d *Decoder) number(bits int) (int64, error) {
	d.space()
	start := d.i
	for d.i < len(d.b) && !delimiter(d.b[d.i]) {
		d.i++
	}
	n, err := strconv.ParseInt(string(d.b[start:d.i]), 10, bits)
	if err != nil {
		return 0, errSyntax
	}
	return n, nil
}

// time reads a timestamp into microseconds. null is none.
func (d *Decoder) time() (int64, error) {
	d.space()
	if d.literal("null") {
		return 0, nil
	}
	s, err := d.str()
	if err != nil {
		return 0, err
	}
	// 2026-01-02T15:04:05.123456Z is what an API server writes.
	if len(s) == 27 && s[4] == '-' && s[7] == '-' && s[10] == 'T' && s[13] == ':' && s[16] == ':' && s[19] == '.' && s[26] == 'Z' {
		y, ok1 := digits(s[0:4])
		mo, ok2 := digits(s[5:7])
		da, ok3 := digits(s[8:10])
		h, ok4 := digits(s[11:13])
		mi, ok5 := digits(s[14:16])
		sec, ok6 := digits(s[17:19])
		us, ok7 := digits(s[20:26])
		if ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7 && mo >= 1 && mo <= 12 && da >= 1 && da <= 31 && h < 24 && mi < 60 && sec < 60 {
			return time.Date(y, time.Month(mo), da, h, mi, sec, us*1000, time.UTC).UnixMicro(), nil
		}
	}
	t, err := time.Parse(time.RFC3339Nano, string(s))
	if err != nil {
		return 0, errEvent
	}
	return t.UnixMicro(), nil
}

func digits(b []byte) (n int, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
