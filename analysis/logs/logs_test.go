package logs

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

var update = flag.Bool("update", false, "rewrite the expectations")

// started is when the recorded run of testdata began.
var started = time.Date(2026, 11, 21, 9, 10, 10, 0, time.UTC)

// recording writes logs into a recording and opens it.
func recording(t testing.TB, logs map[string]string) *record.Recording {
	t.Helper()
	return recordtest.Make(t, record.Meta{Name: "test", Started: started}, func(w *record.Writer) {
		for name, text := range logs {
			recordtest.Log(t, w, name, text)
		}
	})
}

func describe(a *Analysis) string {
	var b strings.Builder
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return fmt.Sprintf("%.6f", t.Sub(started).Seconds())
	}
	for _, l := range a.Logs {
		fmt.Fprintf(&b, "log %s: %d lines, %d entries, %s to %s\n", l.Component, l.Lines, l.Entries, at(l.First), at(l.Last))
	}
	for _, k := range a.Kinds {
		fmt.Fprintf(&b, "kind %s of %s: %d, %.3f s, longest %.3f s\n", k.Kind, k.Component, k.Count, k.Seconds, k.MaxSeconds)
	}
	for _, e := range a.Events {
		fmt.Fprintf(&b, "event %s %s:%d %s %.6f %s %q\n", at(e.Time), e.Component, e.Line, e.Kind, e.Seconds, e.Verb, e.Object)
	}
	for _, t := range a.Templates {
		fmt.Fprintf(&b, "template %d %s %c %s: %s\n", t.Count, t.Component, max(t.Severity, '-'), t.Source, t.Text)
	}
	return b.String()
}

