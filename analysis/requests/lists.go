package requests

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/internal/audit"
	"github.com/kubedyno/kubedyno/record"
)

// ListRow is how one agent reads a resource by LIST and WATCH, over all its
// users, namespaces and selectors.
//
// An informer reads a state once and then watches. It begins with a WATCH that
// asks for the initial events (client-go since 1.35), or with a LIST that a
// WATCH follows. Beginning again is a relist. A LIST that no WATCH follows is
// direct: somebody asks for the whole again and again.
type ListRow struct {
	Agent, Group, Resource string
	// Informers began: lists that a watch followed, and watches that asked
	// for the initial events; the first of each user, namespace and selector.
	Informers int64
	// Relists are the same, later: when fewer watches were open than informers
	// had begun.
	Relists int64
	// Quorum lists are direct, and name no resourceVersion: the API server
	// answers them as of now, from its cache once that is known to be fresh,
	// or from etcd.
	Quorum int64
	// Cached lists are direct and take any state (resourceVersion=0), or one
	// not older than some version.
	Cached int64
	// Exact lists are direct and ask for one version.
	Exact int64
	// Pages are the second and further requests of paginated lists.
	Pages int64
	// Limited lists asked for pages. They are among the kinds above.
	Limited int64
	// Resumed watches went on from a known version.
	Resumed int64
	// Failed are lists and watches that were refused or failed, code 400 and
	// above; they are in no other column.
	Failed int64
	// DirectSeconds and InformerSeconds are the time of the LISTs, pages
	// included with the direct ones.
	DirectSeconds, InformerSeconds float64
	// Verdict is informer, direct, mixed, or watch where there were only
	// resumed watches.
	Verdict string
}

// Lists tells who lists from who watches.
type Lists struct {
	// From leaves out of the counts what was received before, in
	// microseconds. It is needed all the same, to know a relist from a first
	// list.
	From int64

	agents map[string]string
	by     map[listKey]*reader
	// Unsorted requests came after there were too many readers to tell apart.
	Unsorted int64
	// blind: the source shows a watch at its end only, so that a list whose
	// watch is still open looks direct.
	blind bool
}

const (
	// maxReaders bounds agents × users × resources × selectors.
	maxReaders = 200_000
	// follows is how long after a LIST's end an informer's WATCH may come.
	follows = 10_000_000 // µs
)

type listKey struct{ agent, user, group, resource, scope string }

type reader struct {
	lists   []list
	watches []int64 // received, of watches that went on from a version
	initial []int64 // received, of watches that asked for initial events
	opened  []int64 // received, of both
	closed  []int64 // ends of those that ended
	failed  int64
	pages   int64
	pageUs  int64
}

type list struct {
	received, done int64
	version        version
	limited        bool
}

type version uint8

const (
	anyVersion version = iota // 0, or not older than
	newest                    // none named
	exact
)

// NewLists returns an empty table.
func NewLists() *Lists {
	return &Lists{agents: map[string]string{}, by: map[listKey]*reader{}}
}

// Add takes a request; those that are neither LIST nor WATCH are passed over.
func (l *Lists) Add(r *record.Request) {
	isWatch := r.Verb == "watch"
	if !isWatch && r.Verb != "list" || r.Resource == "" {
		return
	}
	if r.Source == audit.SourceLog || r.Source == audit.SourceDump {
		l.blind = true
	}
	q := parseQuery(r.URI)
	agent, ok := l.agents[r.UserAgent]
	if !ok {
		if len(l.agents) >= 1<<16 {
			clear(l.agents)
		}
		agent = Agent(r.UserAgent)
		l.agents[r.UserAgent] = agent
	}
	scope := r.Namespace + "\x00" + q.selectors
	if r.Name != "" { // a watch of one object
		scope += "\x00" + r.Name
	}
	k := listKey{agent, r.User, r.Group, r.Resource, scope}
	by := l.by[k]
	if by == nil {
		if len(l.by) >= maxReaders {
			l.Unsorted++
			return
		}
		by = &reader{}
		l.by[k] = by
	}
	early := r.ReceivedMicros < l.From
	if isWatch && r.Code < 400 {
		by.opened = append(by.opened, r.ReceivedMicros)
		if r.DoneMicros != 0 {
			by.closed = append(by.closed, r.DoneMicros)
		}
	}
	switch {
	case r.Code >= 400:
		if !early {
			by.failed++
		}
	case isWatch && q.initial:
		by.initial = append(by.initial, r.ReceivedMicros)
	case isWatch:
		by.watches = append(by.watches, r.ReceivedMicros)
	case q.next:
		if !early {
			by.pages++
			by.pageUs += max(r.DoneMicros-r.ReceivedMicros, 0)
		}
	default:
		by.lists = append(by.lists, list{r.ReceivedMicros, max(r.DoneMicros, r.ReceivedMicros), q.version, q.limited})
	}
}

// Blind reports that the rows come from a source that shows a watch only at
// its end: an informer whose watch is open then counts as a direct list.
func (l *Lists) Blind() bool { return l.blind }

