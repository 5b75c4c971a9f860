package requests

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/record"
)

// Columns that requests can be summed by. A resource has its subresource with
// it, as pods/status, unless that is a column of its own.
var Columns = []string{"userAgent", "user", "verb", "group", "resource", "subresource", "namespace", "name", "code", "uri", "source"}

// Orders that rows can have.
var Orders = []string{"time", "count", "errors"}

const (
	// maxGroups bounds the rows of a sum: a log of a million requests for a
	// million objects must not fill the memory. What comes later is one row.
	maxGroups = 200_000
	// Others stands for the columns of that row.
	Others = "(others)"
	// longest is the longest time that is told apart, 71 minutes.
	longest = math.MaxUint32
)

// Row is what requests of one kind add up to. Times are as the API server has
// them, from receipt to the end of the answer.
type Row struct {
	Key       []string // values of the columns that were asked for
	Long      bool     // long by nature, as watches: their time is no cost; see LongRunning
	Count     int64
	Open      int64 // still open at the end; they have no time
	Errors    int64 // code 400 and above
	Conflicts int64 // 409
	Throttled int64 // 429
	// Seconds is summed over the requests: the mean number that were in
	// progress is Seconds ÷ window.
	Seconds       float64
	MeanMillis    float64
	P50Millis     float64 // nearest rank; -1 where none was done
	P99Millis     float64 // nearest rank; -1 below 100 requests
	LongestMillis float64
	// EtcdSeconds and the other parts are over the Layered
	// requests of which the server told them: all of a lab's log of requests, of
	// an audit log those over 500 ms.
	Layered        int64
	Timed          int64 // those of them of which etcd's part is known: v1.36 times no writes
	EtcdSeconds    float64
	QueueSeconds   float64
	WebhookSeconds float64
	// AuthenticationSeconds and AuthorizationSeconds passed until the server knew
	// who asks, and whether they may.
	AuthenticationSeconds, AuthorizationSeconds float64
	BodyBytes                                   int64 // of bodies whose size is known
	Bodies                                      int64 // how many these are
	Bytes                                       int64 // of answers whose size is known
	Sized                                       int64 // how many these are
	// Share is of all requests' seconds, long ones left out.
	Share float64
}

// An Aggregator sums requests by columns.
type Aggregator struct {
	columns []func(*record.Request, []byte) []byte
	names   []string
	groups  map[string]*group
	order   []*group
	others  *group
	agents  map[string]string
	key     []byte
	ends    []int

	// Requests and PodCreates (201s on pods) are over all that was added.
	Requests   int64
	PodCreates int64
	// Sources counts rows by where they come from.
	Sources map[string]int64
	// First and Last are when the earliest and the latest was received, in
	// microseconds.
	First, Last int64
}

type group struct {
	row  Row
	took []uint32 // µs of each that was done
}

// NewAggregator sums by columns, in the order given.
func NewAggregator(columns []string) (*Aggregator, error) {
	a := &Aggregator{names: columns, groups: map[string]*group{}, agents: map[string]string{}, Sources: map[string]int64{}, ends: make([]int, len(columns))}
	for _, name := range columns {
		get := a.column(name)
		if get == nil {
			return nil, fmt.Errorf("no column %q; there are %s", name, strings.Join(Columns, ", "))
		}
		a.columns = append(a.columns, get)
	}
	return a, nil
}

func (a *Aggregator) column(name string) func(*record.Request, []byte) []byte {
	text := func(get func(*record.Request) string) func(*record.Request, []byte) []byte {
		return func(r *record.Request, b []byte) []byte { return append(b, get(r)...) }
	}
	switch name {
	case "userAgent":
		return text(func(r *record.Request) string { return a.agent(r.UserAgent) })
	case "user":
		return text(func(r *record.Request) string { return r.User })
	case "verb":
		return text(func(r *record.Request) string { return r.Verb })
	case "group":
		return text(func(r *record.Request) string { return r.Group })
	case "resource":
		if slices.Contains(a.names, "subresource") {
			return text(func(r *record.Request) string { return r.Resource })
		}
		return func(r *record.Request, b []byte) []byte {
			b = append(b, r.Resource...)
			if r.Subresource != "" {
				b = append(b, '/')
				b = append(b, r.Subresource...)
			}
			return b
		}
	case "subresource":
		return text(func(r *record.Request) string { return r.Subresource })
	case "namespace":
		return text(func(r *record.Request) string { return r.Namespace })
	case "name":
		return text(func(r *record.Request) string { return r.Name })
	case "code":
		return func(r *record.Request, b []byte) []byte { return fmt.Append(b, r.Code) }
	case "uri":
		return text(func(r *record.Request) string { return r.URI })
	case "source":
		return text(func(r *record.Request) string { return cmp.Or(r.Source, "audit") })
	}
	return nil
}

// agent remembers short forms: there are few agents and many requests. A flood
// of agents is forgotten, not kept.
func (a *Aggregator) agent(s string) string {
	short, ok := a.agents[s]
	if !ok {
		if len(a.agents) >= 1<<16 {
			clear(a.agents)
		}
		short = Agent(s)
		a.agents[s] = short
	}
	return short
}

