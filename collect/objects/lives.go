package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"k8s.io/client-go/rest"
)

// Values of record.ObjectChange.Change.
const (
	changeExisting = "existing"
	changeAdded    = "added"
	changeModified = "modified"
	changeDeleted  = "deleted"
)

// LivesOptions of a Lives collector.
type LivesOptions struct {
	Config *rest.Config
	// Namespace limits kinds that have one, Events included; empty for all.
	// Volumes, their attachments and nodes are watched in any case.
	Namespace string
	// WithoutEvents leaves Events out. A loaded cluster writes several for each
	// pod, and the API server encodes each once more for whoever watches.
	WithoutEvents bool
	// Warnings watches those Events all the same that are warnings.
	Warnings bool
	// Run is the run whose claims are counted: see Claims.
	Run string
	// OnlyClaims watches those, and with Warnings those Events, and nothing else.
	OnlyClaims bool
	// MaxEvents bounds the rows of Events; 0 stands for MaxEvents.
	MaxEvents int
	// Stamps is as in Options.
	Stamps bool
	// Transport stands in for the one that Config makes.
	Transport http.RoundTripper
}

// Lives watches the objects that are not pods: claims, volumes, attachments,
// nodes, leases, workloads; and Events. Of a write that changes nothing of a
// row only the count is kept.
type Lives struct {
	o        LivesOptions
	kinds    []*lives
	events   *eventLog
	claims   *Claims
	ready    chan struct{} // closed when each watch is open or refused
	ended    chan struct{}
	shown    atomic.Int64 // frames and listed objects
	late     atomic.Int64
	breaks   atomic.Int64
	rows     atomic.Int64
	mu       sync.Mutex
	awaiting int // watches that are neither open nor refused yet
	acct     record.Observer
}

// NewLives returns a collector of all kinds.
func NewLives(o LivesOptions) *Lives {
	if o.MaxEvents == 0 {
		o.MaxEvents = MaxEvents
	}
	l := &Lives{o: o, ready: make(chan struct{}), ended: make(chan struct{}), claims: newClaims(o.Run)}
	for i := range lifeKinds {
		if lifeKinds[i].name == claimKind || !o.OnlyClaims {
			l.kinds = append(l.kinds, &lives{all: l, kind: &lifeKinds[i], objects: map[string]*life{}})
		}
	}
	l.awaiting = len(l.kinds)
	if l.watchesEvents() {
		l.awaiting++
	}
	l.events = &eventLog{all: l, counts: map[string]int32{}}
	return l
}

// watchesEvents says whether Events are watched, if only some.
func (l *Lives) watchesEvents() bool { return l.o.Warnings || !l.o.WithoutEvents && !l.o.OnlyClaims }

// Claims tells how far the claims of the run have come.
func (l *Lives) Claims() *Claims { return l.claims }

// Name implements collect.Collector.
func (l *Lives) Name() string { return "lives" }

