package blockio

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

const (
	blocks    = 256
	blockSize = 12288 // three pages: the journal writes one at a time
)

// made is how often the child makes each call.
var made = map[string]int{"fsync": 7, "fdatasync": 5, "sync_file_range": 3, "msync": 2, "syncfs": 1}

func TestMain(m *testing.M) {
	switch os.Getenv("BLOCKIO_TEST_CHILD") {
	case "write":
		die(write(os.Args[1]))
		return
	case "hold":
		_, err := openTracefs(true)
		die(err)
		fmt.Println("open")
		time.Sleep(time.Minute) // until it is killed
		return
	case "unprivileged":
		die(unprivileged(os.Args[1]))
		return
	}
	goleak.VerifyTestMain(m)
}

func die(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// called is a system call as its caller saw it, CLOCK_MONOTONIC in ns.
type called struct {
	Call       string
	Begin, End int64
}

func monotonic() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

func write(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	page, err := unix.Mmap(-1, 0, 4*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		return err
	}
	for i := range blocks { // with holes between, so that none are merged
		if _, err := f.WriteAt(page[:blockSize], int64(i)*2*blockSize); err != nil {
			return err
		}
	}
	shared, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	fd := int(f.Fd())
	var done []called
	for call, do := range map[string]func() error{
		"fsync":           func() error { return unix.Fsync(fd) },
		"fdatasync":       func() error { return unix.Fdatasync(fd) },
		"sync_file_range": func() error { return unix.SyncFileRange(fd, 0, 4096, unix.SYNC_FILE_RANGE_WRITE) },
		"msync":           func() error { shared[0]++; return unix.Msync(shared, unix.MS_SYNC) },
		"syncfs":          func() error { return unix.Syncfs(fd) },
	} {
		for range made[call] {
			begin := monotonic()
			err := do()
			done = append(done, called{call, begin, monotonic()})
			if err != nil {
				return fmt.Errorf("%s: %w", call, err)
			}
		}
	}
	if err := unix.Fsync(-1); err != unix.EBADF {
		return fmt.Errorf("fsync of nothing: %v", err)
	}
	return json.NewEncoder(os.Stdout).Encode(done)
}

// tables keeps what a collector writes.
type tables struct {
	mu    sync.Mutex
	io    []record.BlockIO
	syncs []record.Sync
	gaps  []record.Gap
}

func (s *tables) BlockIO(r record.BlockIO) { s.mu.Lock(); defer s.mu.Unlock(); s.io = append(s.io, r) }
func (s *tables) Sync(r record.Sync)       { s.mu.Lock(); defer s.mu.Unlock(); s.syncs = append(s.syncs, r) }
func (s *tables) Gap(g record.Gap)         { s.mu.Lock(); defer s.mu.Unlock(); s.gaps = append(s.gaps, g) }

// prepare makes a file whose blocks have their place on the disk.
func prepare(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if unix.Major(st.Dev) == 0 {
		t.Skip("the folder for temporary files is not on a block device")
	}
	if _, err := f.Write(make([]byte, 2*blocks*blockSize)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return name
}

// allowed skips where the kernel really does not let us look: it is asked
// without the code under test.
func allowed(t testing.TB, source Source) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if source == Tracefs {
		fd, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
		if err != nil {
			t.Skipf("no tracefs: %v", err)
		}
		unix.Close(fd)
		return
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skipf("no BTF: %v", err)
	}
	// An empty socket filter needs CAP_BPF only where unprivileged BPF is off,
	// and is refused where BPF is.
	insns := [2]uint64{0x00000000000000b7, 0x0000000000000095} // r0 = 0; exit
	license := []byte("GPL\x00")
	attr := struct {
		progType, insnCnt uint32
		insns, license    uint64
		pad               [15]uint64
	}{progType: 1, insnCnt: 2, insns: uint64(uintptr(unsafe.Pointer(&insns[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0])))}
	const progLoad = 5
	fd, _, errno := unix.Syscall(unix.SYS_BPF, progLoad, uintptr(unsafe.Pointer(&attr)), 72)
	if errno != 0 {
		t.Skipf("no eBPF: %v", errno)
	}
	unix.Close(int(fd))
}

// observe runs collectors of the sources while during runs.
func observe(t *testing.T, during func(), sources ...Source) []*tables {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out []*tables
	var running sync.WaitGroup
	for _, source := range sources {
		got := &tables{}
		out = append(out, got)
		c := New(Options{Source: source, Component: func(pid int32) string {
			if pid == int32(os.Getpid()) {
				return "me"
			}
			return fmt.Sprint("c", pid)
		}})
		s, err := c.open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		running.Go(func() {
			if err := c.collect(ctx, s, got); err != nil {
				t.Error(err)
			}
			if a := c.Account(); a.Samples != int64(len(got.io)+len(got.syncs)) || a.CPUSeconds <= 0 || a.Note == "" {
				t.Errorf("account: %+v", a)
			}
		})
	}
	during()
	cancel()
	running.Wait()
	return out
}

// diskWrites are the sectors that /proc/diskstats counts for a device.
func diskWrites(t *testing.T, name string) (sectors int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		if f := strings.Fields(l); len(f) > 9 && f[2] == name {
			fmt.Sscan(f[9], &sectors)
		}
	}
	return sectors
}