// Logs of a stock run, cut: what they say does not change.
func TestStockGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.log")
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	logs := map[string]string{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		logs[strings.TrimSuffix(filepath.Base(name), ".log")] = string(data)
	}
	a, err := Analyze(recording(t, logs), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := describe(a)
	const golden = "testdata/stock.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// One line of each kind, worded as the sources word it: of Kubernetes v1.36.3
// (k8s.io/… v0.36.3), etcd 3.6.8, and of older client-go where that differs.
func TestKinds(t *testing.T) {
	const head = `I1121 09:10:20.500000    1983 a.go:1] `
	const zap = `{"level":"warn","ts":"2026-11-21T09:10:20.500000Z","caller":"a.go:1","msg":`
	for _, c := range []struct{ name, in, want string }{
		// client-go rest/request.go:683,688
		{"throttled", head + `"Waited before sending request" delay="1.004859061s" reason="client-side throttling, not priority and fairness" verb="POST" URL="https://127.0.0.1:1/api/v1/namespaces/n/pods?x=1"`,
			`client-throttled 1.004859 1 POST "/api/v1/namespaces/n/pods"`},
		// client-go v0.30 rest/request.go: klog.V(3).Infof("Waited for %v due to %s, request: %s:%s")
		{"throttled, 1.18 to 1.30", head + `Waited for 1.19733s due to client-side throttling, not priority and fairness, request: GET:https://10.96.0.1:443/apis/apps/v1?timeout=32s`,
			`client-throttled 1.197330 1 GET "/apis/apps/v1"`},
		{"throttled, before 1.18", head + `Throttling request took 192.2ms, request: GET:https://10.0.0.1:443/api/v1/namespaces/default/persistentvolumeclaims/c`,
			`client-throttled 0.192200 1 GET "/api/v1/namespaces/default/persistentvolumeclaims/c"`},
		// client-go rest/with_retry.go:325-336
		{"retry", head + `"Waited before sending request" delay="1.5s" reason="retries: 1, retry-after: 1s - retry-reason: due to server-side throttling, FlowSchema UID: \"x\"" verb="GET" URL="https://a/b"`,
			`retry-wait 1.500000 1 GET "/b"`},
		// apimachinery api/errors: NewConflict; apiserver registry/generic/registry/store.go:263
		{"conflict", `E1121 09:10:20.500000    1983 replica_set.go:640] "Unhandled Error" err="sync \"n/web\" failed with Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please apply your changes to the latest version and try again" logger="UnhandledError"`,
			`conflict -1.000000 1  "deployments.apps web"`},
		{"quota", `E1121 09:10:20.500000    1983 replica_set.go:640] "Unhandled Error" err="sync \"n/web\" failed with pods \"web-x\" is forbidden: exceeded quota: team, requested: pods=1, used: pods=120, limited: pods=120" logger="UnhandledError"`,
			`create-refused -1.000000 1  "exceeded quota: team, requested: pods=1, used: pods=120, limited: pods=120"`},
		{"webhook", `E1121 09:10:20.500000    1983 replica_set.go:640] "Unhandled Error" err="sync \"n/web\" failed with admission webhook \"w.example.com\" denied the request: no" logger="UnhandledError"`,
			`create-refused -1.000000 1  "admission webhook \"w.example.com\" denied the request: no"`},
		{"webhook without an answer", `E1121 09:10:20.500000    1983 replica_set.go:640] "Unhandled Error" err="sync \"n/web\" failed with Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: an error on the server (\"\") has prevented the request from succeeding" logger="UnhandledError"`,
			`create-refused -1.000000 1  "failed calling webhook \"w.example.com\": failed to call webhook: an error on the server (\"\") has prevented the request from succeeding"`},
		{"no right to create", `E1121 09:10:20.500000    1983 replica_set.go:640] "Unhandled Error" err="sync \"n/web\" failed with pods is forbidden: User \"system:serviceaccount:kube-system:replicaset-controller\" cannot create resource \"pods\" in API group \"\" in the namespace \"n\"" logger="UnhandledError"`,
			`create-refused -1.000000 1  "User \"system:serviceaccount:kube-system:replicaset-controller\" cannot create resource \"pods\" in API group \"\" in the namespace \"n\""`},
		{"not valid", `E1121 09:10:20.500000    1983 replica_set.go:640] "Unhandled Error" err="sync \"n/web\" failed with Pod \"web-x\" is invalid: spec.containers[0].volumeMounts[0].name: Not found: \"kube-api-access-bbnv2\"" logger="UnhandledError"`,
			`create-refused -1.000000 1  "is invalid: spec.containers[0].volumeMounts[0].name: Not found: \"…\""`},
		{"mutating policy", `E1121 09:10:20.500000    1983 replica_set.go:640] "Unhandled Error" err="sync \"n/web\" failed with policy 'pool' with binding 'all' denied request: error applying patch: invalid ApplyConfiguration" logger="UnhandledError"`,
			`create-refused -1.000000 1  "policy 'pool' with binding 'all' denied request: error applying patch: invalid ApplyConfiguration"`},
		{"conflict in plain text", head + `error syncing: Operation cannot be fulfilled on nodes "n1": the object has been modified; please apply your changes to the latest version and try again`,
			`conflict -1.000000 1  "nodes n1"`},
		// kubernetes pkg/controller/util/consistency/consistency.go:48
		{"stale", `E1121 09:10:20.500000    1983 replica_set.go:640] "Unhandled Error" err="sync \"n/web\" failed with read version: 643 is not as new as written version: 673 for group resource replicasets.apps" logger="UnhandledError"`,
			`stale-cache -1.000000 1  "n/web"`},
		// k8s.io/utils trace/trace.go
		{"slow request", head + "Trace[12]: \"Create\" accept:application/json, */*,audit-id:x,client:127.0.0.1,api-group:,name:,namespace:n,resource:pods,url:/api/v1/namespaces/n/pods,user-agent:a/v1 (linux/amd64) k/x,verb:POST (21-Nov-2026 09:10:19.688) (total time: 812ms):\nTrace[12]: [\"Create etcd3\" key:/pods/n/p 500ms (09:10:19.700)\nTrace[12]:  ---\"Txn call succeeded\" 490ms (09:10:20.190)]\nTrace[12]: ---\"Write to database call succeeded\" len:100 300ms (09:10:20.490)\nTrace[12]: [812.1ms] [812.1ms] END",
			`slow-request 0.812000 1 POST "Create n pods /api/v1/namespaces/n/pods" [Create etcd3 500ms nested][Txn call succeeded 490ms][Write to database call succeeded 300ms]`},
		// client-go tools/leaderelection/leaderelection.go:272,304,454,497
		{"lease lost", head + `"Failed to renew lease" lock="kube-system/kube-scheduler" err="context deadline exceeded"`, `lease-lost -1.000000 1  "kube-system/kube-scheduler"`},
		{"no more files, in plain text", `http: Accept error: accept tcp 127.0.0.1:6443: accept4: too many open files; retrying in 5ms`, `files-out -1.000000 1  ""`},
		{"no more files", head + `"Failed to watch" err="dial tcp 127.0.0.1:6443: socket: too many open files"`, `files-out -1.000000 1  ""`},
		{"lease slow", head + `"Failed to update lease optimistically, falling back to slow path" lock="kube-system/x" err="y"`, `lease-slow -1.000000 1  "kube-system/x"`},
		{"lease", head + `"Successfully acquired lease" lock="kube-system/x"`, `lease-acquired -1.000000 1  "kube-system/x"`},
		// kubernetes cmd/kube-controller-manager/app/controllermanager.go:413
		{"lease lost, said by the component", `E1121 09:10:20.500000    1983 controllermanager.go:413] "leaderelection lost/stopped"`, `lease-lost -1.000000 1  ""`},
		// etcd server etcdserver/txn/util.go:93-101
		{"slow apply", zap + `"apply request took too long","took":"250.5ms","expected-duration":"100ms","prefix":"read-only range ","request":"key:\"/registry/pods/\" range_end:\"/registry/pods0\" ","response":"range_response_count:0 size:8"}`,
			`etcd-slow-apply 0.250500 1 read-only range "/registry/pods/"`},
		// etcd server storage/wal/wal.go:846
		{"slow fsync", zap + `"slow fdatasync","took":"1.5s","expected-duration":"1s"}`, `etcd-slow-fsync 1.500000 1  ""`},
		// etcd server etcdserver/api/v3rpc/interceptor.go:202
		{"slow unary", zap + `"request stats","start time":"2026-11-21T09:10:20.1Z","time spent":"412ms","remote":"127.0.0.1:1","response type":"/etcdserverpb.KV/Txn","request count":1,"request size":10,"response count":0,"response size":4,"request content":"compare:<key:\"/registry/leases/a\" >"}`,
			`etcd-slow-request 0.412000 1 /etcdserverpb.KV/Txn "/registry/leases/a"`},
		// etcd pkg traceutil/trace.go:180
		{"etcd trace", strings.Replace(zap, "warn", "info", 1) + `"trace[1] range","detail":"{range_begin:/registry/pods/; range_end:/registry/pods0; }","duration":"110ms","start":"2026-11-21T09:10:20.1Z","end":"2026-11-21T09:10:20.2Z","steps":["trace[1] 'x'  (duration: 100ms)"],"step_count":1}`,
			`etcd-trace 0.110000 1 range "/registry/pods/"`},
		// etcd server etcdserver/raft.go:388
		{"heartbeat", zap + `"leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk","to":"ab","heartbeat-interval":"100ms","expected-duration":"200ms","exceeded-duration":"31ms"}`,
			`etcd-heartbeat 0.031000 1  "ab"`},
		// raft node.go:370,376
		{"leader", zap + `"raft.node: cbba elected leader cbba at term 2"}`, `etcd-leader -1.000000 1  ""`},
		{"no leader", zap + `"raft.node: cbba lost leader cbba at term 2"}`, `etcd-leader-lost -1.000000 1  ""`},
		{"compaction", zap + `"finished scheduled compaction","compact-revision":5,"took":"12ms"}`, `etcd-compaction 0.012000 1  ""`},
		// etcd server embed/config_logging.go:204
		{"rejected", zap + `"rejected connection on client endpoint","remote-addr":"127.0.0.1:5","server-name":"","error":"EOF"}`, `tls-handshake -1.000000 1  "127.0.0.1:5"`},
		// net/http server.go
		{"handshake", head + `http: TLS handshake error from 127.0.0.1:4: EOF`, `tls-handshake -1.000000 1  ""`},
		// apiserver audit/metrics.go:105
		{"audit", `E1121 09:10:20.500000    1983 metrics.go:110] Error in audit plugin 'buffered' affecting 7 audit events: audit backend shut down` + "\nImpacted events:\nx AUDIT: id=1", `audit-dropped -1.000000 7  ""`},
		// apiserver util/flowcontrol/fairqueuing/queueset/queueset.go:338
		{"rejected by fairness", head + `QS(workload-low): rejecting request "service-accounts" x y due to queue full`, `apf-rejected -1.000000 1  ""`},
		// apiserver storage/cacher/cache_watcher.go:203,510, cacher.go:881
		{"slow watcher", head + `Forcing pods watcher close due to unresponsiveness: /pods/. len(c.input) = 10, len(c.result) = 10, graceful = false`, `slow-watcher -1.000000 1  "pods"`},
		{"slow init", head + `processing 14040 initEvents of pods (x) took 993.532539ms`, `watch-init-slow 0.993533 1  "pods"`},
		{"backlog", head + `cacher (events): 600 objects queued in incoming channel.`, `watch-cache-backlog -1.000000 1  "events"`},
		// apiserver server/filters/wrap.go:53,57
		{"timeout", `E1121 09:10:20.500000    1983 wrap.go:53] "Timeout or abort while handling" method="GET" URI="/api/v1/pods" auditID="x"`, `timeout -1.000000 1 GET "/api/v1/pods"`},
		{"deadline", `E1121 09:10:20.500000    1983 x.go:53] "Failed" err="Get \"https://a/b\": context deadline exceeded"`, `timeout -1.000000 1  ""`},
		{"panic", `E1121 09:10:20.500000    1983 wrap.go:57] "apiserver panic'd" method="GET" URI="/x"`, `panic -1.000000 1  ""`},
		{"crash", "panic: runtime error: index out of range\n\ngoroutine 1 [running]:\nmain.main()", `panic -1.000000 1  ""`},
		{"fatal", `F1121 09:10:20.500000    1983 x.go:1] cannot go on`, `panic -1.000000 1  ""`},
		{"memory", `runtime: out of memory: cannot allocate 4194304-byte block`, `oom -1.000000 1  ""`},
		{"start", head + `"Golang settings" GOGC="" GOMAXPROCS="" GOTRACEBACK=""`, `start -1.000000 1  ""`},
		{"klog JSON", `{"ts":1795252220500.5,"caller":"a.go:1","msg":"Waited before sending request","v":0,"delay":"2s","reason":"client-side throttling, not priority and fairness","verb":"GET","URL":"https://a/b"}`,
			`client-throttled 2.000000 1 GET "/b"`},
		{"given up by the client", head + `x: authentication handshake failed: context canceled`, "none"},
		{"no event", head + `"Caches are synced"`, "none"},
	} {
		got := "none"
		_, err := Read(strings.NewReader(c.in), "x", Clock{Started: started}, func(e *Entry) error {
			ev, ok := e.Event()
			if !ok {
				return nil
			}
			if got != "none" {
				t.Errorf("%s: a second event %+v", c.name, ev)
			}
			got = fmt.Sprintf("%s %.6f %d %s %q", ev.Kind, ev.Seconds, ev.Count, ev.Verb, ev.Object)
			if ev.Trace != nil {
				got += " "
				for _, s := range ev.Trace.Steps {
					nested := ""
					if s.Nested {
						nested = " nested"
					}
					got += fmt.Sprintf("[%s %v%s]", s.Name, s.Took, nested)
				}
			}
			if e.Format != FormatPlain && !ev.Time.Truncate(time.Second).Equal(time.Date(2026, 11, 21, 9, 10, 20, 0, time.UTC)) {
				t.Errorf("%s: at %v", c.name, ev.Time)
			}
			return nil
		})
		if err != nil || got != c.want {
			t.Errorf("%s:\n got %s (%v)\nwant %s", c.name, got, err, c.want)
		}
	}
	for _, k := range Kinds {
		if k.Doc == "" {
			t.Errorf("%s has no description", k.Kind)
		}
	}
}

// At -v=3 a wait over a second is logged twice in a row; it was one wait.
func TestThrottledTwice(t *testing.T) {
	line := `I1121 09:10:%02d.500000    1983 request.go:683] "Waited before sending request" delay="%ss" reason="client-side throttling, not priority and fairness" verb="POST" URL="https://a/b"` + "\n"
	text := fmt.Sprintf(line, 20, "1.5") + fmt.Sprintf(line, 20, "1.5") + fmt.Sprintf(line, 21, "1.25") + fmt.Sprintf(line, 22, "1.5")
	a, err := Analyze(recording(t, map[string]string{"x": text}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Kinds) != 1 || a.Kinds[0].Count != 3 || a.Kinds[0].Seconds != 4.25 {
		t.Errorf("%+v", a.Kinds)
	}
	w := record.Window{Start: started.Add(11 * time.Second), End: started.Add(12 * time.Second)}
	if k := a.In(w); len(k) != 1 || k[0].Count != 1 || k[0].Seconds != 1.25 || k[0].Rate != 1 {
		t.Errorf("in the window: %+v", k)
	}
	b, err := Analyze(recording(t, map[string]string{"x": text}), Options{Window: w})
	if err != nil || len(b.Events) != 1 {
		t.Errorf("%+v, %v", b, err)
	}
}

// klog has no year and no zone.
func TestClock(t *testing.T) {
	for _, c := range []struct{ name, line, started, ended, want string }{
		{"UTC", "I1231 23:59:59.000000 1 a.go:1] x", "2026-12-31T23:59:00Z", "2027-01-01T00:10:00Z", "2026-12-31T23:59:59Z"},
		{"next year", "I0101 00:00:01.000000 1 a.go:1] x", "2026-12-31T23:59:00Z", "2027-01-01T00:10:00Z", "2027-01-01T00:00:01Z"},
		{"before the year", "I1231 23:59:59.000000 1 a.go:1] x", "2027-01-01T00:00:01Z", "2027-01-01T00:10:00Z", "2026-12-31T23:59:59Z"},
		{"east", "I0701 14:30:05.000000 1 a.go:1] x", "2026-07-01T09:00:00Z", "2026-07-01T09:10:00Z", "2026-07-01T09:00:05Z"},
		{"west", "I0701 02:00:05.000000 1 a.go:1] x", "2026-07-01T09:00:00Z", "2026-07-01T09:10:00Z", "2026-07-01T09:00:05Z"},
		{"leap day", "I0229 02:00:05.000000 1 a.go:1] x", "2028-02-29T02:00:00Z", "2028-02-29T02:10:00Z", "2028-02-29T02:00:05Z"},
	} {
		start, _ := time.Parse(time.RFC3339, c.started)
		end, _ := time.Parse(time.RFC3339, c.ended)
		var got string
		_, err := Read(strings.NewReader(c.line), "x", Clock{Started: start, Ended: end}, func(e *Entry) error {
			got = e.Time.UTC().Format(time.RFC3339)
			return nil
		})
		if err != nil || got != c.want {
			t.Errorf("%s: %s (%v), want %s", c.name, got, err, c.want)
		}
	}
}

func TestEntries(t *testing.T) {
	in := "I1121 09:10:20.500000    1983 a.go:1] \"Body\" a=\"x\" text=<\n\tone\n\t\"two\"\n > b=[\"p q\" {}] c=5\n" +
		"goroutine trace line\r\n" +
		`{"level":"error","ts":"2026-11-21T09:10:20.5Z","caller":"b.go:2","msg":"m","n":[1,{"x":"y"}],"stacktrace":"s"}` + "\n" +
		"\n" + `{"not":"a log"}` + "\nplain"
	var got []string
	stats, err := Read(strings.NewReader(in), "x", Clock{Started: started}, func(e *Entry) error {
		got = append(got, fmt.Sprintf("%s %c %d@%d %q %q more=%q", e.Format, max(e.Severity, '-'), e.Line, e.Offset, e.Message, e.Fields, e.More))
		if !bytes.HasPrefix([]byte(in[e.Offset:]), e.Text) {
			t.Errorf("line %d: offset %d is not of %q", e.Line, e.Offset, e.Text)
		}
		return nil
	})
	want := []string{
		`klog I 1@0 "Body" [{"a" "x"} {"text" "one\n\"two\""} {"b" "[\"p q\" {}]"} {"c" "5"}] more="\tone\n\t\"two\"\n > b=[\"p q\" {}] c=5\ngoroutine trace line\n{\"level\":\"error\",\"ts\":\"2026-11-21T09:10:20.5Z\",\"caller\":\"b.go:2\",\"msg\":\"m\",\"n\":[1,{\"x\":\"y\"}],\"stacktrace\":\"s\"}\n\n{\"not\":\"a log\"}\nplain"`,
	}
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], want[0][:150]) {
		t.Errorf("got %s\nwant %s (%v)", strings.Join(got, "\n"), want[0], err)
	}
	if stats.Lines != 9 || stats.Bytes != int64(len(in)) {
		t.Errorf("%+v", stats)
	}
}

