package audit

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/internal/klog"
	"github.com/kubedyno/kubedyno/record"
)

// HTTPLog reads the lines that an API server logs for each request at -v=3 and
// above (apiserver's server/httplog): "HTTP" verb="LIST" URI="…"
// latency="1.2ms" userAgent="…" … resp=200.
//
// The line has no user, and comes at the request's end: a watch that is still
// open has none. Its time is the process's local time.
type HTTPLog struct {
	// Near is a time close to the lines', which have no year.
	Near time.Time
	// Zone is that of the process's clock.
	Zone *time.Location

	names map[string]string
}

// ErrNoRequest says that a line is a log line, and not of a request.
var ErrNoRequest = errors.New("not a line of a request")

var httpMark = []byte(`] "HTTP" `)

// Line reads one line of the log.
func (h *HTTPLog) Line(line []byte) (record.Request, error) {
	if !bytes.Contains(line[:min(len(line), 256)], httpMark) {
		return record.Request{}, ErrNoRequest
	}
	l, ok := klog.Parse(line)
	if !ok {
		return record.Request{}, ErrNoRequest
	}
	message, pairs, structured := klog.Message(l.Rest)
	if !structured || string(message) != "HTTP" {
		return record.Request{}, ErrNoRequest
	}
	r := record.Request{ServerMicros: -1, EtcdMicros: -1, QueueMicros: -1, WebhookMicros: -1, AuthenticationMicros: -1, AuthorizationMicros: -1, RequestBytes: -1, ResponseBytes: -1, Source: SourceLog}
	var uri []byte
	took := time.Duration(-1)
	for {
		key, value, rest, ok := klog.Pair(pairs)
		if !ok {
			break
		}
		pairs = rest
		switch string(key) {
		case "verb":
			r.Verb = Verb(string(value))
		case "URI":
			uri = value
		case "latency":
			d, err := time.ParseDuration(string(value))
			if err != nil || d < 0 {
				return record.Request{}, errSyntax
			}
			took = d
		case "userAgent":
			r.UserAgent = h.name(value)
		case "resp":
			code, err := strconv.ParseInt(string(value), 10, 32)
			if err != nil {
				return record.Request{}, errSyntax
			}
			r.Code = int32(code)
		case "fl_priorityandfairness":
			// How long the filter held the request: the wait in its queues.
			if d, err := time.ParseDuration(string(value)); err == nil && d >= 0 {
				r.QueueMicros = d.Microseconds()
			}
		}
	}
	if r.Verb == "" || took < 0 || len(uri) == 0 {
		return record.Request{}, errSyntax
	}
	r.ServerMicros = took.Microseconds()
	r.DoneMicros = l.Time(h.Near, h.Zone).UnixMicro()
	r.ReceivedMicros = r.DoneMicros - r.ServerMicros
	path, query, _ := bytes.Cut(uri, []byte{'?'})
	if !Object(path, &r, h.name) {
		r.URI = h.name(path)
		return r, nil
	}
	if r.Verb == "create" {
		// What a POST makes is named in its body; what the path names is the
		// object that a subresource belongs to.
		if r.Subresource == "" {
			r.Name = ""
		}
	}
	if r.Verb == "list" || r.Verb == "watch" || r.Verb == "deletecollection" {
		r.URI = string(query)
	}
	return r, nil
}

// Verb is the audit log's word for what the HTTP log and metrics call a request.
func Verb(s string) string {
	switch s {
	case "POST":
		return "create"
	case "PUT":
		return "update"
	case "APPLY":
		return "patch"
	}
	return strings.ToLower(s) // GET, LIST, WATCH, PATCH, DELETE, DELETECOLLECTION, CONNECT
}

func (h *HTTPLog) name(b []byte) string {
	if h.names == nil {
		h.names = map[string]string{}
	}
	if s, ok := h.names[string(b)]; ok {
		return s
	}
	if len(h.names) >= maxNames {
		clear(h.names)
	}
	s := string(b)
	h.names[s] = s
	return s
}
