package hollow

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster"
)

// childName is the argv[0] as which the test binary plays kubedyno-hollow, so
// that its CPU time is its own.
const childName = "kubedyno-hollow"

// startChild runs the fleet as a process and returns its metrics URL.
func startChild(b testing.TB, conf Config) (url string, stop func()) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = []string{childName}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line, err := json.Marshal(conf)
	if err != nil {
		b.Fatal(err)
	}
	in.Write(append(line, '\n'))
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			b.Fatal(err)
		}
		switch e.Event {
		case "listening":
			url = e.MetricsURL
		case "error":
			b.Fatal(e.Error)
		case "ready":
			go io.Copy(io.Discard, out)
			return url, func() {
				in.Close()
				if err := cmd.Wait(); err != nil {
					b.Error(err)
				}
			}
		}
	}
	b.Fatal("the fleet ended before it was ready")
	return "", nil
}

// BenchmarkPods measures what the fleet costs per pod, from creation to
// Running and through deletion, beside what the control plane costs. Run with
// -benchtime 1000x; absolute numbers are this machine's, ratios travel.
func BenchmarkPods(b *testing.B) {
	for _, withEvents := range []bool{true, false} {
		b.Run(fmt.Sprintf("events=%v", withEvents), func(b *testing.B) {
			cp, _, client := startLab(b, "tuned")
			conf := labConfig(cp, 50)
			conf.Lease, conf.Cleanup, conf.Events, conf.Pods = defaultLease, false, &withEvents, 1000
			url, stop := startChild(b, conf)
			defer stop()
			b.ResetTimer()
			before, planeBefore := scrape(b, url), planeCPU(b, cp)
			createPods(b, client, b.N)
			await(b, url, "kubedyno_hollow_pods_running_total", b.N)
			middle, planeMiddle := scrape(b, url), planeCPU(b, cp)
			report(b, "start", before, middle, planeMiddle-planeBefore)
			if err := client.CoreV1().Pods("default").DeleteCollection(b.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				b.Fatal(err)
			}
			await(b, url, "kubedyno_hollow_pods_deleted_total", b.N)
			report(b, "end", middle, scrape(b, url), planeCPU(b, cp)-planeMiddle)
		})
	}
}

func createPods(b *testing.B, client kubernetes.Interface, n int) {
	var workers sync.WaitGroup
	todo := make(chan int)
	for range 8 {
		workers.Go(func() {
			for i := range todo {
				for {
					_, err := client.CoreV1().Pods("default").Create(b.Context(), pausePod(fmt.Sprintf("p-%d", i)), metav1.CreateOptions{})
					if err == nil || b.Context().Err() != nil {
						break
					}
					time.Sleep(50 * time.Millisecond) // no service account yet
				}
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	workers.Wait()
}

func await(b *testing.B, url, metric string, n int) {
	b.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) { // a scrape costs as much as some pods
		if scrape(b, url)[metric] >= float64(n) {
			return
		}
	}
	b.Fatalf("%s never reached %d", metric, n)
}

func report(b *testing.B, stage string, before, after map[string]float64, plane float64) {
	n := float64(b.N)
	cpu := after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]
	requests := 0.0
	for key, v := range after {
		if strings.HasPrefix(key, "kubedyno_hollow_request_duration_seconds_count") {
			requests += v - before[key]
		}
	}
	b.ReportMetric(1000*cpu/n, stage+"-ms-cpu/pod")
	b.ReportMetric(requests/n, stage+"-requests/pod")
	b.ReportMetric(cpu/plane, stage+"-cpu/control-plane-cpu")
}

// planeCPU is the CPU time of the control plane's processes in seconds.
func planeCPU(b *testing.B, cp *cluster.ControlPlane) (seconds float64) {
	b.Helper()
	const ticks = 100 // USER_HZ, 100 on every Linux that Go supports
	for _, c := range cp.Components {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PID))
		if err != nil {
			b.Fatal(err)
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, f := range fields[11:13] { // utime, stime
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				b.Fatal(err)
			}
			seconds += n / ticks
		}
	}
	return seconds
}
