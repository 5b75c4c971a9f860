package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

type server struct {
	*httptest.Server
	conns atomic.Int32 // made so far
}

// serve starts a TLS server and a transport that trusts it.
func serve(t testing.TB, h http.HandlerFunc, change func(*http.Server)) (*server, *Transport) {
	t.Helper()
	g := NewGroup()
	s := &server{Server: httptest.NewUnstartedServer(h)}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	if change != nil {
		change(s.Config)
	}
	s.StartTLS()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	tr := g.Transport(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil)
	t.Cleanup(func() {
		tr.Close()
		s.CloseClientConnections()
		s.Close()
	})
	return s, tr
}

func do(t testing.TB, tr http.RoundTripper, method, url string, body []byte, header ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, answer
}

// noise is data that no compression or accident repeats.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// An answer that is shorter than its headers announced is not taken for whole,
// and one to HEAD is.
func TestShortAnswer(t *testing.T) {
	s, tr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		if r.Method == http.MethodGet {
			_, _ = w.Write(noise(1000))
		}
	}, nil)
	if resp, _ := do(t, tr, "HEAD", s.URL, nil); resp.ContentLength != 1_000_000 {
		t.Errorf("HEAD: content length %d", resp.ContentLength)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
	resp, err := tr.RoundTrip(req)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil {
		t.Error("a thousandth of an answer reads as whole")
	}
}

// Requests arrive as they were made, and answers as they were given, of any
// size, whatever the windows are.
func TestEcho(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s, tr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Asked", fmt.Sprintf("%s %s %s %v %d %s", r.Method, r.URL.RequestURI(), r.Header.Get("Impersonate-User"), r.Header["X-Two"], r.ContentLength, r.Proto))
		w.Header().Add("Set-Cookie", "a=b")
		w.Header().Add("Set-Cookie", "c=d")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(b)
	}, nil)
	for _, n := range []int{0, 1, 1000, 16384, 16385, 65535, 65536, 300_000, 5 << 20} {
		body := noise(n)
		resp, answer := do(t, tr, "PUT", s.URL+"/a/b?c=d%20e", body, "Impersonate-User", "system:node:x", "X-Two", "1", "X-Two", "2")
		want := fmt.Sprintf("PUT /a/b?c=d%%20e system:node:x [1 2] %d HTTP/2.0", n)
		if resp.StatusCode != http.StatusAccepted || resp.Header.Get("X-Asked") != want || len(resp.Header["Set-Cookie"]) != 2 {
			t.Errorf("%d bytes: %d, %v; want %s", n, resp.StatusCode, resp.Header, want)
		}
		if !bytes.Equal(answer, body) {
			t.Errorf("%d bytes came back as %d", n, len(answer))
		}
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("%d connections for requests one after the other", n)
	}
	tr.Close()
	if _, err := tr.RoundTrip(httptest.NewRequest("GET", s.URL, nil)); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	s.Close()
}

// Long headers take more than one frame.
func TestLongHeader(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 3000)
	s, tr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Long", r.Header.Get("X-Long"))
	}, nil)
	if resp, _ := do(t, tr, "GET", s.URL, nil, "X-Long", long); resp.Header.Get("X-Long") != long {
		t.Errorf("a header of %d bytes came back with %d", len(long), len(resp.Header.Get("X-Long")))
	}
}

// An answer is read while it comes, an end of it on either side ends the other.
func TestStreams(t *testing.T) {
	left := make(chan string, 10)
	s, tr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		for i := range 3 {
			fmt.Fprintf(w, "event %d\n", i)
			w.(http.Flusher).Flush()
		}
		if r.URL.Path == "/ends" {
			return
		}
		if r.URL.Path == "/breaks" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
		left <- r.URL.Path
	}, nil)
	open := func(ctx context.Context, path string) *http.Response {
		req, _ := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 8*3)
		if _, err := io.ReadFull(resp.Body, first); err != nil || !bytes.HasSuffix(first, []byte("event 2\n")) {
			t.Errorf("%s: %q, %v", path, first, err)
		}
		return resp
	}
	r := open(t.Context(), "/ends")
	if rest, err := io.ReadAll(r.Body); err != nil || len(rest) > 0 {
		t.Errorf("an answer that ended: %q, %v", rest, err)
	}
	r.Body.Close()
	r = open(t.Context(), "/breaks")
	if _, err := io.ReadAll(r.Body); err == nil {
		t.Error("an answer that broke off reads as whole")
	}
	r.Body.Close()

	ctx, cancel := context.WithCancel(t.Context())
	r = open(ctx, "/cancelled")
	cancel()
	if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("read of a cancelled answer: %v", err)
	}
	if path := <-left; path != "/cancelled" {
		t.Errorf("the server was told that %s is over", path)
	}
	r.Body.Close()
	r = open(t.Context(), "/closed")
	r.Body.Close()
	if path := <-left; path != "/closed" {
		t.Errorf("the server was told that %s is over", path)
	}
	if _, err := r.Body.Read(make([]byte, 1)); err == nil {
		t.Error("a closed answer can be read")
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// Where a server allows few streams, more connections are made, and no request
// fails; at the end all streams are given back.
func TestManyAtOnce(t *testing.T) {
	var now, most atomic.Int32
	s, tr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		time.Sleep(time.Millisecond)
		now.Add(-1)
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	}, func(c *http.Server) { c.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 10} })
	do(t, tr, "GET", s.URL, nil) // the settings are known
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for j := range 20 {
				body := noise(100*i + j)
				if _, answer := do(t, tr, "POST", s.URL, body); !bytes.Equal(answer, body) {
					t.Errorf("%d bytes came back as %d others", len(body), len(answer))
				}
			}
		})
	}
	all.Wait()
	if n := s.conns.Load(); n < 2 || n > 10 {
		t.Errorf("%d connections for 64 at once with 10 streams each", n)
	}
	// An answer is whole a moment before its stream is taken off.
	left := func() (n int) {
		for _, c := range tr.conns {
			c.mu.Lock()
			n += len(c.streams)
			c.mu.Unlock()
		}
		return n
	}
	for end := time.Now().Add(10 * time.Second); left() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := left(); n > 0 {
		t.Errorf("%d streams are left", n)
	}
	if most.Load() < 11 {
		t.Errorf("at most %d at once", most.Load())
	}
}

