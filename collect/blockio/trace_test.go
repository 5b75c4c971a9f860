package blockio

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const etcd = "            etcd-28435   (  28430) [001] ..... "

// play puts the lines together and says what came of them.
func play(text string) (got []string, m *matcher) {
	m = newMatcher()
	for s := range strings.Lines(text) {
		l, ok := parseLine(strings.TrimSuffix(s, "\n"))
		if !ok {
			got = append(got, "unreadable")
			continue
		}
		if l.lost != 0 {
			got = append(got, fmt.Sprint("lost ", l.lost))
			continue
		}
		m.add(l, func(e *event) {
			what := e.operation
			if e.call != "" {
				what = e.call
			}
			queue := int64(-1)
			if e.issued != 0 {
				queue = (e.issued - e.start) / 1e3
			}
			got = append(got, fmt.Sprintf("%s[%s] %d/%d %s %d:%d %d+%d queue %d took %d error %d", what, e.flags, e.pid, e.tid, e.comm, e.device.major, e.device.minor, e.sector, e.bytes, queue, (e.done-e.start)/1e3, e.errno))
		})
	}
	return got, m
}

func TestTrace(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{
			"a write",
			etcd + " 1797.984162: block_io_start: 254,0 WS 4096 () 344501704 + 8 be,0,5 [etcd]\n" +
				etcd + " 1797.984165: block_rq_issue: 254,0 WS 4096 () 344501704 + 8 be,0,5 [etcd]\n" +
				"          <idle>-0       (-------) [001] ..s1.  1797.984301: block_rq_complete: 254,0 WS () 344501704 + 8 be,0,5 [0]",
			"write[sync] 28430/28435 etcd 254:0 344501704+4096 queue 3 took 139 error 0",
		},
		{
			"merged behind, and an error",
			etcd + " 1.000000: block_io_start: 254,0 R 4096 () 800 + 8 be,0,5 [etcd]\n" +
				etcd + " 1.000003: block_rq_issue: 254,0 R 8192 () 800 + 16 be,0,5 [etcd]\n" +
				etcd + " 1.000009: block_rq_complete: 254,0 R () 800 + 16 be,0,5 [-5]",
			"read[] 28430/28435 etcd 254:0 800+8192 queue 3 took 9 error 5",
		},
		{
			"merged in front",
			etcd + " 1.000000: block_io_start: 254,0 R 4096 () 808 + 8 be,0,5 [etcd]\n" +
				etcd + " 1.000001: block_bio_frontmerge: 254,0 R 800 + 8 [etcd]\n" +
				etcd + " 1.000003: block_rq_issue: 254,0 R 8192 () 800 + 16 be,0,5 [etcd]\n" +
				etcd + " 1.000009: block_rq_complete: 254,0 R () 800 + 16 be,0,5 [0]",
			"read[] 28430/28435 etcd 254:0 800+8192 queue 3 took 9 error 0",
		},
		{
			"a request merged into another is one row",
			etcd + " 1.000000: block_io_start: 254,0 R 4096 () 800 + 8 be,0,5 [etcd]\n" +
				etcd + " 1.000001: block_io_start: 254,0 R 4096 () 808 + 8 be,0,5 [etcd]\n" +
				etcd + " 1.000002: block_rq_merge: 254,0 R 4096 () 808 + 8 be,0,5 [etcd]\n" +
				etcd + " 1.000003: block_rq_issue: 254,0 R 8192 () 800 + 16 be,0,5 [etcd]\n" +
				etcd + " 1.000009: block_rq_complete: 254,0 R () 800 + 16 be,0,5 [0]",
			"read[] 28430/28435 etcd 254:0 800+8192 queue 3 took 9 error 0",
		},
		{
			"in parts",
			etcd + " 1.000000: block_io_start: 254,0 WM 8192 () 800 + 16 be,0,5 [etcd]\n" +
				etcd + " 1.000003: block_rq_issue: 254,0 WM 8192 () 800 + 16 be,0,5 [etcd]\n" +
				etcd + " 1.000009: block_rq_complete: 254,0 WM () 800 + 8 be,0,5 [0]\n" +
				etcd + " 1.000010: block_rq_complete: 254,0 WM () 808 + 8 be,0,5 [0]",
			"write[meta] 28430/28435 etcd 254:0 800+8192 queue 3 took 10 error 0",
		},
		{
			"a flush that waits for the block layer's own",
			etcd + " 1.000000: block_io_start: 254,0 FWS 0 () 0 + 0 be,0,4 [dd]\n" +
				"    kworker/1:1H-58      (     58) [001] .....  1.000010: block_rq_issue: 254,0 FF 0 () 0 + 0 none,0,0 [kworker/1:1H]\n" +
				"          <idle>-0       (-------) [001] ..s1.  1.000070: block_rq_complete: 254,0 FF () 18446744073709551615 + 0 none,0,0 [0]\n" +
				"          <idle>-0       (-------) [001] d.s2.  1.000071: block_rq_complete: 254,0 WS () 0 + 0 be,0,4 [0]",
			"flush[preflush] 0/0  254:0 0+0 queue 0 took 60 error 0|flush[sync,preflush] 28430/28435 dd 254:0 0+0 queue -1 took 71 error 0",
		},
		{
			"calls, an error, a name with all that hurts, an exit without entry",
			etcd + " 1.000000: sys_fsync(fd: 1)\n" +
				"  a) [000] (b: c-77      (-------) [000] .....  1.000002: sys_msync(start: 0, len: 0, flags: 0)\n" +
				etcd + " 1.000009: sys_fsync -> 0x0\n" +
				"  a) [000] (b: c-77      (-------) [000] .....  1.000010: sys_msync -> 0xffffffffffffffea\n" +
				etcd + " 1.000011: sys_fsync -> 0x0",
			"fsync[] 28430/28435 etcd 0:0 0+0 queue -1 took 9 error 0|msync[] 77/77 a) [000] (b: c 0:0 0+0 queue -1 took 8 error 22",
		},
		{"lost", "CPU:1 [LOST 123 EVENTS]\nCPU:0 [LOST EVENTS]\nnonsense", "lost 123|lost -1|unreadable"},
	} {
		got, m := play(c.in)
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, s, c.want)
		}
		if len(m.inflight)+len(m.left)+len(m.calling) > 0 || m.skipped > 0 {
			t.Errorf("%s: left behind: %v %v %v, %d skipped", c.name, m.inflight, m.left, m.calling, m.skipped)
		}
	}
}

