package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

const (
	create = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/pods?fieldManager=x","verb":"create","user":{"username":"kubedyno:load","groups":["system:authenticated","a\"b}"],"extra":{"x":["y"]}},"sourceIPs":["127.0.0.1"],"userAgent":"kubedyno-load","objectRef":{"resource":"pods","namespace":"default","name":"p-1","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"2026-01-02T03:04:05.123456Z","stageTimestamp":"2026-01-02T03:04:05.223456Z","annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: \"x\""}}`
	list   = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"a2","stage":"ResponseComplete","requestURI":"/apis/apps/v1/replicasets?limit=500\u0026resourceVersion=0","verb":"list","user":{"username":"system:kube-controller-manager"},"userAgent":"kube-controller-manager/v1.36.3","objectRef":{"resource":"replicasets","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.123456Z","stageTimestamp":"2026-01-02T03:04:05.223456Z"}`
	health = `{"kind":"Event","auditID":"a3","stage":"ResponseComplete","requestURI":"/readyz?verbose","verb":"get","user":{"username":"u"},"objectRef":null,"responseStatus":null,"requestReceivedTimestamp":"2026-01-02T03:04:05Z","stageTimestamp":"2026-01-02T04:04:05.5+01:00"}`
	watch  = `{"kind":"Event","auditID":"w%d","stage":"%s","requestURI":"/api/v1/pods?watch=1","verb":"watch","user":{"username":"n\u00e9\ud83d\ude00"},"userAgent":"kubelet","objectRef":{"resource":"pods"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:06.000001Z"}`
	slow   = `{"kind":"Event","auditID":"s","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/pods","verb":"create","user":{"username":"u"},"userAgent":"a","objectRef":{"resource":"pods","namespace":"default"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-01-02T03:04:05.123456Z","stageTimestamp":"2026-01-02T03:04:05.823456Z","annotations":{"apiserver.latency.k8s.io/etcd":"512ms","apiserver.latency.k8s.io/mutating-webhook":"100.5ms","apiserver.latency.k8s.io/total":"700.123ms","apiserver.latency.k8s.io/validating-webhook":"10ms","authorization.k8s.io/decision":"allow"}}`
)

func row(r record.Request) string {
	s := fmt.Sprintf("%d+%d %s %s/%s/%s %s/%s user=%s agent=%s code=%d uri=%s", r.ReceivedMicros, r.DoneMicros-r.ReceivedMicros, r.Verb, r.Group, r.Resource, r.Subresource, r.Namespace, r.Name, r.User, r.UserAgent, r.Code, r.URI)
	if r.ServerMicros >= 0 || r.EtcdMicros >= 0 || r.QueueMicros >= 0 || r.WebhookMicros >= 0 {
		s += fmt.Sprintf(" server=%d etcd=%d queue=%d webhook=%d", r.ServerMicros, r.EtcdMicros, r.QueueMicros, r.WebhookMicros)
	}
	if r.AuthenticationMicros >= 0 || r.AuthorizationMicros >= 0 {
		s += fmt.Sprintf(" authentication=%d authorization=%d", r.AuthenticationMicros, r.AuthorizationMicros)
	}
	return s
}

