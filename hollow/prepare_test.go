package hollow

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// planning is a node whose timers nobody fires but the test.
type planning struct {
	*node
	t0 time.Time
}

func newPlanning(t *testing.T, change func(*Config)) *planning {
	t.Helper()
	conf := Config{Kubeconfig: "x", Nodes: 1, StartDelay: Delay{Distribution: "constant", Median: 1}}
	change(&conf)
	conf.setDefaults()
	f := &Fleet{conf: conf, metrics: newMetrics(), timers: newTimers(nil)}
	n := newNode(f, 0)
	n.sending = true // events stay where the test finds them
	return &planning{n, time.Unix(1000, 0)}
}

func (n *planning) pod(name string, images ...string) *pod {
	object := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	for i, image := range images {
		object.Spec.Containers = append(object.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Image: image})
	}
	p := &pod{name: name, uid: name, shape: newShape(object), is: bound()}
	p.is = p.is.pending(p.shape, 1, 0, "")
	return p
}

// due takes all timers, in order: "p1 sandbox 0.6".
func (n *planning) due() string {
	what := map[timerKind]string{diskDue: "disk", sandboxDue: "sandbox", startDue: "start", pullDue: "pull"}
	var all []string
	for _, next := range n.fleet.timers.heap {
		who := next.image
		if next.pod != nil {
			who = next.pod.name
		}
		all = append(all, fmt.Sprintf("%.1f %s %s", next.at.Sub(n.t0).Seconds(), what[next.what], who))
	}
	n.fleet.timers.heap = nil
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (n *planning) expect(t *testing.T, when, want string) {
	t.Helper()
	if got := n.due(); got != want {
		t.Errorf("%s:\n got %s\nwant %s", when, got, want)
	}
}

// clocked checks what a histogram with a kubelet's name has counted.
func (n *planning) clocked(t *testing.T, name string, count uint64, seconds float64) {
	t.Helper()
	families, err := n.fleet.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != count || math.Abs(h.GetSampleSum()-seconds) > 1e-6 {
			t.Errorf("%s: %d in %g s, want %d in %g s", name, h.GetSampleCount(), h.GetSampleSum(), count, seconds)
		}
		return
	}
	t.Errorf("%s is not exported", name)
}

func TestPodsStartTogether(t *testing.T) {
	n := newPlanning(t, func(*Config) {})
	for _, name := range []string{"a", "b"} {
		n.planStart(n.pod(name, "x"), n.t0)
	}
	n.expect(t, "without models", "0.6 sandbox a, 0.6 sandbox b, 1.0 start a, 1.0 start b")
	n.clocked(t, "kubelet_run_podsandbox_duration_seconds", 2, 1.2)
}

func TestStartsAreLimited(t *testing.T) {
	n := newPlanning(t, func(c *Config) { c.Starts = 2 })
	pods := map[string]*pod{}
	for _, name := range []string{"a", "b", "c", "d"} {
		pods[name] = n.pod(name, "x")
		n.planStart(pods[name], n.t0)
	}
	n.expect(t, "two at a time", "0.6 sandbox a, 0.6 sandbox b, 1.0 start a, 1.0 start b")
	pods["c"].deleting = true // while it waits
	n.started(pods["a"])
	n.started(pods["a"]) // a restart begins nothing
	if n.starting != 2 || len(n.waiting) != 0 || !pods["d"].starting || pods["c"].starting {
		t.Errorf("after a has started: %d start, %d wait, d %v, c %v", n.starting, len(n.waiting), pods["d"].starting, pods["c"].starting)
	}
	n.due()
	n.started(pods["b"])
	n.started(pods["d"])
	if n.starting != 0 {
		t.Errorf("%d start at the end", n.starting)
	}
}

