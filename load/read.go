package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedyno/kubedyno/experiment"
)

// read compiles a mix of requests that change nothing. Which kind an operation
// is, and of which object, is drawn from the seed and its number.
func (g *generator) read(ctx context.Context, w *work, r *experiment.Read) error {
	var kinds []func(draw *rand.Rand) operation
	var until []int // the sum of shares up to each kind
	shares := 0
	for _, q := range r.Mix {
		kind, err := g.request(ctx, q)
		if err != nil {
			return err
		}
		shares += q.Shares
		kinds, until = append(kinds, kind), append(until, shares)
	}
	seed := g.seed(w.phase)
	w.n, w.d = r.Operations(), r.For
	w.operation = func(i int) operation {
		draw := rand.New(rand.NewPCG(seed, uint64(i)))
		x := draw.IntN(shares)
		k := 0
		for until[k] <= x {
			k++
		}
		return kinds[k](draw)
	}
	return nil
}

// request compiles one kind of request.
func (g *generator) request(ctx context.Context, q experiment.Request) (func(*rand.Rand) operation, error) {
	verb := string(q.Kind)
	if q.Phase != "" {
		m, err := g.target(q.Phase)
		if err != nil {
			return nil, err
		}
		if len(m.alive) == 0 {
			return nil, fmt.Errorf("no object of phase %q is left to get", q.Phase)
		}
		query := ""
		if q.Kind == experiment.StaleGet {
			query = "resourceVersion=0"
		}
		return func(draw *rand.Rand) operation {
			object := m.alive[draw.IntN(len(m.alive))]
			name := m.plan.name(object)
			return operation{verb, m.plan.resource, m.plan.in(object), name, 0, func(ctx context.Context) answer {
				return g.client.do(ctx, call{method: http.MethodGet, path: m.plan.at(object) + "/" + name, query: query, subject: name})
			}}
		}, nil
	}
	gv, found, err := g.client.named(ctx, q.Resource)
	if err != nil {
		return nil, err
	}
	namespace := g.cfg.Namespace
	if q.Namespace == experiment.ReachAll || !found.Namespaced {
		namespace = ""
	}
	c := call{method: http.MethodGet, path: collection(gv, namespace, found)}
	query := url.Values{}
	if q.Selector != "" {
		query.Set("labelSelector", strings.ReplaceAll(q.Selector, "{namespace}", g.cfg.Namespace))
	}
	send := func(ctx context.Context) answer { return g.client.do(ctx, c) }
	switch q.Kind {
	case experiment.StaleList:
		query.Set("resourceVersion", "0")
	case experiment.PagedList:
		query.Set("limit", strconv.Itoa(q.Limit))
		send = func(ctx context.Context) answer { return g.client.pages(ctx, c, query) }
	case experiment.WatchOpen:
		query.Set("watch", "true")
		send = func(ctx context.Context) answer { return g.client.watch(ctx, c, q.For, false) }
	case experiment.WatchList:
		// As client-go's reflectors ask for it.
		query.Set("watch", "true")
		query.Set("sendInitialEvents", "true")
		query.Set("allowWatchBookmarks", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
		send = func(ctx context.Context) answer { return g.client.watch(ctx, c, q.For, true) }
	}
	c.query = query.Encode()
	return func(*rand.Rand) operation { return operation{verb, found.Name, namespace, "", 0, send} }, nil
}

// maxPage bounds what is kept of a page to find the way to the next one: its
// mark stands at the beginning.
const maxPage = 8 << 10

// pages lists page by page; the answer is that of the last page.
func (c *client) pages(ctx context.Context, q call, query url.Values) answer {
	var whole answer
	more := url.Values{}
	for k, v := range query {
		more[k] = v
	}
	q.keep = maxPage
	for {
		q.query = more.Encode()
		a := c.do(ctx, q)
		if whole.sent.IsZero() {
			whole.sent = a.sent
		}
		whole.done, whole.code, whole.err = a.done, a.code, a.err
		if a.err != nil {
			return whole
		}
		next, err := nextPage(a.body)
		if err != nil {
			whole.err = fmt.Errorf("read the page: %w", err)
			return whole
		}
		if next == "" {
			return whole
		}
		more.Set("continue", next)
	}
}

var protobufMagic = []byte("k8s\x00")

// nextPage finds a list's continue token in the beginning of its answer, so
// that a page is not decoded for it.
func nextPage(body []byte) (string, error) {
	if !bytes.HasPrefix(body, protobufMagic) {
		return nextPageJSON(body)
	}
	raw, err := message(body[len(protobufMagic):], 2) // Unknown.raw
	if err != nil {
		return "", err
	}
	meta, err := message(raw, 1) // every list's metadata
	if err != nil {
		return "", err
	}
	token, err := message(meta, 3) // ListMeta.continue
	return string(token), err
}

// message is the first field of that number, which need not be there whole
// unless it ends before the data does.
func message(data []byte, field protowire.Number) ([]byte, error) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		data = data[n:]
		if number == field && kind == protowire.BytesType {
			length, n := protowire.ConsumeVarint(data)
			if n < 0 {
				return nil, protowire.ParseError(n)
			}
			data = data[n:]
			return data[:min(uint64(len(data)), length)], nil
		}
		n = protowire.ConsumeFieldValue(number, kind, data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		data = data[n:]
	}
	return nil, nil
}

