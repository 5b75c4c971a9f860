package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"github.com/kubedyno/kubedyno/report"
	"github.com/kubedyno/kubedyno/report/browsertest"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }

const token = "a-token-of-the-test"

// served is a server of a folder, and what of it was opened.
type served struct {
	*Server
	address string // http://host:port
	mu      sync.Mutex
	opened  []string
}

func start(t *testing.T, dir string) *served {
	t.Helper()
	s, err := New(Options{Dir: dir, Token: token, Tool: "test", Detectors: detectors.All, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	v := &served{Server: s}
	s.opened = func(name string) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.opened = append(v.opened, name)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	v.address = "http://" + ln.Addr().String()
	return v
}

func (v *served) names() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.opened)
}

// ask is a request as a browser with the cookie makes it; change alters it.
func (v *served) ask(t *testing.T, path string, change ...func(*http.Request)) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, v.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "kubedyno-" + r.URL.Port(), Value: token})
	for _, f := range change {
		f(r)
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, b
}

func get[T any](t *testing.T, v *served, path string) (out T) {
	t.Helper()
	resp, b := v.ask(t, path)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", path, resp.Status, b)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// copies makes n folders that are such a recording; their big files are links.
func copies(t *testing.T, dir, of string, n int) {
	t.Helper()
	for i := range n {
		to := filepath.Join(dir, fmt.Sprintf("run-%03d", i))
		err := filepath.WalkDir(of, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(of, path)
			if err != nil {
				return err
			}
			target := filepath.Join(to, rel)
			if e.IsDir() {
				return os.MkdirAll(target, 0o755)
			}
			if rel != record.MetaFile {
				if os.Link(path, target) == nil {
					return nil
				}
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(target, b, 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Five hundred recordings are listed, and none is opened until somebody looks.
func TestFiveHundredRecordings(t *testing.T) {
	dir := t.TempDir()
	copies(t, dir, recordtest.Unpack(t, "few-workers"), 500)
	v := start(t, dir)
	if _, b := v.ask(t, "/"); !bytes.Contains(b, []byte("data-kind=\"folder\"")) {
		t.Fatalf("no list: %.200s", b)
	}
	all := get[[]report.Entry](t, v, "/api/recordings")
	if len(all) != 500 || all[0].Experiment == "" || all[0].Pods == 0 || all[0].Seconds == 0 {
		t.Fatalf("%d recordings, the first %+v", len(all), all[0])
	}
	if n := len(v.names()); n != 0 {
		t.Fatalf("%d recordings were opened for a list", n)
	}
	for range 3 {
		s := get[report.Summary](t, v, "/api/summary?of=run-007")
		if s.Verdict == "" || s.Rate == nil || s.Error != "" {
			t.Fatalf("%+v", s)
		}
	}
	if got := v.names(); len(got) != 1 {
		t.Errorf("opened %v: what was said once is kept", got)
	}
	// One that changed is read anew, the others are not.
	meta := filepath.Join(dir, "run-007", record.MetaFile)
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(meta, later, later); err != nil {
		t.Fatal(err)
	}
	get[report.Summary](t, v, "/api/summary?of=run-007")
	get[report.Summary](t, v, "/api/summary?of=run-008")
	if got := v.names(); !slices.Equal(got, []string{"run-007", "run-007", "run-008"}) {
		t.Errorf("opened %v", got)
	}
}

// Who has not the token, or comes by another name, from another site or with
// another place in mind, gets nothing.
func TestOnlyWhoMay(t *testing.T) {
	dir := t.TempDir()
	copies(t, filepath.Join(dir, "shown"), recordtest.Unpack(t, "few-workers"), 1)
	copies(t, filepath.Join(dir, "secret"), recordtest.Unpack(t, "few-workers"), 1)
	if err := os.Symlink(filepath.Join(dir, "secret", "run-000"), filepath.Join(dir, "shown", "link")); err != nil {
		t.Fatal(err)
	}
	v := start(t, filepath.Join(dir, "shown"))
	cookie := func(value string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Cookie")
			if value != "" {
				r.AddCookie(&http.Cookie{Name: "kubedyno-" + r.URL.Port(), Value: value})
			}
		}
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(h string) func(*http.Request) {
		return func(r *http.Request) { r.Host = strings.ReplaceAll(h, "PORT", r.URL.Port()) }
	}
	for _, c := range []struct {
		name   string
		path   string
		change func(*http.Request)
		want   int
	}{
		{"a reader", "/", nil, 200},
		{"by name", "/", host("localhost:PORT"), 200},
		{"from the page", "/api/recordings", header("Sec-Fetch-Site", "same-origin"), 200},
		{"no cookie", "/", cookie(""), 401},
		{"no cookie, the interface", "/api/recordings", cookie(""), 401},
		{"a wrong cookie", "/", cookie("wrong"), 401},
		{"a wrong token", "/?token=wrong", cookie(""), 401},
		{"a name that points here", "/", host("evil.example:PORT"), 421},
		{"another port", "/", host("127.0.0.1:1"), 421},
		{"another address", "/", host("10.0.0.1:PORT"), 421},
		{"another site", "/api/recordings", header("Sec-Fetch-Site", "cross-site"), 403},
		{"another port of this machine", "/api/recordings", header("Sec-Fetch-Site", "same-site"), 403},
		{"a change", "/", func(r *http.Request) { r.Method = http.MethodPost }, 405},
		{"nothing there", "/etc/passwd", nil, 404},
		{"no expression", "/api/query?of=run-000", nil, 400},
		{"no recording", "/report", nil, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := func(*http.Request) {}
			if c.change != nil {
				change = c.change
			}
			resp, b := v.ask(t, c.path, change)
			if resp.StatusCode != c.want {
				t.Errorf("%d, want %d: %.100s", resp.StatusCode, c.want, b)
			}
			if p := resp.Header.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || !strings.Contains(p, "frame-ancestors 'none'") || strings.Contains(p, "unsafe") {
				t.Errorf("policy %q", p)
			}
		})
	}
	for _, name := range []string{"..", "../secret/run-000", "/etc", "link", "run-000/../../secret/run-000", "run-000/metrics", "./run-000", "%2e%2e/secret/run-000", "run-000\x00", ""} {
		for _, path := range []string{"/report", "/live", "/api/summary", "/api/progress", "/history"} {
			if resp, b := v.ask(t, path+"?of="+url.QueryEscape(name)); resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s of %q: %s: %.100s", path, name, resp.Status, b)
			}
		}
	}
	if got := v.names(); len(got) != 0 {
		t.Errorf("opened %v", got)
	}
	resp, _ := v.ask(t, "//evil.example/x?token="+token+"&of=run-000", cookie(""))
	set := resp.Header.Get("Set-Cookie")
	if resp.StatusCode != http.StatusSeeOther || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") {
		t.Errorf("%s, cookie %q", resp.Status, set)
	}
	if to := resp.Header.Get("Location"); to != "/evil.example/x?of=run-000" {
		t.Errorf("sent to %q: want a place here, without the token", to)
	}
}

// A run that is still being recorded shows how far it is.
func TestProgressGrows(t *testing.T) {
	dir := t.TempDir()
	began := time.Now().Add(-20 * time.Second)
	w, err := record.Create(filepath.Join(dir, "r"), record.Meta{
		Name: "growing", Started: began, Workload: record.Workload{Experiment: "experiment.yaml", ExpectedPods: 10},
		Phases: []record.Phase{{Name: "load", Kind: record.PhaseSteady, Start: began.Add(5 * time.Second)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	finished := false
	defer func() {
		if !finished {
			_ = w.Finish(record.StatusInterrupted, "")
		}
	}()
	v := start(t, dir)
	pod := func(i int, running bool) {
		at := began.Add(6 * time.Second).UnixMicro()
		p := record.Pod{Namespace: "n", Name: fmt.Sprint(i), UID: fmt.Sprint(i), Phase: "load", CreatedMicros: at, BoundMicros: at + 1000}
		if running {
			p.RunningMicros = at + 2000
		}
		w.Pod(p)
	}
	seen := func(created, running int) report.Progress {
		t.Helper()
		var p report.Progress
		for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(20 * time.Millisecond) { // the writer flushes twice a second
			if p = get[report.Progress](t, v, "/api/progress?of=r"); p.Created == created && p.Running == running {
				return p
			}
		}
		t.Fatalf("%d created and %d running, want %d and %d", p.Created, p.Running, created, running)
		return p
	}
	for i := range 4 {
		pod(i, false)
	}
	p := seen(4, 0)
	if p.Entry.Status != "running" || p.Phase != "load" || p.Curves.Total != 10 {
		t.Errorf("%+v", p)
	}
	for i := range 3 {
		pod(i, true)
	}
	p = seen(4, 3)
	if last := p.Curves.Running[len(p.Curves.Running)-1]; last != 3 {
		t.Errorf("the curve ends at %v", last)
	}
	if resp, b := v.ask(t, "/report?of=r"); resp.StatusCode != http.StatusConflict || !bytes.Contains(b, []byte("still being written")) {
		t.Errorf("a report of half a recording: %s %s", resp.Status, b)
	}
	if resp, _ := v.ask(t, "/live?of=r"); resp.StatusCode != http.StatusOK {
		t.Errorf("live: %s", resp.Status)
	}
	finished = true
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	for _, e := range get[[]report.Entry](t, v, "/api/recordings") {
		if e.Status != "complete" {
			t.Errorf("%s is %s", e.Name, e.Status)
		}
	}
}

// Many are asked at once; what one of them lacks is said beside the others.
func TestQueryMany(t *testing.T) {
	dir := t.TempDir()
	copies(t, dir, recordtest.Unpack(t, "few-workers"), 2)
	if err := os.RemoveAll(filepath.Join(dir, "run-001", "metrics")); err != nil {
		t.Fatal(err)
	}
	v := start(t, dir)
	a := get[report.Answer](t, v, "/api/query?of=run-000&of=run-001&expr="+url.QueryEscape(`sum by (component) (kubedyno_nothing) or vector(7)`))
	if len(a.Lines) != 2 || a.Lines[0].Of != "run-000" || a.Lines[1].Of != "run-001" || a.Lines[1].Note == "" {
		t.Fatalf("%+v", a)
	}
	if v := a.Lines[0].Values; len(v) < 5 || v[3] != 7 {
		t.Errorf("values %v", v)
	}
	bad := get[report.Answer](t, v, "/api/query?of=run-000&expr="+url.QueryEscape(`sum(`))
	if len(bad.Lines) != 1 || !strings.Contains(bad.Lines[0].Note, "parse error") {
		t.Errorf("%+v", bad)
	}
}

// The walk of a reader through a folder, in a browser.
func TestFolderInBrowser(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"few-workers", "scheduler-limit-15", "healthy-5-per-second"} {
		copies(t, filepath.Join(dir, name), recordtest.Unpack(t, name), 1)
	}
	evil := filepath.Join(dir, `<img src=x onerror=alert(1)>"'&`)
	copies(t, evil, recordtest.Unpack(t, "few-workers"), 1)
	v := start(t, dir)
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	at := func() string { return browsertest.Eval[string](t, ctx, "location.pathname + location.search") }
	browsertest.Open(t, ctx, v.address+"/?token="+token, 1300, false)
	if got := at(); got != "/" {
		t.Errorf("at %s: the token stays in the address", got)
	}
	browsertest.Until(t, ctx, "all rows are diagnosed", `document.querySelectorAll('.folder tbody tr').length === 4 && document.querySelectorAll('.wait-for').length === 0`)
	if n := browsertest.Eval[int](t, ctx, "document.images.length"); n != 0 {
		t.Error("a folder's name became an image")
	}
	browsertest.Set(t, ctx, "input[type=search]", "scheduler")
	if got := browsertest.Eval[int](t, ctx, "document.querySelectorAll('.folder tbody tr').length"); got < 1 || got > 2 {
		t.Errorf("%d rows match", got)
	}
	browsertest.Set(t, ctx, "input[type=search]", "")
	side := func(name, side string) {
		t.Helper()
		browsertest.Click(t, ctx, fmt.Sprintf(`button[aria-label="%s/run-000 on side %s"]`, name, side))
	}
	side("few-workers", "A")
	side("healthy-5-per-second", "B")
	browsertest.Set(t, ctx, ".query input", `count({__name__!=""})`)
	browsertest.Click(t, ctx, ".query button[type=submit]")
	browsertest.Until(t, ctx, "an answer", `document.querySelectorAll('.query .grid tbody tr').length === 2 && document.querySelector('.query canvas')`)
	link := browsertest.Eval[string](t, ctx, `document.querySelector('.acts a').href`)
	browsertest.Open(t, ctx, link, 1300, false)
	if got := at(); !strings.HasPrefix(got, "/compare?a=few-workers") || !browsertest.Eval[bool](t, ctx, `!!document.querySelector('#difference .forest')`) {
		t.Errorf("at %s: no comparison", got)
	}
	w.Check(t, v.address+"/")
}