// A server that goes away, politely or not, is met again by a new connection.
func TestServerGoes(t *testing.T) {
	s, tr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
		if r.URL.Path == "/bye" {
			w.Header().Set("Connection", "close") // becomes GOAWAY
		}
	}, nil)
	do(t, tr, "GET", s.URL+"/bye", nil)
	do(t, tr, "GET", s.URL, nil)
	if n := s.conns.Load(); n != 2 {
		t.Errorf("%d connections, want a second one after GOAWAY", n)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/watch", nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.CloseClientConnections()
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("read from a broken connection: %v", err)
	}
	do(t, tr, "GET", s.URL, nil)
}

// What a server says nothing on for long is given up; one that answers pings is kept.
func TestSilence(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s, tr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}, nil)
	tr.Close()
	g := newGroup(200*time.Millisecond, 8*time.Second) // longer than a busy machine may stall
	tr = g.Transport(tr.tls, nil)
	defer tr.Close()
	// A relay that one can stop between the two.
	var stopped atomic.Bool
	go func() {
		for {
			in, err := silent.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				in.Close()
				return
			}
			relay := func(to, from net.Conn) {
				defer to.Close()
				b := make([]byte, 4096)
				for {
					n, err := from.Read(b)
					if err != nil {
						return
					}
					if !stopped.Load() {
						_, _ = to.Write(b[:n])
					}
				}
			}
			go relay(in, out)
			go relay(out, in)
		}
	}()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://"+silent.Addr().String(), nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	broken := make(chan error, 1)
	go func() {
		_, err := resp.Body.Read(make([]byte, 1))
		broken <- err
	}()
	select {
	case err := <-broken:
		t.Fatalf("a server that answers pings was given up: %v", err)
	case <-time.After(3 * time.Second): // many quiet times
	}
	stopped.Store(true)
	if err := <-broken; !errors.Is(err, errSilent) {
		t.Errorf("a silent server: %v", err)
	}
}

// net/http takes over where there is no HTTP/2, or a proxy.
func TestFallback(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.Proto, b)
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		s := httptest.NewTLSServer(http.HandlerFunc(echo))
		defer s.Close()
		g := NewGroup()
		tr := g.Transport(&tls.Config{InsecureSkipVerify: true}, nil)
		defer tr.Close()
		for range 2 {
			if _, answer := do(t, tr, "PUT", s.URL, []byte("hello")); string(answer) != "HTTP/1.1 hello" {
				t.Errorf("%q", answer)
			}
		}
	})
	t.Run("no TLS", func(t *testing.T) {
		s := httptest.NewServer(http.HandlerFunc(echo))
		defer s.Close()
		g := NewGroup()
		tr := g.Transport(nil, nil)
		defer tr.Close()
		if _, answer := do(t, tr, "PUT", s.URL, []byte("hello")); string(answer) != "HTTP/1.1 hello" {
			t.Errorf("%q", answer)
		}
	})
	t.Run("proxy", func(t *testing.T) {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "seen "+r.Method, http.StatusTeapot) }))
		defer proxy.Close()
		g := NewGroup()
		via, _ := url.Parse(proxy.URL)
		tr := g.Transport(nil, http.ProxyURL(via))
		defer tr.Close()
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://example.invalid/", nil)
		if _, err := tr.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "teapot") {
			t.Errorf("the proxy was not asked: %v", err)
		}
	})
}

func TestErrors(t *testing.T) {
	g := NewGroup()
	s, _ := serve(t, func(http.ResponseWriter, *http.Request) {}, nil)
	tr := g.Transport(&tls.Config{}, nil) // does not trust it
	defer tr.Close()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
	var unknown x509.UnknownAuthorityError
	if _, err := tr.RoundTrip(req); !errors.As(err, &unknown) {
		t.Errorf("an untrusted server: %v", err)
	}
	s.Close()
	if _, err := tr.RoundTrip(req); err == nil {
		t.Error("a server that is not there answers")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tr.RoundTrip(req.WithContext(gone)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled request: %v", err)
	}
}

// BenchmarkRequest is a lease renewal's size, by us and by net/http.
func BenchmarkRequest(b *testing.B) {
	answer := noise(600)
	s, ours := serve(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(answer)
	}, nil)
	body := noise(400)
	for name, rt := range map[string]http.RoundTripper{
		"ours":     ours,
		"net-http": &http.Transport{TLSClientConfig: ours.tls, ForceAttemptHTTP2: true, DisableCompression: true},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do(b, rt, "PUT", s.URL+"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/hollow-1", body, "User-Agent", "x", "Accept", "application/vnd.kubernetes.protobuf")
			}
		})
	}
}