// Ready waits until every watch is open or refused: what happens before is
// seen as having been there.
func (l *Lives) Ready(ctx context.Context) error {
	select {
	case <-l.ready:
		return nil
	case <-l.ended:
		return errors.New("objects are not being watched")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Collect implements collect.Collector. Lives collect once. A kind that may
// not be watched, or that the server does not have, is a gap.
func (l *Lives) Collect(ctx context.Context, w *record.Writer) error { return l.collect(ctx, w) }

func (l *Lives) collect(ctx context.Context, w sink) error {
	defer close(l.ended)
	defer l.claims.over()
	cfg := rest.CopyConfig(l.o.Config)
	if cfg.Dial == nil {
		// A connection of their own: what these streams bring must not stand
		// in the way of the watch on pods, whose times count.
		cfg.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	h, base, err := dial(cfg, l.o.Transport)
	if err != nil {
		return fmt.Errorf("watch objects: %w", err)
	}
	defer h.CloseIdleConnections()
	var following sync.WaitGroup
	errs := make([]error, len(l.kinds)+1)
	follow := func(i int, k kind, fresh func(string), to receiver) {
		path := k.version + "/" + k.resource
		if k.namespaced {
			path = namespaced(k.version, l.o.Namespace, k.resource)
		}
		settled := sync.OnceFunc(l.settled)
		s := stream{
			api: &client{http: h, base: base + path, fields: k.fields, stamps: l.o.Stamps, needs: k.needs}, collector: l.Name(), subject: k.subject(),
			ahead: 256, fresh: fresh, to: announced{to, settled}, gap: w.Gap,
		}
		following.Go(func() {
			errs[i] = s.follow(ctx)
			if k.name == claimKind {
				l.claims.over()
			}
			settled()
		})
	}
	for i, k := range l.kinds {
		k.w = w
		follow(i, *k.kind, nil, k)
	}
	l.events.w = w
	events := kind{version: "/api/v1", resource: "events", namespaced: true, needs: needsEvent}
	switch {
	case !l.watchesEvents():
		w.Gap(record.Gap{Collector: l.Name(), Subject: string(record.TableEvents), Reason: "Events are left out; --observe full watches them"})
	case l.o.WithoutEvents:
		w.Gap(record.Gap{Collector: l.Name(), Subject: "normal Events", Reason: "only warnings are watched; --observe full watches all Events"})
		events.fields = "type=Warning"
		fallthrough
	default:
		follow(len(l.kinds), events, l.events.from, l.events)
	}
	following.Wait()
	return l.finish(w, errs)
}

// finish writes what is still held, and the gaps of what was refused.
func (l *Lives) finish(w sink, errs []error) error {
	var failed []error
	refused := 0
	var reasons []string
	for i, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, collect.ErrNotSupported):
			subject := "events"
			if i < len(l.kinds) {
				subject = l.kinds[i].kind.subject()
				refused++
				reasons = append(reasons, err.Error())
			}
			w.Gap(record.Gap{Collector: l.Name(), Subject: subject, Reason: err.Error()})
		default:
			failed = append(failed, err)
		}
	}
	if refused == len(l.kinds) {
		w.Gap(record.Gap{Collector: l.Name(), Subject: string(record.TableObjects), Reason: strings.Join(reasons, "; ")})
	}
	objects := 0
	for _, k := range l.kinds {
		objects += k.met
		k.flush()
	}
	l.events.finish()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acct = record.Observer{Samples: l.shown.Load(), Note: fmt.Sprintf(
		"%d of %d kinds; %d objects, %d rows; %d Events; %d times a watch was opened again; %d changes were seen late",
		len(l.kinds)-refused, len(l.kinds), objects, l.rows.Load(), l.events.rows, l.breaks.Load(), l.late.Load())}
	return errors.Join(failed...)
}

// Account implements collect.Accountant.
func (l *Lives) Account() record.Observer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acct
}

// settled counts a watch that is open, or refused for good.
func (l *Lives) settled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaiting--; l.awaiting == 0 {
		close(l.ready)
	}
}

// announced is a receiver whose opening is waited for.
type announced struct {
	receiver
	settled func()
}

func (a announced) opened(again bool) {
	a.receiver.opened(again)
	a.settled()
}

// lives are those of one kind.
type lives struct {
	all     *Lives
	kind    *kind
	w       sink
	objects map[string]*life // by UID
	met     int
	s       seen
}

// life is what is kept of an object: its last row, and the writes since.
type life struct {
	row      record.ObjectChange
	revision uint64
	writes   int32 // since the row
	last     int64 // when the last of them was seen, in microseconds
	round    int   // of the last list that had it
}

func (k *lives) listed(at time.Time, object []byte, round int) error {
	if err := k.s.object(k.kind, object); err != nil {
		return err
	}
	change := changeAdded
	if round == 1 {
		change = changeExisting
	}
	k.observe(at, change, round > 1)
	if x := k.objects[string(k.s.uid)]; x != nil {
		x.round = round
	}
	return nil
}

