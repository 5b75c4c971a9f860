package report

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubedyno/kubedyno/analysis/logs"
	"github.com/kubedyno/kubedyno/record"
)

func TestRequestGroups(t *testing.T) {
	in := synthRows(0)
	count, seconds := 0, 0.0
	for _, g := range in.requests {
		count += g.Count
		seconds += g.Seconds
		// Its cells say the same once more.
		n, tenths, at := 0, 0, 0
		for i := 0; i < len(g.Cells); i += 3 {
			at += g.Cells[i]
			n += g.Cells[i+1]
			tenths += g.Cells[i+2]
		}
		if n != g.Count {
			t.Errorf("%s %s %s: %d requests in its steps, %d in all", g.Agent, g.Verb, g.Resource, n, g.Count)
		}
		if d := float64(tenths)/1e4 - g.Seconds; d > 1e-4*float64(len(g.Cells)) || -d > 1e-4*float64(len(g.Cells)) {
			t.Errorf("%s %s %s: %v s in its steps, %v in all", g.Agent, g.Verb, g.Resource, float64(tenths)/1e4, g.Seconds)
		}
		if g.Long != (g.Verb == "watch") || g.Long && g.Seconds != 0 {
			t.Errorf("%s %s: long %t, %v s", g.Agent, g.Verb, g.Long, g.Seconds)
		}
	}
	if want := 3*synthPods + 1; count != want {
		t.Errorf("%d requests, want %d", count, want)
	}
	if want := synthPods * 0.015; seconds < want-1e-6 || seconds > want+1e-6 {
		t.Errorf("%v s, want %v", seconds, want)
	}

	// More kinds than there is room for stay in the sum.
	s := newRequestSums(clockOf(in, in.pods))
	for i := range maxGroups + 40 {
		at := in.pods[0].CreatedMicros
		s.add(&record.Request{ReceivedMicros: at, DoneMicros: at + int64(i), Verb: "get", Resource: "r" + string(rune('a'+i)), UserAgent: "a/v1"})
	}
	groups := s.groups()
	count = 0
	for _, g := range groups {
		count += g.Count
	}
	if len(groups) != maxGroups+1 || count != maxGroups+40 || groups[maxGroups].Count != 40 {
		t.Errorf("%d groups with %d requests, the last with %d", len(groups), count, groups[len(groups)-1].Count)
	}
}

// Where the server spent its time is told where it says so of all requests of a
// kind, and of no other.
func TestRequestParts(t *testing.T) {
	in := synthRows(0)
	s := newRequestSums(clockOf(in, in.pods))
	at := in.pods[0].CreatedMicros
	for i := range 10 {
		r := record.Request{ReceivedMicros: at, DoneMicros: at + 1000, Verb: "list", Resource: "pods", UserAgent: "a/v1", EtcdMicros: 250, QueueMicros: 0, WebhookMicros: 0, ResponseBytes: 100}
		s.add(&r)
		r.Verb, r.EtcdMicros = "create", -1 // a write, which v1.36 does not time
		r.WebhookMicros = 2000              // two webhooks at a time
		s.add(&r)
		r.Verb, r.DoneMicros = "watch", 0
		s.add(&r)
		r.Verb, r.DoneMicros, r.QueueMicros, r.WebhookMicros, r.ResponseBytes = "get", at+1000, -1, -1, -1
		if r.EtcdMicros = -1; i == 0 {
			r.EtcdMicros = 10 // one of ten is not all
		}
		s.add(&r)
	}
	say := func(p *float64) string {
		if p == nil {
			return "-"
		}
		return fmt.Sprint(*p)
	}
	got := map[string]string{}
	for _, g := range s.groups() {
		bytes := "-"
		if g.Bytes != nil {
			bytes = fmt.Sprint(*g.Bytes)
		}
		got[g.Verb] = say(g.Etcd) + " " + say(g.Queued) + " " + say(g.Webhooks) + " " + bytes
	}
	for verb, want := range map[string]string{"list": "0.25 0 0 1000", "create": "- 0 1 1000", "watch": "- - - 1000", "get": "- - - -"} {
		if got[verb] != want {
			t.Errorf("%s: %s, want %s", verb, got[verb], want)
		}
	}
}

func TestDiskTracks(t *testing.T) {
	in := synthRows(0)
	got := tracks(clockOf(in, in.pods), in)
	if len(got.Disk) != 3 || got.Disk[0].Unit != "MB/s" || got.Disk[2].Unit != "%" {
		t.Fatalf("%d lines of disks", len(got.Disk))
	}
	in.machine = nil
	if got := tracks(clockOf(in, in.pods), in); len(got.Disk) != 0 {
		t.Errorf("without samples there are %d lines", len(got.Disk))
	}
}

func TestPodTable(t *testing.T) {
	pods := []record.Pod{
		{Namespace: "a", Name: "quick", Node: "n", DueMicros: 1e6, CreatedMicros: 1.1e6, BoundMicros: 1.2e6, RunningMicros: 1.3e6},
		{Namespace: "a", Name: "slow", Node: "n", DueMicros: 1e6, CreatedMicros: 2e6, BoundMicros: 3e6, RunningMicros: 9e6},
		{Namespace: "a", Name: "never", DueMicros: 2e6},
	}
	got := podTable(clock{zero: 1e6, end: 9e6}, pods)
	if got.Names[0] != "a/never" || got.Names[1] != "a/slow" || got.Names[2] != "a/quick" {
		t.Errorf("order %v", got.Names)
	}
	if got.Created[0] != NotSeen || got.Running[0] != NotSeen || got.Node[0] != -1 || got.Asked[0] != 1000 || got.Running[1] != 8000 {
		t.Errorf("%+v", got)
	}
	if many := podTable(clock{}, make([]record.Pod, maxPods+5)); many.Left != 5 || len(many.Names) != maxPods {
		t.Errorf("%d pods and %d left out", len(many.Names), many.Left)
	}
}

// TestLogRows reads the logs of a real run.
func TestLogRows(t *testing.T) {
	rec := recorded(t, 0, func(w *record.Writer, _ rows) {
		for _, c := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			data, err := os.ReadFile(filepath.Join("..", "analysis", "logs", "testdata", c+".log"))
			if err != nil {
				t.Fatal(err)
			}
			f, err := w.LogFile(c)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(data); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	a, err := logs.Analyze(rec, logs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := logRows(rec, clock{zero: rec.Meta().Started.UnixMicro()})
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	for i, r := range rows {
		if r.Kind != "" {
			kinds++
		}
		if r.Count <= 0 || r.Text == "" || r.Component == "" || i > 0 && rows[i-1].Count < r.Count {
			t.Errorf("row %d: %+v", i, r)
		}
	}
	if kinds != len(a.Kinds) || len(rows) == 0 || len(rows) > len(a.Kinds)+2*maxLogRows {
		t.Errorf("%d rows, %d of them kinds; the logs have %d kinds and %d forms", len(rows), kinds, len(a.Kinds), len(a.Templates))
	}
}
