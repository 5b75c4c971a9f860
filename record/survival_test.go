package record

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// writerEnv makes the test binary a writer into the folder it names.
const writerEnv = "KUBEDYNO_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		writeForever(dir)
	}
	// A round trip syncs a dozen files; on a busy disk a hundred of them take
	// a minute. The command line still has the last word.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// writeForever records at speed, and says on stdout what is safe by now.
func writeForever(dir string) {
	w, err := Create(dir, Meta{Phases: []Phase{{Name: "steady", Kind: PhaseSteady, Start: time.Now()}}})
	if err != nil {
		panic(err)
	}
	if err := w.Profile(ProfileRef{Component: "etcd", Phase: "steady", Kind: "heap", End: time.Now()}, someProfile(panicky{})); err != nil {
		panic(err)
	}
	log, err := w.LogFile("etcd")
	if err != nil {
		panic(err)
	}
	for i := int64(1); ; i++ {
		now := time.Now()
		w.Pod(Pod{Name: fmt.Sprint("pod-", i), UID: fmt.Sprint(i), CreatedMicros: now.UnixMicro()})
		w.Request(Request{ReceivedMicros: now.UnixMicro(), Verb: "create", UserAgent: "kubedyno-load", URI: strings.Repeat("x", 200)})
		w.AppendSample("kubedyno_own", nil, now, float64(i))
		if err := scrape(w.Metrics(), "scraped_total", "etcd", now, float64(i)); err != nil {
			panic(err)
		}
		if _, err := fmt.Fprintln(log, i); err != nil {
			panic(err)
		}
		if w.Err() != nil {
			panic(w.Err())
		}
		// The scrape is committed: from here on it must survive.
		fmt.Println(i, now.UnixMicro())
		time.Sleep(time.Millisecond) // samples have milliseconds
	}
}

// panicky is a testing.TB for a process that is no test.
type panicky struct{ testing.TB }

func (panicky) Helper()           {}
func (panicky) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func TestKillNine(t *testing.T) {
	for _, life := range []time.Duration{0, 300 * time.Millisecond, 2 * time.Second} {
		t.Run(life.String(), func(t *testing.T) { testKillNine(t, life) })
	}
}

func testKillNine(t *testing.T, life time.Duration) {
	dir := filepath.Join(t.TempDir(), "r")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var committed, old int64 // old: what was written a second before the end
	var times []int64
	lines := bufio.NewScanner(out)
	killed := make(chan time.Time, 1)
	for first := true; lines.Scan(); first = false {
		var micros int64
		if _, err := fmt.Sscan(lines.Text(), &committed, &micros); err != nil {
			t.Fatal(err)
		}
		times = append(times, micros)
		if first {
			_, err := Open(dir)
			var live *LiveError
			if !errors.Is(err, ErrLive) || !errors.As(err, &live) || live.PID != cmd.Process.Pid {
				t.Errorf("opening a live recording: %v; want the writer, %d", err, cmd.Process.Pid)
			}
			time.AfterFunc(life, func() {
				_ = cmd.Process.Kill()
				killed <- time.Now()
			})
		}
	}
	if len(times) == 0 {
		t.Fatalf("the writer has written nothing: %v", cmd.Wait())
	}
	end := <-killed
	_ = cmd.Wait()
	for i, micros := range times {
		if time.UnixMicro(micros).Before(end.Add(-time.Second)) {
			old = int64(i + 1)
		}
	}
	t.Logf("%d scrapes committed, %d of them a second before the kill", committed, old)
	if life >= 2*time.Second && old < 20 {
		t.Errorf("the writer was too slow for this test: %d", old)
	}

	r := open(t, dir)
	m := r.Meta()
	if m.Status != StatusIncomplete || len(m.Invalid) != 1 || !strings.Contains(m.EndReason, fmt.Sprintf("process %d", cmd.Process.Pid)) || !strings.Contains(m.EndReason, "in phase steady") {
		t.Errorf("meta: %s, %q, %q", m.Status, m.EndReason, m.Invalid)
	}
	if d := m.Ended.Sub(end); d > 500*time.Millisecond || d < -2*time.Second {
		t.Errorf("it ends %v after the kill", d)
	}
	if !m.Phases[0].End.Equal(m.Ended) {
		t.Errorf("the open phase ends at %v, not %v", m.Phases[0].End, m.Ended)
	}
	if v, ok, err := r.Increase("scraped_total", nil, Window{m.Started.Add(-time.Hour), m.Ended.Add(time.Hour)}); err != nil || !ok || int64(v) < committed {
		t.Errorf("scraped: %v of %d, %v, %v", v, committed, ok, err)
	}
	if old > 0 {
		ps, err := r.Pods()
		if err != nil || int64(len(ps)) < old || ps[0].Name != "pod-1" {
			t.Errorf("%d pods, %v; want %d", len(ps), err, old)
		}
		if rs, err := r.Requests(); err != nil || int64(len(rs)) < old {
			t.Errorf("%d requests, %v; want %d", len(rs), err, old)
		}
		if v, ok, err := r.Increase("kubedyno_own", nil, Window{m.Started.Add(-time.Hour), m.Ended.Add(time.Hour)}); err != nil || !ok || int64(v) < old {
			t.Errorf("own samples: %v of %d, %v, %v", v, old, ok, err)
		}
	}
	if len(r.Profiles()) != 1 {
		t.Errorf("profiles: %v", r.Profiles())
	} else if _, err := r.ReadProfile(r.Profiles()[0]); err != nil {
		t.Error(err)
	}
	if _, err := r.Log("etcd"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, liveDir)); err == nil {
		t.Error("live files are left")
	}
	again := open(t, dir)
	if !reflect.DeepEqual(again.Meta(), m) {
		t.Errorf("a second opening changed it: %+v", again.Meta())
	}
}

