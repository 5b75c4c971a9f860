package requests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	create = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/pods?fieldManager=x","verb":"create","user":{"username":"kubedyno:load","groups":["system:authenticated","a\"b}"],"extra":{"x":["y"]}},"sourceIPs":["127.0.0.1"],"userAgent":"kubedyno-load","objectRef":{"resource":"pods","namespace":"default","name":"p-1","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"2026-01-02T03:04:05.123456Z","stageTimestamp":"2026-01-02T03:04:05.223456Z","annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: \"x\""}}`
	list   = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a2","stage":"ResponseComplete","requestURI":"/apis/apps/v1/replicasets?limit=500\u0026resourceVersion=0","verb":"list","user":{"username":"system:kube-controller-manager"},"userAgent":"kube-controller-manager/v1.36.3","objectRef":{"resource":"replicasets","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.123456Z","stageTimestamp":"2026-01-02T03:04:05.223456Z"}`
	health = `{"kind":"Event","auditID":"a3","stage":"ResponseComplete","requestURI":"/readyz?verbose","verb":"get","user":{"username":"u"},"objectRef":null,"responseStatus":null,"requestReceivedTimestamp":"2026-01-02T03:04:05Z","stageTimestamp":"2026-01-02T04:04:05.5+01:00"}`
	watch  = `{"kind":"Event","auditID":"w%d","stage":"%s","requestURI":"/api/v1/pods?watch=1","verb":"watch","user":{"username":"n\u00e9\ud83d\ude00"},"userAgent":"kubelet","objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:06.000001Z"}`
)

type recorder struct {
	mu   sync.Mutex
	rows []record.Request
	gaps []record.Gap

	observed int
}

func (r *recorder) Observes(tables ...record.Table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed += len(tables)
}

func (r *recorder) Request(q record.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, q)
}

func (r *recorder) Gap(g record.Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps, g)
}

func TestCollect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	put := func(lines ...string) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.WriteString(strings.Join(lines, ""))
	}
	put(create, "\n") // before the run
	c := New(Options{Path: path, Quiet: 300 * time.Millisecond})
	var r recorder
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.collect(ctx, &r) }()
	put(list, "\n", "{garbage\n", fmt.Sprintf(watch, 1, "ResponseStarted"), "\n", fmt.Sprintf(watch, 2, "ResponseStarted"), "\n", fmt.Sprintf(watch, 1, "ResponseComplete"), "\n")
	put(health[:40])
	time.Sleep(100 * time.Millisecond)
	put(health[40:], "\n")
	cancel()
	time.Sleep(150 * time.Millisecond)
	put(strings.Replace(create, "ResponseComplete", "Panic", 1), "\n") // flushed late
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range r.rows {
		got = append(got, fmt.Sprintf("%s %s done=%v", x.Verb, x.Resource, x.DoneMicros != 0))
	}
	want := "list replicasets done=true; watch pods done=true; get  done=true; create pods done=true; watch pods done=false"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("rows:\n got %s\nwant %s", s, want)
	}
	if len(r.gaps) != 1 || !strings.Contains(r.gaps[0].Reason, "1 of 7 lines") {
		t.Errorf("gaps: %+v", r.gaps)
	}
	if a := c.Account(); a.Samples != 5 || !strings.Contains(a.Note, "1 requests still open") || !strings.Contains(a.Note, "1 requests panicked") {
		t.Errorf("account: %+v", a)
	}
}

// A lab's log of requests is called so, and says itself what it could not write.
func TestLogOfRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "requests.log")
	sized := strings.TrimSuffix(list, "}") + `,"annotations":{"kubedyno.io/response-bytes":"345"}}`
	if err := os.WriteFile(path, []byte(sized+"\n"+`{"kind":"Lost","lines":5}`+"\n"+sized+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := New(Options{Path: path, FromStart: true, Quiet: 50 * time.Millisecond})
	var r recorder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.collect(ctx, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 2 || len(r.gaps) != 1 || !strings.Contains(r.gaps[0].Reason, "could not write 5 lines") {
		t.Errorf("%d rows, gaps %+v", len(r.rows), r.gaps)
	}
	if a := c.Account(); !strings.Contains(a.Note, "MB of log of requests") {
		t.Errorf("account: %+v", a)
	}
}

// A log that never becomes quiet is read to the end of the run, not longer.
func TestBusyLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := New(Options{Path: path, Quiet: time.Minute, Patience: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
			f.WriteString(strings.ReplaceAll(create, "2026-01-02T03:04:05.223456Z", now) + "\n")
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	began := time.Now()
	var r recorder
	if err := c.collect(ctx, &r); err != nil {
		t.Fatal(err)
	}
	close(stop)
	writer.Wait()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestNotSupported(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "cannot be reached"},
		{Options{Reason: "no audit log on GKE"}, "no audit log on GKE"},
		{Options{Path: filepath.Join(t.TempDir(), "no"), Quiet: time.Millisecond}, "there is no audit log"},
	} {
		var r recorder
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := New(c.o).collect(ctx, &r)
		if !errors.Is(err, collect.ErrNotSupported) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// Tailing 200,000 events, file and all.
func BenchmarkFollow(b *testing.B) {
	path := filepath.Join(b.TempDir(), "audit.log")
	const n = 200_000
	if err := os.WriteFile(path, bytes.Repeat([]byte(create+"\n"), n), 0o600); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c := New(Options{Path: path, FromStart: true, Quiet: time.Nanosecond})
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		var r discard
		if err := c.collect(ctx, &r); err != nil || r.n != n {
			b.Fatal(err, r.n)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/n*1e6, "µs/event")
}

type discard struct{ n int }

func (d *discard) Observes(...record.Table) {}
func (d *discard) Request(record.Request)   { d.n++ }
func (d *discard) Gap(record.Gap)           {}