// A child that writes and syncs a known number of times is seen exactly, by
// both sources at once, and they tell the same.
func TestKnownWrites(t *testing.T) {
	allowed(t, EBPF)
	allowed(t, Tracefs)
	name := prepare(t)
	var done []called
	var pid int32
	writes := map[string]int64{} // by device, before and after
	var edges [4]int64           // around the two readings, µs since the epoch
	got := observe(t, func() {
		time.Sleep(100 * time.Millisecond) // until what was under way before is over
		edges[0] = time.Now().UnixMicro()
		b, _ := os.ReadFile("/proc/diskstats")
		for l := range strings.Lines(string(b)) {
			dev := strings.Fields(l)[2]
			writes[dev] = diskWrites(t, dev)
		}
		edges[1] = time.Now().UnixMicro()
		cmd := exec.Command(os.Args[0], name)
		cmd.Env = append(os.Environ(), "BLOCKIO_TEST_CHILD=write")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pid = int32(cmd.Process.Pid)
		edges[2] = time.Now().UnixMicro()
		for dev, before := range writes {
			writes[dev] = diskWrites(t, dev) - before
		}
		edges[3] = time.Now().UnixMicro()
		if err := json.Unmarshal(out.Bytes(), &done); err != nil {
			t.Fatal(err)
		}
	}, EBPF, Tracefs)

	for i, source := range []Source{EBPF, Tracefs} {
		t.Run(string(source), func(t *testing.T) {
			checkWrites(t, got[i], pid, writes, edges)
			checkSyncs(t, got[i], pid, done)
			for _, g := range got[i].gaps {
				if source == EBPF && strings.Contains(g.Reason, "the kernel did not tell the end of") {
					t.Log(g.Reason)
					continue
				}
				t.Errorf("gap: %+v", g)
			}
		})
	}
	// What only eBPF can tell of flags is left out.
	key := func(r record.BlockIO) string {
		flags := strings.Split(r.Flags, ",")
		flags = slices.DeleteFunc(flags, func(f string) bool { return f == "prio" || f == "idle" || f == "background" })
		return fmt.Sprint(r.Operation, " ", flags, " ", r.Device, " ", r.Sector, "+", r.Bytes, " ", r.Command, " ", r.Component, " ", r.Error, " issued ", r.IssuedMicros > 0)
	}
	var keys [2][]string
	for i := range got {
		for _, r := range got[i].io {
			if r.PID == pid {
				keys[i] = append(keys[i], key(r))
			}
		}
		slices.Sort(keys[i])
	}
	if !slices.Equal(keys[0], keys[1]) {
		t.Errorf("the sources differ: %d and %d rows\nebpf:\n%s\ntracefs:\n%s", len(keys[0]), len(keys[1]), strings.Join(keys[0], "\n"), strings.Join(keys[1], "\n"))
	}
	t.Logf("%d requests of the child, %d of the machine", len(keys[0]), len(got[0].io))
}

