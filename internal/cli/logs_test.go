package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
)

// talkative is a recording with a log, requests and no metrics.
func talkative(t *testing.T) string {
	t.Helper()
	started := time.Date(2026, 11, 21, 9, 10, 10, 0, time.UTC)
	return recordtest.Write(t, record.Meta{Name: "x", Started: started, Phases: []record.Phase{{Name: "load", Kind: record.PhaseSteady, Start: started.Add(5 * time.Second), End: started.Add(15 * time.Second)}}}, func(w *record.Writer) {
		recordtest.Log(t, w, "kube-controller-manager", `I1121 09:10:11.500000    1983 a.go:1] "Caches are synced"
I1121 09:10:20.500000    1983 request.go:752] "Waited before sending request" delay="1.5s" reason="client-side throttling, not priority and fairness" verb="POST" URL="https://a/api/v1/pods"
I1121 09:10:21.500000    1983 a.go:2] evil `+"\x1b[31m\x00\xff\u202e"+` text
=cmd|' /C calc'!A0
`)
		for i := range int64(3) {
			at := started.Add(time.Duration(i) * 6 * time.Second).UnixMicro()
			w.Request(record.Request{ReceivedMicros: at, DoneMicros: at + 2000, Verb: "list", Resource: "pods", UserAgent: "poll", Code: 200, ServerMicros: -1, EtcdMicros: -1, QueueMicros: -1, WebhookMicros: -1, AuthenticationMicros: -1, AuthorizationMicros: -1, ResponseBytes: -1, Source: "audit"})
		}
	})
}

func TestLogsAndRequests(t *testing.T) {
	dir := talkative(t)
	for _, c := range []struct {
		args     string
		code     int
		has, not []string
	}{
		{"logs DIR", 0, []string{"client-throttled", "≥ 1", "1.500", "10.500", "Caches are synced", `evil \x1b[<num>m\x00\xff\u202e text`}, []string{"\x1b", "\x00"}},
		{"logs DIR -o json", 0, []string{`"kind":"client-throttled"`, `"seconds":1.5,`}, []string{"Caches"}},
		{"logs DIR --events client-throttled", 0, []string{"POST", "/api/v1/pods", "10.500"}, []string{"evil"}},
		{"logs DIR --events=conflict", 0, []string{"AT s"}, []string{"POST"}},
		{"logs DIR --templates -o csv", 0, []string{"count,component,", "Caches are synced"}, []string{"Waited"}},
		{"logs DIR --grep evil", 0, []string{"11.500  kube-controller-manager:3", `\x1b`}, []string{"\x1b", "Caches"}},
		{"logs DIR --grep . --phase load", 0, []string{"10.500", "11.500"}, []string{"1.500  kube-controller-manager:1"}},
		{"logs DIR --grep . --from 11 --to 1m", 0, []string{"11.500"}, []string{"10.500"}},
		{"logs DIR --grep . -o json --component kube-controller-manager", 0, []string{`"line":3`}, nil},
		{"logs DIR --grep =cmd -o csv", 0, []string{"kube-controller-manager,4,'=cmd|' /C calc'!A0"}, nil},
		{"logs DIR --component etcd", ExitFailed, []string{"not assessed", "etcd"}, nil},
		{"logs DIR --from x", ExitMisused, []string{"want seconds"}, nil},
		{"logs DIR --from 5 --to 4", ExitMisused, []string{"nothing lies"}, nil},
		{"logs DIR --grep x --templates", ExitMisused, []string{"one at a time"}, nil},
		{"show DIR logs", 0, []string{"Caches are synced"}, []string{"Waited", "\x1b"}},
		{"show DIR requests", 0, []string{"poll", "list", "pods"}, nil},
		{"requests DIR", 0, []string{"poll", "3 requests", "source: audit"}, nil},
		{"requests DIR --phase load", 0, []string{"2 requests"}, nil},
		{"requests DIR --phase nope", ExitMisused, []string{`no phase "nope"; it has load`}, nil},
		{"requests DIR --lists", 0, []string{"direct"}, nil},
		{"requests DIR --etcd", ExitFailed, []string{"not assessed"}, nil},
		{"requests DIR --source metrics", ExitFailed, []string{"not assessed"}, nil},
		{"requests DIR --source metrics --lists", ExitMisused, []string{"do not tell who asked"}, nil},
	} {
		var out bytes.Buffer
		env := &Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }, Now: time.Now, Width: func() int { return 80 }}
		args := strings.Fields(c.args)
		for i, a := range args {
			if a == "DIR" {
				args[i] = dir
			}
		}
		if code := Main(t.Context(), env, args); code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.args, code, c.code)
		}
		for _, s := range c.has {
			if !strings.Contains(out.String(), s) {
				t.Errorf("%s: no %q in\n%s", c.args, s, out.String())
			}
		}
		for _, s := range c.not {
			if strings.Contains(out.String(), s) {
				t.Errorf("%s: %q in\n%q", c.args, s, out.String())
			}
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{"plain é": "plain é", "a\tb": "a b", "\x1b]0;x\a": `\x1b]0;x\x07`, "\xff\xfe": `\xff\xfe`, "\uFFFD": "\uFFFD", "\u0085": `\x85`, "123456789012": "1234567890…"} {
		if got := printable(in, 10); got != want && len([]rune(in)) >= 10 || len([]rune(in)) < 10 && printable(in, 100) != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
