package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"pgregory.net/rapid"
)

// keeping is a store that keeps what it is given.
type keeping struct{ got []string }

func (m *keeping) AppenderV2(context.Context) storage.AppenderV2 { return m }
func (m *keeping) Append(_ storage.SeriesRef, set labels.Labels, _, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	m.got = append(m.got, fmt.Sprint(set, " ", t, " ", math.Float64bits(v), h, fh))
	return 1, nil
}
func (m *keeping) Commit() error   { return nil }
func (m *keeping) Rollback() error { return nil }

// reference is what Prometheus' own parser makes of an answer.
func reference(text string, at int64, s *scraper) ([]string, error) {
	p := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false)
	var got []string
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, own, v := p.Series()
		t := at
		if own != nil {
			t = *own
		}
		var set labels.Labels
		p.Labels(&set)
		if math.IsNaN(v) {
			v = math.NaN()
		}
		got = append(got, fmt.Sprint(s.label(set), " ", t, " ", math.Float64bits(v), nil, nil))
	}
}

// Whatever a component says, and however it changes from one answer to the
// next, it is read as Prometheus reads it.
func TestLinesAsPrometheusReadsThem(t *testing.T) {
	series := rapid.OneOf(
		rapid.SampledFrom([]string{
			"up", "a_total{}", `h_bucket{le="+Inf"}`, `x{path="/a b"}`, `x{path="}"}`, `x{path="{\"} 5"}`, `y {a="b"}`, `{"q.uoted",a="b"}`,
			`z{a="b",}`, `n{instance="mine",component="c"}`, "\tindented", " indented", `u{a="é"}`, `broken{a="b"`, `broken{a=b}`, "", "#", "# HELP x y } 5", "5",
		}),
		rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf(`s%d{a="%d"}`, rapid.IntRange(0, 5).Draw(t, "name"), rapid.IntRange(0, 5).Draw(t, "label"))
		}),
	)
	value := rapid.SampledFrom([]string{"0", "1", "1.5e+09", "NaN", "+Inf", "-Inf", "-0", "12345.678", "x", "", "0x10", "1_0", "1 ", " 1", "1\r", "7 1700000000000", "1 2 3"})
	page := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		return series.Draw(t, "series") + rapid.SampledFrom([]string{" ", "  ", "\t", ""}).Draw(t, "gap") + value.Draw(t, "value")
	}), 0, 8)
	rapid.Check(t, func(t *rapid.T) {
		var text string
		s := newScraper(Target{Component: "c", Instance: "1"})
		var last []string
		for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
			if round == 0 || rapid.Bool().Draw(t, "new") {
				last = page.Draw(t, "page")
			} else if len(last) > 0 { // one line changes, goes or comes
				i := rapid.IntRange(0, len(last)-1).Draw(t, "line")
				last = slices.Clone(last)
				switch rapid.IntRange(0, 2).Draw(t, "change") {
				case 0:
					id, _, _ := strings.Cut(last[i], " ")
					last[i] = id + " " + value.Draw(t, "other value")
				case 1:
					last = slices.Delete(last, i, i+1)
				default:
					last = slices.Insert(last, i, series.Draw(t, "more")+" 3")
				}
			}
			text = strings.Join(last, "\n")
			if rapid.Bool().Draw(t, "ends") {
				text += "\n"
			}
			at := int64(1000 + round)
			s.buf.Reset()
			s.buf.WriteString(text)
			s.round++
			var m keeping
			_, _, err := s.append(&m, "text/plain; version=0.0.4", at)
			want, wantErr := reference(text, at, s)
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("%q: %v, Prometheus: %v", text, err, wantErr)
			}
			if err == nil {
				// A line with a time of its own makes the whole answer be read
				// again: what came before it comes twice.
				got := slices.Compact(slices.Sorted(slices.Values(m.got)))
				if want := slices.Compact(slices.Sorted(slices.Values(want))); !slices.Equal(got, want) {
					t.Fatalf("%q:\n got %q\nwant %q", text, got, want)
				}
			}
		}
	})
}