func FuzzTrace(f *testing.F) {
	f.Add(etcd + " 1797.984162: block_io_start: 254,0 WS 4096 () 344501704 + 8 be,0,5 [etcd]")
	f.Add("          <idle>-0       (-------) [001] ..s1.  1.0: block_rq_complete: 254,0 FF () 18446744073709551615 + 0 none,0,0 [0]")
	f.Add(etcd + " 1.000009: sys_fsync -> 0xffffffffffffffea")
	f.Add("CPU:1 [LOST 123 EVENTS]")
	f.Fuzz(func(t *testing.T, s string) {
		m := newMatcher()
		for range 3 { // the second time something is in flight
			if l, ok := parseLine(s); ok && l.lost == 0 {
				if l.event == "" || l.at < 0 {
					t.Errorf("%q: %+v", s, l)
				}
				m.add(l, func(e *event) {
					if e.sector < 0 && !strings.Contains(s, fmt.Sprint(uint64(e.sector))) || e.bytes < 0 || e.done < e.start && e.done == 0 {
						t.Errorf("%q: %+v", s, e)
					}
				})
			}
		}
		operation, flags := parseRWBS(s, 0)
		if !slices.Contains([]string{"read", "write", "flush", "discard", "other"}, operation) {
			t.Errorf("%q is operation %q, flags %q", s, operation, flags)
		}
	})
}
