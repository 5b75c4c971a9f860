package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"compress/gzip"

	"github.com/kubedyno/kubedyno/record"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// maxBody bounds an answer; the largest API servers render about 100 MB.
const maxBody = 256 << 20

// Formats that are asked for. Native histograms come in protobuf only, which
// costs both sides more.
const (
	accept       = "text/plain;version=0.0.4,*/*;q=0.1"
	acceptNative = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)

// scraper is one target and what is known of its series. One scrape runs at a
// time.
type scraper struct {
	t Target

	mu    sync.Mutex
	buf   bytes.Buffer
	lines lines              // of the last answer
	spare lines              // of the one before, to be filled again
	cache map[string]*series // by the line's text up to the value
	// leaveOut says which families are not kept; skipped counts their series.
	leaveOut func(family string) bool
	skipped  int
	odd      bool       // its lines are left to the parser
	tag      string     // names the last answer, where changes to it may be asked for
	changes  bool       // the last answer was told as changes
	own      [5]*series // the reports below
	round    uint64
	last     int64     // ms of the last scrape's samples
	ended    time.Time // of the last scrape

	worked, failed int
	reason         string
	downSince      time.Time
	samples        int64
	dropped        int64
	took           time.Duration
	bytes          int64
	retired        bool
}

// series is a cached identity: parsing labels is most of a scrape's cost, and
// nearly all series of one scrape were in the last.
type series struct {
	ref   storage.SeriesRef
	set   labels.Labels
	round uint64 // last seen
	dead  bool   // its stale marker is written
	// leftOut is a series that is not kept at all.
	leftOut bool
	place   int // its line in the last answer; -1 none
}

// isNew says that it had no sample yet, or none since it went stale.
func (x *series) isNew() bool { return x.round == 0 || x.dead }

var reports = [...]string{"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_series_added", "scrape_body_size_bytes"}

func newScraper(t Target) *scraper {
	if t.Client == nil {
		t.Client = http.DefaultClient
	}
	if t.Job == "" {
		t.Job = t.Component
	}
	s := &scraper{t: t, cache: map[string]*series{}}
	for i, name := range reports {
		s.own[i] = &series{set: labels.FromStrings(model.MetricNameLabel, name, "component", t.Component, "instance", t.Instance, "job", t.Job)}
	}
	return s
}

func (s *scraper) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.ended)
}

// asked is the time of the last samples.
func (s *scraper) asked() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return timestamp.Time(s.last)
}

// What an answer costs, roughly: a component to write its text, or both sides to go
// through its lines where only those that changed are told. And how many times as
// long the component is left alone.
const (
	perByte, restOfText    = 23 * time.Nanosecond, 400
	perLine, restOfChanges = 600 * time.Nanosecond, 1000
)

// rest is how long the component is left alone after its last answer.
func (s *scraper) rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes {
		return time.Duration(len(s.lines.at)) * perLine * restOfChanges
	}
	return time.Duration(s.buf.Len()) * perByte * restOfText
}

// scrape reads the target once and appends what it says, stamped with the
// moment at which it was asked. Only a failing store is an error.
func (s *scraper) scrape(ctx context.Context, out storage.AppendableV2, timeout time.Duration, gap func(record.Gap)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	contentType, err := s.fetch(ctx)
	if err != nil && outer.Err() != nil {
		return nil // the run ended meanwhile; its last scrape follows
	}
	took := time.Since(began)
	s.ended = time.Now()
	at := max(timestamp.FromTime(began), s.last+1) // two in one millisecond would be one
	s.last = at
	s.round++

	added, n := 0, 0
	app := out.AppenderV2(ctx)
	if err == nil {
		n, added, err = s.append(app, contentType, at)
		if err != nil {
			// What was parsed of a broken answer must not look like the whole.
			if e := app.Rollback(); e != nil {
				return e
			}
			app = out.AppenderV2(ctx)
			s.round++
			n, added = 0, 0
		}
	}
	if storeErr := s.stale(app, at); storeErr != nil {
		return errors.Join(storeErr, app.Rollback())
	}
	up := 1.0
	if err != nil {
		up = 0
	}
	values := [...]float64{up, took.Seconds(), float64(n), float64(added), float64(s.buf.Len())}
	for i, v := range values {
		if e := s.put(app, s.own[i], at, v); e != nil {
			return errors.Join(e, app.Rollback())
		}
	}
	if e := app.Commit(); e != nil {
		return fmt.Errorf("store metrics of %s: %w", s.t.Component, e)
	}
	s.account(err, began, took, n, gap)
	return nil
}