func (k *lives) unlisted(at time.Time, round int) {
	for uid, x := range k.objects {
		if x.round != round {
			delete(k.objects, uid)
			k.gone(at, x, true)
		}
	}
}

func (k *lives) seen(at time.Time, typ string, object []byte, late bool) ([]byte, error) {
	if err := k.s.object(k.kind, object); err != nil {
		return nil, err
	}
	change := changeAdded
	if typ == typeDeleted {
		change = changeDeleted
	}
	k.observe(at, change, late)
	return k.s.version, nil
}

func (k *lives) opened(again bool) {
	if again {
		k.all.breaks.Add(1)
	}
	k.w.Observes(record.TableObjects)
}

func (k *lives) closed() {}

// observe takes one sight of an object: change is what it is where the object
// was not known.
func (k *lives) observe(at time.Time, change string, late bool) {
	defer k.all.shown.Add(1)
	s := &k.s
	if k.kind.name == claimKind {
		k.all.claims.observe(at, s, change)
	}
	us := at.UnixMicro()
	revision := revisionOf(s.version)
	x := k.objects[string(s.uid)]
	switch {
	case x == nil:
		x = &life{revision: revision, last: us}
		x.row = record.ObjectChange{Kind: k.kind.name, Namespace: string(s.namespace), Name: string(s.name), UID: string(s.uid)}
		s.into(&x.row)
		k.met++
		if change != changeExisting {
			x.writes = 1
		}
		if change != changeDeleted {
			k.objects[x.row.UID] = x
		}
		k.write(us, x, change, late)
	case change == changeDeleted:
		delete(k.objects, x.row.UID)
		k.gone(at, x, late)
	case x.revision == revision: // a list that shows what is known
	default:
		x.revision, x.last = revision, us
		x.writes++
		if s.into(&x.row) {
			k.write(us, x, changeModified, late)
		}
	}
}

// into sets the row's columns and reports whether one changed. A string is
// made for those alone.
func (s *seen) into(row *record.ObjectChange) (changed bool) {
	for _, c := range []struct {
		to   *string
		from []byte
	}{{&row.State, s.state}, {&row.Node, s.node}, {&row.Ref, s.ref}, {&row.Owner, s.controller}, {&row.Class, s.class}} {
		if *c.to != string(c.from) {
			*c.to, changed = string(c.from), true
		}
	}
	if row.Desired != s.desired || row.Ready != s.ready {
		row.Desired, row.Ready, changed = s.desired, s.ready, true
	}
	return changed
}

func (k *lives) gone(at time.Time, x *life, late bool) {
	x.writes++
	k.write(at.UnixMicro(), x, changeDeleted, late)
	if k.kind.name == claimKind {
		k.all.claims.gone(at, x.row.UID)
	}
}

func (k *lives) write(us int64, x *life, change string, late bool) {
	row := x.row
	row.TimeMicros, row.Change, row.Changes, row.Late = us, change, x.writes, late
	x.writes = 0
	if late {
		k.all.late.Add(1)
	}
	k.all.rows.Add(1)
	k.w.Object(row)
}

// flush writes a row for the writes that changed no column, so that their
// number is known: renewals of leases, status updates of nodes.
func (k *lives) flush() {
	var rest []*life
	for _, x := range k.objects {
		if x.writes > 0 {
			rest = append(rest, x)
		}
	}
	slices.SortFunc(rest, func(a, b *life) int {
		return strings.Compare(a.row.Namespace+"/"+a.row.Name, b.row.Namespace+"/"+b.row.Name)
	})
	for _, x := range rest {
		k.write(x.last, x, changeModified, false)
	}
}

// revisionOf tells one version of an object from the next. Versions are
// numbers with all storage there is; another one's are hashed.
func revisionOf(version []byte) uint64 {
	if n, err := strconv.ParseUint(string(bytes.TrimSpace(version)), 10, 64); err == nil {
		return n
	}
	h := fnv.New64a()
	h.Write(version)
	return h.Sum64()
}
