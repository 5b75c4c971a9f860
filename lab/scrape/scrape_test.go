package scrape

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// client asks as a collector does, and keeps the lines of the answers.
type client struct {
	h     http.Handler
	tag   string
	lines []string
	size  int // of the last answer
	told  bool
}

func (c *client) ask(t *testing.T) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("A-IM", Manipulation)
	r.Header.Set("If-None-Match", c.tag)
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, r)
	c.size = w.Body.Len()
	c.told = w.Code == http.StatusIMUsed
	switch w.Code {
	case http.StatusOK:
		c.lines = samples(w.Body)
	case http.StatusIMUsed:
		if got := w.Header().Get("Delta-Base"); got != c.tag || w.Header().Get("IM") != Manipulation {
			t.Fatalf("changes to %s of %s, not to %s", got, w.Header().Get("IM"), c.tag)
		}
		c.lines = apply(t, c.lines, samples(w.Body))
	default:
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	c.tag = w.Header().Get("ETag")
}

// samples are the lines that are no comments.
func samples(r io.Reader) (lines []string) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if !strings.HasPrefix(s.Text(), "#") {
			lines = append(lines, s.Text())
		}
	}
	return lines
}

// apply is the form's meaning, as docs/lab.md has it.
func apply(t *testing.T, old, changes []string) (now []string) {
	t.Helper()
	for _, c := range changes {
		switch n, _ := strconv.Atoi(c[1:]); c[0] {
		case '=':
			now, old = append(now, old[:n]...), old[n:]
		case '-':
			old = old[n:]
		case '~':
			now, old = append(now, old[0][:strings.LastIndexByte(old[0], ' ')+1]+c[1:]), old[1:]
		default:
			now = append(now, c)
		}
	}
	if len(old) > 0 {
		t.Fatalf("%d old lines are left", len(old))
	}
	return now
}

// whole is what the text format has at this moment.
func whole(t *testing.T, from prometheus.Gatherer) []string {
	t.Helper()
	w := httptest.NewRecorder()
	newHandler(from, time.Unix(0, 1)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatal(w.Body)
	}
	return samples(w.Body)
}

// values makes lines comparable: the text format writes small whole numbers in a way
// of its own, and what is new may stand behind all else.
func values(lines []string) (same []string) {
	for _, l := range lines {
		i := strings.LastIndexByte(l, ' ') + 1
		v, err := strconv.ParseFloat(l[i:], 64)
		same = append(same, fmt.Sprint(l[:i], math.Float64bits(v), err))
	}
	slices.Sort(same)
	return same
}

// counted is a registry, wrapped as those of Kubernetes' components are, that counts
// how often it gathers.
type counted struct {
	*prometheus.Registry
	gathered int
}

func (c *counted) Gather() ([]*dto.MetricFamily, error) {
	c.gathered++
	return c.Registry.Gather()
}

func (c *counted) Gatherer() prometheus.Gatherer { return c.Registry }

// made is a collector that makes its metrics, and their descriptors, anew each time.
type made struct {
	values map[string]float64
	byCopy bool // its metrics are no pointers, and cannot be compared
}

type copied struct {
	prometheus.Metric
	_ []int
}

func (*made) Describe(chan<- *prometheus.Desc) {}

func (m *made) Collect(out chan<- prometheus.Metric) {
	for label, v := range m.values {
		x := prometheus.MustNewConstMetric(prometheus.NewDesc("made", "", []string{"a"}, prometheus.Labels{"const": "\"{}"}), prometheus.GaugeValue, v, label)
		if m.byCopy {
			x = copied{Metric: x}
		}
		out <- x
	}
}