// A server's complaints have no time, and are not the rest of whatever entry is before them.
func TestServerLines(t *testing.T) {
	const complaint = "http: Accept error: accept tcp 127.0.0.1:6443: accept4: too many open files; retrying in 5ms\n"
	rec := recording(t, map[string]string{"a": complaint + "I1121 09:10:20.500000 1 a.go:1] x\n" + complaint + complaint + "I1121 09:10:30.500000 1 a.go:1] y\n" + complaint})
	for _, c := range []struct {
		w    record.Window
		want int64
	}{
		{record.Window{}, 4},
		{record.Window{Start: started.Add(5 * time.Second), End: started.Add(15 * time.Second)}, 2},
	} {
		a, err := Analyze(rec, Options{Window: c.w})
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Kinds) != 1 || a.Kinds[0].KindOf.Kind != "files-out" || a.Kinds[0].Count != c.want {
			t.Errorf("%v: %+v", c.w, a.Kinds)
		}
	}
}

// What the server rests between two complaints is the time between them.
func TestServerLinesAdvance(t *testing.T) {
	complaint := func(rest string) string {
		return "http: Accept error: accept tcp 127.0.0.1:6443: accept4: too many open files; retrying in " + rest + "\n"
	}
	text := "I1121 09:10:20.500000 1 a.go:1] x\n"
	for range 8 {
		text += complaint("1s")
	}
	rec := recording(t, map[string]string{"a": text + complaint("soon") + "I1121 09:10:29.000000 1 a.go:1] y\n" + complaint("5ms")})
	for _, c := range []struct {
		from, to time.Duration // after 09:10:20
		want     int64
	}{
		{0, time.Second, 1},
		{2 * time.Second, 5 * time.Second, 3},
		{8 * time.Second, 8900 * time.Millisecond, 1}, // that which says nothing it understands
		{8900 * time.Millisecond, time.Minute, 1},
	} {
		at := started.Truncate(time.Minute).Add(20 * time.Second)
		a, err := Analyze(rec, Options{Window: record.Window{Start: at.Add(c.from), End: at.Add(c.to)}})
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Kinds) != 1 || a.Kinds[0].Count != c.want {
			t.Errorf("%v to %v: %+v, want %d", c.from, c.to, a.Kinds, c.want)
		}
	}
}

