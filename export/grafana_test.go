package export

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// own are labels that only recordings have, or that name one process.
var own = regexp.MustCompile(`\b(component|instance|exported_component)\b`)

func TestDashboardIsWhole(t *testing.T) {
	var b bytes.Buffer
	if err := WriteDashboard(&b, 0); err != nil {
		t.Fatal(err)
	}
	var d grafanaDashboard
	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if v := d.Templating.List; len(v) != 1 || v[0].Name != "datasource" || v[0].Type != "datasource" || v[0].Query != "prometheus" {
		t.Errorf("variables %+v", v)
	}
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	rows, panels := 0, 0
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s has id %d again", p.Title, p.ID)
		}
		ids[p.ID] = true
		g := p.Grid
		if g.X < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
			t.Errorf("%s lies at %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if by := taken[[2]int{x, y}]; by != "" {
					t.Fatalf("%s lies over %s", p.Title, by)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows++
			continue
		}
		panels++
		if titles[p.Title] {
			t.Errorf("%s is there twice", p.Title)
		}
		titles[p.Title] = true
		if len(p.Targets) == 0 || p.Datasource == nil || p.Datasource.UID != "${datasource}" {
			t.Errorf("%s asks %d queries of %+v", p.Title, len(p.Targets), p.Datasource)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.Datasource.UID != "${datasource}" || q.Legend == "" {
				t.Errorf("%s: query %+v", p.Title, q)
			}
			refs[q.RefID] = true
			if strings.Contains(q.Expr, "[W]") {
				t.Errorf("%s: no window in %s", p.Title, q.Expr)
			}
			expr := strings.ReplaceAll(q.Expr, "$__rate_interval", "1m")
			e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
			if err != nil {
				t.Errorf("%s: %s: %v", p.Title, expr, err)
				continue
			}
			if l := own.FindString(expr); l != "" {
				t.Errorf("%s goes by %s, which a cluster's series do not have or do not share", p.Title, l)
			}
			// What a legend names must be a label that the query leaves.
			for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.Legend, -1) {
				left := false
				parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
					if a, ok := n.(*parser.AggregateExpr); ok {
						for _, g := range a.Grouping {
							left = left || g == m[1]
						}
					}
					return nil
				})
				if !left {
					t.Errorf("%s: the legend names %s, by which nothing is summed", p.Title, m[1])
				}
			}
		}
	}
	if rows != len(Dashboard) || panels < 30 {
		t.Errorf("%d rows and %d panels", rows, panels)
	}
	if err := WriteDashboard(&b, 10*time.Millisecond); err == nil {
		t.Error("a window of 10 ms was taken")
	}
}

// Over recordings every query whose metrics are there has an answer.
func TestDashboardOverRecordings(t *testing.T) {
	asked := map[string]bool{}
	for _, name := range []string{"few-workers", "refused-creates", "list-storm"} {
		rec, err := record.Open(recordtest.Unpack(t, name))
		if err != nil {
			t.Fatal(err)
		}
		defer rec.Close()
		w, ok := rec.Steady()
		if !ok {
			t.Fatalf("%s has no load", name)
		}
		w.End = w.End.Add(2 * time.Second) // large answers are scraped seldom
		for _, p := range dashboard("[12s]").Panels {
			for _, q := range p.Targets {
				if !has(t, rec, q.Expr, w) {
					continue
				}
				m, err := rec.QueryRange(q.Expr, w, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				points := 0
				for _, s := range m {
					points += len(s.Points)
				}
				if points == 0 {
					t.Errorf("%s: %s: %s has no answer", name, p.Title, q.Expr)
				}
				asked[p.Title+q.RefID] = true
			}
		}
	}
	if len(asked) < 25 {
		t.Errorf("only %d queries could be asked", len(asked))
	}
}