func checkWrites(t *testing.T, got *tables, pid int32, counted map[string]int64, edges [4]int64) {
	n, endless, bytes, device := 0, 0, int64(0), ""
	// What was done close to a reading may be on either side of it.
	const close = 20_000
	least, most := map[string]int64{}, map[string]int64{}
	for _, r := range got.io {
		if r.Operation == "write" {
			if r.DoneMicros >= edges[1]+close && r.DoneMicros < edges[2]-close {
				least[r.Device] += r.Bytes / 512
			}
			if r.DoneMicros == 0 || r.DoneMicros >= edges[0]-close && r.DoneMicros < edges[3]+close {
				most[r.Device] += r.Bytes / 512
			}
		}
		if r.DoneMicros != 0 && (r.DoneMicros < r.TimeMicros || r.IssuedMicros != 0 && (r.IssuedMicros < r.TimeMicros || r.DoneMicros < r.IssuedMicros)) {
			t.Errorf("out of order: %+v", r)
		}
		if r.PID != pid || r.Operation != "write" || r.Bytes != blockSize || strings.Contains(r.Flags, "meta") || !strings.Contains(r.Flags, "sync") {
			continue
		}
		n++
		bytes += r.Bytes
		device = r.Device
		if r.DoneMicros == 0 {
			endless++
		}
		if r.IssuedMicros == 0 || r.Component != fmt.Sprint("c", pid) || r.Command == "" || r.Error != 0 {
			t.Errorf("a write of the child: %+v", r)
		}
	}
	if endless > 0 && !slices.ContainsFunc(got.gaps, func(g record.Gap) bool { return strings.Contains(g.Reason, "did not tell the end of") }) {
		t.Errorf("%d writes without an end, and no gap", endless)
	}
	if n != blocks || bytes != blocks*blockSize {
		t.Errorf("%d writes of %d bytes in all, the child made %d of %d", n, bytes, blocks, blocks*blockSize)
	}
	if d := counted[device]; d < least[device] || d > most[device] || d < blocks*blockSize/512 {
		t.Errorf("%s: %d to %d sectors written, /proc/diskstats says %d", device, least[device], most[device], d)
	}
	t.Logf("%s: %d to %d sectors written, /proc/diskstats says %d", device, least[device], most[device], counted[device])
}

func checkSyncs(t *testing.T, got *tables, pid int32, done []called) {
	n := map[string]int{}
	bad := 0
	clock := offset()
	nearest := int64(1 << 62) // between what the kernel and the caller measured
	slices.SortFunc(got.syncs, func(a, b record.Sync) int { return cmp.Compare(a.TimeMicros, b.TimeMicros) })
	for _, r := range got.syncs {
		if r.PID != pid {
			continue
		}
		if r.Error == int32(syscall.EBADF) {
			bad++
			continue
		}
		i := n[r.Call]
		n[r.Call]++
		if r.Component != fmt.Sprint("c", pid) || r.TID == 0 || r.Command == "" || r.Error != 0 {
			t.Errorf("a call of the child: %+v", r)
		}
		// The kernel's time lies inside the caller's. The clocks' offset was
		// taken at another moment, and tracefs cuts to microseconds.
		const slack = 500_000
		mine := slices.DeleteFunc(slices.Clone(done), func(c called) bool { return c.Call != r.Call })
		if i >= len(mine) || r.TimeMicros*1e3-clock < mine[i].Begin-slack || r.DoneMicros*1e3-clock > mine[i].End+slack {
			t.Errorf("the child has no such call: %+v", r)
			continue
		}
		nearest = min(nearest, mine[i].End-mine[i].Begin-(r.DoneMicros-r.TimeMicros)*1e3)
	}
	for call, want := range made {
		if n[call] != want {
			t.Errorf("%d calls of %s, the child made %d", n[call], call, want)
		}
	}
	if bad != 1 {
		t.Errorf("%d calls that failed, the child made one", bad)
	}
	// The caller may lose its CPU on either side of a call, but not each time.
	if nearest > 1e6 || nearest < -2000 {
		t.Errorf("each call took the kernel at least %d ns less than its caller", nearest)
	}
}