// Add counts one request. r may be used again afterwards.
func (a *Aggregator) Add(r *record.Request) {
	a.Requests++
	a.Sources[cmp.Or(r.Source, "audit")]++
	if a.First == 0 || r.ReceivedMicros < a.First {
		a.First = r.ReceivedMicros
	}
	a.Last = max(a.Last, r.ReceivedMicros)
	if r.Verb == "create" && r.Resource == "pods" && r.Subresource == "" && r.Code == 201 {
		a.PodCreates++
	}
	long := LongRunning(r)
	a.key = a.key[:0]
	if long {
		a.key = append(a.key, 'w')
	} else {
		a.key = append(a.key, '-')
	}
	for i, column := range a.columns {
		a.key = append(column(r, a.key), 0)
		a.ends[i] = len(a.key)
	}
	g := a.groups[string(a.key)]
	if g == nil {
		g = a.newGroup(long)
	}
	g.add(r)
}

func (a *Aggregator) newGroup(long bool) *group {
	if len(a.groups) >= maxGroups {
		if a.others == nil {
			a.others = &group{row: Row{Key: make([]string, len(a.names))}}
			for i := range a.others.row.Key {
				a.others.row.Key[i] = Others
			}
			a.order = append(a.order, a.others)
		}
		return a.others
	}
	g := &group{row: Row{Long: long, Key: make([]string, len(a.names))}}
	key := string(a.key)
	from := 1
	for i, end := range a.ends {
		g.row.Key[i] = key[from : end-1]
		from = end
	}
	a.groups[key] = g
	a.order = append(a.order, g)
	return g
}

func (g *group) add(r *record.Request) {
	row := &g.row
	row.Count++
	switch {
	case r.Code == 409:
		row.Conflicts++
	case r.Code == 429:
		row.Throttled++
	}
	if r.Code >= 400 {
		row.Errors++
	}
	if r.ServerMicros >= 0 {
		row.Layered++
		if r.EtcdMicros >= 0 {
			row.Timed++
			row.EtcdSeconds += float64(r.EtcdMicros) / 1e6
		}
		row.QueueSeconds += float64(max(r.QueueMicros, 0)) / 1e6
		row.WebhookSeconds += float64(max(r.WebhookMicros, 0)) / 1e6
		row.AuthenticationSeconds += float64(max(r.AuthenticationMicros, 0)) / 1e6
		row.AuthorizationSeconds += float64(max(r.AuthorizationMicros, 0)) / 1e6
	}
	if r.ResponseBytes >= 0 {
		row.Sized++
		row.Bytes += r.ResponseBytes
	}
	if r.RequestBytes >= 0 {
		row.Bodies++
		row.BodyBytes += r.RequestBytes
	}
	if r.DoneMicros == 0 {
		row.Open++
		return
	}
	took := max(r.DoneMicros-r.ReceivedMicros, 0)
	row.Seconds += float64(took) / 1e6
	g.took = append(g.took, uint32(min(took, longest)))
}

// LongRunning reports that a request takes as long as its client wants, as the
// API server itself has it (genericfilters.BasicLongRunningRequestCheck):
// watches, streams to pods, profiles.
func LongRunning(r *record.Request) bool {
	switch r.Verb {
	case "watch", "proxy", "connect":
		return true
	}
	switch r.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return true
	}
	return r.Resource == "" && strings.HasPrefix(r.URI, "/debug/pprof/")
}

// Names are the columns that rows are keyed by.
func (a *Aggregator) Names() []string { return a.names }

// Rows are the sums, long ones last, sorted by one of Orders and then by key.
func (a *Aggregator) Rows(order string) []Row {
	total := 0.0
	for _, g := range a.order {
		if !g.row.Long {
			total += g.row.Seconds
		}
	}
	rows := make([]Row, len(a.order))
	for i, g := range a.order {
		rows[i] = g.finish(total)
	}
	slices.SortFunc(rows, func(x, y Row) int {
		var by int
		switch order {
		case "count":
			by = cmp.Compare(y.Count, x.Count)
		case "errors":
			by = cmp.Compare(y.Errors, x.Errors)
		}
		long := 0
		if x.Long != y.Long {
			long = 1
			if y.Long {
				long = -1
			}
		}
		return cmp.Or(long, by, cmp.Compare(y.Seconds, x.Seconds), slices.Compare(x.Key, y.Key))
	})
	return rows
}

func (g *group) finish(total float64) Row {
	r := g.row
	r.P50Millis, r.P99Millis = -1, -1
	if n := len(g.took); n > 0 {
		slices.Sort(g.took)
		r.MeanMillis = r.Seconds * 1e3 / float64(n)
		r.P50Millis = float64(g.took[rank(n, 0.50)]) / 1e3
		if n >= 100 {
			r.P99Millis = float64(g.took[rank(n, 0.99)]) / 1e3
		}
		r.LongestMillis = float64(g.took[n-1]) / 1e3
	}
	if total > 0 && !r.Long {
		r.Share = r.Seconds / total
	}
	return r
}

// rank is the index of the nearest rank of quantile q among n sorted values.
func rank(n int, q float64) int { return max(int(math.Ceil(q*float64(n))), 1) - 1 }