func TestDiskServesOneAtATime(t *testing.T) {
	n := newPlanning(t, func(c *Config) { c.Disk = Delay{Distribution: "constant", Median: 2} })
	a, b := n.pod("a", "x"), n.pod("b", "x")
	n.planStart(a, n.t0)
	n.planStart(b, n.t0.Add(500*time.Millisecond))
	n.expect(t, "one after the other", "2.0 disk a, 4.0 disk b")
	n.live(a, diskDue, n.t0.Add(2*time.Second))
	n.expect(t, "then its own delay", "2.6 sandbox a, 3.0 start a")
	n.planStart(n.pod("c", "x"), n.t0.Add(10*time.Second))
	n.expect(t, "a disk at rest begins at once", "12.0 disk c")
}

func TestNetworkPlugin(t *testing.T) {
	for _, serial := range []bool{false, true} {
		n := newPlanning(t, func(c *Config) {
			c.Network = Network{Delay: Delay{Distribution: "constant", Median: 2}, Serial: serial}
		})
		a, b := n.pod("a", "x"), n.pod("b", "x")
		n.planStart(a, n.t0)
		n.planStart(b, n.t0)
		n.expect(t, "sandboxes first", "0.6 sandbox a, 0.6 sandbox b")
		at := n.t0.Add(600 * time.Millisecond)
		if n.live(a, sandboxDue, at) || n.live(b, sandboxDue, at) {
			t.Error("a status before the network is there")
		}
		want := "2.6 sandbox a, 2.6 sandbox b"
		if serial {
			want = "2.6 sandbox a, 4.6 sandbox b"
		}
		n.expect(t, fmt.Sprint("the plugin, serial: ", serial), want)
		if !n.live(a, sandboxDue, n.t0.Add(2600*time.Millisecond)) {
			t.Error("no status when the network is there")
		}
		n.expect(t, "then containers", "3.0 start a")
		n.clocked(t, "kubelet_run_podsandbox_duration_seconds", 1, 2.6)
	}
}

func TestImagesArePulledOnce(t *testing.T) {
	n := newPlanning(t, func(c *Config) { c.Images.Pull = Delay{Distribution: "constant", Median: 5} })
	a, b, c := n.pod("a", "x"), n.pod("b", "x"), n.pod("c", "y", "x")
	at := n.t0.Add(time.Second)
	for _, p := range []*pod{a, b, c} {
		n.live(p, sandboxDue, at)
	}
	n.expect(t, "one pull at a time", "6.0 pull x")
	if a.pulls != 1 || b.pulls != 1 || c.pulls != 2 {
		t.Errorf("pods wait for %d, %d, %d images", a.pulls, b.pulls, c.pulls)
	}
	n.pulled("x", n.t0.Add(6*time.Second))
	n.expect(t, "those that have all go on, the next pull begins", "11.0 pull y, 6.0 start a, 6.0 start b")
	b.gone = true
	n.pulled("y", n.t0.Add(11*time.Second))
	n.expect(t, "the last", "11.0 start c")
	n.clocked(t, "kubelet_image_pull_duration_seconds", 4, 3*5+10) // x for three pods, y for one, which waited for x
	d := n.pod("d", "y")
	n.live(d, sandboxDue, n.t0.Add(20*time.Second))
	n.expect(t, "what is there is not pulled again", "20.0 start d")

	n.startEvents(a, &a.shape.containers[0], n.t0.Add(7*time.Second))
	n.startEvents(d, &d.shape.containers[0], n.t0.Add(20*time.Second))
	var said []string
	for _, e := range n.events {
		if e.reason == "Pulling" || e.reason == "Pulled" {
			said = append(said, e.name+" "+e.message)
		}
	}
	want := []string{
		`a Pulling image "x"`, `b Pulling image "x"`, `c Pulling image "y"`, `c Pulling image "x"`,
		`a Successfully pulled image "x" in 5s (6s including waiting). Image size: 52428800 bytes.`,
		`d Container image "y" already present on machine and can be accessed by the pod`,
	}
	if !slices.Equal(said, want) {
		t.Errorf("events:\n got %q\nwant %q", said, want)
	}
}
