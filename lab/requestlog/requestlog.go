// Package requestlog has an API server write a line about each request that it
// served, in the form of an audit event (audit.k8s.io/v1, level Metadata) and at
// a small part of an audit log's cost: Kubernetes 1.36 encodes the object of
// each request for its audit log, though at that level nothing of it is kept.
//
// A line says more than an audit event: the server's own clocks for every
// request, where an audit log has them for those above half a second; the sizes
// of its body and of the answer; and the name that the server gave to what it created.
//
// Start with New.
package requestlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

const (
	// flushAfter is how long a line may wait to be written.
	flushAfter = 250 * time.Millisecond
	// maxKept bytes wait at most while writing fails or is slow.
	maxKept = 16 << 20
)

// A Log writes lines. Its methods wrap the parts of an API server's handler
// chain that know what a line says. No request waits for the writing.
type Log struct {
	longRunning request.LongRunningRequestCheck
	now         func() time.Time
	last        atomic.Uint64 // number of a request that has no audit ID

	writing sync.Mutex // held while out is written; taken before mu
	w       io.Writer
	out     []byte

	mu         sync.Mutex
	pending    []byte
	held       int  // length of out
	armed      bool // a flush will come
	lost, told int64
	err        error // the first failure to write
}

// New returns a log that writes to w. longRunning tells watches and the like,
// which get a line when their answer begins, too.
func New(w io.Writer, longRunning request.LongRunningRequestCheck) *Log {
	return &Log{w: w, longRunning: longRunning, now: time.Now}
}

// Close writes what was not written yet. It fails where lines were lost.
func (l *Log) Close() error {
	l.flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.lost + int64(bytes.Count(l.out, []byte{'\n'}))
	if lost == 0 {
		return nil
	}
	why := l.err
	if why == nil {
		why = errors.New("writing did not keep up")
	}
	return fmt.Errorf("%d lines were lost: %w", lost, why)
}

// put adds a line.
func (l *Log) put(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held+len(l.pending)+len(line) > maxKept {
		l.lost++
	} else {
		l.pending = append(l.pending, line...)
	}
	if !l.armed {
		l.armed = true
		time.AfterFunc(flushAfter, l.flush)
	}
}

// flush writes what is pending; what cannot be written waits for the next line.
// Where lines were lost, a line says how many, so that a reader of the log knows.
func (l *Log) flush() {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	l.armed = false
	if len(l.out) > 0 {
		l.out = append(l.out, l.pending...)
		l.pending = l.pending[:0]
	} else {
		l.out, l.pending = l.pending, l.out
		if l.lost > l.told {
			l.out = fmt.Appendf(l.out, "{\"kind\":\"Lost\",\"lines\":%d}\n", l.lost-l.told)
			l.told = l.lost
		}
	}
	l.held = len(l.out)
	l.mu.Unlock()
	if l.held == 0 {
		return
	}
	n, err := l.w.Write(l.out)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = l.out[:copy(l.out, l.out[n:])]
	l.held = len(l.out)
	if l.err == nil {
		l.err = err
	}
}

// asked is what is known of a request while it is served. The chain may give a
// request up and answer for it while its handler still runs, so what handlers
// set is set at once or not at all.
type asked struct {
	info     atomic.Pointer[request.RequestInfo]
	user     atomic.Pointer[string]
	trackers atomic.Pointer[request.LatencyTrackers]
}

type askedKey struct{}

func askedOf(req *http.Request) *asked {
	a, _ := req.Context().Value(askedKey{}).(*asked)
	return a
}

// Resolver notes what a request is about.
func (l *Log) Resolver(inner request.RequestInfoResolver) request.RequestInfoResolver {
	return resolver{inner}
}

type resolver struct{ inner request.RequestInfoResolver }

func (r resolver) NewRequestInfo(req *http.Request) (*request.RequestInfo, error) {
	info, err := r.inner.NewRequestInfo(req)
	if a := askedOf(req); a != nil && info != nil {
		a.info.Store(info)
	}
	return info, err
}

// Authenticator notes who asks, and where the server keeps this request's clocks.
func (l *Log) Authenticator(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(req)
		if a := askedOf(req); a != nil {
			if ok && response != nil && response.User != nil {
				name := response.User.GetName()
				a.user.Store(&name)
			}
			if t, ok := request.LatencyTrackersFrom(req.Context()); ok {
				a.trackers.Store(t)
			}
		}
		return response, ok, err
	})
}

// Handler writes the lines. It belongs around the whole chain.
func (l *Log) Handler(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a := &asked{}
		began := l.now()
		req = req.WithContext(request.WithValue(req.Context(), askedKey{}, a))
		answer := &answer{ResponseWriter: w, log: l, req: req, asked: a, began: began, created: req.Method == http.MethodPost}
		defer func() {
			if r := recover(); r != nil {
				defer panic(r)
				answer.line("Panic")
				return
			}
			answer.line("ResponseComplete")
		}()
		inner.ServeHTTP(responsewriter.WrapForHTTP1Or2(answer), req)
	})
}

// answer watches a request's answer go by.
type answer struct {
	http.ResponseWriter
	log     *Log
	req     *http.Request
	asked   *asked
	began   time.Time
	created bool // it may hold what was created, and its name
	code    int
	bytes   int64
	name    string
	id      string
}

