package hollow

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	patchType    = "application/strategic-merge-patch+json"
)

// A client talks to the API server as one node. It is a round tripper and
// prepared headers: client-go's typed clients would decode, convert and rate
// limit what we need none of.
type client struct {
	rt      http.RoundTripper
	base    *url.URL
	header  [3]http.Header // by body: none, protobuf, patch
	metrics *metrics
}

type bodyKind int

const (
	noBody bodyKind = iota
	protobufBody
	patchBody
)

func newClient(rt http.RoundTripper, base *url.URL, m *metrics, extra http.Header) *client {
	c := &client{rt: rt, base: base, metrics: m}
	for i, contentType := range []string{"", protobufType, patchType} {
		h := http.Header{"User-Agent": {UserAgent}, "Accept": {protobufType + ",application/json"}}
		if contentType != "" {
			h["Content-Type"] = []string{contentType}
		}
		for k, v := range extra {
			h[k] = v
		}
		c.header[i] = h
	}
	return c
}

// A statusError is an answer other than success.
type statusError struct {
	request string
	code    int
	message string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: %d %s", e.request, e.code, e.message)
}

func isCode(err error, code int) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == code
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func release(b *bytes.Buffer) {
	if b != nil && b.Cap() <= 1<<20 {
		b.Reset()
		buffers.Put(b)
	}
}

// maxTries and the wait follow client-go: it repeats what the server asked to
// be repeated, ten times.
const maxTries = 11

// do sends one request. The answer's body is the caller's to release.
func (c *client) do(ctx context.Context, k request, path string, kind bodyKind, body []byte) (*bytes.Buffer, error) {
	return c.doQuery(ctx, k, path, "", kind, body)
}

func (c *client) doQuery(ctx context.Context, k request, path, query string, kind bodyKind, body []byte) (*bytes.Buffer, error) {
	for try := 1; ; try++ {
		answer, wait, err := c.once(ctx, k, path, query, kind, body)
		if err == nil || wait < 0 || try == maxTries {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// once sends one request once. wait is negative unless the server asked for
// the request to be repeated.
func (c *client) once(ctx context.Context, k request, path, query string, kind bodyKind, body []byte) (answer *bytes.Buffer, wait time.Duration, err error) {
	began := time.Now()
	resp, err := c.rt.RoundTrip(c.request(ctx, k, path, query, kind, body))
	if err != nil {
		if ctx.Err() == nil {
			c.metrics.failed(k, "connection")
		}
		return nil, -1, fmt.Errorf("%s %s: %w", k.method(), path, err)
	}
	answer = buffers.Get().(*bytes.Buffer)
	_, err = answer.ReadFrom(resp.Body)
	resp.Body.Close()
	c.metrics.answered(k, time.Since(began))
	if err != nil {
		release(answer)
		c.metrics.failed(k, "connection")
		return nil, -1, fmt.Errorf("%s %s: reading the answer: %w", k.method(), path, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return answer, -1, nil
	}
	c.metrics.failed(k, strconv.Itoa(resp.StatusCode))
	err = &statusError{k.method() + " " + path, resp.StatusCode, statusMessage(answer.Bytes())}
	release(answer)
	wait = -1
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		if s, convErr := strconv.Atoi(resp.Header.Get("Retry-After")); convErr == nil && s >= 0 {
			wait = time.Duration(s) * time.Second
		}
	}
	return nil, wait, err
}

func (c *client) request(ctx context.Context, k request, path, query string, kind bodyKind, body []byte) *http.Request {
	u := *c.base
	u.Path = c.base.Path + path
	u.RawQuery = query
	r := &http.Request{
		Method: k.method(), URL: &u, Host: u.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: c.header[kind], // shared: a RoundTripper must not change it
	}
	if body != nil {
		r.ContentLength = int64(len(body))
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return r.WithContext(ctx)
}

// statusMessage reads the server's words out of a metav1.Status in either encoding.
func statusMessage(b []byte) string {
	var s metav1.Status
	if raw, err := unwrap(b); err == nil {
		if s.Unmarshal(raw) == nil {
			return s.Message
		}
	}
	if json.Unmarshal(b, &s) == nil && s.Message != "" {
		return s.Message
	}
	const most = 200
	return strings.TrimSpace(string(b[:min(len(b), most)]))
}

// maxFrame bounds what one watch event may claim to need. etcd refuses
// objects above 1.5 MiB; protobuf and managed fields do not quadruple that.
const maxFrame = 8 << 20

// watch opens a watch and calls each with every frame until the stream ends,
// each returns an error, or ctx ends. The frame is valid during the call.
func (c *client) watch(ctx context.Context, path, query string, opened func(), each func(frame []byte) error) error {
	// The stream's own context: RoundTrip's goroutine ends with it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.rt.RoundTrip(c.request(ctx, watchRequest, path, query, noBody, nil))
	if err != nil {
		if ctx.Err() == nil {
			c.metrics.failed(watchRequest, "connection")
		}
		return fmt.Errorf("watch %s: %w", path, err)
	}
	defer resp.Body.Close()
	c.metrics.answered(watchRequest, -1)
	if resp.StatusCode != http.StatusOK {
		c.metrics.failed(watchRequest, strconv.Itoa(resp.StatusCode))
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return &statusError{"watch " + path, resp.StatusCode, statusMessage(b)}
	}
	opened()
	for {
		// No buffer is held while nothing comes: thousands of watches idle.
		var size [4]byte
		if _, err := io.ReadFull(resp.Body, size[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > maxFrame {
			return fmt.Errorf("watch %s: a frame of %d bytes: %w", path, n, errWire)
		}
		buf := buffers.Get().(*bytes.Buffer)
		buf.Grow(int(n))
		frame := buf.AvailableBuffer()[:n]
		_, err := io.ReadFull(resp.Body, frame)
		if err == nil {
			err = each(frame)
		}
		release(buf)
		if err != nil {
			return err
		}
	}
}