// Rows are sorted by the number of direct lists, then by agent and resource.
func (l *Lists) Rows() []ListRow {
	type key struct{ agent, group, resource string }
	rows := map[key]*ListRow{}
	for k, by := range l.by {
		rk := key{k.agent, k.group, k.resource}
		row := rows[rk]
		if row == nil {
			row = &ListRow{Agent: k.agent, Group: k.group, Resource: k.resource}
			rows[rk] = row
		}
		by.into(row, l.From)
	}
	out := make([]ListRow, 0, len(rows))
	for of, row := range rows {
		if *row == (ListRow{Agent: of.agent, Group: of.group, Resource: of.resource}) {
			continue // nothing in the window
		}
		direct := row.Direct()
		switch informer := row.Informers + row.Relists; {
		case direct > 0 && informer > 0:
			row.Verdict = "mixed"
		case direct > 0:
			row.Verdict = "direct"
		case informer > 0:
			row.Verdict = "informer"
		case row.Resumed > 0:
			row.Verdict = "watch"
		case row.Pages > 0:
			row.Verdict = "direct"
		default:
			row.Verdict = "failed"
		}
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b ListRow) int {
		return cmp.Or(cmp.Compare(b.Direct(), a.Direct()), cmp.Compare(b.Informers+b.Relists, a.Informers+a.Relists),
			strings.Compare(a.Agent, b.Agent), strings.Compare(a.Resource, b.Resource), strings.Compare(a.Group, b.Group))
	})
	return out
}

// Direct is the number of lists that no watch followed, without their pages.
func (r *ListRow) Direct() int64 { return r.Quorum + r.Cached + r.Exact }

// into counts what was received at or after from.
func (by *reader) into(row *ListRow, from int64) {
	row.Failed += by.failed
	row.Pages += by.pages
	row.DirectSeconds += float64(by.pageUs) / 1e6
	slices.SortFunc(by.lists, func(a, b list) int { return cmp.Compare(a.received, b.received) })
	slices.Sort(by.watches)
	begun := slices.Clone(by.initial)
	next := 0
	for i, l := range by.lists {
		// The watch that follows a list belongs to the last list before it.
		for ; next < len(by.watches) && by.watches[next] < l.received; next++ {
			if by.watches[next] >= from {
				row.Resumed++
			}
		}
		until := l.done + follows
		if i+1 < len(by.lists) {
			until = min(until, by.lists[i+1].received)
		}
		counts := l.received >= from
		took := float64(l.done-l.received) / 1e6
		if counts && l.limited {
			row.Limited++
		}
		if next < len(by.watches) && by.watches[next] <= until {
			next++
			begun = append(begun, l.received)
			if counts {
				row.InformerSeconds += took
			}
			continue
		}
		if !counts {
			continue
		}
		row.DirectSeconds += took
		switch l.version {
		case newest:
			row.Quorum++
		case exact:
			row.Exact++
		default:
			row.Cached++
		}
	}
	for ; next < len(by.watches); next++ {
		if by.watches[next] >= from {
			row.Resumed++
		}
	}
	// One agent may have several informers of the same: one that begins while
	// all the others watch is another.
	slices.Sort(begun)
	slices.Sort(by.opened)
	slices.Sort(by.closed)
	informers, same := 0, 0
	for i, at := range begun {
		opened, _ := slices.BinarySearch(by.opened, at)
		closed, _ := slices.BinarySearch(by.closed, at+1)
		if i > 0 && begun[i-1] == at { // at the same moment: one after the other
			same++
		} else {
			same = 0
		}
		another := max(opened+same-closed, 0)+1 > informers
		if another {
			informers++
		}
		switch {
		case at < from:
		case another:
			row.Informers++
		default:
			row.Relists++
		}
	}
}

// query is what a LIST or WATCH asks for.
type query struct {
	version       version
	limited, next bool // asks for a page; for one that is not the first
	initial       bool
	selectors     string
}

// parseQuery reads the parameters that matter, without decoding the others.
func parseQuery(s string) query {
	q := query{version: newest}
	match := ""
	for len(s) > 0 {
		var p string
		p, s, _ = strings.Cut(s, "&")
		key, value, _ := strings.Cut(p, "=")
		switch key {
		case "resourceVersion":
			switch value {
			case "":
			case "0":
				q.version = anyVersion
			default:
				q.version = exact
			}
		case "resourceVersionMatch":
			match = value
		case "limit":
			q.limited = value != "" && value != "0"
		case "continue":
			q.next = value != ""
		case "sendInitialEvents":
			q.initial = value == "true"
		case "fieldSelector", "labelSelector":
			if value != "" {
				q.selectors += key + "=" + value + "&"
			}
		}
	}
	// Without a match, a version other than 0 means not older than it, unless
	// the list has a limit, where it means exactly that one.
	if q.version == exact && (match == "NotOlderThan" || match == "" && !q.limited) {
		q.version = anyVersion
	}
	return q
}