var _ responsewriter.UserProvidedDecorator = &answer{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	a.starts(code)
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.starts(http.StatusOK)
	if a.created && a.bytes == 0 && a.code == http.StatusCreated {
		a.name = nameIn(b)
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// Hijack implements http.Hijacker where the connection can be taken over.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.starts(http.StatusSwitchingProtocols)
	return a.ResponseWriter.(http.Hijacker).Hijack()
}

// starts notes the code, and that the answer of a watch has begun.
func (a *answer) starts(code int) {
	if a.code != 0 {
		return
	}
	a.code = code
	if a.isLong() {
		a.line("ResponseStarted")
	}
}

func (a *answer) isLong() bool {
	info := a.asked.info.Load()
	return info != nil && a.log.longRunning != nil && a.log.longRunning(a.req, info)
}

var lines = sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }}

// Annotations beside those of an audit log.
const (
	latencyPrefix = "apiserver.latency.k8s.io/"
	// leastTold is what a part takes at least to be told of. Each request is
	// authenticated and authorized, in some microseconds.
	leastTold = 100 * time.Microsecond
	bytesKey  = "kubedyno.io/response-bytes"
	bodyKey   = "kubedyno.io/request-bytes" // where there is a body; -1 where its length was not told
)

// line writes one line of the log.
func (a *answer) line(stage string) {
	now := a.log.now()
	if a.id == "" { // the first filter of the chain sets it
		if a.id = a.ResponseWriter.Header().Get("Audit-Id"); a.id == "" {
			a.id = "no-id-" + strconv.FormatUint(a.log.last.Add(1), 10)
		}
	}
	p := lines.Get().(*[]byte)
	b := append((*p)[:0], `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":`...)
	b = quoted(b, a.id)
	b = append(append(append(b, `,"stage":"`...), stage...), `","requestURI":`...)
	b = quoted(b, uri(a.req))
	info := a.asked.info.Load()
	b = append(b, `,"verb":`...)
	if info != nil {
		b = quoted(b, info.Verb)
	} else {
		b = quoted(b, a.req.Method)
	}
	b = append(b, `,"user":{`...)
	if user := a.asked.user.Load(); user != nil {
		b = quoted(append(b, `"username":`...), *user)
	}
	b = append(b, '}')
	if agent := a.req.UserAgent(); agent != "" {
		b = quoted(append(b, `,"userAgent":`...), agent)
	}
	if info != nil && info.IsResourceRequest {
		name := info.Name
		if name == "" {
			name = a.name
		}
		b = quoted(append(b, `,"objectRef":{"resource":`...), info.Resource)
		for _, f := range [...][2]string{
			{"namespace", info.Namespace}, {"name", name}, {"apiGroup", info.APIGroup},
			{"apiVersion", info.APIVersion}, {"subresource", info.Subresource},
		} {
			if f[1] != "" {
				b = quoted(append(append(append(b, `,"`...), f[0]...), `":`...), f[1])
			}
		}
		b = append(b, '}')
	}
	code := a.code
	switch {
	case stage == "Panic":
		code = http.StatusInternalServerError
	case code == 0:
		code = http.StatusOK
	}
	b = strconv.AppendInt(append(b, `,"responseStatus":{"metadata":{},"code":`...), int64(code), 10)
	b = timestamp(append(b, `},"requestReceivedTimestamp":`...), a.began)
	b = timestamp(append(b, `,"stageTimestamp":`...), now)
	b = append(append(append(b, `,"annotations":{"`...), bytesKey...), `":"`...)
	b = append(strconv.AppendInt(b, a.bytes, 10), '"')
	if n := a.req.ContentLength; n != 0 {
		b = append(append(append(b, `,"`...), bodyKey...), `":"`...)
		b = append(strconv.AppendInt(b, n, 10), '"')
	}
	if stage != "ResponseStarted" && !a.isLong() {
		b = a.latencies(b, now)
	}
	b = append(b, "}}\n"...)
	a.log.put(b)
	*p = b
	lines.Put(p)
}

// uri is what was asked for, as it was asked: to put it together again is a fifth of
// what a line costs.
func uri(req *http.Request) string {
	if strings.HasPrefix(req.RequestURI, "/") {
		return req.RequestURI
	}
	return req.URL.RequestURI()
}

// latencies adds how long the request took, and its parts that took leastTold.
func (a *answer) latencies(b []byte, now time.Time) []byte {
	b = took(b, "total", now.Sub(a.began))
	t := a.asked.trackers.Load()
	if t == nil {
		return b
	}
	// v1.36 times what it reads from etcd, and no longer what it writes
	// (kubernetes.Client in storage/etcd3/store.go passes the clock by).
	if info := a.asked.info.Load(); info != nil && reads(info.Verb) {
		b = took(b, "etcd", t.StorageTracker.GetLatency())
	}
	for _, part := range [...]struct {
		name    string
		tracker request.DurationTracker
	}{
		{"authentication", t.AuthenticationTracker},
		{"authorization", t.AuthorizationTracker},
		{"apf-queue-wait", t.APFQueueWaitTracker},
		{"mutating-webhook", t.MutatingWebhookTracker},
		{"validating-webhook", t.ValidatingWebhookTracker},
	} {
		if d := part.tracker.GetLatency(); d >= leastTold {
			b = took(b, part.name, d)
		}
	}
	return b
}

func reads(verb string) bool { return verb == "get" || verb == "list" }

// took adds how long a part of a request took, as time.ParseDuration reads it.
func took(b []byte, part string, d time.Duration) []byte {
	b = append(append(append(append(b, `,"`...), latencyPrefix...), part...), `":"`...)
	return append(strconv.AppendInt(b, d.Microseconds(), 10), `us"`...)
}
