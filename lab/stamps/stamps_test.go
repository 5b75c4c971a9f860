package stamps

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sent is an answer as its receiver gets it, piece by piece.
type sent struct {
	header http.Header
	code   int
	held   bytes.Buffer
	pieces []string
	fails  error
}

func (s *sent) Header() http.Header  { return s.header }
func (s *sent) WriteHeader(code int) { s.code = code }
func (s *sent) Write(p []byte) (int, error) {
	if s.fails != nil {
		return 0, s.fails
	}
	return s.held.Write(p)
}
func (s *sent) Flush() { s.pieces = append(s.pieces, s.held.String()); s.held.Reset() }

// CloseNotify makes it what an HTTP server hands out.
func (s *sent) CloseNotify() <-chan bool { return nil }

func watch(asked string, h http.HandlerFunc) *sent {
	req := httptest.NewRequest("GET", "/api/v1/pods?watch=1", nil)
	if asked != "" {
		req.Header.Set(Header, asked)
	}
	w := &sent{header: http.Header{}}
	Handler(h).ServeHTTP(w, req)
	w.Flush()
	return w
}

// records takes an answer apart.
func records(t *testing.T, b string) (texts []string, at []int64) {
	t.Helper()
	for len(b) > 0 {
		if len(b) < headBytes {
			t.Fatalf("%d bytes are no record", len(b))
		}
		n := int(binary.BigEndian.Uint32([]byte(b[8:])))
		at = append(at, int64(binary.BigEndian.Uint64([]byte(b))))
		texts = append(texts, b[headBytes:headBytes+n])
		b = b[headBytes+n:]
	}
	return texts, at
}

func TestEventsWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().UnixMicro()
		w := watch("50ms", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush() // the header goes at once
			for _, event := range []string{"one", "two", "three"} {
				for _, part := range []string{event[:1], event[1:]} { // a frame's length and its content
					if _, err := io.WriteString(w, part); err != nil {
						t.Error(err)
					}
				}
				w.(http.Flusher).Flush()
				time.Sleep(30 * time.Millisecond)
			}
		})
		if w.code != 200 || w.header.Get(Header) != "50ms" {
			t.Errorf("%d, %v", w.code, w.header)
		}
		// At 0, 50 and at the end.
		if len(w.pieces) != 4 || w.pieces[0] != "" || w.pieces[3] != "" {
			t.Fatalf("%d pieces: %q", len(w.pieces), w.pieces)
		}
		texts, at := records(t, w.pieces[1]+w.pieces[2])
		if got := strings.Join(texts, " "); got != "one two three" {
			t.Errorf("records %q", got)
		}
		for i, us := range at {
			if want := began + int64(i)*30_000; us != want {
				t.Errorf("record %d is of %d µs, want %d", i, us-began, want-began)
			}
		}
		if one, _ := records(t, w.pieces[1]); len(one) != 2 {
			t.Errorf("the first 50 ms had %q", one)
		}
	})
}

func TestWhatDoesNotAskIsAsEver(t *testing.T) {
	for _, asked := range []string{"", "soon", "-50ms", "0s", "1h"} {
		w := watch(asked, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "event")
			w.(http.Flusher).Flush()
		})
		if w.pieces[0] != "event" || w.header.Get(Header) != "" {
			t.Errorf("asked for %q: %q, %v", asked, w.pieces, w.header)
		}
	}
}

func TestOtherAnswersAreAsEver(t *testing.T) {
	w := watch("50ms", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, "too old")
	})
	if w.code != http.StatusGone || w.pieces[0] != "too old" || w.header.Get(Header) != "" {
		t.Errorf("%d %q %v", w.code, w.pieces, w.header)
	}
}

// A handler that writes to nobody is told so, and ends.
func TestWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		req := httptest.NewRequest("GET", "/api/v1/pods?watch=1", nil)
		req.Header.Set(Header, "50ms")
		var err error
		Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				if _, err = io.WriteString(w, "event"); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				time.Sleep(100 * time.Millisecond)
			}
		})).ServeHTTP(&sent{header: http.Header{}, fails: gone}, req)
		if !errors.Is(err, gone) {
			t.Errorf("writing ended with %v", err)
		}
		time.Sleep(time.Second) // no timer writes to an answer that is over
	})
}

// Much does not wait.
func TestMuchIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := strings.Repeat("x", maxHeld)
		w := watch("1s", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, large)
			time.Sleep(10 * time.Millisecond)
			_, _ = io.WriteString(w, "small")
		})
		first, _ := records(t, w.pieces[0])
		second, at := records(t, w.pieces[1])
		if len(first) != 1 || first[0] != large || len(second) != 1 || second[0] != "small" || at[0] == 0 {
			t.Errorf("%d pieces, %d and %q", len(w.pieces), len(first), second)
		}
	})
}
