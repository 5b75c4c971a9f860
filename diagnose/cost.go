package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/functions"
)

// Cost is what something costs that need not hold anybody up: of waste and risk
// it is all there is to say. Nulls are unknown.
type Cost struct {
	RequestsPerSecond float64  `json:"requestsPerSecond"`
	RequestShare      float64  `json:"requestShare"`     // of all requests to the API server, watches left out
	BusyShare         *float64 `json:"busyShare"`        // of the time that the API server was busy with requests, waiting for others left out
	ServerCPUSeconds  *float64 `json:"serverCpuSeconds"` // of the API server, in the load
	ServerCPUShare    *float64 `json:"serverCpuShare"`
	// ServerCPUOf is the component of which ServerCPU is, where that is another one.
	ServerCPUOf string `json:"serverCpuOf,omitempty"`
	// Measured says that ServerCPU is what profiles found; else it is the
	// API server's CPU shared out by the time that requests kept it busy.
	Measured         bool     `json:"measured"`
	ClientCPUSeconds *float64 `json:"clientCpuSeconds"` // of the client itself, where it ran here
}

// share is what findings without a symptom are ranked by.
func (c *Cost) share() float64 {
	if c == nil {
		return 0
	}
	s := c.RequestShare
	if c.BusyShare != nil {
		s = max(s, *c.BusyShare)
	}
	if c.ServerCPUShare != nil {
		s = max(s, *c.ServerCPUShare)
	}
	return s
}

// cpu is all the CPU-seconds that are known of it.
func (c *Cost) cpu() (s float64) {
	if c == nil {
		return 0
	}
	if c.ServerCPUSeconds != nil {
		s += *c.ServerCPUSeconds
	}
	if c.ClientCPUSeconds != nil {
		s += *c.ClientCPUSeconds
	}
	return s
}

// Digits is a number with so many significant digits, and without an exponent.
func Digits(x float64, n int) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', n-1, 64), 64)
	if err != nil { // NaN and the infinities, of which there is no other form
		return fmt.Sprint(x)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// Bytes is a number of bytes with three digits, and the decimal unit that reads
// best: B, kB, MB, GB or TB.
func Bytes(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	k := 0
	for n >= 999.5 && k < len(units)-1 {
		n, k = n/1000, k+1
	}
	return Digits(n, 3) + " " + units[k]
}

// String says it in words.
func (c *Cost) String() string {
	var parts []string
	if c.RequestsPerSecond > 0 {
		text := Digits(c.RequestsPerSecond, 3) + " requests/s"
		if c.RequestShare > 0 {
			text += fmt.Sprintf(", %.0f %% of all requests", 100*c.RequestShare)
		}
		parts = append(parts, text)
	}
	if c.ServerCPUSeconds != nil && c.ServerCPUShare != nil {
		about := "about "
		if c.Measured {
			about = ""
		}
		parts = append(parts, fmt.Sprintf("%s%s CPU-seconds of %s (%.0f %% of its CPU)", about, Digits(*c.ServerCPUSeconds, 2), cmp.Or(c.ServerCPUOf, "the API server"), 100**c.ServerCPUShare))
	}
	if c.ClientCPUSeconds != nil {
		parts = append(parts, Digits(*c.ClientCPUSeconds, 2)+" CPU-seconds of the client")
	}
	if len(parts) == 0 {
		return "nothing that was measured"
	}
	return strings.Join(parts, ", ")
}

// around are the classes of the API server's work that each request passes, whatever
// it asks for.
var around = []string{"TLS and cryptography", "HTTP and gRPC", "authentication and authorization", "priority and fairness", "audit", "log of requests", "tracing"}

// ofEvent is what an event of a watch has of the work around a request: it is written
// only, to a connection that is known.
const ofEvent = 0.2

// aroundEach is the API server's CPU around the handler of a request, in seconds, as
// its profile of the load saw it; 0 without one.
func (v *View) aroundEach() (seconds float64) {
	for _, class := range around {
		s, _ := v.Class(APIServer, class)
		seconds += s.CPUSeconds
	}
	events, _ := v.Increase(APIServer, "apiserver_watch_events_total", nil)
	if n := float64(v.Answered()) + ofEvent*events; n > 0 {
		return seconds / n
	}
	return 0
}

// handlers are the paths of a profile through which requests with one of the verbs come,
// and no others.
var handlers = []struct {
	path  string
	verbs []string
}{
	{functions.PathList, []string{"list"}},
	{"GET", []string{"get"}},
	{"CREATE", []string{"create"}},
	{"PATCH", []string{"patch"}},
	{"UPDATE", []string{"update"}},
	{"DELETE", []string{"delete", "deletecollection"}},
}

// elsewhere is the share of the API server's work, as its profile of the load saw it,
// that was for none of talks for sure: it is in handlers that they do not come to.
func (v *View) elsewhere(talks []Talk) (share float64) {
	none := func(is func(Talk) bool) bool { return !slices.ContainsFunc(talks, is) }
	for _, h := range handlers {
		if none(func(t Talk) bool { return slices.Contains(h.verbs, t.Verb) }) {
			s, _ := v.Work(APIServer, h.path)
			share += s.OfWork
		}
	}
	if none(func(t Talk) bool { return t.Resource == "" }) {
		s, _ := v.Work(APIServer, functions.PathMetrics)
		share += s.OfWork
	}
	return min(1, share)
}

// CostOf is what talks cost. path is the class of work that the API server's
// profile is asked for, where one class is only theirs; "" where none is.
func (v *View) CostOf(talks []Talk, path string) *Cost {
	c := &Cost{}
	n, long, worked := 0, 0, 0.0
	agents := map[string]bool{}
	for _, t := range talks {
		agents[t.Agent] = true
		if t.Long {
			long += t.Count
			continue
		}
		n += t.Count
		worked += t.Worked()
	}
	if v.Span() > 0 {
		c.RequestsPerSecond = float64(n+long) / v.Span()
	}
	if all := v.Answered(); all > 0 {
		c.RequestShare = min(1, float64(n)/float64(all))
	}
	if all := v.WorkedSeconds(); all > 0 && worked > 0 {
		share := min(1, worked/all)
		c.BusyShare = &share
	}
	cpu, ok := v.CPU(APIServer, v.Load)
	if spent, has := v.Work(APIServer, path); path != "" && has {
		c.Measured = true
		c.ServerCPUSeconds, c.ServerCPUShare = &spent.CPUSeconds, &spent.Share
	} else if ok && c.BusyShare != nil {
		// By its share of the time that requests kept the server busy, and no more than
		// that: an idle API server has other work than requests.
		// It does not count what a request costs around its handler, which of a small
		// one is most; and requests that wait for etcd are busy longer than they work.
		s := min(cpu, max(min(cpu**c.BusyShare, worked), v.aroundEach()*float64(n)))
		s = min(s, cpu*(1-v.elsewhere(talks)))
		share := s / max(cpu, s)
		c.ServerCPUSeconds, c.ServerCPUShare = &s, &share
	}
	for agent := range agents {
		program, _, _ := strings.Cut(agent, " ")
		for _, component := range []string{program, "client:" + program} {
			if x, ok := v.CPU(component, v.Load); ok && len(agents) == 1 {
				c.ClientCPUSeconds = &x
			}
		}
	}
	return c
}
