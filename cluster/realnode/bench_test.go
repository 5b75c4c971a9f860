package realnode

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/hollow"
)

// batch is how many pods live at the same time: few enough for a real node on
// two cores not to be the one that is measured.
const batch = 20

// BenchmarkHollowAgainstReal measures the factors of docs/fidelity.md: what a
// pod's life costs, on a hollow and on a real node, for the same control plane.
// Both nodes stand in one lab, and one round is a batch of pods on each, in
// turns. The idle cost of all is measured before each batch and taken off.
//
//	go test ./cluster/realnode -run '^$' -bench . -benchtime 7x
func BenchmarkHollowAgainstReal(b *testing.B) {
	needNode(b)
	cp, client := startLab(b, nil)
	meters := map[string]*meter{}
	through := func(name string) string {
		m, server := newMeter(b, cp.Server)
		meters[name] = m
		return server
	}
	cfg := nodeConfig(b, cp, "real-0")
	cfg.Server = through("real-0")
	startNode(b, cfg)
	server := through("hollow-0")
	startHollow(b, cp, func(c *hollow.Config) { c.Server = server })

	names := []string{"real-0", "hollow-0"}
	rounds := map[string][]cost{}
	lives(b, cp, client, "real-0", meters["real-0"]) // the first of all pays for caches
	lives(b, cp, client, "hollow-0", meters["hollow-0"])
	b.ResetTimer()
	for b.Loop() {
		for _, name := range names {
			rounds[name] = append(rounds[name], lives(b, cp, client, name, meters[name]))
		}
		slices.Reverse(names)
	}
	for i := range costNames {
		var ratios []float64
		for r := range rounds["real-0"] {
			ratios = append(ratios, rounds["hollow-0"][r][i]/rounds["real-0"][r][i])
		}
		of := func(name string) (all []float64) {
			for _, c := range rounds[name] {
				all = append(all, c[i])
			}
			slices.Sort(all)
			return all
		}
		slices.Sort(ratios)
		b.ReportMetric(median(of("real-0")), "real-"+costNames[i]+"/pod")
		b.ReportMetric(median(of("hollow-0")), "hollow-"+costNames[i]+"/pod")
		b.ReportMetric(median(ratios), "hollow÷real-"+costNames[i])
		b.Logf("%s: hollow÷real %.2f, median of %.2f; real %.2f, hollow %.2f", costNames[i], median(ratios), ratios, of("real-0"), of("hollow-0"))
	}
	b.ReportMetric(0, "ns/op")
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// A cost is what one pod's life costs on the average of a batch.
type cost [4]float64

var costNames = [4]string{"requests", "watches", "bytes", "control-plane-ms"}

// lives takes a batch of pods through their lives on one node.
func lives(b *testing.B, cp *cluster.ControlPlane, client kubernetes.Interface, node string, m *meter) (c cost) {
	b.Helper()
	const still = 5 * time.Second
	time.Sleep(2 * time.Second) // the log of requests of what was before
	idle := controlPlaneCPU(b, cp)
	idleBytes := m.bytes.Load()
	time.Sleep(still)
	idle = (controlPlaneCPU(b, cp) - idle) / still.Seconds()
	idlePerSecond := float64(m.bytes.Load()-idleBytes) / still.Seconds()

	about := func() (requests, watches float64) {
		for _, e := range asked(b, cp.RequestLog, node) {
			switch e.ObjectRef.Resource {
			case "pods", "events", "configmaps", "secrets", "serviceaccounts":
				requests++
				if e.Verb == "watch" {
					watches++
				}
			}
		}
		return requests, watches
	}
	r0, w0 := about()
	began, cpu, moved := time.Now(), controlPlaneCPU(b, cp), m.bytes.Load()
	for i := range batch {
		pod := pausePod(fmt.Sprintf("b-%d", i))
		pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
		createPod(b, client, pod)
	}
	count := func(is func(*v1.Pod) bool) int {
		list, err := client.CoreV1().Pods("default").List(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for i := range list.Items {
			if is(&list.Items[i]) {
				n++
			}
		}
		return n
	}
	patiently := func(what string, f func() bool) {
		for end := time.Now().Add(3 * time.Minute); !f(); time.Sleep(time.Second) {
			if time.Now().After(end) {
				b.Fatalf("not after 3 minutes: %s", what)
			}
		}
	}
	patiently("all are ready", func() bool { return count(isReady) == batch })
	for i := range batch {
		if err := client.CoreV1().Pods("default").Delete(b.Context(), fmt.Sprintf("b-%d", i), metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	patiently("all are gone", func() bool { return count(func(*v1.Pod) bool { return true }) == 0 })
	time.Sleep(2 * time.Second) // late events
	took := time.Since(began).Seconds()
	r1, w1 := about()
	return cost{
		(r1 - r0) / batch, (w1 - w0) / batch,
		(float64(m.bytes.Load()-moved) - idlePerSecond*took) / batch,
		(controlPlaneCPU(b, cp) - cpu - idle*took) / batch * 1000,
	}
}

// controlPlaneCPU is the CPU time of all components, in seconds.
func controlPlaneCPU(b *testing.B, cp *cluster.ControlPlane) (sum float64) {
	b.Helper()
	for _, c := range cp.Components {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PID))
		if err != nil {
			b.Fatal(err)
		}
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		for _, i := range []int{11, 12} { // utime, stime
			ticks, err := strconv.ParseFloat(string(f[i]), 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += ticks / 100
		}
	}
	return sum
}

// A meter passes connections on to the API server and counts their bytes, as
// they are on the wire.
type meter struct{ bytes atomic.Int64 }

func newMeter(b *testing.B, server string) (*meter, string) {
	b.Helper()
	u, err := url.Parse(server)
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	m := &meter{}
	go forward(l, func() (net.Conn, error) {
		conn, err := net.Dial("tcp", u.Host)
		return &metered{conn, m}, err
	})
	return m, "https://" + l.Addr().String()
}

type metered struct {
	net.Conn
	m *meter
}

func (c *metered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.m.bytes.Add(int64(n))
	return n, err
}

func (c *metered) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.m.bytes.Add(int64(n))
	return n, err
}
