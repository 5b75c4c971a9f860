package objects

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// The watch is read frame by frame rather than through client-go's watcher,
// which decodes before anybody can look at the clock: under load an event
// would be stamped when its decoder got a CPU, not when it arrived.

const (
	protobuf    = "application/vnd.kubernetes.protobuf"
	maxFrame    = 16 << 20
	pageSize    = 1000
	watchLength = time.Hour
)

// A frame is one watch event as it came.
type frame struct {
	at   time.Time
	data []byte
}

// errGone says that the server no longer has the resource version.
var errGone = errors.New("the resource version is gone")

// A statusError is an answer that is not 200.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.code, e.text) }

// client lists and watches one resource.
type client struct {
	http     *http.Client
	base     string // …/api/v1/pods or …/namespaces/x/pods
	selector string
	fields   string // selector of fields
	stamps   bool   // whether watches ask for the server's clock: see Options.Stamps
	needs    string // what is read of an object, as fieldsHeader has it; empty for all
}

// dial makes what all clients of a collector share: the HTTP client and the
// server's address.
func dial(config *rest.Config, transport http.RoundTripper) (h *http.Client, base string, err error) {
	cfg := rest.CopyConfig(config)
	cfg.UserAgent = UserAgent
	// A watch is one long answer. HTTP/2 would hand each piece of it from one
	// goroutine to another, here and in the API server.
	cfg.NextProtos = []string{"http/1.1"}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, "", err
	}
	if h, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, "", err
	}
	if transport != nil {
		h = &http.Client{Transport: transport}
	}
	return h, strings.TrimSuffix(server.String(), "/"), nil
}

func (c *client) get(ctx context.Context, query url.Values, accept string) (*http.Response, error) {
	if c.selector != "" {
		query.Set("labelSelector", c.selector)
	}
	if c.fields != "" {
		query.Set("fieldSelector", c.fields)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if c.stamps && query.Has("watch") {
		req.Header.Set(stampsHeader, maxWaiting.String())
		if c.needs != "" {
			req.Header.Set(fieldsHeader, c.needs)
		}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		res.Body.Close()
		if res.StatusCode == http.StatusGone {
			return nil, errGone
		}
		return nil, &statusError{res.StatusCode, statusText(b)}
	}
	return res, nil
}

// statusText is a Status' message, or the text itself.
func statusText(b []byte) string {
	if raw, err := unwrap(b); err == nil {
		if _, text, err := status(raw); err == nil && text != "" {
			return text
		}
	}
	return string(bytes.ToValidUTF8(bytes.TrimSpace(b[:min(len(b), 200)]), []byte("?")))
}

// list calls each with each object's message and returns the version to watch
// from.
func (c *client) list(ctx context.Context, each func(object []byte) error) (version string, err error) {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		version, next, err := c.page(ctx, query, each)
		if err != nil || next == "" {
			return version, err
		}
		query.Set("continue", next)
	}
}

// now is the version to watch from for what is yet to come.
func (c *client) now(ctx context.Context) (version string, err error) {
	version, _, err = c.page(ctx, url.Values{"limit": {"1"}}, func([]byte) error { return nil })
	return version, err
}

func (c *client) page(ctx context.Context, query url.Values, each func(object []byte) error) (version, next string, err error) {
	res, err := c.get(ctx, query, protobuf)
	if err != nil {
		return "", "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return "", "", err
	}
	raw, err := unwrap(b)
	if err != nil {
		return "", "", err
	}
	if version, next, err = decodeList(raw, each); err != nil {
		return "", "", fmt.Errorf("decode list: %w", err)
	}
	return version, next, nil
}

// watch sends each frame to frames, stamped as it is read or by the server, until the stream or
// ctx ends. opened is called when the server has begun to answer.
func (c *client) watch(ctx context.Context, version string, opened func(), frames chan<- frame) error {
	res, err := c.get(ctx, url.Values{
		"watch": {"1"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(int(watchLength.Seconds()))},
	}, protobuf+";stream=watch")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	opened()
	buffered := bufio.NewReaderSize(res.Body, 64<<10)
	var r io.Reader = buffered
	var stamps *stampedReader
	if c.stamps && res.Header.Get(stampsHeader) != "" {
		stamps = &stampedReader{r: buffered}
		r = stamps
	}
	var head [4]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			if err == io.EOF {
				return nil // the server's time limit
			}
			return err
		}
		at := time.Now()
		if stamps != nil {
			at = stamps.at
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > maxFrame {
			return fmt.Errorf("watch event of %d bytes", n)
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(r, data); err != nil {
			return err
		}
		select {
		case frames <- frame{at, data}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A lab's API server says when it wrote each event, sends what it wrote some times a
// second, and of it what we read: package stamps of module lab has the form, and why.
const (
	stampsHeader = "Kubedyno-Stamps"
	fieldsHeader = "Kubedyno-Fields"
	// maxWaiting is how much later an event may be seen for that. Whoever waits for
	// pods sees them that much later, too.
	maxWaiting = 200 * time.Millisecond
)

// stampedReader reads the bytes of records with stamps.
type stampedReader struct {
	r    io.Reader
	at   time.Time // when the last bytes were written
	left uint32    // of their record
}

func (s *stampedReader) Read(p []byte) (int, error) {
	for s.left == 0 {
		var head [12]byte
		if _, err := io.ReadFull(s.r, head[:]); err != nil {
			return 0, err
		}
		s.at = time.UnixMicro(int64(binary.BigEndian.Uint64(head[:])))
		s.left = binary.BigEndian.Uint32(head[8:])
	}
	n, err := s.r.Read(p[:min(len(p), int(s.left))])
	s.left -= uint32(n)
	return n, err
}