// Without rights there is one gap that says what to do, and no error.
func TestWithoutRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	dir, err := os.MkdirTemp("", "blockio-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "program")
	in, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	out.Close()
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, filepath.Join(dir, "r"))
	cmd.Dir = dir
	cmd.Env = []string{"BLOCKIO_TEST_CHILD=unprivileged"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var gaps []record.Gap
	if err := json.Unmarshal(text, &gaps); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(gaps) != 1 || gaps[0].Collector != "blockio" || !strings.Contains(gaps[0].Reason, "run as root, or grant CAP_BPF and CAP_PERFMON") {
		t.Errorf("gaps: %+v", gaps)
	}
	t.Log(gaps[0].Reason)
}

func unprivileged(dir string) error {
	w, err := record.Create(dir, record.Meta{})
	if err != nil {
		return err
	}
	if err := collect.Start(context.Background(), w, New(Options{})).Stop(); err != nil {
		return err
	}
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "blockio.parquet")); err == nil {
		return fmt.Errorf("a table of what was not observed")
	}
	return json.NewEncoder(os.Stdout).Encode(w.Meta().Gaps)
}

// An instance that a killed process left is removed by the next collector;
// one that is in use is not.
func TestStaleInstance(t *testing.T) {
	allowed(t, Tracefs)
	root, err := mountTracefs()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BLOCKIO_TEST_CHILD=hold")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	of := fmt.Sprintf("%s%d-", instancePrefix, cmd.Process.Pid)
	there := func() bool {
		return slices.ContainsFunc(instanceNames(root), func(s string) bool { return strings.HasPrefix(s, of) })
	}
	use := func() {
		s, err := openTracefs(true)
		if err != nil {
			t.Fatal(err)
		}
		s.close()
	}
	use()
	if !there() {
		t.Error("an instance in use was removed")
	}
	cmd.Process.Kill()
	cmd.Wait()
	if !there() {
		t.Error("the kernel removed the instance of a killed process by itself: nothing to test")
	}
	use()
	if there() {
		t.Error("the instance of a killed process is still there")
	}
	if mine := fmt.Sprintf("%s%d-", instancePrefix, os.Getpid()); slices.ContainsFunc(instanceNames(root), func(s string) bool { return strings.HasPrefix(s, mine) }) {
		t.Error("our own instance is still there")
	}
}

// fake is a source of known events.
type fake struct {
	events  []event
	missing int64
	stop    func()
}

func (s *fake) drain(f func(*event)) error {
	for i := range s.events {
		f(&s.events[i])
	}
	s.events = nil
	s.stop()
	return nil
}
func (s *fake) finish(f func(*event)) error {
	f(&event{start: 9e9, operation: "write", bytes: 7})
	return nil
}
func (s *fake) lost() int64     { return s.missing }
func (s *fake) note() string    { return "fake" }
func (s *fake) noSyncs() string { return "because" }
func (s *fake) close()          {}

// What is above the bound, and what the kernel lost, is counted and a gap.
func TestBounds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &fake{missing: 5, stop: cancel}
	for i := range 10 {
		s.events = append(s.events, event{start: 1e9 + int64(i), done: 1e9 + int64(i) + 5, operation: "read"})
	}
	s.events = append(s.events, event{start: 3e9, done: 3e9 + 1, call: "fsync", pid: 3})
	var got tables
	c := New(Options{MaxRows: 4})
	if err := c.collect(ctx, s, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.io) != 5 || len(got.syncs) != 1 {
		t.Errorf("%d and %d rows, want 4 of the first second, the one that never ended, and a call", len(got.io), len(got.syncs))
	}
	if last := got.io[len(got.io)-1]; last.DoneMicros != 0 || last.IssuedMicros != 0 || last.Bytes != 7 {
		t.Errorf("a request that never ended: %+v", last)
	}
	var reasons []string
	for _, g := range got.gaps {
		reasons = append(reasons, g.Subject+": "+g.Reason)
		if g.Subject == "blockio" && (g.Start.IsZero() || !g.End.After(g.Start)) {
			t.Errorf("a gap without extent: %+v", g)
		}
	}
	slices.Sort(reasons)
	want := []string{
		"blockio: 5 events of block I/O or syncs were lost in the kernel: more came than could be kept or read",
		"blockio: 6 rows of block I/O or syncs above 4 in a second were left out",
		"syncs: system calls cannot be observed: because",
	}
	if !slices.Equal(reasons, want) {
		t.Errorf("gaps:\n%s", strings.Join(reasons, "\n"))
	}
}