// crash returns a copy of w's folder as kill -9 would leave it now.
func crash(t testing.TB, w *Writer) string {
	t.Helper()
	w.flush()
	dir := filepath.Join(t.TempDir(), "crashed")
	if err := copyFiles(dir, w.Dir()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func crashed(t testing.TB) string {
	t.Helper()
	w := create(t, filepath.Join(t.TempDir(), "r"), Meta{})
	fill(t, w)
	dir := crash(t, w)
	finish(t, w)
	return dir
}

func TestTornLastLine(t *testing.T) {
	dir := crashed(t)
	for _, torn := range []string{`{"namespace":"load","name":"torn`, `{`, "\x00\x00\x00"} {
		copied := filepath.Join(t.TempDir(), "r")
		if err := copyFiles(copied, dir); err != nil {
			t.Fatal(err)
		}
		appendTo(t, filepath.Join(copied, TablePods.live()), torn)
		appendTo(t, filepath.Join(copied, "metrics/wal/00000000"), torn)
		r := open(t, copied)
		if ps, err := r.Pods(); len(ps) != 20 || err != nil {
			t.Errorf("%q: %d pods, %v; want the 20 whole ones", torn, len(ps), err)
		}
		if v, ok, err := r.Increase("requests_total", nil, Window{at(-1), at(30)}); v != 190 || !ok || err != nil {
			t.Errorf("%q: %v, %v, %v", torn, v, ok, err)
		}
		if m := r.Meta(); !m.Ended.Equal(at(19.1)) {
			t.Errorf("%q: ended %v, not with the last observation", torn, m.Ended)
		}
	}
}

func TestMangledMiddleLine(t *testing.T) {
	dir := crashed(t)
	path := filepath.Join(dir, TableRequests.live())
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[10] = '\n'
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "requests.jsonl: line 1") {
		t.Errorf("got %v", err)
	}
}

func appendTo(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestOpenDoesNotDisturbAWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, Meta{})
	for range 3 {
		if _, err := Open(dir); !errors.Is(err, ErrLive) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
			t.Errorf("got %v", err)
		}
		w.Node(NodeSample{Name: "n"})
		w.flush()
	}
	finish(t, w)
	if ns, err := open(t, dir).Nodes(); len(ns) != 1 || err != nil {
		t.Errorf("%v, %v", ns, err)
	}
}

