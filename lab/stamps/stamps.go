// Package stamps has an API server tell a watcher when it wrote each event, and send
// what it wrote some times a second only, and of it only what the watcher reads.
//
// Who measures by a watch must know when an event came. If the clock is that of who
// reads, each event must be read at once: it is a write and a TLS record here, and
// waking up there, where the first thousand instructions find nothing in the CPU's
// caches. With the server's clock on it an event can wait for others.
//
// A request asks for it with the header Header, whose value is how long an event may
// wait ("50ms"). An answer that begins with 200 OK and has this header consists of
// records: when their bytes were written, in microseconds since 1970 (8 bytes), how
// many they are (4 bytes), both with the highest byte first, and the bytes. All
// records' bytes, one after the other, are the answer as it would have been. Other
// answers are as they would have been.
//
// A request that has FieldsHeader too is sent less of each object: there is more on it.
//
// Start with Handler.
package stamps

import (
	"encoding/binary"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Header is the request's and the answer's.
const Header = "Kubedyno-Stamps"

const (
	headBytes = 8 + 4
	// together are bytes that are written within this time, as a frame's length and
	// its content are: they have one stamp.
	together = 20 * time.Microsecond
	// maxHeld bytes wait at most.
	maxHeld = 256 << 10
	// longest is what a request may ask for.
	longest = time.Second
	// watchInProtobuf is the content type of an answer that can be made shorter.
	watchInProtobuf = "application/vnd.kubernetes.protobuf;stream=watch"
)

// Handler serves requests that ask for stamps with them. It belongs around the whole
// chain.
func Handler(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		wait, err := time.ParseDuration(req.Header.Get(Header))
		flusher, ok := w.(http.Flusher)
		if err != nil || !ok || wait <= 0 || wait > longest {
			inner.ServeHTTP(w, req)
			return
		}
		s := &stamper{ResponseWriter: w, flusher: flusher, wait: wait, asked: req.Header.Get(Header), fields: req.Header.Get(FieldsHeader), now: time.Now}
		s.serve(inner, req)
	})
}

// stamper writes records. Its handler writes, a timer sends.
type stamper struct {
	http.ResponseWriter
	flusher http.Flusher
	wait    time.Duration
	asked   string
	fields  string // that are asked for
	now     func() time.Time

	mu     sync.Mutex
	trim   *trimmer  // nil: everything is sent
	begun  bool      // the answer has
	on     bool      // with stamps
	held   []byte    // records that wait
	last   int       // where in held the last one begins
	at     time.Time // its stamp
	armed  bool      // the timer runs
	closed bool
	err    error // of sending
}

var _ responsewriter.UserProvidedDecorator = &stamper{}

// serve has a name of its own for stacks, which tell by it what stamped watches cost.
func (s *stamper) serve(inner http.Handler, req *http.Request) {
	defer s.close()
	inner.ServeHTTP(responsewriter.WrapForHTTP1Or2(s), req)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (s *stamper) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (s *stamper) WriteHeader(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(code)
	s.ResponseWriter.WriteHeader(code)
}

func (s *stamper) begin(code int) {
	if s.begun {
		return
	}
	s.begun, s.on = true, code == http.StatusOK
	if s.on {
		s.Header().Set(Header, s.asked)
		if f, err := parseFields(s.fields); err == nil && s.Header().Get("Content-Type") == watchInProtobuf {
			s.trim = &trimmer{fields: f}
			s.Header().Set(FieldsHeader, s.fields)
		}
	}
}

// Write implements http.ResponseWriter. An error of sending is that of the next Write.
func (s *stamper) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(http.StatusOK)
	if !s.on {
		return s.ResponseWriter.Write(p)
	}
	if s.err != nil {
		return 0, s.err
	}
	if s.trim == nil {
		s.hold(p)
	} else {
		s.hold(s.trim.write(p))
	}
	if len(s.held) >= maxHeld {
		s.send()
	}
	return len(p), s.err
}

// hold has p wait, with the time.
func (s *stamper) hold(p []byte) {
	if len(p) == 0 {
		return
	}
	now := s.now()
	if len(s.held) == 0 || now.Sub(s.at) > together {
		s.last, s.at = len(s.held), now
		s.held = binary.BigEndian.AppendUint64(s.held, uint64(now.UnixMicro()))
		s.held = binary.BigEndian.AppendUint32(s.held, 0)
	}
	s.held = append(s.held, p...)
	binary.BigEndian.PutUint32(s.held[s.last+8:], uint32(len(s.held)-s.last-headBytes))
}

// Flush implements http.Flusher: within the wait.
func (s *stamper) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.held) == 0: // as at the start, when only the header is there
		s.flusher.Flush()
	case !s.armed:
		s.armed = true
		time.AfterFunc(s.wait, s.due)
	}
}

func (s *stamper) due() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if !s.closed {
		s.send()
	}
}

func (s *stamper) send() {
	if len(s.held) == 0 {
		return
	}
	if _, err := s.ResponseWriter.Write(s.held); err != nil && s.err == nil {
		s.err = err
	}
	s.held = s.held[:0]
	s.flusher.Flush()
}

// close sends what waits. After it nothing is written: the answer is the server's again.
func (s *stamper) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trim != nil {
		s.hold(s.trim.partial)
	}
	s.send()
	s.closed = true
}
