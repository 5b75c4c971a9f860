package diagnosetest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

// words is a metric or gauge as a case says it.
type words struct {
	component, metric string
	labels            []string // name, value, …
	counter
}

// talk is what one client asks for again and again.
type talk struct {
	agent, verb, resource, sub, namespace string
	rate, rest                            float64
	each, restEach                        time.Duration
	codes                                 []coded
	names, users                          int
	metronome                             bool
	from, to                              float64
	query, group                          string
	// Parts of each one's time.
	queued, hooked, authenticated, authorized float64
	body                                      int64 // bytes of each one's; 0 unknown
}

type coded struct {
	code  int32
	share float64
}

type line struct {
	component, text string
	count           int
}

type work struct {
	component string
	seconds   float64
	frames    []string // outermost first
	growing   bool
}

// observe reads the words that say what collectors saw, in their own terms.
func (s *script) observe(w []string) (done bool, err error) {
	p := phrase{words: w}
	switch w[0] {
	case "about": // for who reads the diagnosis
		return true, nil
	case "in": // likewise
		if x := p.next(); x != "full" {
			p.fail("in %s?", x)
		}
	case "metric", "gauge":
		x := words{component: p.next()}
		name, labels, _ := strings.Cut(strings.TrimSuffix(p.next(), "}"), "{")
		x.metric = name
		for _, l := range strings.FieldsFunc(labels, func(r rune) bool { return r == ',' }) {
			k, v, ok := strings.Cut(l, "=")
			if !ok {
				p.fail("%q is not label=value", l)
			}
			x.labels = append(x.labels, k, v)
		}
		if x.gauge = w[0] == "gauge"; x.gauge {
			from, to, two := strings.Cut(p.next(), "..")
			if !two {
				to = from
			}
			x.from, x.to = p.number(from), p.number(to)
		} else {
			v := p.next()
			if !strings.HasPrefix(v, "+") {
				p.fail("%q is not a growth such as +12.5", v)
			}
			x.value = p.number(v)
		}
		if p.more() {
			p.expect("rest")
			x.rest = p.number(strings.TrimSuffix(p.next(), "/s"))
		}
		s.series = append(s.series, x)
	case "healthy":
		took := p.next()
		d, err := time.ParseDuration(took)
		if err != nil {
			p.fail("%q is not a time such as 6ms", took)
		}
		s.healthy[strings.Join(p.words[p.at+1:], " ")] = d.Seconds()
		p.at = len(p.words)
	case "requests":
		s.talks = append(s.talks, p.talk())
	case "log":
		l := line{component: p.next(), count: int(p.number(p.next()))}
		l.text = strings.Join(p.words[p.at+1:], " ")
		p.at = len(p.words)
		s.lines = append(s.lines, l)
	case "profile":
		s.work = append(s.work, p.work())
	case "stack":
		s.sampled = append(s.sampled, p.work())
	case "flag":
		c := p.next()
		s.flags[c] = append(s.flags[c], "--"+p.next())
	case "writes":
		c := p.next()
		amount := strings.TrimSuffix(p.next(), "/s")
		unit := 1.0
		for suffix, u := range map[string]float64{"kB": 1e3, "MB": 1e6} {
			if x, ok := strings.CutSuffix(amount, suffix); ok {
				amount, unit = x, u
			}
		}
		s.written[c] = unit * p.number(amount)
	case "blocks":
		s.blocks = append(s.blocks, p.block())
	case "delay":
		s.delayed[p.next()] = p.number(p.next())
	case "connections":
		s.connections = p.rate()
	default:
		return false, nil
	}
	if p.err == nil && p.more() {
		p.fail("unknown word %q", p.next())
	}
	return true, p.err
}

// phrase reads words one after another.
type phrase struct {
	words []string
	at    int // the word that was read last
	err   error
}

func (p *phrase) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *phrase) more() bool { return p.err == nil && p.at+1 < len(p.words) }

func (p *phrase) next() string {
	if p.at+1 >= len(p.words) {
		p.fail("word %d is missing", p.at+2)
		return ""
	}
	p.at++
	return p.words[p.at]
}

func (p *phrase) expect(word string) {
	if w := p.next(); w != word {
		p.fail("%q, where %q should be", w, word)
	}
}

func (p *phrase) number(s string) float64 {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		p.fail("%q is not a number", s)
	}
	return x
}

func (p *phrase) duration() time.Duration {
	d, err := time.ParseDuration(p.next())
	if err != nil {
		p.fail("%w", err)
	}
	return d
}

func (p *phrase) percent() float64 {
	s := p.next()
	x, ok := strings.CutSuffix(s, "%")
	if !ok {
		p.fail("%q is not a share such as 40%%", s)
		return 0
	}
	return p.number(x) / 100
}

func (p *phrase) rate() float64 {
	s := p.next()
	x, ok := strings.CutSuffix(s, "/s")
	if !ok {
		p.fail("%q is not a rate such as 20/s", s)
		return 0
	}
	return p.number(x)
}