func (s *scraper) account(err error, began time.Time, took time.Duration, n int, gap func(record.Gap)) {
	s.samples += int64(n + len(reports))
	if err != nil {
		s.failed++
		s.reason = err.Error()
		if s.downSince.IsZero() {
			s.downSince = began
		}
		return
	}
	if s.worked > 0 && !s.downSince.IsZero() {
		gap(record.Gap{Collector: "metrics", Subject: s.t.Component, Reason: "metrics did not answer: " + s.reason, Start: s.downSince, End: began})
	}
	s.downSince = time.Time{}
	s.worked++
	s.took += took
	s.bytes += int64(s.buf.Len())
}

// fetch reads the answer into s.buf.
func (s *scraper) fetch(ctx context.Context) (contentType string, err error) {
	s.buf.Reset()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.t.URL, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", accept)
	if s.t.Native {
		req.Header.Set("Accept", acceptNative)
	}
	req.Header.Set("User-Agent", "kubedyno-collect")
	if s.t.Changes {
		req.Header.Set("A-IM", manipulation)
		if s.tag != "" {
			req.Header.Set("If-None-Match", s.tag)
		}
	}
	if s.t.Compress {
		req.Header.Set("Accept-Encoding", "gzip")
	} else {
		req.Header.Set("Accept-Encoding", "identity")
	}
	res, err := s.t.Client.Do(req)
	if err != nil {
		var u *url.Error // its text repeats the URL, whose port changes with each run
		if errors.As(err, &u) {
			err = u.Err
		}
		return "", err
	}
	defer res.Body.Close()
	s.changes = s.t.Changes && res.StatusCode == http.StatusIMUsed && res.Header.Get("IM") == manipulation && res.Header.Get("Delta-Base") == s.tag
	if res.StatusCode != http.StatusOK && !s.changes {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 200))
		return "", fmt.Errorf("HTTP %s: %s", res.Status, bytes.TrimSpace(text))
	}
	var body io.Reader = res.Body
	if res.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(res.Body)
		if err != nil {
			return "", err
		}
		body = z
	}
	n, err := s.buf.ReadFrom(io.LimitReader(body, maxBody+1))
	if err != nil {
		return "", err
	}
	if n > maxBody {
		return "", fmt.Errorf("answer is larger than %d bytes", maxBody)
	}
	if s.t.Changes {
		s.tag = res.Header.Get("ETag")
	}
	return res.Header.Get("Content-Type"), nil
}

// append parses s.buf into app. After an answer that could not be taken line by
// line, or not at all, no changes can be told.
func (s *scraper) append(app storage.AppenderV2, contentType string, at int64) (n, added int, err error) {
	if s.changes {
		if n, added, err = s.appendChanges(app, at); err != nil {
			s.tag = ""
		}
		return n, added, err
	}
	defer func() {
		if err != nil || s.odd || !isText(contentType) {
			s.tag = ""
		}
	}()
	if isText(contentType) && !s.odd {
		n, added, err = s.appendLines(app, at)
		if !errors.Is(err, errOdd) {
			return n, added, err
		}
		// The samples that were appended already come again: the store drops
		// duplicates.
		defer func() { s.odd = err == nil }()
	}
	p, err := textparse.New(s.buf.Bytes(), contentType, labels.NewSymbolTable(), textparse.ParserOptions{
		FallbackContentType: "text/plain",
		// What asks for the classic buckets must find them beside the native ones.
		KeepClassicOnClassicAndNativeHistograms: true,
	})
	if p == nil {
		return 0, 0, err
	}
	n, added = 0, 0
	for {
		entry, err := p.Next()
		if err == io.EOF {
			return n, added, nil
		}
		if err != nil {
			return n, added, err
		}
		x, isNew, err := s.entry(app, p, entry, at)
		if err != nil {
			return n, added, err
		}
		if x == nil {
			continue
		}
		if isNew {
			added++
		}
		n++
	}
}