func TestDecode(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"create", create, "1767323045123456+100000 create /pods/ default/p-1 user=kubedyno:load agent=kubedyno-load code=201 uri="},
		{"list", list, "1767323045123456+100000 list apps/replicasets/ / user=system:kube-controller-manager agent=kube-controller-manager/v1.36.3 code=200 uri=limit=500&resourceVersion=0"},
		{"no object", health, "1767323045000000+500000 get // / user=u agent= code=0 uri=/readyz"},
		{"escapes", fmt.Sprintf(watch, 1, "ResponseComplete"), "1767323045000001+1000000 watch /pods/ / user=né😀 agent=kubelet code=200 uri=watch=1"},
		{"white space", strings.ReplaceAll(health, ",", " ,\t"), "1767323045000000+500000 get // / user=u agent= code=0 uri=/readyz"},
		{"slow", slow, "1767323045123456+700000 create /pods/ default/ user=u agent=a code=201 uri= server=700123 etcd=512000 queue=0 webhook=110500"},
		{"slow, by one that tells more", strings.Replace(slow, `"annotations":{`, `"annotations":{"apiserver.latency.k8s.io/authentication":"30ms","apiserver.latency.k8s.io/authorization":"2.5\u00b5s",`, 1), "1767323045123456+700000 create /pods/ default/ user=u agent=a code=201 uri= server=700123 etcd=512000 queue=0 webhook=110500 authentication=30000 authorization=2"},
		{"empty", "", "not JSON"},
		{"cut", create[:300], "not JSON"},
		{"two", health + health, "not JSON"},
		{"another kind", `{"kind":"Pod"}`, "not an audit event"},
		{"not an object", `[1,2]`, "not JSON"},
		{"bad time", strings.Replace(health, "2026-01-02T03", "2026-13-02T03", 1), "not an audit event"},
		{"code too large", strings.Replace(create, "201", "99999999999", 1), "not JSON"},
	} {
		e, err := NewDecoder().Decode([]byte(c.in))
		got := row(e.Row)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// What encoding/json can read of an event, the decoder reads the same.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{create, list, health, fmt.Sprintf(watch, 1, "Panic"), create[:200], `{"a":[1,{"b":"\\"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		e, err := NewDecoder().Decode(line)
		if !bytes.Equal(before, line) {
			t.Fatal("the line was changed")
		}
		if err != nil || !json.Valid(line) {
			return
		}
		// Doubled keys and other cases are read differently; none of ours are.
		if bytes.Count(line, []byte(`"username"`)) != 1 || bytes.Count(line, []byte(`"user"`)) != 1 || bytes.Contains(line, []byte{0xff}) {
			return
		}
		var want struct {
			User struct{ Username string }
		}
		if json.Unmarshal(line, &want) == nil && bytes.ToValidUTF8([]byte(e.Row.User), nil) != nil && string(bytes.ToValidUTF8([]byte(e.Row.User), []byte("�"))) != want.User.Username && strings.Contains(string(line), `"user":{"username":`) {
			t.Errorf("user is %q, want %q", e.Row.User, want.User.Username)
		}
	})
}