func TestManyOpenADeadRecordingAtOnce(t *testing.T) {
	dir := crashed(t)
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			r, err := Open(dir)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			if ps, err := r.Pods(); len(ps) != 20 || err != nil || r.Meta().Status != StatusIncomplete {
				t.Errorf("%d pods, %v, %s", len(ps), err, r.Meta().Status)
			}
			if v, ok, err := r.Increase("requests_total", nil, Window{at(-1), at(30)}); v != 190 || !ok || err != nil {
				t.Errorf("%v, %v, %v", v, ok, err)
			}
		})
	}
	group.Wait()
}

// TestFinishMayDieAnywhere stops finishing after each of its steps: what
// follows must come to the same end.
func TestFinishMayDieAnywhere(t *testing.T) {
	done := crashed(t)
	open(t, done)
	for _, step := range [][]string{
		{"pods.parquet"},
		{"pods.parquet", "requests.parquet", "profiles/index.json"},
		{"pods.parquet", "requests.parquet", "profiles/index.json", "metrics"},
	} {
		dir := crashed(t)
		for _, name := range step {
			from, to := filepath.Join(done, name), filepath.Join(dir, name)
			if info, err := os.Stat(from); err == nil && info.IsDir() {
				if err := copyFiles(to, from); err != nil {
					t.Fatal(err)
				}
			} else if err := copyFile(to, from); err != nil {
				t.Fatal(err)
			}
		}
		r := open(t, dir)
		if v, ok, err := r.Increase("requests_total", nil, Window{at(-1), at(30)}); v != 190 || !ok || err != nil {
			t.Errorf("after %v: %v, %v, %v", step, v, ok, err)
		}
		if s, err := r.Points("requests_total", nil, Window{at(-1), at(30)}); err != nil || len(s) != 1 || len(s[0].Points) != 20 {
			t.Errorf("after %v: %v, %v", step, s, err)
		}
		if ps, err := r.Pods(); len(ps) != 20 || err != nil {
			t.Errorf("after %v: %d pods, %v", step, len(ps), err)
		}
	}
	// Dead between the last two steps: finished, and waste is left.
	waste := filepath.Join(done, liveDir)
	if err := os.Mkdir(waste, 0o755); err != nil {
		t.Fatal(err)
	}
	if open(t, done).Meta().Status != StatusIncomplete {
		t.Error("status changed")
	}
	if _, err := os.Stat(waste); err == nil {
		t.Error("waste is left")
	}
}

func TestNotARecording(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	mustWrite(t, file, "")
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, meta, want string }{
		{"nothing", filepath.Join(dir, "none"), "", "no recording at"},
		{"a file", file, "", "it is a file"},
		{"an empty folder", empty, "", "it has no recording.json"},
		{"another tool's", "", `{"name": "x"}`, "has no schema"},
		{"torn", "", `{"schema": 1, "na`, "recording.json is damaged"},
		{"wrong type", "", `{"schema": 1, "name": 7}`, "recording.json is damaged"},
		{"newer", "", `{"schema": 99, "name": ["changed"]}`, "newer kubedyno: it has schema 99, and this one reads up to 1; update kubedyno"},
	} {
		path := c.path
		if path == "" {
			path = t.TempDir()
			mustWrite(t, filepath.Join(path, MetaFile), c.meta)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %s", c.name, err, c.want)
		}
	}
}

func mustWrite(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestNamesStayInside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w := create(t, dir, Meta{})
	fill(t, w)
	finish(t, w)
	mustWrite(t, filepath.Join(dir, "..", "secret"), "secret")
	if err := os.Symlink("../../secret", filepath.Join(dir, "logs", "evil.log")); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir)
	if _, err := r.ReadProfile(ProfileRef{File: "../secret"}); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("profile: %v", err)
	}
	if _, err := r.Log("evil"); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("log: %v", err)
	}
	if _, err := r.Log("../../secret"); !errors.Is(err, ErrMissing) {
		t.Errorf("log: %v", err)
	}
}