func TestGrep(t *testing.T) {
	rec := recording(t, map[string]string{
		"a": "I1121 09:10:20.500000 1 a.go:1] first needle\n\tneedle below\nI1121 09:10:30.500000 1 a.go:1] needle late\n",
		"b": "a needle without a time\n",
	})
	find := func(o Options) (out []string) {
		err := Grep(rec, o, regexp.MustCompile("needle"), func(m Match) error {
			out = append(out, fmt.Sprintf("%s:%d %v", m.Component, m.Line, m.Time.IsZero()))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := strings.Join(find(Options{}), ", "); got != "a:1 false, a:2 false, a:3 false, b:1 true" {
		t.Error(got)
	}
	w := record.Window{Start: started.Add(5 * time.Second), End: started.Add(15 * time.Second)}
	if got := strings.Join(find(Options{Window: w}), ", "); got != "a:1 false, a:2 false" {
		t.Errorf("window: %s", got)
	}
	if got := strings.Join(find(Options{Components: []string{"b"}}), ", "); got != "b:1 true" {
		t.Error(got)
	}
	if _, err := Analyze(rec, Options{Components: []string{"c"}}); err == nil || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("%v", err)
	}
	if _, err := Analyze(recording(t, nil), Options{}); err == nil {
		t.Error("no logs are no error")
	}
}

// endless yields a pattern until n bytes are read, without holding them.
type endless struct {
	pattern []byte
	n, at   int64
}

func (r *endless) Read(b []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), r.n)]
	for i := 0; i < len(b); {
		m := copy(b[i:], r.pattern[r.at%int64(len(r.pattern)):])
		i += m
		r.at += int64(m)
	}
	r.n -= int64(len(b))
	return len(b), nil
}

