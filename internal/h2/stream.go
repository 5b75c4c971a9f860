package h2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
)

// wholeAnswer is the longest answer that is waited for before its headers are
// given out: who asked is woken once.
const wholeAnswer = streamWindow / 4

// A stream is one request and its answer, whose body it is.
type stream struct {
	c      *conn
	id     uint32
	window int64 // what we may still send on it; c.mu guards it

	mu       sync.Mutex // guards what follows
	change   sync.Cond
	resp     *http.Response
	await    int64   // bytes before resp is given out
	missing  int64   // of those that the headers announced
	buf      *[]byte // what came and was not read yet, or nil
	off      int     // how much of buf was read
	read     int     // bytes read that the server was not told of
	ended    bool    // nothing more comes
	err      error   // why, unless the answer is whole
	closed   bool    // who asked wants no more
	bodiless bool    // HEAD: announced bytes do not come
	stop     func() bool
}

func newStream(c *conn) *stream {
	s := &stream{c: c}
	s.change.L = &s.mu
	return s
}

// endWith ends the stream when ctx does. What it returns undoes that.
func (s *stream) endWith(ctx context.Context) func() bool {
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { s.c.reset(s.id, http2.ErrCodeCancel, context.Cause(ctx)) })
}

// answer waits for the answer.
func (s *stream) answer(req *http.Request) (*http.Response, error) {
	stop := s.endWith(req.Context())
	s.mu.Lock()
	for !s.ended && (s.resp == nil || s.await > 0) {
		s.change.Wait()
	}
	resp, err := s.resp, s.err
	if resp != nil && (err == nil || s.buf != nil) {
		// A body that broke off says so when it is read to there.
		s.stop = stop
		s.mu.Unlock()
		resp.Request, resp.Body = req, s
		return resp, nil
	}
	s.mu.Unlock()
	stop()
	s.release()
	if err == nil {
		err = errors.New("the server ended the stream without an answer")
	}
	return nil, err
}

func (s *stream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// finish ends the stream: err is nil when the answer is whole.
func (s *stream) finish(err error) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	if err == nil && s.missing > 0 {
		err = io.ErrUnexpectedEOF // less than was announced
	}
	s.ended, s.err = true, err
	s.change.Broadcast()
	s.mu.Unlock()
	s.c.forget(s)
}

// headers takes in an answer's headers, or its trailers, which nobody asks for.
func (s *stream) headers(f *http2.MetaHeadersFrame) {
	end := f.StreamEnded()
	s.mu.Lock()
	if s.resp == nil {
		resp, err := response(f, end)
		if err != nil {
			s.mu.Unlock()
			s.c.reset(s.id, http2.ErrCodeProtocol, err)
			return
		}
		if resp.StatusCode < 200 {
			s.mu.Unlock()
			return // more will follow
		}
		s.resp = resp
		if n := resp.ContentLength; n > 0 && !s.bodiless {
			if s.missing = n; n <= wholeAnswer {
				s.await = n
			}
		}
		s.change.Broadcast()
	}
	s.mu.Unlock()
	if end {
		s.finish(nil)
	}
}

func response(f *http2.MetaHeadersFrame, end bool) (*http.Response, error) {
	code, err := strconv.Atoi(f.PseudoValue("status"))
	if err != nil {
		return nil, fmt.Errorf("answer: no status: %w", err)
	}
	regular := f.RegularFields()
	resp := &http.Response{
		Status: strconv.Itoa(code) + " " + http.StatusText(code), StatusCode: code,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: make(http.Header, len(regular)), ContentLength: -1,
	}
	values := make([]string, len(regular)) // one allocation for all that come once
	for i, h := range regular {
		k := canonical(h.Name)
		if old, again := resp.Header[k]; again {
			resp.Header[k] = append(old, h.Value)
			continue
		}
		values[i] = h.Value
		resp.Header[k] = values[i : i+1 : i+1]
	}
	if text := resp.Header.Get("Content-Length"); text != "" {
		if resp.ContentLength, err = strconv.ParseInt(text, 10, 64); err != nil || resp.ContentLength < 0 {
			return nil, fmt.Errorf("answer: content length %q", text)
		}
	} else if end {
		resp.ContentLength = 0
	}
	return resp, nil
}

var canonicals sync.Map

// canonical is a header's name as net/http writes it. There are few of them.
func canonical(name string) string {
	if c, ok := canonicals.Load(name); ok {
		return c.(string)
	}
	c := http.CanonicalHeaderKey(name)
	canonicals.Store(name, c)
	return c
}

// data takes in a part of the answer.
func (s *stream) data(f *http2.DataFrame) {
	b := f.Data()
	s.mu.Lock()
	padding := int(f.Length) - len(b)
	if s.closed || s.ended {
		padding += len(b)
	} else if len(b) > 0 {
		if s.buf == nil {
			s.buf, s.off = getBuffer(), 0
		}
		*s.buf = append(*s.buf, b...)
		s.missing -= int64(len(b))
		if s.await -= int64(len(b)); s.await <= 0 {
			s.change.Broadcast()
		}
	}
	credit := s.credit(padding)
	s.mu.Unlock()
	if f.StreamEnded() {
		s.finish(nil)
	} else if credit > 0 {
		s.c.control(appendWindowUpdate(nil, s.id, credit))
	}
}

// credit counts bytes as read, and says how many to tell the server of. s.mu is held.
func (s *stream) credit(n int) int {
	if s.read += n; s.read < streamWindow/2 || s.ended {
		return 0
	}
	n = s.read
	s.read = 0
	return n
}

// Read reads the answer's body.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	for s.buf == nil && !s.ended && !s.closed {
		s.change.Wait()
	}
	if s.closed {
		s.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	if s.buf == nil {
		err := s.err
		s.mu.Unlock()
		if err == nil {
			err = io.EOF
		}
		return 0, err
	}
	n := copy(p, (*s.buf)[s.off:])
	if s.off += n; s.off == len(*s.buf) {
		putBuffer(s.buf)
		s.buf = nil // thousands of watches wait with nothing to read
	}
	credit := s.credit(n)
	s.mu.Unlock()
	if credit > 0 {
		s.c.control(appendWindowUpdate(nil, s.id, credit))
	}
	return n, nil
}

// Close ends the answer, if it has not.
func (s *stream) Close() error {
	s.release()
	s.c.reset(s.id, http2.ErrCodeCancel, http.ErrBodyReadAfterClose)
	return nil
}

// release lets go of what the stream holds.
func (s *stream) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.buf != nil {
		putBuffer(s.buf)
		s.buf = nil
	}
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	s.change.Broadcast()
}

func newBytesReader(b []byte) io.Reader { return bytes.NewReader(bytes.Clone(b)) }
