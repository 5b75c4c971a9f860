package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/record"
)

// maxGroups bounds how many kinds of requests a page tells apart; the rest is
// one more.
const maxGroups = 150

// tracks are the disk, the requests and the spikes on the axis of the CPU.
func tracks(c clock, in rows) Tracks {
	from, step, n := c.axis()
	t := Tracks{Start: from, Step: step, Requests: in.requests}
	if len(in.machine) > 1 {
		line := func(name, unit string, factor float64, of func(record.MachineSample) float64) {
			k := counter{}
			for _, s := range in.machine {
				if v := of(s); v >= 0 {
					k.add(c.at(s.TimeMicros), v*factor)
				}
			}
			if v := k.perStep(from, step, n); len(k.t) > 1 {
				t.Disk = append(t.Disk, Track{Name: name, Unit: unit, Values: v})
			}
		}
		line("written", "MB/s", 1e-6, func(s record.MachineSample) float64 { return float64(s.DiskWriteBytes) })
		line("read", "MB/s", 1e-6, func(s record.MachineSample) float64 { return float64(s.DiskReadBytes) })
		line("busiest disk busy", "%", 100, func(s record.MachineSample) float64 { return s.DiskBusySeconds })
	}
	to := from + step*float64(n)
	axis := func(sinceStart float64) float64 { return c.at(in.meta.Started.UnixMicro()) + sinceStart }
	for i := 0; i < len(in.spikes.Marks); i++ {
		if !in.spikes.Marks[i] {
			continue
		}
		j := i
		for j+1 < len(in.spikes.Marks) && in.spikes.Marks[j+1] {
			j++
		}
		m := Mark{From: axis(in.spikes.Seconds[i]), Text: fmt.Sprintf("machine busier than around: %s cores", number(slices.Max(in.spikes.Cores[i:j+1])))}
		m.To = axis(in.spikes.Seconds[j]) + 1
		if j+1 < len(in.spikes.Seconds) {
			m.To = axis(in.spikes.Seconds[j+1])
		}
		if m.To > from && m.From < to {
			t.Spikes = append(t.Spikes, m)
		}
		i = j
	}
	for _, r := range in.spikes.Rows {
		if r.Period <= 0 {
			continue
		}
		x := Rhythm{Name: r.Name, Text: fmt.Sprintf("every %s s, %s CPU-ms each, %.1f %% of a core", number(r.Period), number(1000*r.Each), 100*r.Share)}
		for _, s := range r.Starts {
			if at := axis(s); at >= from && at < to {
				x.Starts = append(x.Starts, at)
			}
		}
		if len(x.Starts) > 0 {
			t.Rhythms = append(t.Rhythms, x)
		}
	}
	return t
}

// requestGroups sums the requests on the charts' axis by client, verb and
// resource.
func requestGroups(rec *record.Recording, c clock) ([]RequestGroup, error) {
	s := newRequestSums(c)
	if err := rec.EachRequest(func(r *record.Request) error { s.add(r); return nil }); err != nil {
		return nil, err
	}
	return s.groups(), nil
}

type requestKey struct{ agent, verb, resource string }

type requestSum struct {
	RequestGroup
	micros int64
	steps  map[int]*[2]int64 // requests and microseconds

	etcd, auth, queued, webhooks, bytes told
}

// told is a sum over the requests that it is told of.
type told struct{ n, sum int64 }

func (t *told) add(x int64) {
	if x >= 0 {
		t.n++
		t.sum += x
	}
}

func (t *told) join(o told) { t.n, t.sum = t.n+o.n, t.sum+o.sum }

// of says whether nearly all of so many requests are told of: those that were open
// at the end are not.
func (t *told) of(count int) bool { return t.n > 0 && float64(t.n) >= 0.99*float64(count) }

// part is which part of the time a sum is.
func (g *requestSum) part(t told) *float64 {
	if g.Long || g.micros <= 0 || !t.of(g.Count) {
		return nil
	}
	p := min(1, float64(t.sum)/float64(g.micros))
	return &p
}

type requestSums struct {
	c          clock
	from, step float64
	n          int
	by         map[requestKey]*requestSum
}

func newRequestSums(c clock) *requestSums {
	s := &requestSums{c: c, by: map[requestKey]*requestSum{}}
	s.from, s.step, s.n = c.axis()
	return s
}

func (s *requestSums) add(r *record.Request) {
	at := int(math.Floor((s.c.at(r.ReceivedMicros) - s.from) / s.step))
	if at < 0 || at >= s.n {
		return
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	k := requestKey{requests.Agent(r.UserAgent), r.Verb, cmp.Or(resource, "none")}
	g := s.by[k]
	if g == nil {
		g = &requestSum{RequestGroup: RequestGroup{Agent: k.agent, Verb: k.verb, Resource: k.resource, Long: requests.LongRunning(r)}, steps: map[int]*[2]int64{}}
		s.by[k] = g
	}
	cell := g.steps[at]
	if cell == nil {
		cell = &[2]int64{}
		g.steps[at] = cell
	}
	g.Count++
	cell[0]++
	if r.Code >= 400 {
		g.Errors++
	}
	g.etcd.add(r.EtcdMicros)
	if r.AuthenticationMicros >= 0 && r.AuthorizationMicros >= 0 {
		g.auth.add(r.AuthenticationMicros + r.AuthorizationMicros)
	}
	g.queued.add(r.QueueMicros)
	g.webhooks.add(r.WebhookMicros)
	g.bytes.add(r.ResponseBytes)
	if took := r.DoneMicros - r.ReceivedMicros; took > 0 && !g.Long {
		g.micros += took
		cell[1] += took
	}
}

func (s *requestSums) groups() []RequestGroup {
	all := make([]*requestSum, 0, len(s.by))
	for _, g := range s.by {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *requestSum) int {
		return cmp.Or(cmp.Compare(b.micros, a.micros), b.Count-a.Count, cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Resource, b.Resource))
	})
	if len(all) > maxGroups {
		rest := &requestSum{RequestGroup: RequestGroup{Agent: fmt.Sprintf("(%d kinds more)", len(all)-maxGroups)}, steps: map[int]*[2]int64{}}
		for _, g := range all[maxGroups:] {
			rest.Count += g.Count
			rest.Errors += g.Errors
			rest.micros += g.micros
			rest.etcd.join(g.etcd)
			rest.auth.join(g.auth)
			rest.queued.join(g.queued)
			rest.webhooks.join(g.webhooks)
			rest.bytes.join(g.bytes)
			for at, cell := range g.steps {
				sum := rest.steps[at]
				if sum == nil {
					sum = &[2]int64{}
					rest.steps[at] = sum
				}
				sum[0] += cell[0]
				sum[1] += cell[1]
			}
		}
		all = append(all[:maxGroups], rest)
	}
	out := make([]RequestGroup, 0, len(all))
	for _, g := range all {
		g.Seconds = float64(g.micros) / 1e6
		g.Etcd, g.Auth, g.Queued, g.Webhooks = g.part(g.etcd), g.part(g.auth), g.part(g.queued), g.part(g.webhooks)
		if g.bytes.of(g.Count) {
			g.Bytes = &g.bytes.sum
		}
		at := make([]int, 0, len(g.steps))
		for k := range g.steps {
			at = append(at, k)
		}
		slices.Sort(at)
		before := 0
		for _, k := range at {
			g.Cells = append(g.Cells, k-before, int(g.steps[k][0]), int(math.Round(float64(g.steps[k][1])/100)))
			before = k
		}
		out = append(out, g.RequestGroup)
	}
	return out
}