// sample is an event as the kernel's half writes it.
func sample() []byte {
	b := make([]byte, eventSize)
	le := binary.LittleEndian
	le.PutUint64(b, 1000)
	le.PutUint64(b[8:], 2000)
	le.PutUint64(b[16:], 3000)
	le.PutUint64(b[24:], 344501704)
	le.PutUint32(b[32:], 28430)
	le.PutUint32(b[36:], 28435)
	le.PutUint32(b[40:], 4096)
	le.PutUint32(b[44:], 1|1<<11|1<<12|1<<17)
	le.PutUint32(b[48:], 254)
	copy(b[64:], "etcd")
	return b
}

func TestDecode(t *testing.T) {
	var d decoder
	e, ok := d.decode(sample())
	want := event{start: 1000, issued: 2000, done: 3000, pid: 28430, tid: 28435, comm: "etcd", device: device{254, 0}, operation: "write", flags: "sync,meta,fua", sector: 344501704, bytes: 4096}
	if !ok || e != want {
		t.Errorf("got %+v, want %+v", e, want)
	}
	for _, c := range []struct {
		flags  uint32
		bytes  uint32
		status int32
		want   string
	}{
		{0 | 1<<19, 4096, 0, "read ahead 0"},
		{1 | 1<<18 | 1<<11, 0, 0, "flush sync,preflush 0"},
		{1 | 1<<18, 4096, 10, "write preflush 5"},
		{2 | 1<<18, 0, -5, "flush preflush 5"},
		{3, 1 << 20, 1, "discard  95"},
		{9, 1 << 20, 3, "write  28"},
		{34, 0, 200, "other  5"},
	} {
		b := sample()
		binary.LittleEndian.PutUint32(b[40:], c.bytes)
		binary.LittleEndian.PutUint32(b[44:], c.flags)
		binary.LittleEndian.PutUint32(b[56:], uint32(c.status))
		e, _ := d.decode(b)
		if got := fmt.Sprint(e.operation, " ", e.flags, " ", e.errno); got != c.want {
			t.Errorf("flags %#x: got %s, want %s", c.flags, got, c.want)
		}
	}
	b := sample()
	b[60], b[61] = kindSync, 1
	if e, ok := d.decode(b); !ok || e.call != "fdatasync" || e.operation != "" {
		t.Errorf("a call: %+v", e)
	}
	if b[61] = 77; true {
		if _, ok := d.decode(b); ok {
			t.Error("a call that is none")
		}
	}
	if _, ok := d.decode(b[:eventSize-1]); ok {
		t.Error("half an event")
	}
}

// nothing takes rows and forgets them.
type nothing struct{}

func (nothing) BlockIO(record.BlockIO) {}
func (nothing) Sync(record.Sync)       {}
func (nothing) Gap(record.Gap)         {}

// BenchmarkEvent is what one event costs us, but for the ring and the file.
func BenchmarkEvent(b *testing.B) {
	o := &observation{o: New(Options{MaxRows: 1 << 40}).o, w: nothing{}, disks: disks{path: "/proc/diskstats"}}
	var d decoder
	raw := sample()
	b.ReportAllocs()
	for b.Loop() {
		e, _ := d.decode(raw)
		o.event(&e)
	}
}
