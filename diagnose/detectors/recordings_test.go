package detectors_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/kept"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// most is the size of a recording that is kept.
const most = 200 << 10

// Recordings of real runs keep their diagnosis. Each is a file of
// testdata/recordings with the expected outcome beside it, NAME.want.
func TestRecordings(t *testing.T) {
	update := flag.Lookup("update").Value.String() == "true"
	for _, packed := range recordtest.Kept(t) {
		name := kept.Name(packed)
		t.Run(name, func(t *testing.T) {
			info, err := os.Stat(packed)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > most {
				t.Errorf("%d KiB: a recording that is kept must stay below %d", info.Size()>>10, most>>10)
			}
			rec := recordtest.Open(t, recordtest.Unpack(t, name))
			d, err := diagnose.Run(asked{rec, t}, detectors.All)
			if err != nil {
				t.Fatal(err)
			}
			got := outcome(d)
			file := strings.TrimSuffix(packed, kept.Ext) + ".want"
			if update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// outcome is what must not change: the verdict and what it names, not the
// wording.
func outcome(d *diagnose.Diagnosis) string {
	var b strings.Builder
	fmt.Fprintf(&b, "valid %v\n", d.Valid)
	for _, why := range d.InvalidReasons {
		fmt.Fprintf(&b, "invalid: %s\n", why)
	}
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "found %s: %s, %s, stage %s, %s, %s, explains %.2f\n", f.ID, f.Class, f.Component, f.Stage, f.Resource, f.Grade, f.Explains)
	}
	for _, c := range d.RuledOut {
		fmt.Fprintf(&b, "clear %s\n", c.ID)
	}
	for _, u := range d.NotAssessed {
		fmt.Fprintf(&b, "not assessed %s: %s\n", u.ID, u.Missing)
	}
	if d.Throughput != nil {
		fmt.Fprintf(&b, "throughput %.1f pods/s\n", d.Throughput.Mean)
	}
	for _, s := range d.Stages {
		if s.WaitSeconds != nil {
			fmt.Fprintf(&b, "stage %s %.1f pod-seconds\n", s.Name, *s.WaitSeconds)
		}
	}
	return b.String()
}

// asked checks that a diagnosis reads no metric that kept recordings lack.
type asked struct {
	*record.Recording
	t *testing.T
}

func (a asked) listed(metric string) {
	if !slices.Contains(diagnose.Metrics, metric) {
		a.t.Errorf("a diagnosis reads %s, which is not in diagnose.Metrics", metric)
	}
}

func (a asked) Points(metric string, match map[string]string, w record.Window) ([]record.Series, error) {
	a.listed(metric)
	return a.Recording.Points(metric, match, w)
}

func (a asked) Increase(metric string, match map[string]string, w record.Window) (float64, bool, error) {
	a.listed(metric)
	return a.Recording.Increase(metric, match, w)
}

// Where nothing even tried to create pods, that is what is said: the cause is
// not known, and where to look is. Where the flags tell it, it is known.
func TestNobodyAsks(t *testing.T) {
	for _, c := range []struct {
		name         string
		flags        bool
		asks, caused bool
	}{
		{"no-replicaset-controller", false, false, false},
		{"no-replicaset-controller", true, false, true},
		{"every-create-refused", true, true, true},
	} {
		rec := recordtest.Open(t, recordtest.Unpack(t, c.name))
		d, err := diagnose.Run(told{rec, c.flags}, detectors.All)
		if err != nil {
			t.Fatal(err)
		}
		f := d.Findings[0]
		if got := !strings.Contains(f.Summary, "nobody asked the API server to create one"); got != (c.asks || c.caused) {
			t.Errorf("%s: %s", c.name, f.Summary)
		}
		if got := strings.Contains(f.Advice.Text, "--controllers"); got == c.asks {
			t.Errorf("%s: %s", c.name, f.Advice.Text)
		}
		if got := f.ID == "unexplained"; got == c.caused {
			t.Errorf("%s, flags known %v: %s finds it", c.name, c.flags, f.ID)
		}
	}
}

// Who had a hand in it is said in the first finding's own words, though the cause is
// another's.
func TestNamesWho(t *testing.T) {
	for name, want := range map[string]string{
		"busy-before-the-load":        "own-labeller asked for most: 82 of 83 requests a second",
		"deployments-applied-again":   "Meanwhile own-gitops writes deployments 912 times",
		"nodes-cordoned":              "kubectl wrote to nodes, by 12 requests",
		"nodes-deleted-by-client":     "92 % of the nodes went away during the load. own-autoscaler deleted nodes, by 11 requests",
		"nodes-tainted-noexecute":     "No node failed, and kubectl wrote to nodes 28 times",
		"scheduler-connection-breaks": "its connection to the API server breaks again and again",
		"nodes-said-to-be-sick":       "renew their leases in time, and own-doctor, which is no node, writes their status",
	} {
		d, err := diagnose.Run(recordtest.Open(t, recordtest.Unpack(t, name)), detectors.All)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Findings) == 0 || !strings.Contains(d.Findings[0].Summary, want) {
			t.Errorf("%s: no %q in %+v", name, want, d.Findings)
		}
	}
}

// told is a recording of which the components' flags may be unknown.
type told struct {
	*record.Recording
	flags bool
}

func (r told) Meta() record.Meta {
	m := r.Recording.Meta()
	if r.flags {
		return m
	}
	m.Cluster.Components = slices.Clone(m.Cluster.Components)
	for i := range m.Cluster.Components {
		m.Cluster.Components[i].Args, m.Cluster.Components[i].Flags = nil, nil
	}
	return m
}

// A StatefulSet whose pods are made at once keeps no order, however late they come.
func TestOrderIsSeen(t *testing.T) {
	for _, together := range []bool{false, true} {
		d, err := diagnose.Run(made{recordtest.Open(t, recordtest.Unpack(t, "statefulsets-in-order")), together}, detectors.All)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(d.Findings, func(f diagnose.Finding) bool { return f.ID == "ordered-pods" })
		if got == together {
			t.Errorf("made together %v: found %v", together, got)
		}
	}
}

// made is a recording of which the pods may all have been created when the first was.
type made struct {
	*record.Recording
	together bool
}

func (r made) Pods() ([]record.Pod, error) {
	pods, err := r.Recording.Pods()
	if !r.together || err != nil {
		return pods, err
	}
	// Late all the same, as behind a limit.
	pods = slices.Clone(pods)
	first := map[string]int64{}
	for _, p := range pods {
		if at, ok := first[p.Owner]; p.CreatedMicros != 0 && (!ok || p.CreatedMicros < at) {
			first[p.Owner] = p.CreatedMicros
		}
	}
	for i, p := range pods {
		if p.Owner != "" && p.CreatedMicros != 0 {
			pods[i].CreatedMicros = first[p.Owner]
		}
	}
	return pods, nil
}

// CPU was used where no pod came, but none of it for a pod.
func TestNoPodNoCPUPerPod(t *testing.T) {
	d, err := diagnose.Run(recordtest.Open(t, recordtest.Unpack(t, "every-create-refused")), detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	h := d.Harness
	if h.CPUSeconds == nil || *h.CPUSeconds <= 0 || h.MillisecondsPerPod != nil || len(h.ByProcess) == 0 {
		t.Errorf("%+v", h)
	}
	for _, p := range h.ByProcess {
		if p.MillisecondsPerPod != nil {
			t.Errorf("%s: %v ms for each of no pods", p.Component, *p.MillisecondsPerPod)
		}
	}
}