// Whatever comes, goes and moves: the last answer with the changes is what a
// whole answer would have been.
func TestChangesMakeTheWhole(t *testing.T) {
	told, gathered := 0, 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		registry := &counted{Registry: prometheus.NewRegistry()}
		fresh := &made{map[string]float64{}, seed%2 == 0}
		registry.MustRegister(fresh)
		counters := map[string]*prometheus.CounterVec{}
		histograms := map[string]*prometheus.HistogramVec{}
		gauges := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "m_gauge", Help: "with = ~ - in it\n=5"}, []string{"a"})
		summary := prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: "m_summary", Objectives: map[float64]float64{0.5: 0.1, 0.9: 0.01}}, []string{"a"})
		registry.MustRegister(gauges, summary)
		label := func() string { return []string{"", "x", "a b", "=3", "~", "\"}\n-1", "é"}[random.IntN(7)] }
		c := &client{h: newHandler(registry, time.Unix(0, 1))}
		for range 12 {
			for range random.IntN(6) {
				name := fmt.Sprint(string(rune('a'+random.IntN(20))), "_total")
				switch random.IntN(11) {
				case 0:
					if counters[name] == nil {
						counters[name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: name}, []string{"a", "b"})
						registry.MustRegister(counters[name])
					}
					counters[name].WithLabelValues(label(), label()).Inc()
				case 1:
					if counters[name] != nil {
						registry.Unregister(counters[name])
						delete(counters, name)
					}
				case 2, 3:
					name = "h_" + name
					if histograms[name] == nil {
						histograms[name] = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Buckets: prometheus.LinearBuckets(0, float64(1+random.IntN(2)), 1+random.IntN(5))}, []string{"a"})
						registry.MustRegister(histograms[name])
					}
					histograms[name].WithLabelValues(label()).Observe(random.Float64() * 6)
				case 4:
					if h := histograms["h_"+name]; h != nil { // comes again, perhaps with other bounds
						registry.Unregister(h)
						delete(histograms, "h_"+name)
					}
				case 5:
					gauges.WithLabelValues(label()).Set([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), 1e300, 5}[random.IntN(6)])
				case 6:
					gauges.DeleteLabelValues(label())
				case 7:
					summary.WithLabelValues(label()).Observe(random.Float64())
				case 8:
					if h := histograms["h_"+name]; h != nil {
						h.DeleteLabelValues(label())
					}
				case 9:
					fresh.values[label()] = random.Float64()
				case 10:
					delete(fresh.values, label())
				}
			}
			before := registry.gathered
			c.ask(t)
			gathered += registry.gathered - before
			if got, want := values(c.lines), values(whole(t, registry)); !slices.Equal(got, want) {
				t.Fatalf("seed %d:\n got %q\nwant %q", seed, got, want)
			}
			if c.told {
				told++
			}
			if random.IntN(10) == 0 { // somebody else asks
				(&client{h: c.h}).ask(t)
			}
		}
	}
	if told < 2000 || gathered > 2500 {
		t.Errorf("of 3600 times changes were told %d times only, and all gathered %d times", told, gathered)
	}
}

// What makes an answer impossible is told, and what is odd is gathered.
func TestReadAgain(t *testing.T) {
	registry := &counted{Registry: prometheus.NewRegistry()}
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c"}, []string{"a"})
	counter.WithLabelValues("x").Inc()
	var odd func(chan<- prometheus.Metric)
	registry.MustRegister(counter, collector(func(out chan<- prometheus.Metric) {
		if odd != nil {
			odd(out)
		}
	}))
	c := &client{h: newHandler(registry, time.Unix(0, 1))}
	again := func(want bool, what string) {
		t.Helper()
		before := registry.gathered
		c.ask(t)
		if got := registry.gathered == before; got != want {
			t.Errorf("%s: read again %v", what, got)
		}
		if got, want := values(c.lines), values(whole(t, registry.Registry)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	again(false, "the first answer")
	counter.WithLabelValues("x").Inc()
	again(true, "a value")
	counter.WithLabelValues("y").Inc()
	again(true, "a metric more of a family")
	counter.WithLabelValues("y").Inc()
	again(true, "the value of that")
	counter.DeleteLabelValues("x")
	again(false, "a metric less")
	again(true, "after that")

	gauge := func(name, label string, v float64) prometheus.Metric {
		return prometheus.MustNewConstMetric(prometheus.NewDesc(name, "", []string{"a"}, nil), prometheus.GaugeValue, v, label)
	}
	odd = func(out chan<- prometheus.Metric) { out <- gauge("g", "x", 1) }
	again(false, "another family")
	odd = func(out chan<- prometheus.Metric) { out <- gauge("g", "x", 2) }
	again(true, "made anew")
	odd = func(out chan<- prometheus.Metric) { out <- gauge("g", "x", 3); out <- gauge("g", "y", 1) }
	again(true, "two made anew")
	odd = func(out chan<- prometheus.Metric) {
		out <- prometheus.NewMetricWithTimestamp(time.Unix(1, 0), gauge("g", "x", 3))
		out <- gauge("g", "y", 1)
	}
	again(false, "with a time")
	odd = nil
	again(false, "after a time")
	again(true, "after a whole answer")

	for what, fails := range map[string]func(chan<- prometheus.Metric){
		"g": func(out chan<- prometheus.Metric) { out <- gauge("c", "z", 1) },
		"was collected before with the same name and label values": func(out chan<- prometheus.Metric) {
			m := prometheus.MustNewConstMetric(prometheus.NewDesc("c", "", []string{"a"}, nil), prometheus.CounterValue, 1, "z")
			out <- m
			out <- m
		},
		"broken": func(out chan<- prometheus.Metric) {
			out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(errors.New("broken")), errors.New("broken"))
		},
	} {
		odd = fails
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("A-IM", Manipulation)
		r.Header.Set("If-None-Match", c.tag)
		w := httptest.NewRecorder()
		c.h.ServeHTTP(w, r)
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), what) {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
		odd = nil
		again(true, "after "+what)
	}

	h := c.h.(*handler)
	odd = func(chan<- prometheus.Metric) { panic("in a collector") }
	if h.again.changes(&bytes.Buffer{}, &h.last) {
		t.Error("a collector that panics: read again")
	}
}