// nextPageJSON reads the metadata, which stand before the items.
func nextPageJSON(body []byte) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	for {
		t, err := dec.Token()
		if err != nil {
			return "", fmt.Errorf("no list: %w", err)
		}
		switch t {
		case "metadata":
			var meta metav1.ListMeta
			if err := dec.Decode(&meta); err != nil {
				return "", fmt.Errorf("no list: %w", err)
			}
			return meta.Continue, nil
		case "items":
			return "", errors.New("a list without metadata")
		}
	}
}

// A server that cannot keep up ends a watch that has not had all its objects
// yet, and says nothing (apiserver/pkg/storage/cacher: "Forcing watcher close
// due to unresponsiveness"). So whoever needs all objects begins again, as
// client-go's reflectors do.
const watchTries = 5

// watch opens a watch and holds it. Its answer is there when the server begins
// to answer, or, of a watch that begins with all objects, when it has sent them,
// at whichever try.
func (c *client) watch(ctx context.Context, q call, hold time.Duration, whole bool) answer {
	a := c.watchOnce(ctx, q, hold, whole)
	for try := 1; errors.Is(a.err, errEndedEarly) && try < watchTries; try++ {
		sent := a.sent
		a = c.watchOnce(ctx, q, hold, whole)
		a.sent = sent
	}
	return a
}

func (c *client) watchOnce(ctx context.Context, q call, hold time.Duration, whole bool) answer {
	ctx, end := context.WithCancel(ctx)
	defer end()
	q.accept = contentProtobuf + ";stream=watch,application/json"
	req, err := c.request(ctx, q)
	if err != nil {
		return c.unsent(err)
	}
	late := time.AfterFunc(requestTimeout, end) // until it has answered
	defer late.Stop()
	a := answer{sent: c.now()}
	resp, err := c.streams.Do(req)
	if err != nil {
		a.done, a.err = c.now(), transportError(err)
		return a
	}
	defer resp.Body.Close()
	a.done, a.code = c.now(), resp.StatusCode
	if a.code < 200 || a.code >= 300 {
		a.body, _ = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		a.err = statusError(a.code, a.body, "")
		return a
	}
	if whole {
		err := untilBookmark(resp.Body)
		if a.done = c.now(); err != nil {
			a.err = fmt.Errorf("watch: %w", transportError(err))
			return a
		}
	}
	if late.Stop(); hold > 0 {
		time.AfterFunc(hold, end) // the deferred end stops it where the server does
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	return a
}

// The annotation of the bookmark that ends the initial events of a watch.
var initialEventsEnd = []byte(metav1.InitialEventsAnnotationKey)

var errEndedEarly = errors.New("the server ended it before all objects were sent")

// untilBookmark reads events until all objects were sent. It looks for the mark
// in the bytes as they come: to decode the objects would cost more than to send
// them.
func untilBookmark(events io.Reader) error {
	buf := make([]byte, 64<<10)
	kept := 0 // the mark may lie across two reads
	for {
		n, err := events.Read(buf[kept:])
		seen := buf[:kept+n]
		if bytes.Contains(seen, initialEventsEnd) {
			return nil
		}
		if why := watchError(seen); why != nil {
			return why
		}
		switch {
		case errors.Is(err, io.EOF):
			return errEndedEarly
		case err != nil:
			return err
		}
		kept = copy(buf, seen[max(0, len(seen)-maxWatchError):])
	}
}

// maxWatchError is how far back an event that says why a watch ended may begin.
const maxWatchError = 4 << 10

// The beginnings of an event of type ERROR, in both encodings.
var (
	errorProtobuf = []byte("\x0a\x05ERROR\x12")
	errorJSON     = []byte(`{"type":"ERROR","object":`)
)

// watchError is what the server said instead of an event, where all of it is
// there; otherwise it is nil.
func watchError(seen []byte) error {
	var status metav1.Status
	if at := bytes.Index(seen, errorProtobuf); at >= 0 {
		extension, err := message(seen[at:], 2) // WatchEvent.object
		if err != nil {
			return nil
		}
		object, err := message(extension, 1) // RawExtension.raw
		if err != nil || !bytes.HasPrefix(object, protobufMagic) {
			return nil
		}
		raw, err := message(object[len(protobufMagic):], 2) // Unknown.raw
		if err != nil || status.Unmarshal(raw) != nil {
			return nil
		}
	} else if at := bytes.Index(seen, errorJSON); at >= 0 {
		if json.NewDecoder(bytes.NewReader(seen[at+len(errorJSON):])).Decode(&status) != nil {
			return nil
		}
	}
	if status.Message == "" {
		return nil
	}
	return fmt.Errorf("%s: %s", status.Reason, status.Message)
}