// heap is what is alive, after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A line of 1 GiB is cut and counted, and costs no memory.
func TestHugeLine(t *testing.T) {
	const size = 1 << 30
	in := io.MultiReader(
		strings.NewReader("I1121 09:10:20.500000 1 a.go:1] before\n"),
		&endless{pattern: []byte(strings.Repeat("\x00\xff\x1b[31mtrace[key=\"", 1000)), n: size},
		strings.NewReader("\nI1121 09:10:21.500000 1 a.go:1] \"Golang settings\"\n"))
	a := analyzer{clock: Clock{Started: started}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := a.read(in, "x"); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	got := a.finish(1)
	if s := got.Logs[0]; s.Long != 1 || s.Lines != 3 || s.Bytes < size || len(got.Events) != 1 || got.Events[0].Offset < size {
		t.Errorf("%+v, %+v", s, got.Events)
	}
}

// A million lines that have nothing in common fill no memory: templates are
// bounded, and what is beyond the bound is counted.
func TestDistinctLines(t *testing.T) {
	const n = 1_000_000
	word := func(i int) string { // no two alike, and no digits to mask
		var b []byte
		for i = i*2654435761%(1<<31) + 1; i > 0; i /= 23 {
			b = append(b, byte('a'+i%23))
		}
		return string(b)
	}
	i := 0
	in := readerFunc(func(b []byte) (int, error) {
		if i == n {
			return 0, io.EOF
		}
		i++
		return copy(b, word(i)+" "+word(i+n)+" "+word(i+2*n)+" "+word(i+3*n)+"\n"), nil
	})
	base := heap()
	a := analyzer{clock: Clock{Started: started}}
	if err := a.read(in, "x"); err != nil {
		t.Fatal(err)
	}
	if grown := heap() - base; grown > 32<<20 {
		t.Errorf("%d bytes are held", grown)
	}
	got := a.finish(1)
	total := int64(0)
	for _, m := range got.Templates {
		total += m.Count
	}
	if len(got.Templates) > MaxTemplates+1 || total != n || got.Templates[0].Text != Other {
		t.Errorf("%d templates of %d lines, first %+v", len(got.Templates), total, got.Templates[0])
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// A flood of events is counted, and not all kept; nor are the long lines that
// they stand in.
func TestManyEvents(t *testing.T) {
	line := []byte(`I1121 09:10:20.500000 1 a.go:1] "Failed" err="context deadline exceeded" x="` + strings.Repeat("y", 30<<10) + "\"\n")
	const n = 5000
	a := analyzer{o: Options{MaxEvents: 1000}, clock: Clock{Started: started}}
	base := heap()
	if err := a.read(&endless{pattern: line, n: n * int64(len(line))}, "x"); err != nil {
		t.Fatal(err)
	}
	if grown := heap() - base; grown > 8<<20 {
		t.Errorf("%d bytes are held", grown)
	}
	got := a.finish(1)
	if len(got.Events) != 1000 || got.Kinds[0].Count != n || got.Logs[0].Lost != n-1000 {
		t.Errorf("%d events, %+v, %+v", len(got.Events), got.Kinds, got.Logs)
	}
}

// The same lines give the same templates, and none is lost.
func TestTemplatesCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`(I1121 09:10:2[0-9]\.500000 1 [ab]\.go:1\] )?("[a-z]{1,4}( [a-z0-9]{1,3}){0,4}"( [a-z]=("[0-9]{1,3}"|[0-9]s)){0,3}|[a-z]{1,3}( [a-z0-9.:-]{1,5}){0,5})`), 1, 60).Draw(t, "lines")
		text := strings.Join(lines, "\n") + "\n"
		run := func() *Analysis {
			a := analyzer{clock: Clock{Started: started}}
			if err := a.read(strings.NewReader(text), "x"); err != nil {
				t.Fatal(err)
			}
			return a.finish(1)
		}
		x, y := run(), run()
		if describe(x) != describe(y) {
			t.Fatalf("%s\n%s", describe(x), describe(y))
		}
		n := int64(len(x.Events))
		for _, m := range x.Templates {
			n += m.Count
		}
		if n != x.Logs[0].Entries {
			t.Fatalf("%d in templates and events of %d entries", n, x.Logs[0].Entries)
		}
	})
}

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                                "plain",
		"12":                                   maskNumber,
		"1.5s,":                                maskDuration + ",",
		"127.0.0.1:2379":                       maskIP,
		"f81d4fae-7dec-11d0-a765-00a0c91e6bf6": maskUUID,
		"0xdeadbeef1":                          maskHex,
		"load-0-ddc5f58b9":                     maskName,
		"/api/v1/pods/load-0-x":                "/api/v1/pods/" + maskName,
		"replicas=3":                           "replicas=" + maskNumber,
		"2026-11-21T09:10:20Z":                 maskTime,
		"v1.36.3":                              "v<num>.<num>.<num>",
	} {
		if got := mask(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.log")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:min(len(data), 4000)])
	}
	f.Add([]byte("I1121 09:10:20.500000 1 a.go:1] Trace[1]: \"x\" a:b (21-Nov-2026 09:10:19.688) (total time: 1ms):\nTrace[1]: ---\"\\x\" 5ms (\npanic: x\n\x00\xff\n{\"msg\":1}\n\"\\"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := analyzer{o: Options{MaxTemplates: 5, MaxEvents: 5}, clock: Clock{Started: started}}
		if err := a.read(bytes.NewReader(data), "x"); err != nil {
			t.Fatal(err)
		}
		got := a.finish(1)
		if got.Logs[0].Bytes != int64(len(data)) {
			t.Errorf("%d bytes of %d", got.Logs[0].Bytes, len(data))
		}
		if len(got.Templates) > 6 || len(got.Events) > 5 {
			t.Errorf("%d templates, %d events", len(got.Templates), len(got.Events))
		}
	})
}

func BenchmarkRead(b *testing.B) {
	for _, name := range []string{"kube-apiserver", "etcd"} {
		data, err := os.ReadFile("testdata/" + name + ".log")
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				a := analyzer{clock: Clock{Started: started}}
				if err := a.read(bytes.NewReader(data), name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
