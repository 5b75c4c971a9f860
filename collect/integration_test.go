package collect_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/logs"
	"github.com/kubedyno/kubedyno/collect/metrics"
	"github.com/kubedyno/kubedyno/collect/objects"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/collect/profile"
	"github.com/kubedyno/kubedyno/collect/requests"
	"github.com/kubedyno/kubedyno/record"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) {
	if code, ok := labtest.Play(os.Args, os.Stdin, os.Stdout, os.Stderr, nil); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

func client(t *testing.T, cp *cluster.ControlPlane) *http.Client {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(cp.ClientCert, cp.ClientKey)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(cp.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots}}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// All collectors against a real control plane: each brings something, none
// reports a gap, and a difference of counters over a phase is exact.
func TestRealControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	l, err := lab.Start(t.Context(), lab.Config{Lab: labtest.Binary(t), StateRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Stop(context.Background()); l.Remove() })
	cp := l.ControlPlane()
	http1 := client(t, cp)

	var mo metrics.Options
	var po profile.Options
	var lo logs.Options
	var co process.Options
	mo.Interval = time.Second
	for _, c := range cp.Components {
		mo.Targets = append(mo.Targets, metrics.Target{Component: c.Name, Instance: c.Instance, URL: c.MetricsURL, Client: http1})
		po.Targets = append(po.Targets, profile.Target{Component: c.Name, Instance: c.Instance, URL: c.PprofURL, Client: http1})
		lo.Files = append(lo.Files, logs.File{Component: c.Name, Path: c.LogFile, FromStart: true})
		co.Components = append(co.Components, process.Component{Name: c.Name, PID: c.PID, Cgroup: c.Cgroup})
	}
	watching, err := cp.RESTConfig("collect")
	if err != nil {
		t.Fatal(err)
	}
	m, pr, ob := metrics.New(mo), profile.New(po), objects.New(objects.Options{Config: watching, Run: "r1"})
	dir := filepath.Join(t.TempDir(), "recording")
	w, err := record.Create(dir, record.Meta{Name: "live"})
	if err != nil {
		t.Fatal(err)
	}
	g := collect.Start(t.Context(), w, process.New(co), logs.New(lo), requests.New(requests.Options{Path: cp.RequestLog, FromStart: true}), m, pr, ob)
	ctx := g.Context()
	if err := ob.Ready(ctx); err != nil {
		t.Fatal(err)
	}

	admin, err := cp.RESTConfig("admin")
	if err != nil {
		t.Fatal(err)
	}
	admin.UserAgent = "kubedyno-load"
	api, err := rest.HTTPClientFor(admin)
	if err != nil {
		t.Fatal(err)
	}
	defer api.CloseIdleConnections()
	// Pods need their namespace's service account.
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		res, err := api.Get(cp.Server + "/api/v1/namespaces/default/serviceaccounts/default")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(until) {
			t.Fatal("no service account", err)
		}
	}

	phase := record.Phase{Name: "steady", Kind: record.PhaseSteady}
	capture, end := context.WithCancel(ctx)
	captured := make(chan error, 1)
	if _, err := m.Now(ctx); err != nil {
		t.Fatal(err)
	}
	phase.Start = time.Now()
	go func() { captured <- pr.Capture(capture, phase.Name, 0) }()
	const pods = 100
	for i := range pods {
		name := fmt.Sprint("p", i)
		op := record.Operation{Phase: phase.Name, Verb: "create", Resource: "pods", Namespace: "default", Name: name, Pods: 1}
		op.DueMicros = time.Now().UnixMicro()
		op.SentMicros = op.DueMicros
		res, err := api.Post(cp.Server+"/api/v1/namespaces/default/pods", "application/json", strings.NewReader(
			`{"metadata":{"name":"`+name+`","labels":{"kubedyno.io/run":"r1","kubedyno.io/phase":"steady"}},"spec":{"containers":[{"name":"c","image":"pause"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		op.DoneMicros, op.Code = time.Now().UnixMicro(), int32(res.StatusCode)
		ob.Submitted(op)
		w.Operation(op)
	}
	if err := ob.Wait(ctx, "steady", objects.Created, pods); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	end()
	if err := <-captured; err != nil {
		t.Error(err)
	}
	if _, err := m.Now(ctx); err != nil {
		t.Error(err)
	}
	phase.End = time.Now()
	if err := pr.Snapshot(ctx, phase.Name); err != nil {
		t.Error(err)
	}
	w.Update(func(m *record.Meta) { m.Phases = append(m.Phases, phase) })
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}

	r, err := record.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	meta := r.Meta()
	for _, o := range meta.Collectors {
		t.Logf("%+v", o)
	}
	for _, g := range meta.Gaps {
		if g.Collector == "process" && g.Subject == "schedstat" {
			continue // a kernel without CONFIG_SCHEDSTATS; the process collector's own tests have one with it
		}
		t.Errorf("gap: %+v", g)
	}
	n, ok, err := r.Increase("apiserver_request_total", map[string]string{"verb": "POST", "resource": "pods", "subresource": ""}, phase.Window())
	if err != nil || !ok || n != pods {
		t.Errorf("the API server counted %v new pods (%v, %v), want exactly %d", n, ok, err, pods)
	}
	seen := map[string]bool{}
	samples, _ := r.Processes()
	for _, s := range samples {
		seen[s.Component] = true
	}
	for _, c := range cp.Components {
		if !seen[c.Name] {
			t.Errorf("no process sample of %s", c.Name)
		}
		if _, ok, err := r.GaugeAt("up", map[string]string{"component": c.Name}, phase.End); !ok || err != nil {
			t.Errorf("no metrics of %s: %v", c.Name, err)
		}
		f, err := r.Log(c.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		text, _ := io.ReadAll(f)
		f.Close()
		if len(text) < 1000 {
			t.Errorf("%d bytes of log of %s", len(text), c.Name)
		}
	}
	kinds := map[string]int{}
	for _, p := range r.Profiles() {
		kinds[p.Kind]++
		if _, err := r.ReadProfile(p); err != nil {
			t.Errorf("%s of %s: %v", p.Kind, p.Component, err)
		}
	}
	if n := len(cp.Components); kinds["cpu"] != n || kinds["heap"] != 2*n || kinds["goroutine"] != 2*n { // both edges
		t.Errorf("profiles: %v", kinds)
	}
	rows, err := r.Pods()
	if err != nil || len(rows) != pods {
		t.Errorf("%d pods, %v", len(rows), err)
	}
	created := map[string]int64{}
	for _, p := range rows {
		created[p.Name] = p.CreatedMicros
		if p.DueMicros == 0 || p.CreatedMicros < p.SentMicros || p.CreatedMicros > p.AckedMicros+1e6 {
			t.Errorf("%+v", p)
		}
	}
	made := 0
	audit, err := r.Requests()
	if err != nil {
		t.Error(err)
	}
	for _, q := range audit {
		if q.UserAgent == "kubedyno-load" && q.Verb == "create" && q.Resource == "pods" && q.Code == 201 {
			made++
			if d := created[q.Name] - q.ReceivedMicros; d < 0 || d > 1e6 {
				t.Errorf("pod %s was seen %d µs after its request", q.Name, d)
			}
		}
	}
	if made != pods {
		t.Errorf("the audit log has %d new pods, want %d, of %d requests", made, pods, len(audit))
	}
}