func (p *phrase) work() work {
	x := work{component: p.next(), seconds: p.duration().Seconds()}
	for p.more() {
		x.frames = append(x.frames, p.next())
	}
	if len(x.frames) > 0 && x.frames[0] == "growing" {
		x.growing, x.frames = true, x.frames[1:]
	}
	if len(x.frames) == 0 {
		p.fail("a stack has frames")
	}
	return x
}

func (p *phrase) talk() (t talk) {
	t = talk{users: 1, each: 2 * time.Millisecond, restEach: 2 * time.Millisecond, namespace: "default"}
	t.agent = p.next()
	if program, role, ok := strings.Cut(t.agent, "/"); ok {
		t.agent = fmt.Sprintf("%s/v1.36.3 (linux/amd64) kubernetes/0c1a23b/%s", program, role)
	}
	t.verb = strings.ToLower(p.next())
	if t.resource, t.sub, _ = strings.Cut(p.next(), "/"); t.resource == "-" {
		t.resource = ""
	}
	t.rate = p.rate()
	resting := false
	for p.more() {
		switch word := p.next(); word {
		case "each":
			if resting {
				t.restEach = p.duration()
			} else {
				t.each = p.duration()
			}
		case "code":
			c := coded{code: int32(p.number(p.next())), share: 1}
			if p.more() && strings.HasSuffix(p.words[p.at+1], "%") {
				c.share = p.number(strings.TrimSuffix(p.next(), "%")) / 100
			}
			t.codes = append(t.codes, c)
		case "names":
			t.names = int(p.number(p.next()))
		case "users":
			t.users = int(p.number(p.next()))
		case "in":
			t.namespace = p.next()
		case "rest":
			t.rest, resting = p.rate(), true
		case "metronome":
			t.metronome = true
		case "from":
			t.from = p.duration().Seconds()
		case "to":
			t.to = p.duration().Seconds()
		case "query":
			t.query = p.next()
		case "group":
			t.group = p.next()
		case "queued":
			t.queued = p.percent()
		case "bodies":
			t.body = int64(p.number(p.next()))
		case "webhooks":
			t.hooked = p.percent()
		case "authenticated":
			t.authenticated = p.percent()
		case "authorized":
			t.authorized = p.percent()
		default:
			p.fail("unknown word %q", word)
		}
	}
	return t
}

// observed adds to the simulated run what was said in collectors' terms.
func (s *script) observed(r *Run) {
	rng := rand.New(rand.NewPCG(s.seed, 3))
	for i, t := range s.talks {
		to := t.to
		if to == 0 {
			to = r.end
		}
		t.send(r, rng, i, t.from, to, t.rate, t.each)
		t.send(r, rng, i, -settle, -0.01, t.rest, t.restEach)
	}
	for _, x := range shares {
		if !s.no["metrics"] && !s.no["metrics of "+x.component] {
			r.counters = append(r.counters, counter{metric: "up", labels: map[string]string{"component": x.component, "instance": x.component + "-1"}, gauge: true, from: 1, to: 1, rest: 1})
		}
	}
	for _, x := range s.series {
		if s.no["metrics"] || s.no["metrics of "+x.component] {
			continue
		}
		c := x.counter
		c.metric, c.labels = x.metric, map[string]string{"component": x.component, "instance": x.component + "-1"}
		for i := 0; i+1 < len(x.labels); i += 2 {
			c.labels[x.labels[i]] = x.labels[i+1]
		}
		r.counters = append(r.counters, c)
	}
	r.logs = map[string]string{}
	for _, l := range s.lines {
		var b strings.Builder
		for i := range l.count {
			at := epoch.Add(time.Duration((float64(i) + 0.5) / float64(l.count) * r.end * float64(time.Second)))
			fmt.Fprintf(&b, "I%s       1 request.go:752] %s\n", at.Format("0102 15:04:05.000000"), l.text)
		}
		r.logs[l.component] += b.String()
	}
	s.sample(r)
	s.disks(r)
	r.profiles = map[string]*profile.Profile{}
	for _, x := range s.work {
		p := r.profiles[x.component]
		if p == nil {
			p = &profile.Profile{SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}, DurationNanos: int64(r.steady.Seconds() * 1e9)}
			r.profiles[x.component] = p
		}
		sample := &profile.Sample{Value: []int64{int64(x.seconds * 1e9)}}
		for _, name := range slices.Backward(x.frames) {
			f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name}
			l := &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
			p.Function, p.Location = append(p.Function, f), append(p.Location, l)
			sample.Location = append(sample.Location, l)
		}
		p.Sample = append(p.Sample, sample)
	}
}

// sample draws the stacks of what was said to be sampled, 99 a second of CPU:
// evenly over the load, or more and more often.
func (s *script) sample(r *Run) {
	rng := rand.New(rand.NewPCG(s.seed, 4))
	for i, x := range s.sampled {
		id := int64(i + 1)
		r.stacks = append(r.stacks, record.Stack{ID: id, Frames: strings.Join(x.frames, ";")})
		for range int(99 * x.seconds) {
			at := rng.Float64()
			if x.growing {
				at = math.Sqrt(at)
			}
			r.samples = append(r.samples, record.StackSample{TimeMicros: micros(at * r.end), Component: x.component, Command: x.component, Stack: id})
		}
	}
}

