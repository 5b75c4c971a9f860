package anonymise

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// large is a recording of many pods on many nodes, with the log lines and
// requests that they make.
func large(b *testing.B, dir string, pods int) (bytes int64) {
	b.Helper()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w, err := record.Create(dir, record.Meta{Name: "density", Started: began})
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	suffix := func(n int) string {
		s := make([]byte, n)
		for i := range s {
			s[i] = "bcdfghjklmnpqrstvwxz2456789"[r.IntN(27)]
		}
		return string(s)
	}
	log, err := w.LogFile("kube-scheduler")
	if err != nil {
		b.Fatal(err)
	}
	us := began.UnixMicro()
	for i := range pods {
		owner := fmt.Sprintf("shop-%d", i%50)
		name := owner + "-6bc7d9f8c5-" + suffix(5)
		uid := fmt.Sprintf("9f1c2d3e-4b5a-4c6d-8e7f-%012x", r.Uint64N(1<<48))
		node := fmt.Sprintf("worker-%d.dc3.acme-corp.lan", r.IntN(500))
		at := us + int64(i)*1000
		w.Pod(record.Pod{Namespace: "payments-prod", Name: name, UID: uid, Owner: "Deployment/" + owner, Node: node, CreatedMicros: at, BoundMicros: at + 500, RunningMicros: at + 900})
		for j := range 12 {
			w.Request(record.Request{ReceivedMicros: at + int64(j), DoneMicros: at + int64(j) + 400, Verb: "patch", Resource: "pods", Subresource: "status", Namespace: "payments-prod", Name: name,
				User: "system:node:" + node, UserAgent: "kubelet/v1.36.3 (linux/amd64) kubernetes/0c1a23b", Code: 200})
		}
		w.Event(record.Event{TimeMicros: at, Type: "Normal", Reason: "Scheduled", Reporter: "default-scheduler", Kind: "Pod", Namespace: "payments-prod", Name: name,
			Message: "Successfully assigned payments-prod/" + name + " to " + node, Count: 1})
		fmt.Fprintf(log, "I0102 03:04:05.%06d       1 schedule_one.go:314] \"Successfully bound pod to node\" pod=\"payments-prod/%s\" node=%q evaluatedNodes=500 feasibleNodes=500\n", i%1000000, name, node)
	}
	for i := range 300 {
		for j := range 2000 {
			w.AppendSample("shop_requests_total", map[string]string{"component": "kube-apiserver", "code": fmt.Sprint(j), "node": fmt.Sprintf("worker-%d.dc3.acme-corp.lan", j)}, began.Add(time.Duration(i)*time.Second), float64(i*j))
		}
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		b.Fatal(err)
	}
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// 50,000 pods are a recording of some 30 MB.
func BenchmarkCopy50000(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "r")
	b.SetBytes(large(b, dir, 50_000))
	rec := recordtest.Open(b, dir)
	for i := 0; b.Loop(); i++ {
		res, err := Copy(b.Context(), rec, filepath.Join(b.TempDir(), fmt.Sprint(i)), Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(res.Count()), "names")
	}
}

func BenchmarkFree(b *testing.B) {
	n := newNames(nil)
	for i := range 10_000 {
		n.collect("pod", fmt.Sprintf("checkout-6bc7d9f8c5-x2x%d", i))
	}
	n.assign()
	b.SetBytes(int64(len(logLines[0])))
	for b.Loop() {
		n.free(logLines[0])
	}
}
