package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func realCensus(t testing.TB) census {
	t.Helper()
	c, err := newCensus()
	if err != nil {
		t.Skip(err) // no root, no BTF
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// What the census says of a thread lies between what its files say before and after.
func TestCensusAgreesWithProc(t *testing.T) {
	c := realCensus(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROCESS_TEST_CHILD=burn")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	time.Sleep(200 * time.Millisecond)
	pid := cmd.Process.Pid
	s := scanner{buf: make([]byte, 4096)}
	byFile := func() map[int32]threadStat {
		all := map[int32]threadStat{}
		names, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range names {
			var tid int32
			fmt.Sscan(e.Name(), &tid)
			dir := fmt.Sprintf("/proc/%d/task/%d", pid, tid)
			var x threadStat
			b, err := s.read(dir + "/schedstat")
			if err == nil {
				x.sched, err = parseSchedstat(b)
			}
			if err == nil {
				b, err = s.read(dir + "/status")
			}
			if err == nil {
				x.voluntary, x.involuntary, err = parseSwitches(b)
			}
			if err == nil {
				all[tid] = x
			}
		}
		return all
	}
	compared, moved := 0, 0
	for range 20 {
		before := byFile()
		all, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		after := byFile()
		for _, x := range all[int32(pid)] {
			b, ok1 := before[x.tid]
			a, ok2 := after[x.tid]
			if !ok1 || !ok2 {
				continue
			}
			compared++
			if a.sched.run > b.sched.run {
				moved++
			}
			for _, f := range [][3]int64{
				{b.sched.run, x.sched.run, a.sched.run}, {b.sched.delay, x.sched.delay, a.sched.delay}, {b.sched.count, x.sched.count, a.sched.count},
				{b.voluntary, x.voluntary, a.voluntary}, {b.involuntary, x.involuntary, a.involuntary},
			} {
				if f[1] < f[0] || f[1] > f[2] {
					t.Errorf("thread %d: %+v in the census, %+v before and %+v after", x.tid, x, b, a)
					break
				}
			}
			if x.ppid != int32(os.Getpid()) || x.start <= 0 {
				t.Errorf("thread %d: %+v, its parent is %d", x.tid, x, os.Getpid())
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	if compared == 0 || moved == 0 {
		t.Errorf("%d threads were compared, %d of them ran meanwhile", compared, moved)
	}
}

// counts is a census that says what it is told to.
type counts struct {
	now    map[int32][]threadStat
	fails  error
	closed bool
}

func (c *counts) read() (map[int32][]threadStat, error) { return c.now, c.fails }
func (c *counts) close() error                          { c.closed = true; return nil }

// A process whose threads did not run is not looked at, and its row is written when it
// moves all the same.
func TestWhoRests(t *testing.T) {
	f := newFixture(t)
	f.process(5, 1, 100, 7)
	var got tables
	s := f.scanner(&got)
	c := &counts{now: map[int32][]threadStat{5: {{tid: 5, ppid: 1, start: 1, sched: sched{7, 1, 1}}}}}
	s.census = c
	at := time.Unix(1000, 0)
	step := func(known map[int32]named) {
		t.Helper()
		if err := s.scan(at, known, false); err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
	}
	rows := func() string {
		var all []string
		for _, r := range got.processes {
			all = append(all, fmt.Sprintf("%d:%.2f", r.TimeMicros/1e6-1000, r.UserSeconds))
		}
		return strings.Join(all, " ")
	}
	check := func(want string) {
		t.Helper()
		if got := rows(); got != want {
			t.Errorf("rows at %s, want %s", got, want)
		}
	}
	step(nil)               // 0
	f.process(5, 1, 100, 8) // as it cannot be without having run
	step(nil)               // 1
	step(nil)               // 2
	check("0:0.07")
	c.now[5][0].sched.count++
	step(nil) // 3
	check("0:0.07 2:0.07 3:0.08")
	f.process(5, 1, 100, 9)
	c.now[5] = append(c.now[5], threadStat{tid: 6, ppid: 1, start: 2}) // another thread
	step(nil)                                                          // 4
	check("0:0.07 2:0.07 3:0.08 4:0.09")
	f.process(5, 2, 100, 10)
	c.now[5][0].ppid, c.now[5][1].ppid = 2, 2 // another parent
	step(nil)                                 // 5
	check("0:0.07 2:0.07 3:0.08 4:0.09 5:0.10")
	f.process(5, 2, 100, 11)
	step(map[int32]named{5: {component: "etcd", seq: 1}}) // 6: the run's own are always read
	step(nil)                                             // 7
	check("0:0.07 2:0.07 3:0.08 4:0.09 5:0.10 6:0.11 7:0.11")
	if last := got.processes[len(got.processes)-1]; last.Component != "etcd" {
		t.Errorf("%+v", last)
	}
}

// Sums are kept over threads that end, and over a TID that is used again.
func TestCensusSums(t *testing.T) {
	f := newFixture(t)
	f.process(5, 1, 100, 7)
	var got tables
	s := f.scanner(&got)
	c := &counts{now: map[int32][]threadStat{}}
	s.census = c
	at := time.Unix(1000, 0)
	for i, threads := range [][]threadStat{
		{{tid: 5, start: 1, sched: sched{1, 1e9, 1}, voluntary: 10, involuntary: 1}, {tid: 6, start: 2, sched: sched{1, 2e9, 1}, voluntary: 20, involuntary: 2}},
		{{tid: 5, start: 1, sched: sched{1, 1e9, 1}, voluntary: 11, involuntary: 1}},                                                                             // 6 ended
		{{tid: 5, start: 1, sched: sched{1, 1e9, 2}, voluntary: 12, involuntary: 1}, {tid: 6, start: 9, sched: sched{1, 4e9, 1}, voluntary: 40, involuntary: 4}}, // another 6
		{{tid: 5, start: 1, sched: sched{1, 1e9, 3}, voluntary: 13, involuntary: 1}, {tid: 6, start: 10, sched: sched{1, 0, 1}, voluntary: 1}},                   // and another
	} {
		c.now[5] = threads
		if err := s.scan(at.Add(time.Duration(i)*time.Second), nil, true); err != nil {
			t.Fatal(err)
		}
	}
	var rows []string
	for _, r := range got.processes {
		rows = append(rows, fmt.Sprintf("%g/%d/%d", r.RunDelaySeconds, r.VoluntarySwitches, r.InvoluntarySwitches))
	}
	if got, want := strings.Join(rows, " "), "3/30/3 3/31/3 7/72/7 7/74/7"; got != want {
		t.Errorf("run delay, switches: %s, want %s", got, want)
	}
}

// Without a census, and with one that fails, threads are read file by file.
func TestCensusThatFails(t *testing.T) {
	f := newFixture(t)
	f.process(5, 1, 100, 7)
	f.put("5/task/5/schedstat", "1000 3000000000 7\n")
	f.put("5/task/5/status", "Name:\tp5\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n")
	var got tables
	s := f.scanner(&got)
	c := &counts{fails: errors.New("no such luck")}
	s.census = c
	if err := s.scan(time.Unix(1000, 0), nil, false); err != nil {
		t.Fatal(err)
	}
	if len(got.processes) != 1 || got.processes[0].RunDelaySeconds != 3 || got.processes[0].VoluntarySwitches != 5 {
		t.Errorf("%+v", got.processes)
	}
	if !c.closed || s.census != nil || s.uncounted == nil {
		t.Errorf("the census is still asked: %+v, %v", s.census, s.uncounted)
	}
}