// changesOf says how lines differ from others, as a lab's components do.
func changesOf(old, now []string) string {
	id := func(line string) string { return line[:strings.LastIndexByte(line, ' ')] }
	var b strings.Builder
	next := 0
	for _, line := range now {
		at := slices.IndexFunc(old[next:], func(o string) bool { return id(o) == id(line) })
		if at < 0 {
			fmt.Fprintf(&b, "# TYPE of it\n%s\n", line)
			continue
		}
		if at > 0 {
			fmt.Fprintf(&b, "-%d\n", at)
		}
		if next += at + 1; old[next-1] == line {
			b.WriteString("=1\n")
		} else {
			fmt.Fprintf(&b, "~%s\n", line[strings.LastIndexByte(line, ' ')+1:])
		}
	}
	if n := len(old) - next; n > 0 {
		fmt.Fprintf(&b, "-%d\n", n)
	}
	return b.String()
}

// Changes are stored as the whole answer would have been, whatever was asked and
// lost before.
func TestChangesAreStoredAsTheWhole(t *testing.T) {
	lines := rapid.Custom(func(t *rapid.T) []string {
		var lines []string
		for i := range 8 {
			if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
				name := "s"
				if i%3 == 0 {
					name = "kubernetes_feature_enabled" // left out
				}
				lines = append(lines, fmt.Sprintf(`%s{a="%d} "} %s`, name, i, rapid.SampledFrom([]string{"0", "1", "1.5e+09", "NaN", "+Inf", "-0"}).Draw(t, "value")))
			}
		}
		return lines
	})
	told := 0
	rapid.Check(t, func(t *rapid.T) {
		var last []string // of the answer with the tag
		tag, now := 0, []string(nil)
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			base := fmt.Sprintf(`"%d"`, tag)
			tag++
			w.Header().Set("ETag", fmt.Sprintf(`"%d"`, tag))
			body := strings.Join(append(slices.Clone(now), ""), "\n")
			if r.Header.Get("A-IM") == "kubedyno-lines" && r.Header.Get("If-None-Match") == base {
				told++
				w.Header().Set("IM", "kubedyno-lines")
				w.Header().Set("Delta-Base", base)
				w.WriteHeader(http.StatusIMUsed)
				body = changesOf(last, now)
			}
			last = now
			io.WriteString(w, body)
		})
		changes, whole := newScraper(Local("c", "1", handler)), newScraper(Target{Component: "c", Instance: "1"})
		changes.t.Changes = true
		changes.leaveOut, whole.leaveOut = Debugging, Debugging
		for round := range rapid.IntRange(1, 6).Draw(t, "rounds") {
			now = lines.Draw(t, "lines")
			switch rapid.IntRange(0, 9).Draw(t, "trouble") {
			case 0: // an answer that was sent and never read
				last, tag = now, tag+1
			case 1: // another process in its place
				tag += 100
			}
			var got, want keeping
			if _, err := changes.fetch(t.Context()); err != nil {
				t.Fatal(err)
			}
			at := int64(1000 + round)
			changes.round++
			n, added, err := changes.append(&got, "text/plain; version=0.0.4", at)
			if err != nil {
				t.Fatal(err)
			}
			if err := changes.stale(&got, at); err != nil {
				t.Fatal(err)
			}
			whole.buf.Reset()
			whole.buf.WriteString(strings.Join(append(slices.Clone(now), ""), "\n"))
			whole.round++
			wantN, wantAdded, err := whole.append(&want, "text/plain", at)
			if err != nil {
				t.Fatal(err)
			}
			if err := whole.stale(&want, at); err != nil {
				t.Fatal(err)
			}
			slices.Sort(got.got)
			slices.Sort(want.got)
			if !slices.Equal(got.got, want.got) || n != wantN || added != wantAdded {
				t.Fatalf("%q: %d, %d new, want %d, %d\n got %q\nwant %q", now, n, added, wantN, wantAdded, got.got, want.got)
			}
		}
	})
	if told == 0 {
		t.Error("no changes were told")
	}
}

