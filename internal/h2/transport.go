// Package h2 holds a lean HTTP/2 client for many long-lived connections.
//
// net/http's client takes several goroutines and buffers for a connection and
// for each request on it, and a write for each frame. That is much where
// thousands of simulated nodes have a connection, five watches and a lease
// each. Here a connection is one goroutine, which reads; whoever sends a request
// writes its headers and body at once, and is woken when the whole of a short
// answer is there. Frames are read and headers compressed by golang.org/x/net.
//
// Where a server speaks no HTTP/2, or a proxy lies between, net/http takes over.
package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
)

// A Transport is an http.RoundTripper with connections of its own to one
// server: one, and more where that has all the streams its server allows.
type Transport struct {
	group    *Group
	tls      *tls.Config
	proxy    func(*http.Request) (*url.URL, error)
	fallback atomic.Pointer[http.Transport]
	dialing  chan struct{} // holds a token while somebody dials

	mu     sync.Mutex // guards what follows
	conns  []*conn    // that take new streams
	closed bool
}

// errNoHTTP2 says that the server did not choose HTTP/2.
var errNoHTTP2 = errors.New("the server speaks no HTTP/2")

// errClosed says that the transport, not the server, ended a connection.
var errClosed = errors.New("the transport is closed")

// RoundTrip sends a request. It reads the body before it sends, closes it, and
// sends a request again, on another connection, that its server certainly did
// not look at.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if f := t.fallback.Load(); f != nil {
		return f.RoundTrip(req)
	}
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	defer putBuffer(body)
	for try := 0; ; try++ {
		resp, err := t.once(req, *body)
		switch {
		case errors.Is(err, errNoHTTP2):
			return t.fall(req, *body)
		case errors.As(err, new(*unprocessedError)) && try < 3 && req.Context().Err() == nil:
			continue
		}
		return resp, err
	}
}

func readBody(req *http.Request) (*[]byte, error) {
	body := getBuffer()
	if req.Body == nil {
		return body, nil
	}
	defer req.Body.Close()
	if n := req.ContentLength; n > 0 {
		*body = slices.Grow(*body, int(n))[:n]
		if _, err := io.ReadFull(req.Body, *body); err != nil {
			putBuffer(body)
			return nil, fmt.Errorf("read the request's body: %w", err)
		}
		return body, nil
	}
	all, err := io.ReadAll(req.Body)
	if err != nil {
		putBuffer(body)
		return nil, fmt.Errorf("read the request's body: %w", err)
	}
	*body = append(*body, all...)
	return body, nil
}

// fall leaves this and all later requests to net/http.
func (t *Transport) fall(req *http.Request, body []byte) (*http.Response, error) {
	f := &http.Transport{
		Proxy:               t.proxy,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext,
		TLSClientConfig:     t.tls,
		TLSHandshakeTimeout: handshakeTimeout,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: quietFor, PingTimeout: pingTimeout},
	}
	if !t.fallback.CompareAndSwap(nil, f) {
		f = t.fallback.Load()
	}
	again := req.Clone(req.Context())
	if req.Body != nil {
		again.Body = io.NopCloser(newBytesReader(body))
	}
	return f.RoundTrip(again)
}

func (t *Transport) once(req *http.Request, body []byte) (*http.Response, error) {
	ctx := req.Context()
	for {
		c, err := t.conn(ctx, req)
		if err != nil {
			return nil, err
		}
		s, err := c.open(req, body)
		if errors.Is(err, errNoRoom) {
			continue // somebody was faster
		}
		if err != nil {
			return nil, err
		}
		return s.answer(req)
	}
}

// conn is a connection that has room for a stream.
func (t *Transport) conn(ctx context.Context, req *http.Request) (*conn, error) {
	if c, err := t.withRoom(); c != nil || err != nil {
		return c, err
	}
	select {
	case t.dialing <- struct{}{}:
		defer func() { <-t.dialing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// Whoever dialled before us may have made room for us too.
	if c, err := t.withRoom(); c != nil || err != nil {
		return c, err
	}
	c, err := t.dial(ctx, req)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		c.close(errClosed)
		return nil, errClosed
	}
	t.conns = append(t.conns, c)
	t.group.add(c)
	go c.read()
	return c, nil
}

func (t *Transport) withRoom() (*conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	for _, c := range t.conns {
		if c.hasRoom() {
			return c, nil
		}
	}
	return nil, nil
}

func (t *Transport) dial(ctx context.Context, req *http.Request) (*conn, error) {
	if req.URL.Scheme != "https" {
		return nil, errNoHTTP2
	}
	if t.proxy != nil {
		if via, err := t.proxy(req); err != nil || via != nil {
			return nil, errNoHTTP2 // net/http knows how
		}
	}
	host, port := req.URL.Hostname(), req.URL.Port()
	if port == "" {
		port = "443"
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := (&net.Dialer{KeepAlive: dialTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	conf := t.tls.Clone()
	conf.NextProtos = []string{"h2", "http/1.1"}
	if conf.ServerName == "" {
		conf.ServerName = host
	}
	secure := tls.Client(raw, conf)
	shaking, stop := context.WithTimeoutCause(ctx, handshakeTimeout, errors.New("TLS handshake: no answer"))
	defer stop()
	if err := secure.HandshakeContext(shaking); err != nil {
		raw.Close()
		return nil, err
	}
	if secure.ConnectionState().NegotiatedProtocol != "h2" {
		secure.Close()
		return nil, errNoHTTP2
	}
	return newConn(t, secure)
}

// drop takes a connection off those that take new streams.
func (t *Transport) drop(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.conns, c); i >= 0 {
		t.conns = slices.Delete(t.conns, i, i+1)
	}
}

// Close ends all connections; what is open on them fails.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, c := range t.group.of(t) {
		c.close(errClosed)
	}
	if f := t.fallback.Load(); f != nil {
		f.CloseIdleConnections()
	}
}