// collector is an unchecked one.
type collector func(chan<- prometheus.Metric)

func (collector) Describe(chan<- *prometheus.Desc)       {}
func (c collector) Collect(out chan<- prometheus.Metric) { c(out) }

// families is a gatherer of what a test says.
type families struct {
	all []*dto.MetricFamily
	err error
}

func (f *families) Gather() ([]*dto.MetricFamily, error) { return f.all, f.err }

func gauge(name string, v float64, at *int64) *dto.MetricFamily {
	return &dto.MetricFamily{Name: proto.String(name), Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &v}, TimestampMs: at}}}
}

// Changes are told only to who has the answer that they change.
func TestWhole(t *testing.T) {
	f := &families{all: []*dto.MetricFamily{gauge("a", 1, nil)}}
	c := &client{h: newHandler(f, time.Unix(0, 1))}
	told := func(want bool, what string) {
		t.Helper()
		if c.ask(t); c.told != want {
			t.Errorf("%s: changes %v", what, c.told)
		}
	}
	told(false, "the first answer")
	told(true, "the second")
	had := c.tag
	told(true, "the third")
	c.tag = had
	told(false, "an older answer's tag")
	c.h = newHandler(f, time.Unix(0, 2))
	told(false, "the tag of a process before this one")
	told(true, "after that")

	f.err = errors.New("two of one name")
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "gather metrics: two of one name") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.err = nil
	told(true, "after a failure that sent nothing")

	f.all = []*dto.MetricFamily{gauge("a", 1, proto.Int64(1700000000000))}
	told(false, "a time of its own")
	if c.tag != "" || c.lines[0] != "a 1 1700000000000" {
		t.Errorf("tag %q, %q", c.tag, c.lines)
	}
	f.all = []*dto.MetricFamily{gauge("a", 2, nil)}
	told(false, "after a time of its own")
	told(true, "and then")
	// Another kind under the same name is another thing.
	f.all[0].Type = dto.MetricType_UNTYPED.Enum()
	f.all[0].Metric[0] = &dto.Metric{Untyped: &dto.Untyped{Value: proto.Float64(2)}}
	told(true, "another kind")
	if len(c.lines) != 1 || c.lines[0] != "a 2" || c.size < len("a 2\n-1\n") {
		t.Errorf("%q", c.lines)
	}
}

// Over a real socket, as a process after another does.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics")
	get := func() (string, error) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}}}
		res, err := client.Get("http://any/metrics")
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return string(bytes.TrimSpace(text)), err
	}
	left, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false) // as when a process is killed
	left.Close()
	for range 2 {
		stop, err := Listen(path, &families{all: []*dto.MetricFamily{gauge("a", 1, nil)}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := get(); err != nil || got != "# TYPE a gauge\na 1" {
			t.Errorf("%q, %v", got, err)
		}
		stop()
		if _, err := get(); err == nil {
			t.Error("answers after its end")
		}
	}
	if _, err := Listen(filepath.Join(path, "in", "no", "folder"), &families{}); err == nil || !strings.HasPrefix(err.Error(), "metrics socket: ") {
		t.Errorf("got %v", err)
	}
}

// Of 17,000 lines as many move between two scrapes as on an API server.
func BenchmarkAnswers(b *testing.B) {
	for _, form := range []string{"changes", "text"} {
		b.Run(form, func(b *testing.B) {
			registry := prometheus.NewRegistry()
			vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "request_duration_seconds", Buckets: prometheus.LinearBuckets(0, 1, 20)}, []string{"verb", "resource"})
			registry.MustRegister(vec)
			for i := range 750 {
				vec.WithLabelValues("get", strconv.Itoa(i)).Observe(1)
			}
			h := newHandler(registry, time.Unix(0, 1))
			tag := ""
			for b.Loop() {
				for i := range 40 {
					vec.WithLabelValues("get", strconv.Itoa(i*18)).Observe(1)
				}
				r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				if form == "changes" {
					r.Header.Set("A-IM", Manipulation)
					r.Header.Set("If-None-Match", tag)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				tag = w.Header().Get("ETag")
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/(750*23)*1e9, "ns/line")
		})
	}
}
