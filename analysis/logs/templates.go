package logs

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

const (
	// MaxTemplates bounds the templates of one component. Entries that fit
	// none of them are counted together.
	MaxTemplates = 2000
	// alike is the least part of equal words at which an entry joins a
	// template: Drain's similarity threshold (He et al., ICWS 2017).
	alike = 0.6
	// maxBucket bounds the templates that one entry is compared with.
	maxBucket = 100
	// Other is the text of the template for all that fits none.
	Other = "(other lines)"
)

// A Template is what a group of entries have in common.
type Template struct {
	Component   string
	Severity    byte
	Source      string // file:line, where entries tell one
	Text        string // with <num>, <dur>, <str>, … for what varies
	Count       int64
	First, Last time.Time
	Example     string // the first entry's message, shortened
	Line        int64  // of the example
}

// A miner groups the entries of one component: as Drain does, by what stands
// first (severity and source, number of words, first word) and then by the
// part of equal words.
type miner struct {
	component string
	max       int
	buckets   map[bucket][]*cluster
	clusters  []*cluster // in the order of their first entries
	other     *Template
	scratch   []string
}

type bucket struct {
	severity byte
	source   string
	words    int
	first    string
}

type cluster struct {
	Template
	words []string
}

func newMiner(component string, limit int) *miner {
	return &miner{component: component, max: limit, buckets: map[bucket][]*cluster{}}
}

func (m *miner) add(e *Entry) {
	m.scratch = e.tokens(m.scratch[:0])
	words := m.scratch
	k := bucket{e.Severity, clip(e.Source, 120), len(words), ""}
	if len(words) > 0 {
		k.first = words[0]
	}
	var best *cluster
	most := 0
	for _, c := range m.buckets[k] {
		if n := equal(c.words, words); n > most || best == nil {
			best, most = c, n
		}
		if most == len(words) {
			break
		}
	}
	if best != nil && float64(most) >= alike*float64(len(words)) {
		for i, w := range words {
			if best.words[i] != w {
				best.words[i] = merge(best.words[i], w)
			}
		}
		best.count(e)
		return
	}
	if len(m.clusters) >= m.max || len(m.buckets[k]) >= maxBucket {
		if m.other == nil {
			m.other = &Template{Component: m.component, Text: Other, Example: clip(e.Message, maxDetail), Line: e.Line}
		}
		m.other.count(e)
		return
	}
	own := make([]string, len(words))
	for i, w := range words {
		own[i] = strings.Clone(w) // not the line that it is a part of
	}
	c := &cluster{
		Template: Template{Component: m.component, Severity: e.Severity, Source: k.source, Example: strings.Clone(example(e)), Line: e.Line},
		words:    own,
	}
	c.count(e)
	m.clusters = append(m.clusters, c)
	m.buckets[k] = append(m.buckets[k], c)
}

func example(e *Entry) string {
	s := e.Message
	for _, f := range e.Fields {
		if len(s) > maxDetail {
			break
		}
		s += " " + f.Key + "=" + clip(f.Value, maxDetail)
	}
	return clip(s, maxDetail)
}

func equal(a, b []string) (n int) {
	for i := range a {
		if a[i] == b[i] || a[i] == wildcard {
			n++
		}
	}
	return n
}

// merge is what two words have in common: the key of a pair, or nothing.
func merge(a, b string) string {
	ka, _, ok := strings.Cut(a, "=")
	kb, _, ok2 := strings.Cut(b, "=")
	if ok && ok2 && ka == kb && ka != "" {
		return ka + "=" + wildcard
	}
	return wildcard
}

func (t *Template) count(e *Entry) {
	t.Count++
	if e.Time.IsZero() {
		return
	}
	if t.First.IsZero() || e.Time.Before(t.First) {
		t.First = e.Time
	}
	if e.Time.After(t.Last) {
		t.Last = e.Time
	}
}

// templates are all of them, unsorted, the bucket of others last.
func (m *miner) templates() []Template {
	var out []Template
	for _, c := range m.clusters {
		c.Text = strings.Join(c.words, " ")
		out = append(out, c.Template)
	}
	if m.other != nil {
		out = append(out, *m.other)
	}
	return out
}

// sortTemplates puts the most frequent first, errors before warnings before
// the rest among equals.
func sortTemplates(all []Template) {
	slices.SortStableFunc(all, func(a, b Template) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(rankOf(a.Severity), rankOf(b.Severity)),
			strings.Compare(a.Component, b.Component), strings.Compare(a.Source, b.Source), strings.Compare(a.Text, b.Text))
	})
}

func rankOf(severity byte) int {
	if i := strings.IndexByte("FEWID", severity); severity != 0 && i >= 0 {
		return i
	}
	return 5
}
