package requests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/kubedyno/kubedyno/collect"
)

const httpLine = "I0102 03:04:05.100000    1501 httplog.go:134] \"HTTP\" verb=\"LIST\" URI=\"/api/v1/nodes?limit=5\" latency=\"2ms\" userAgent=\"k\" audit-ID=\"x\" srcIP=\"1\" resp=200\n"

// Without an audit log the rows come from the API server's own.
func TestServerLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kube-apiserver.log")
	if err := os.WriteFile(path, []byte(httpLine), 0o600); err != nil { // before the run
		t.Fatal(err)
	}
	c := New(Options{Path: filepath.Join(t.TempDir(), "no-audit.log"), ServerLog: path, Zone: time.UTC, Quiet: 100 * time.Millisecond})
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprint(f, "I0102 03:04:05.000000 1 a.go:1] Version\n"+httpLine+httpLine+strings.Replace(httpLine, "2ms", "long", 1))
	var r recorder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.collect(ctx, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.rows) != 2 || r.rows[0].Source != "log" || r.rows[0].Resource != "nodes" || r.rows[0].DoneMicros-r.rows[0].ReceivedMicros != 2000 || r.observed != 1 {
		t.Errorf("%d tables, %+v", r.observed, r.rows)
	}
	reasons := ""
	for _, g := range r.gaps {
		reasons += g.Reason + "\n"
	}
	for _, want := range []string{"the audit log cannot be read", "no user", "1 of 4 lines"} {
		if !strings.Contains(reasons, want) {
			t.Errorf("no gap says %q:\n%s", want, reasons)
		}
	}
	if a := c.Account(); a.Samples != 2 || !strings.Contains(a.Note, "no user") {
		t.Errorf("%+v", a)
	}
}

// A log at a low verbosity is no source, and says what would make it one.
func TestQuietServerLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kube-apiserver.log")
	c := New(Options{ServerLog: path, Quiet: 50 * time.Millisecond})
	if err := os.WriteFile(path, []byte("I0102 03:04:05.000000 1 a.go:1] Version\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var r recorder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.collect(ctx, &r); !errors.Is(err, collect.ErrNotSupported) || !strings.Contains(err.Error(), "-v=3") || r.observed != 0 {
		t.Errorf("%v, %d tables", err, r.observed)
	}
}

// dumpOf writes a dump as apiserver's util/flowcontrol/apf_controller_debug.go
// does, with its writer and its separator.
func dumpOf(rows ...[]string) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 8, 0, 1, ' ', 0)
	fmt.Fprintln(w, strings.Join([]string{"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime", "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource"}, ",\t"))
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, ",\t"))
	}
	w.Flush()
	return b.Bytes()
}

func dumpRow(arrived, started, user, verb, path string) []string {
	return []string{"workload-low", "service-accounts", "-1", "-1", user, arrived, "1", "0", "0s", started, user, verb, path, "default", "x", "apps/v1", "deployments", "status"}
}

func TestParseDump(t *testing.T) {
	const never = "0001-01-01T00:00:00Z"
	rows, now, skipped, err := parseDump(bytes.NewReader(dumpOf(
		dumpRow("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.623456789Z", "system:serviceaccount:a:b", "patch", "/apis/apps/v1/namespaces/default/deployments/x/status"),
		dumpRow("2026-01-02T03:04:06Z", never, "u", "get", "/a,b,c"),
		dumpRow("2026-01-02T03:04:07Z", never, "me", "get", "/debug/api_priority_and_fairness/dump_requests"),
		dumpRow("yesterday", never, "u", "get", "/"),
		[]string{"too", "short"},
	)))
	if err != nil || len(rows) != 2 || skipped != 2 || now != 1767323047000000 {
		t.Fatalf("%+v, %d skipped at %d, %v", rows, skipped, now, err)
	}
	for k, r := range rows {
		switch k.verb {
		case "patch":
			if r.QueueMicros != 500_000 || r.Group != "apps" || r.Resource != "deployments" || r.Subresource != "status" || r.Name != "x" || r.User != "system:serviceaccount:a:b" || r.UserAgent != "" || r.Code != 0 || r.Source != "apf-dump" || r.ReceivedMicros != 1767323045123456 {
				t.Errorf("%+v", r)
			}
		case "get":
			if r.QueueMicros != -1 || k.path != "/a,b,c" || r.Namespace != "default" {
				t.Errorf("%+v of %+v", r, k)
			}
		}
	}
	for _, in := range []string{"", "<html>", "PriorityLevelName, x"} {
		if _, _, _, err := parseDump(strings.NewReader(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

// A request becomes a row when a sample no longer has it.
func TestDump(t *testing.T) {
	var calls atomic.Int64
	arrived := time.Now().UTC().Format(time.RFC3339Nano)
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("includeRequestDetails") == "" {
			t.Errorf("asked for %s", r.URL)
		}
		still := dumpRow(arrived, arrived, "still", "list", "/y")
		switch calls.Add(1) {
		case 1, 2:
			w.Write(dumpOf(dumpRow(arrived, arrived, "u", "get", "/x"), still))
		case 4:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 6:
			w.Write(dumpOf(still))
			time.AfterFunc(50*time.Millisecond, cancel)
		default:
			w.Write(dumpOf(still))
		}
	}))
	defer server.Close()
	c := New(Options{DumpURL: server.URL, DumpClient: server.Client(), DumpInterval: 5 * time.Millisecond})
	var r recorder
	if err := c.collect(ctx, &r); err != nil {
		t.Fatal(err)
	}
	server.Client().CloseIdleConnections()
	if len(r.rows) != 2 || r.rows[0].User != "u" || r.rows[0].DoneMicros <= r.rows[0].ReceivedMicros || r.rows[1].User != "still" || r.rows[1].DoneMicros != 0 {
		t.Errorf("%+v", r.rows)
	}
	if len(r.gaps) != 2 || !strings.Contains(r.gaps[0].Reason, "503") || !strings.Contains(r.gaps[1].Reason, "samples") {
		t.Errorf("%+v", r.gaps)
	}
	if a := c.Account(); a.Samples != 2 || a.IntervalSeconds != 0.005 {
		t.Errorf("%+v", a)
	}
}

func TestDumpRefused(t *testing.T) {
	for code, want := range map[int]string{403: "grant `get` on the nonResourceURL", 404: "--enable-priority-and-fairness=false", 500: "500"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		var r recorder
		err := New(Options{DumpURL: server.URL, DumpClient: server.Client(), DumpInterval: 20 * time.Millisecond}).collect(ctx, &r)
		cancel()
		server.Client().CloseIdleConnections()
		server.Close()
		if !errors.Is(err, collect.ErrNotSupported) || !strings.Contains(err.Error(), want) || r.observed != 0 {
			t.Errorf("%d: %v", code, err)
		}
	}
}

func FuzzParseDump(f *testing.F) {
	f.Add(dumpOf(dumpRow("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05.623456789Z", "u", "get", "/a,b")))
	f.Fuzz(func(t *testing.T, b []byte) {
		rows, _, _, err := parseDump(bytes.NewReader(b))
		for _, r := range rows {
			if err == nil && (r.ReceivedMicros <= 0 || r.QueueMicros < -1) {
				t.Errorf("%+v", r)
			}
		}
	})
}