// block is what one component's requests to a disk took.
type block struct {
	component            string
	device               string
	queue, served, flush time.Duration
}

func (p *phrase) block() block {
	b := block{component: p.next(), device: "vda", queue: p.duration(), served: p.duration()}
	for p.more() {
		switch word := p.next(); word {
		case "flush":
			b.flush = p.duration()
		case "on":
			b.device = p.next()
		default:
			p.fail("unknown word %q", word)
			return b
		}
	}
	return b
}

// disks draws requests to disks, ten writes a second each as long as was said.
func (s *script) disks(r *Run) {
	for _, b := range s.blocks {
		for t := 0.05; t < r.end; t += 0.1 {
			at := micros(t)
			row := record.BlockIO{TimeMicros: at, IssuedMicros: at + b.queue.Microseconds(), DoneMicros: at + (b.queue + b.served).Microseconds(), Component: b.component, Command: b.component, Device: b.device, Operation: "write", Bytes: 4096}
			r.blocks = append(r.blocks, row)
			if b.flush > 0 {
				row.TimeMicros, row.IssuedMicros, row.DoneMicros, row.Operation, row.Bytes = row.DoneMicros, 0, row.DoneMicros+b.flush.Microseconds(), "flush", 0
				r.blocks = append(r.blocks, row)
			}
		}
	}
}

// BlockIO are requests to disks.
func (r *Run) BlockIO() ([]record.BlockIO, error) {
	if len(r.blocks) == 0 {
		return nil, fmt.Errorf("table blockio: %w", record.ErrMissing)
	}
	return r.blocks, nil
}

// StackSamples are what was sampled.
func (r *Run) StackSamples() ([]record.StackSample, error) {
	if len(r.samples) == 0 {
		return nil, fmt.Errorf("table stack_samples: %w", record.ErrMissing)
	}
	return r.samples, nil
}

// Stacks are the stacks of samples.
func (r *Run) Stacks() ([]record.Stack, error) { return r.stacks, nil }

// send adds one client's requests between two times.
func (t talk) send(r *Run, rng *rand.Rand, id int, from, to, rate float64, each time.Duration) {
	if rate <= 0 {
		return
	}
	gap := func() float64 {
		if t.metronome {
			return 1 / rate
		}
		return rng.ExpFloat64() / rate
	}
	n := 0
	for at := from + gap(); at < to; at += gap() {
		took := each.Seconds() * (0.5 + rng.Float64())
		row := record.Request{
			ReceivedMicros: micros(at), DoneMicros: micros(at + took), Verb: t.verb, Resource: t.resource, Subresource: t.sub, Namespace: t.namespace,
			UserAgent: t.agent, User: fmt.Sprintf("user-%d-%d", id, n%max(1, t.users)), Code: 200, URI: t.query,
			ServerMicros: -1, EtcdMicros: -1, QueueMicros: -1, WebhookMicros: -1, AuthenticationMicros: -1, AuthorizationMicros: -1, ResponseBytes: -1, RequestBytes: cmp.Or(t.body, -1),
		}
		row.Group = t.group
		for _, x := range []struct {
			part float64
			into *int64
		}{{t.queued, &row.QueueMicros}, {t.hooked, &row.WebhookMicros}, {t.authenticated, &row.AuthenticationMicros}, {t.authorized, &row.AuthorizationMicros}} {
			if x.part > 0 {
				*x.into = int64(1e6 * x.part * took)
			}
		}
		if t.names > 0 {
			row.Name = fmt.Sprintf("%s-%d", t.resource, rng.IntN(t.names))
		}
		x := rng.Float64()
		for _, c := range t.codes {
			if x < c.share {
				row.Code = c.code
				break
			}
			x -= c.share
		}
		r.requests = append(r.requests, row)
		n++
	}
}

// Logs names the components that left lines.
func (r *Run) Logs() []string {
	var names []string
	for c := range r.logs {
		names = append(names, c)
	}
	slices.Sort(names)
	return names
}

// Log is a component's log.
func (r *Run) Log(component string) (io.ReadCloser, error) {
	text, ok := r.logs[component]
	if !ok {
		return nil, fmt.Errorf("log of %s: %w", component, record.ErrMissing)
	}
	return io.NopCloser(bytes.NewReader([]byte(text))), nil
}

// Profiles are CPU profiles of the load.
func (r *Run) Profiles() []record.ProfileRef {
	var refs []record.ProfileRef
	for c := range r.profiles {
		refs = append(refs, record.ProfileRef{Component: c, Phase: "load", Kind: "cpu", File: c, Start: r.steady.Start, End: r.steady.End})
	}
	slices.SortFunc(refs, func(a, b record.ProfileRef) int { return strings.Compare(a.Component, b.Component) })
	return refs
}

// ReadProfile gives one of them.
func (r *Run) ReadProfile(ref record.ProfileRef) (*profile.Profile, error) {
	if p, ok := r.profiles[ref.File]; ok {
		return p, nil
	}
	return nil, errors.Join(fmt.Errorf("profile of %s", ref.Component), record.ErrMissing)
}

var _ diagnose.Source = (*Run)(nil)