// A request is done once; a watch that has begun is open until it ends.
func TestEvents(t *testing.T) {
	var e Events
	done := 0
	for _, line := range []string{
		strings.Replace(create, "ResponseComplete", "RequestReceived", 1), create,
		fmt.Sprintf(watch, 2, "ResponseStarted"), fmt.Sprintf(watch, 1, "ResponseStarted"), fmt.Sprintf(watch, 1, "ResponseComplete"),
		strings.Replace(list, "ResponseComplete", "Panic", 1),
	} {
		row, ok, err := e.Line([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			done++
			if row.DoneMicros == 0 || row.Source != SourceAudit || row.ResponseBytes != -1 {
				t.Errorf("row: %+v", row)
			}
		}
	}
	open := e.Open()
	if done != 3 || e.Panics != 1 || len(open) != 1 || open[0].DoneMicros != 0 || open[0].Verb != "watch" {
		t.Errorf("%d done, %d panics, open %+v", done, e.Panics, open)
	}
	if _, _, err := e.Line([]byte("x")); err == nil {
		t.Error("no error")
	}
}

// A lab's log of requests tells the size of each answer, which of a watch that
// is open is not known.
func TestLogOfRequests(t *testing.T) {
	sized := func(line string) []byte {
		return []byte(strings.TrimSuffix(line, "}") + `,"annotations":{"kubedyno.io/response-bytes":"345","apiserver.latency.k8s.io/total":"1200us"}}`)
	}
	var e Events
	if row, done, err := e.Line(sized(list)); err != nil || !done || row.ResponseBytes != 345 || row.RequestBytes != 0 || row.ServerMicros != 1200 || row.EtcdMicros != -1 || row.QueueMicros != 0 || row.Source != SourceRequests {
		t.Errorf("%+v, %v, %v", row, done, err)
	}
	if row, _, err := e.Line([]byte(strings.Replace(string(sized(list)), `"}}`, `","kubedyno.io/request-bytes":"81"}}`, 1))); err != nil || row.RequestBytes != 81 || row.ResponseBytes != 345 {
		t.Errorf("%+v, %v", row, err)
	}
	if row, _, err := e.Line([]byte(strings.Replace(string(sized(list)), `"}}`, `","kubedyno.io/request-bytes":"-1"}}`, 1))); err != nil || row.RequestBytes != -1 {
		t.Errorf("a body of unknown length: %+v, %v", row, err)
	}
	if row, _, err := e.Line([]byte(strings.Replace(string(sized(list)), `"}}`, `","kubedyno.io/request-bytes":"-2"}}`, 1))); err == nil {
		t.Errorf("no error: %+v", row)
	}
	if row, _, err := e.Line([]byte(strings.Replace(string(sized(list)), `"}}`, `","apiserver.latency.k8s.io/etcd":"700us"}}`, 1))); err != nil || row.EtcdMicros != 700 {
		t.Errorf("%+v, %v", row, err)
	}
	if row, _, err := e.Line([]byte(strings.Replace(string(sized(list)), `"}}`, `","apiserver.latency.k8s.io/authentication":"800000us"}}`, 1))); err != nil || row.AuthenticationMicros != 800_000 || row.AuthorizationMicros != 0 {
		t.Errorf("%+v, %v", row, err)
	}
	for _, line := range []string{`{"kind":"Lost","lines":5}`, `{"kind":"Lost","lines":2}`} {
		if _, done, err := e.Line([]byte(line)); done || err != nil {
			t.Errorf("lost: %v, %v", done, err)
		}
	}
	if e.Lost != 7 {
		t.Errorf("%d lines lost", e.Lost)
	}
	for _, line := range []string{`{"kind":"Lost"}`, `{"kind":"Lost","lines":"5"}`, `{"kind":"Lost","lines":0}`, `{"lines":5}`} {
		if _, _, err := e.Line([]byte(line)); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
	if _, done, err := e.Line(sized(fmt.Sprintf(watch, 1, "ResponseStarted"))); done || err != nil {
		t.Error(done, err)
	}
	if open := e.Open(); len(open) != 1 || open[0].ResponseBytes != -1 || open[0].Source != SourceRequests {
		t.Errorf("%+v", open)
	}
	if _, _, err := e.Line([]byte(strings.ReplaceAll(string(sized(list)), "345", "-1"))); err == nil {
		t.Error("a negative size is taken")
	}
}

// Lines as server/httplog/httplog.go:258-296 of apiserver v0.36.3 writes them,
// with what filters/priority-and-fairness.go:119-137 and
// endpoints/filterlatency/filterlatency.go:70 add.
func TestHTTPLog(t *testing.T) {
	const head = `I0102 03:04:05.223456    1501 httplog.go:134] "HTTP" `
	near := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ name, in, want string }{
		{"list", head + `verb="LIST" URI="/apis/apps/v1/replicasets?limit=500&resourceVersion=0" latency="100ms" userAgent="kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/abc/shared-informers" audit-ID="x" srcIP="127.0.0.1:4" apf_pl="workload-high" apf_fs="kube-controller-manager" apf_iseats=1 apf_fseats=0 apf_additionalLatency="0s" apf_execution_time="90ms" resp=200`,
			"1767323045123456+100000 list apps/replicasets/ / user= agent=kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/abc/shared-informers code=200 uri=limit=500&resourceVersion=0 server=100000 etcd=-1 queue=-1 webhook=-1"},
		{"queued", head + `verb="POST" URI="/api/v1/namespaces/default/pods/p/binding?timeout=1s" latency="1.5s" userAgent="a \"b\"" audit-ID="x" srcIP="[::1]:4" fl_priorityandfairness="1.2s" resp=429 addedInfo="logging error output: \"x\""`,
			`1767323043723456+1500000 create /pods/binding default/p user= agent=a "b" code=429 uri= server=1500000 etcd=-1 queue=1200000 webhook=-1`},
		{"namespace", head + `verb="GET" URI="/api/v1/namespaces/kube-system" latency="1ms" userAgent="a" audit-ID="x" srcIP="1" resp=404`,
			"1767323045222456+1000 get /namespaces/ kube-system/kube-system user= agent=a code=404 uri= server=1000 etcd=-1 queue=-1 webhook=-1"},
		{"hijacked", head + `verb="CONNECT" URI="/api/v1/namespaces/n/pods/p/exec?command=sh" latency="2ms" userAgent="" audit-ID="x" srcIP="1" hijacked=true`,
			"1767323045221456+2000 connect /pods/exec n/p user= agent= code=0 uri= server=2000 etcd=-1 queue=-1 webhook=-1"},
		{"apply", head + `verb="APPLY" URI="/apis/apps/v1/namespaces/n/deployments/d?fieldManager=x" latency="2ms" userAgent="k" audit-ID="x" srcIP="1" resp=200`,
			"1767323045221456+2000 patch apps/deployments/ n/d user= agent=k code=200 uri= server=2000 etcd=-1 queue=-1 webhook=-1"},
		{"health", head + `verb="GET" URI="/readyz?x" latency="2ms" userAgent="k" audit-ID="x" srcIP="1" resp=200`,
			"1767323045221456+2000 get // / user= agent=k code=200 uri=/readyz server=2000 etcd=-1 queue=-1 webhook=-1"},
		{"deprecated watch", head + `verb="WATCH" URI="/api/v1/watch/namespaces/n/pods?resourceVersion=5" latency="2ms" userAgent="k" audit-ID="x" srcIP="1" resp=200`,
			"1767323045221456+2000 watch /pods/ n/ user= agent=k code=200 uri=resourceVersion=5 server=2000 etcd=-1 queue=-1 webhook=-1"},
		{"other line", `I0102 03:04:05.223456    1501 server.go:150] Version: v1.36.3`, ErrNoRequest.Error()},
		{"no header", `"HTTP" verb="GET"`, ErrNoRequest.Error()},
		{"cut", head + `verb="GET" URI="/api/v1/po`, errSyntax.Error()},
		{"bad latency", head + `verb="GET" URI="/x" latency="x" resp=200`, errSyntax.Error()},
	} {
		h := HTTPLog{Near: near, Zone: time.UTC}
		r, err := h.Line([]byte(c.in))
		got := row(r)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func FuzzHTTPLog(f *testing.F) {
	f.Add([]byte(`I0102 03:04:05.223456    1501 httplog.go:134] "HTTP" verb="LIST" URI="/apis/apps/v1/replicasets?limit=500" latency="100ms" userAgent="k" resp=200`))
	f.Add([]byte(`I0102 03:04:05.223456    1 a.go:1] "HTTP" verb="POST" URI="/api/v1/namespaces/a/pods/b/proxy/c/d/e/f/g" latency="1h" x=<` + "\n\ta\n >" + ` y=[a "b]"] resp=200`))
	f.Fuzz(func(t *testing.T, line []byte) {
		h := HTTPLog{Near: time.Unix(1e9, 0), Zone: time.UTC}
		r, err := h.Line(line)
		if err == nil && (r.DoneMicros < r.ReceivedMicros || r.Verb == "") {
			t.Errorf("%q: %+v", line, r)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	line := []byte(create)
	b.Run("decoder", func(b *testing.B) {
		d := NewDecoder()
		b.SetBytes(int64(len(line)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Decode(line); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		for b.Loop() {
			var e struct {
				AuditID, Stage, RequestURI, Verb, UserAgent string
				User                                        struct{ Username string }
				ObjectRef                                   struct{ Resource, Namespace, Name, APIGroup, Subresource string }
				ResponseStatus                              struct{ Code int32 }
				RequestReceivedTimestamp, StageTimestamp    time.Time
			}
			if err := json.Unmarshal(line, &e); err != nil {
				b.Fatal(err)
			}
		}
	})
}