// entry appends one entry of a parser; a series is nil for what is not one, or
// is left out.
func (s *scraper) entry(app storage.AppenderV2, p textparse.Parser, entry textparse.Entry, at int64) (x *series, isNew bool, err error) {
	var (
		line []byte
		own  *int64
		v    float64
		h    *histogram.Histogram
		fh   *histogram.FloatHistogram
	)
	switch entry {
	case textparse.EntrySeries:
		line, own, v = p.Series()
	case textparse.EntryHistogram:
		line, own, h, fh = p.Histogram()
	default:
		return nil, false, nil
	}
	if x = s.cache[string(line)]; x == nil {
		var set labels.Labels
		p.Labels(&set)
		x = s.remember(string(line), set)
	}
	if x.leftOut {
		return nil, false, nil
	}
	isNew = x.isNew()
	t := at
	if own != nil {
		t = *own
	}
	x.round, x.dead = s.round, false
	if h == nil && fh == nil {
		return x, isNew, s.put(app, x, t, v)
	}
	return x, isNew, s.putHistogram(app, x, t, h, fh)
}

// remember caches the identity of a series that was met for the first time.
func (s *scraper) remember(line string, set labels.Labels) *series {
	x := &series{place: -1}
	if s.leaveOut != nil && s.leaveOut(set.Get(model.MetricNameLabel)) {
		x.leftOut = true
		s.skipped++
	} else {
		x.set = s.label(set)
	}
	s.cache[line] = x
	return x
}

// put appends a sample. That one is late or twice there is the component's
// fault and costs that sample only.
func (s *scraper) put(app storage.AppenderV2, x *series, t int64, v float64) error {
	if math.IsNaN(v) && math.Float64bits(v) != value.StaleNaN {
		v = math.Float64frombits(value.NormalNaN) // a stale marker is ours to write
	}
	return s.stored(x, func() (storage.SeriesRef, error) {
		return app.Append(x.ref, x.set, 0, t, v, nil, nil, storage.AOptions{})
	})
}

func (s *scraper) putHistogram(app storage.AppenderV2, x *series, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) error {
	return s.stored(x, func() (storage.SeriesRef, error) { return app.Append(x.ref, x.set, 0, t, 0, h, fh, storage.AOptions{}) })
}

func (s *scraper) stored(x *series, appended func() (storage.SeriesRef, error)) error {
	ref, err := appended()
	switch {
	case err == nil:
		x.ref = ref
	case errors.Is(err, storage.ErrOutOfOrderSample), errors.Is(err, storage.ErrDuplicateSampleForTimestamp),
		errors.Is(err, storage.ErrOutOfBounds), errors.Is(err, storage.ErrTooOldSample):
		s.dropped++
	default:
		return fmt.Errorf("store metrics of %s: %w", s.t.Component, err)
	}
	return nil
}

// stale ends the series that this round did not meet, and forgets those that
// have been away for long.
func (s *scraper) stale(app storage.AppenderV2, at int64) error {
	for line, x := range s.cache {
		switch {
		case x.round == s.round, x.leftOut:
		case !x.dead:
			x.dead = true
			if err := s.put(app, x, at, math.Float64frombits(value.StaleNaN)); err != nil {
				return err
			}
		case s.round-x.round > 100:
			delete(s.cache, line)
		}
	}
	return nil
}

// retire ends all series of a target that is no longer scraped.
func (s *scraper) retire(ctx context.Context, out storage.AppendableV2) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil
	}
	s.retired = true
	s.round++
	at := max(timestamp.FromTime(time.Now()), s.last+1)
	app := out.AppenderV2(ctx)
	err := s.stale(app, at)
	for _, x := range s.own {
		if err == nil && s.worked+s.failed > 0 {
			err = s.put(app, x, at, math.Float64frombits(value.StaleNaN))
		}
	}
	if err != nil {
		return errors.Join(err, app.Rollback())
	}
	return app.Commit()
}

// label adds the target's labels. A component's own label of that name becomes
// exported_name, as in Prometheus.
func (s *scraper) label(set labels.Labels) labels.Labels {
	b := labels.NewBuilder(set)
	for _, l := range [...][2]string{{"component", s.t.Component}, {"instance", s.t.Instance}, {"job", s.t.Job}} {
		if v := set.Get(l[0]); v != "" {
			name := "exported_" + l[0]
			for i := 2; set.Get(name) != ""; i++ {
				name = "exported_" + l[0] + "_" + strconv.Itoa(i)
			}
			b.Set(name, v)
		}
		b.Set(l[0], l[1])
	}
	return b.Labels()
}
