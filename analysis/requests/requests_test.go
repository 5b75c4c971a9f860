package requests

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

func TestAgent(t *testing.T) {
	for in, want := range map[string]string{
		"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0123abc/shared-informers":                                        "kube-controller-manager … shared-informers",
		"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/unknown/system:serviceaccount:kube-system:replicaset-controller": "kube-controller-manager … replicaset-controller",
		"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/unknown/kube-controller-manager":                                 "kube-controller-manager",
		"kube-apiserver/v1.36.3 (linux/amd64) kubernetes/unknown":                                                                  "kube-apiserver",
		"kubectl/v1.36.3 (linux/amd64) kubernetes/0123abc":                                                                         "kubectl",
		"Go-http-client/2.0": "Go-http-client",
		"kubedyno-load":      "kubedyno-load",
		"":                   "",
		"/":                  "",
	} {
		if got := Agent(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestAggregate(t *testing.T) {
	a, err := NewAggregator([]string{"userAgent", "verb", "resource", "code"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(200) {
		a.Add(&record.Request{ReceivedMicros: 1000, DoneMicros: 1000 + (i+1)*1000, Verb: "create", Resource: "pods", UserAgent: "a/1 x", Code: 201, ServerMicros: -1, EtcdMicros: -1, RequestBytes: -1, ResponseBytes: -1})
	}
	slow := record.Request{ReceivedMicros: 5, DoneMicros: 2_000_005, Verb: "update", Resource: "pods", Subresource: "status", UserAgent: "b", Code: 409, ServerMicros: 2_000_000, EtcdMicros: 1_500_000, QueueMicros: 250_000, WebhookMicros: 0, RequestBytes: 81, ResponseBytes: 70}
	a.Add(&slow)
	a.Add(&record.Request{ReceivedMicros: 7, Verb: "watch", Resource: "pods", UserAgent: "b", Code: 200, ServerMicros: -1, RequestBytes: -1, ResponseBytes: -1})
	rows := a.Rows("count")
	if len(rows) != 3 || a.PodCreates != 200 || a.Requests != 202 || a.First != 5 || a.Last != 1000 {
		t.Fatalf("%+v, %+v", a, rows)
	}
	r := rows[0]
	if !slices.Equal(r.Key, []string{"a", "create", "pods", "201"}) || r.Count != 200 || r.P50Millis != 100 || r.P99Millis != 198 || r.LongestMillis != 200 || math.Abs(r.Seconds-20.1) > 1e-9 || math.Abs(r.Share-20.1/22.1) > 1e-9 || r.Layered != 0 || r.Sized != 0 || r.Bodies != 0 || r.BodyBytes != 0 {
		t.Errorf("%+v", r)
	}
	r = rows[1]
	if r.Key[2] != "pods/status" || r.Errors != 1 || r.Conflicts != 1 || r.P99Millis != -1 || r.EtcdSeconds != 1.5 || r.QueueSeconds != 0.25 || r.Bytes != 70 || r.Sized != 1 || r.BodyBytes != 81 || r.Bodies != 1 {
		t.Errorf("%+v", r)
	}
	if r = rows[2]; !r.Long || r.Open != 1 || r.Share != 0 || r.P50Millis != -1 {
		t.Errorf("watches come last: %+v", r)
	}
	if rows := a.Rows("errors"); rows[0].Errors != 1 {
		t.Errorf("by errors: %+v", rows[0])
	}
	if _, err := NewAggregator([]string{"verb", "colour"}); err == nil {
		t.Error("no error")
	}
}

// Sums do not depend on how requests are grouped, nor on their order.
func TestSumsHold(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", "b", "a\x00b"})
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.Custom(func(t *rapid.T) record.Request {
			return record.Request{
				ReceivedMicros: rapid.Int64Range(1, 100).Draw(t, "r"), DoneMicros: rapid.Int64Range(0, 200).Draw(t, "d"),
				Verb: rapid.SampledFrom([]string{"get", "watch", "create"}).Draw(t, "v"), Resource: word.Draw(t, "res"), Namespace: word.Draw(t, "ns"),
				User: word.Draw(t, "u"), Code: rapid.SampledFrom([]int32{0, 200, 409, 429}).Draw(t, "c"), ResponseBytes: -1,
			}
		})).Draw(t, "requests")
		columns := rapid.SliceOfDistinct(rapid.SampledFrom(Columns), rapid.ID).Draw(t, "columns")
		sum := func(all []record.Request) (n, errs int64, seconds, share float64, keys [][]string) {
			a, err := NewAggregator(columns)
			if err != nil {
				t.Fatal(err)
			}
			for i := range all {
				a.Add(&all[i])
			}
			for _, r := range a.Rows("time") {
				n, errs, seconds, share = n+r.Count, errs+r.Errors, seconds+r.Seconds, share+r.Share
				keys = append(keys, r.Key)
			}
			return
		}
		n, errs, seconds, share, keys := sum(all)
		var wantErrs int64
		var want float64
		for _, r := range all {
			if r.Code >= 400 {
				wantErrs++
			}
			if r.DoneMicros != 0 {
				want += float64(max(r.DoneMicros-r.ReceivedMicros, 0)) / 1e6
			}
		}
		if n != int64(len(all)) || errs != wantErrs || math.Abs(seconds-want) > 1e-9 || share > 1+1e-9 {
			t.Fatalf("%d of %d, %d errors of %d, %g s of %g, share %g", n, len(all), errs, wantErrs, seconds, want, share)
		}
		back := slices.Clone(all)
		slices.Reverse(back)
		if _, _, _, _, again := sum(back); fmt.Sprint(keys) != fmt.Sprint(again) && !slices.ContainsFunc(all, func(r record.Request) bool { return r.DoneMicros != 0 }) {
			t.Fatalf("%v, then %v", keys, again)
		}
	})
}

func TestLists(t *testing.T) {
	l := NewLists()
	at := int64(1_000_000)
	add := func(agent, verb, uri string, code int32) {
		l.Add(&record.Request{ReceivedMicros: at, DoneMicros: at + 1000, Verb: verb, Resource: "pods", UserAgent: agent, User: "u", Code: code, URI: uri})
		at += 20_000_000
	}
	soon := func() { at -= 19_000_000 }
	// An informer of today: a watch that asks for the state, later resumed, later begun again.
	add("new", "watch", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 200)
	add("new", "watch", "resourceVersion=55&timeout=5m", 200)
	add("new", "watch", "sendInitialEvents=true", 200)
	// One of yesterday: a list, then a watch; twice.
	for range 2 {
		add("old", "list", "limit=500&resourceVersion=0", 200)
		soon()
		add("old", "watch", "resourceVersion=7&watch=true", 200)
	}
	// It names no version, and no watch follows.
	add("poll", "list", "", 200)
	add("poll", "list", "labelSelector=a%3Db", 200)
	add("poll", "list", "resourceVersion=0", 200)
	add("poll", "list", "resourceVersion=9&resourceVersionMatch=Exact", 200)
	add("poll", "list", "resourceVersion=9", 200)
	add("poll", "list", "", 503)
	add("pages", "list", "limit=500", 200)
	add("pages", "list", "limit=500&continue=abc", 200)
	// Another user's watch does not follow.
	l.Add(&record.Request{ReceivedMicros: at, DoneMicros: at + 1, Verb: "list", Resource: "pods", UserAgent: "two", User: "a", URI: "resourceVersion=0"})
	l.Add(&record.Request{ReceivedMicros: at + 2, Verb: "watch", Resource: "pods", UserAgent: "two", User: "b", URI: "resourceVersion=1"})
	l.Add(&record.Request{ReceivedMicros: at + 2, Verb: "get", Resource: "pods", UserAgent: "none"})

	var got []string
	for _, r := range l.Rows() {
		got = append(got, fmt.Sprintf("%s %s informers=%d relists=%d quorum=%d cached=%d exact=%d pages=%d limited=%d resumed=%d failed=%d", r.Agent, r.Verdict, r.Informers, r.Relists, r.Quorum, r.Cached, r.Exact, r.Pages, r.Limited, r.Resumed, r.Failed))
	}
	want := []string{
		"poll direct informers=0 relists=0 quorum=2 cached=2 exact=1 pages=0 limited=0 resumed=0 failed=1",
		"pages direct informers=0 relists=0 quorum=1 cached=0 exact=0 pages=1 limited=1 resumed=0 failed=0",
		"two direct informers=0 relists=0 quorum=0 cached=1 exact=0 pages=0 limited=0 resumed=1 failed=0",
		"new informer informers=1 relists=1 quorum=0 cached=0 exact=0 pages=0 limited=0 resumed=1 failed=0",
		"old informer informers=1 relists=1 quorum=0 cached=0 exact=0 pages=0 limited=2 resumed=0 failed=0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What came before the window is not counted, and tells a relist from a first list.
func TestListsFrom(t *testing.T) {
	l := NewLists()
	l.From = 100
	for _, at := range []int64{10, 200} {
		l.Add(&record.Request{ReceivedMicros: at, DoneMicros: at + 50, Verb: "watch", Resource: "pods", UserAgent: "a", URI: "sendInitialEvents=true"})
	}
	l.Add(&record.Request{ReceivedMicros: 10, Verb: "list", Resource: "nodes", UserAgent: "a"})
	if rows := l.Rows(); len(rows) != 1 || rows[0].Informers != 0 || rows[0].Relists != 1 {
		t.Errorf("%+v", rows)
	}
}

// Two informers that watch at the same time are two; one that begins again
// after its watch ended is a relist.
func TestSeveralInformers(t *testing.T) {
	l := NewLists()
	for _, w := range [][2]int64{{10, 500}, {20, 0}, {600, 0}} {
		l.Add(&record.Request{ReceivedMicros: w[0], DoneMicros: w[1], Verb: "watch", Resource: "configmaps", UserAgent: "a", URI: "sendInitialEvents=true"})
	}
	if rows := l.Rows(); len(rows) != 1 || rows[0].Informers != 2 || rows[0].Relists != 1 {
		t.Errorf("%+v", rows)
	}
}

// metrics are counters that grew by the value, under "name{operation,resource}".
type metrics map[string]float64

func key(metric string, m map[string]string) string {
	return metric + "{" + cmp.Or(m["operation"], m["grpc_method"]) + "," + cmp.Or(m["resource"], m["type"]) + "}"
}

func (m metrics) Increase(metric string, match map[string]string, _ record.Window) (float64, bool, error) {
	v, ok := m[key(metric, match)]
	return v, ok, nil
}

func (m metrics) Points(metric string, match map[string]string, _ record.Window) (all []record.Series, _ error) {
	for k := range m {
		labels, ok := strings.CutPrefix(k, metric+"{")
		if !ok {
			continue
		}
		op, resource, _ := strings.Cut(strings.TrimSuffix(labels, "}"), ",")
		l := map[string]string{"operation": op, "resource": resource}
		if metric == "grpc_server_handled_total" {
			l = map[string]string{"grpc_service": "etcdserverpb.KV", "grpc_method": op}
		}
		if strings.HasPrefix(resource, "*") {
			l = map[string]string{"operation": op, "type": resource}
		}
		all = append(all, record.Series{Labels: l})
	}
	return all, nil
}

func TestEtcd(t *testing.T) {
	load := NewEtcdLoad()
	for _, r := range []record.Request{
		{Verb: "patch", Resource: "pods", Subresource: "status", UserAgent: "kubelet", Code: 200},
		{Verb: "patch", Resource: "pods", Subresource: "status", UserAgent: "kubelet", Code: 200},
		{Verb: "update", Resource: "pods", UserAgent: "kubelet", Code: 200},
		{Verb: "create", Resource: "pods", Subresource: "binding", UserAgent: "scheduler", Code: 201},
		{Verb: "create", Resource: "pods", UserAgent: "rs", Code: 403}, // refused before etcd
		{Verb: "list", Resource: "pods", UserAgent: "x", Code: 200},    // from the cache
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", UserAgent: "kubelet", Code: 201},
		{Verb: "create", Resource: "events", Group: "events.k8s.io", UserAgent: "scheduler", Code: 201},
		{Verb: "get", Resource: "leases", Group: "coordination.k8s.io", UserAgent: "x", Code: 404},
	} {
		load.Add(&r)
	}
	m := metrics{
		"etcd_request_duration_seconds_count{update,pods}": 8, "etcd_request_duration_seconds_sum{update,pods}": 4,
		"etcd_request_duration_seconds_count{list,pods}": 3, "etcd_request_duration_seconds_sum{list,pods}": 0.3,
		"etcd_request_duration_seconds_count{create,events}": 2, "etcd_request_duration_seconds_sum{create,events}": 0.2,
		"etcd_request_duration_seconds_count{get,*core.Pod}": 1, // an older API server
		"etcd_request_duration_seconds_count{delete,pods}":   0,
		"etcd_mvcc_put_total{,}":                             9,
		"grpc_server_handled_total{Txn,}":                    7,
	}
	rows, err := Etcd(m, record.Window{}, load)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%s %s %g/%g %q %d %.2f %g/%g", r.Operation, r.KeyPrefix, r.Operations, r.Seconds, r.Agent, r.Requests, r.Share, r.AttributedOperations, r.AttributedSeconds))
	}
	want := []string{
		`update /registry/pods/ 8/4 "kubelet" 3 0.75 6/3`,
		`update /registry/pods/ 8/4 "scheduler" 1 0.25 2/1`,
		`list /registry/pods/ 3/0.3 "" 0 0.00 3/0.3`,
		`create /registry/events/ 2/0.2 "scheduler" 1 1.00 2/0.2`,
		`get /registry/pods/ 1/-1 "" 0 0.00 1/-1`,
		`put  9/-1 "" 0 0.00 9/-1`,
		`etcdserverpb.KV/Txn  7/-1 "" 0 0.00 7/-1`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := Etcd(metrics{}, record.Window{}, load); !errors.Is(err, record.ErrMissing) {
		t.Errorf("%v", err)
	}
	if _, err := AuditLosses(metrics{}, record.Window{}); !errors.Is(err, record.ErrMissing) {
		t.Errorf("%v", err)
	}
	l, err := AuditLosses(metrics{"apiserver_audit_event_total{,}": 10}, record.Window{})
	if err != nil || l != (Losses{10, 0}) {
		t.Errorf("%+v %v", l, err)
	}
}

// counters are series with their increase.
type counters []record.Series

func (c counters) Points(metric string, _ map[string]string, _ record.Window) (all []record.Series, _ error) {
	for _, s := range c {
		if s.Labels["__name__"] == metric {
			all = append(all, s)
		}
	}
	return all, nil
}

func (c counters) Increase(metric string, match map[string]string, w record.Window) (sum float64, ok bool, _ error) {
	all, _ := c.Points(metric, match, w)
next:
	for _, s := range all {
		for k, v := range match {
			if s.Labels[k] != v {
				continue next
			}
		}
		sum, ok = sum+s.Points[0].Value, true
	}
	return sum, ok, nil
}

func TestMetrics(t *testing.T) {
	series := func(metric, verb, resource, subresource, code string, v float64) record.Series {
		return record.Series{Labels: map[string]string{"__name__": metric, "verb": verb, "group": "", "resource": resource, "subresource": subresource, "code": code}, Points: []record.Point{{Value: v}}}
	}
	rows, err := Metrics(counters{
		series(totalMetric, "WATCH", "pods", "", "200", 4),
		series(totalMetric, "PUT", "pods", "status", "200", 7),
		series(totalMetric, "PUT", "pods", "status", "409", 2),
		series(totalMetric, "PUT", "pods", "status", "429", 1),
		series(totalMetric, "LIST", "nodes", "", "200", 0), // not in this window
		series(totalMetric, "POST", "pods", "", "201", 3),
		series(durationMetric, "PUT", "pods", "status", "", 2.5),
	}, record.Window{})
	if err != nil {
		t.Fatal(err)
	}
	want := []MetricRow{
		{"update", "", "pods", "status", 10, 3, 2, 1, 2.5},
		{"create", "", "pods", "", 3, 0, 0, 0, -1},
		{"watch", "", "pods", "", 4, 0, 0, 0, -1},
	}
	if !slices.Equal(rows, want) {
		t.Errorf("got  %+v\nwant %+v", rows, want)
	}
	if _, err := Metrics(counters{}, record.Window{}); !errors.Is(err, record.ErrMissing) {
		t.Errorf("%v", err)
	}
}

func TestTraces(t *testing.T) {
	rec := recordtest.Make(t, record.Meta{Name: "x", Started: time.Date(2026, 11, 21, 9, 10, 0, 0, time.UTC)}, func(w *record.Writer) {
		recordtest.Log(t, w, "kube-apiserver", "I1121 09:10:20.500000    1983 trace.go:236] Trace[12]: \"Create\" accept:application/json, */*,audit-id:x,client:127.0.0.1,api-group:,api-version:v1,name:,subresource:,namespace:n,protocol:HTTP/2.0,resource:pods,scope:resource,url:/api/v1/namespaces/n/pods,user-agent:a/v1 (linux/amd64) k/x,verb:POST (21-Nov-2026 09:10:19.688) (total time: 812ms):\nTrace[12]: [\"Create etcd3\" key:/pods/n/p 500ms (09:10:19.700)\nTrace[12]:  ---\"Txn call succeeded\" 490ms (09:10:20.190)]\nTrace[12]: [812.1ms] [812.1ms] END\nI1121 09:10:21.000000 1 a.go:1] x\n")
	})
	var got []record.Request
	if err := EachTrace(rec, func(r *record.Request) error { got = append(got, *r); return nil }); err != nil {
		t.Fatal(err)
	}
	want := record.Request{ReceivedMicros: 1795252219688000, DoneMicros: 1795252220500000, Verb: "create", Resource: "pods", Namespace: "n", UserAgent: "a/v1 (linux/amd64) k/x", ServerMicros: 812000, EtcdMicros: 500000, QueueMicros: -1, AuthenticationMicros: -1, AuthorizationMicros: -1, RequestBytes: -1, ResponseBytes: -1, Source: "trace"}
	if len(got) != 1 || got[0] != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// event is one line of an audit log, as a lab of 50 nodes writes it: shapes,
// lengths and the mix of agents are those of a recorded density run.
func event(b []byte, i int) []byte {
	type kind struct{ agent, user, verb, path, object, code string }
	kinds := [...]kind{
		{"kubedyno-hollow", "system:node:node-%d", "create", "/api/v1/namespaces/load/events", `"resource":"events","namespace":"load","name":"load-0-7bff7b9f4-%d","apiVersion":"v1"`, "201"},
		{"kubedyno-hollow", "system:node:node-%d", "patch", "/api/v1/namespaces/load/pods/load-0-%d/status", `"resource":"pods","namespace":"load","name":"load-0-7bff7b9f4-%d","apiVersion":"v1","subresource":"status"`, "200"},
		{"kubedyno-hollow", "system:node:node-%d", "get", "/api/v1/namespaces/load/pods/load-0-%d", `"resource":"pods","namespace":"load","name":"load-0-7bff7b9f4-%d","apiVersion":"v1"`, "200"},
		{"kube-scheduler/v1.36.3 (linux/amd64) kubernetes/0123abc/scheduler", "system:kube-scheduler", "create", "/api/v1/namespaces/load/pods/load-0-%d/binding", `"resource":"pods","namespace":"load","name":"load-0-7bff7b9f4-%d","apiVersion":"v1","subresource":"binding"`, "201"},
		{"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0123abc/system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccount:kube-system:replicaset-controller", "create", "/api/v1/namespaces/load/pods", `"resource":"pods","namespace":"load","name":"load-0-7bff7b9f4-%d","apiVersion":"v1"`, "201"},
		{"kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0123abc/leader-election", "system:kube-controller-manager", "update", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x?timeout=5s", `"resource":"leases","namespace":"kube-system","name":"x","apiGroup":"coordination.k8s.io","apiVersion":"v1"`, "409"},
	}
	k := kinds[i%7%len(kinds)]
	n := strconv.Itoa(i)
	put := func(parts ...string) {
		for _, p := range parts {
			b = append(b, p...)
		}
	}
	number := func(s string) string { return strings.Replace(s, "%d", n, 1) }
	t := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(i) * 200 * time.Microsecond)
	put(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"b6f81b0a-7dec-41d0-a765-`, fmt.Sprintf("%012d", i), `","stage":"ResponseComplete","requestURI":"`, number(k.path), `","verb":"`, k.verb,
		`","user":{"username":"`, strings.Replace(k.user, "%d", strconv.Itoa(i%50), 1), `","groups":["system:nodes","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=0d7b6e8f`, n, `"]}},"sourceIPs":["127.0.0.1"],"userAgent":"`, k.agent,
		`","objectRef":{`, number(k.object), `},"responseStatus":{"metadata":{},"code":`, k.code, `},"requestReceivedTimestamp":"`)
	b = t.AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	put(`","stageTimestamp":"`)
	b = t.Add(time.Duration(3+i%9)*time.Millisecond).AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	put(`","annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by ClusterRoleBinding \"x\" of ClusterRole \"x\" to User \"y\""}}`, "\n")
	return b
}

func auditLog(t testing.TB, n int) string {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "audit-*.log")
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	var line []byte
	for i := range n {
		line = event(line[:0], i)
		if _, err := w.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// lines is how many the comparison with jq reads: $KUBEDYNO_AUDIT_LINES, since
// jq takes half a minute for a million.
func lines(t testing.TB) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("KUBEDYNO_AUDIT_LINES"), "50000"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A log is counted as `jq | sort | uniq -c` counts it, at least five times as
// fast, measured side by side.
func TestAgainstJQ(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of jq")
	}
	for _, tool := range []string{"jq", "sort", "uniq", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	path := auditLog(t, lines(t))
	began := time.Now()
	a, err := NewAggregator([]string{"user", "verb", "resource", "code"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := EachInFile(path, func(r *record.Request) error { a.Add(r); return nil }); err != nil {
		t.Fatal(err)
	}
	ours := map[string]int64{}
	for _, r := range a.Rows("count") {
		ours[strings.Join(r.Key, " ")] = r.Count
	}
	took := time.Since(began)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)

	began = time.Now()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `jq -r 'select(.stage=="ResponseComplete") | [.user.username,.verb,([.objectRef.resource,.objectRef.subresource]|map(select(.))|join("/")),.responseStatus.code]|map(tostring)|join(" ")' "$1" | sort | uniq -c`, "sh", path)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := time.Since(began)
	n := 0
	for line := range strings.Lines(string(out)) {
		count, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		if got := fmt.Sprint(ours[key]); got != count {
			t.Errorf("%s: %s, jq counts %s", key, got, count)
		}
		n++
	}
	if n != len(ours) || n == 0 {
		t.Errorf("%d groups, jq has %d", len(ours), n)
	}
	ratio := theirs.Seconds() / took.Seconds()
	t.Logf("%d lines: %.2f s, %.2f µs a line; jq, sort, uniq: %.2f s, %.1f times as long; %d MiB of memory from the system", lines(t), took.Seconds(), took.Seconds()*1e6/float64(lines(t)), theirs.Seconds(), ratio, m.Sys>>20)
	if ratio < 5 && !raceEnabled {
		t.Errorf("jq takes only %.1f times as long", ratio)
	}
}

func TestLogs(t *testing.T) {
	var text bytes.Buffer
	for i := range 10 {
		text.Write(event(nil, i))
	}
	text.WriteString("{broken\n\n" + strings.Repeat("x", 2*maxLine) + "\n")
	text.Write(bytes.TrimSuffix(event(nil, 10), []byte("\n"))) // without its end
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(text.Bytes())
	z.Close()
	for name, in := range map[string]io.Reader{"plain": &text, "gzip": &packed} {
		n := 0
		stats, err := EachInLog(in, time.Now(), func(*record.Request) error { n++; return nil })
		if err != nil || n != 11 || stats.Requests != 11 || stats.Bad != 2 || stats.Lines != 13 || stats.Source != "audit" {
			t.Errorf("%s: %d, %+v, %v", name, n, stats, err)
		}
	}
	http := "I0102 03:04:05.000000 1 a.go:1] Version\nI0102 03:04:05.100000    1501 httplog.go:134] \"HTTP\" verb=\"GET\" URI=\"/api/v1/nodes/x\" latency=\"2ms\" userAgent=\"k\" audit-ID=\"x\" srcIP=\"1\" resp=200\n"
	stats, err := EachInLog(strings.NewReader(http), time.Now(), func(r *record.Request) error {
		if r.Resource != "nodes" || r.Source != "log" {
			t.Errorf("%+v", r)
		}
		return nil
	})
	if err != nil || stats.Requests != 1 {
		t.Errorf("%+v %v", stats, err)
	}
	for _, in := range []string{"", "hello\n", "{}\n", "\x1f\x8b"} {
		if _, err := EachInLog(strings.NewReader(in), time.Now(), func(*record.Request) error { return nil }); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
	enough := errors.New("enough")
	if _, err := EachInLog(bytes.NewReader(event(nil, 1)), time.Now(), func(*record.Request) error { return enough }); err != enough {
		t.Errorf("%v", err)
	}
	if _, err := EachInFile(filepath.Join(t.TempDir(), "no"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// A line of 1 GiB is passed over.
func TestHugeLine(t *testing.T) {
	in := io.MultiReader(bytes.NewReader(event(nil, 1)), io.LimitReader(zeros{}, 1<<30), strings.NewReader("\n"), bytes.NewReader(event(nil, 2)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stats, err := EachInLog(in, time.Now(), func(*record.Request) error { return nil })
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; err != nil || stats.Requests != 2 || stats.Bad != 1 || n > 64<<20 {
		t.Errorf("%+v, %v, %d bytes allocated", stats, err, n)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A million objects by name do not fill the memory.
func TestManyGroups(t *testing.T) {
	a, err := NewAggregator([]string{"name"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxGroups + 1000 {
		a.Add(&record.Request{Verb: "get", Name: strconv.Itoa(i), DoneMicros: 1})
	}
	rows := a.Rows("count")
	if len(rows) != maxGroups+1 || rows[0].Key[0] != Others || rows[0].Count != 1000 {
		t.Errorf("%d rows, first %+v", len(rows), rows[0])
	}
}

func FuzzEachInLog(f *testing.F) {
	f.Add(event(nil, 1))
	f.Add([]byte("I0102 03:04:05.100000    1501 httplog.go:134] \"HTTP\" verb=\"LIST\" URI=\"/api/v1/nodes?limit=5\" latency=\"2ms\" resp=200\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, _ := NewAggregator(Columns)
		l, e := NewLists(), NewEtcdLoad()
		n := int64(0)
		stats, err := EachInLog(bytes.NewReader(data), time.Unix(1e9, 0), func(r *record.Request) error {
			a.Add(r)
			l.Add(r)
			e.Add(r)
			n++
			return nil
		})
		if n != stats.Requests || err == nil && n == 0 {
			t.Errorf("%d of %d, %v", n, stats.Requests, err)
		}
		a.Rows("time")
		l.Rows()
	})
}

func BenchmarkAggregate(b *testing.B) {
	path := auditLog(b, 100_000)
	for b.Loop() {
		a, _ := NewAggregator([]string{"userAgent", "verb", "resource"})
		if _, err := EachInFile(path, func(r *record.Request) error { a.Add(r); return nil }); err != nil {
			b.Fatal(err)
		}
		a.Rows("time")
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/100_000*1e6, "µs/event")
}