// Changes that do not fit the answer before them are an error, and the next
// answer is asked for as a whole.
func TestChangesThatDoNotFit(t *testing.T) {
	for _, broken := range []string{"=3", "=-1", "-3", "=1", "=1\n~x\n", "=2\n~1", "=x", "=2\nhalf{a=\"b"} {
		whole := true
		s := newScraper(Local("c", "1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `"1"`)
			if r.Header.Get("If-None-Match") == "" {
				whole = true
				io.WriteString(w, "a 1\nb 2\n")
				return
			}
			whole = false
			w.Header().Set("IM", "kubedyno-lines")
			w.Header().Set("Delta-Base", `"1"`)
			w.WriteHeader(http.StatusIMUsed)
			io.WriteString(w, broken)
		})))
		s.t.Changes = true
		for i, wantWhole := range []bool{true, false, true, false} {
			if err := s.scrape(t.Context(), &forgetful{}, time.Minute, func(record.Gap) {}); err != nil {
				t.Fatal(err)
			}
			if whole != wantWhole || s.worked != i/2+1 || s.failed != (i+1)/2 {
				t.Errorf("%q, scrape %d: whole %v, %d worked, %d failed (%s)", broken, i, whole, s.worked, s.failed, s.reason)
			}
		}
	}
}

// A tenth of the series moves between two scrapes, as on an API server.
func BenchmarkScrapeMoving(b *testing.B) {
	const n = 19_500
	pages := [2]string{page(n)}
	var moved strings.Builder
	for i, line := range strings.SplitAfter(pages[0], "\n") {
		if i%10 == 0 && !strings.HasPrefix(line, "#") && line != "" {
			id := line[:strings.LastIndexByte(line, ' ')]
			line = fmt.Sprintf("%s %d\n", id, 1000+i)
		}
		moved.WriteString(line)
	}
	pages[1] = moved.String()
	round := 0
	m := &forgetful{}
	s := newScraper(Local("kube-apiserver", "1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(pages[round%2]))
		round++
	})))
	for b.Loop() {
		if err := s.scrape(b.Context(), m, time.Minute, func(record.Gap) {}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/n*1e9, "ns/series")
}

// The same, told as changes.
func BenchmarkScrapeChanges(b *testing.B) {
	const n = 19_500
	var changes strings.Builder
	for i := range n / 10 {
		fmt.Fprintf(&changes, "~%d\n=9\n", 1000+i)
	}
	m := &forgetful{}
	s := newScraper(Local("kube-apiserver", "1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == "" {
			io.WriteString(w, page(n))
			return
		}
		w.Header().Set("IM", "kubedyno-lines")
		w.Header().Set("Delta-Base", `"1"`)
		w.WriteHeader(http.StatusIMUsed)
		io.WriteString(w, changes.String())
	})))
	s.t.Changes = true
	for b.Loop() {
		if err := s.scrape(b.Context(), m, time.Minute, func(record.Gap) {}); err != nil || s.failed > 0 {
			b.Fatal(err, s.reason)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/n*1e9, "ns/series")
}

// forgetful is a store that costs nothing.
type forgetful struct{}

func (f *forgetful) AppenderV2(context.Context) storage.AppenderV2 { return f }
func (*forgetful) Append(storage.SeriesRef, labels.Labels, int64, int64, float64, *histogram.Histogram, *histogram.FloatHistogram, storage.AppendV2Options) (storage.SeriesRef, error) {
	return 1, nil
}
func (*forgetful) Commit() error   { return nil }
func (*forgetful) Rollback() error { return nil }
