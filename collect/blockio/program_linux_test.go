//go:build linux && (amd64 || arm64)

package blockio

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The committed object is what the source compiles to.
func TestObjectIsFresh(t *testing.T) {
	clang, err := exec.LookPath("clang-14")
	if err != nil {
		t.Skip("no clang-14, with which the committed object was made")
	}
	strip, err := exec.LookPath("llvm-strip-14")
	if err != nil {
		t.Skip("no llvm-strip-14")
	}
	dir := t.TempDir()
	object := filepath.Join(dir, "kernel.o")
	// As bpf2go calls it; see `make bpf`.
	for _, cmd := range []*exec.Cmd{
		exec.Command(clang, "-O2", "-Wall", "-Werror", "-mcpu=v1", "-target", "bpfel", "-c", "kernel.bpf.c", "-g", "-o", object, "-fdebug-prefix-map="+dir+"=.", "-D__TARGET_ARCH_x86"),
		exec.Command(strip, "-g", object),
	} {
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	made, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(code(t, made), code(t, _KernelBytes)) {
		t.Error("kernel_bpfel.o is not what kernel.bpf.c compiles to: run `make bpf`")
	}
}

// code is an object's programs as text, which unlike the file does not depend
// on where it was compiled.
func code(t *testing.T, object []byte) []byte {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for name, p := range spec.Programs {
		out = append(out, fmt.Sprintf("%s %s %s %s\n%v", name, p.SectionName, p.AttachTo, p.License, p.Instructions))
	}
	for name, m := range spec.Maps {
		out = append(out, fmt.Sprintf("map %s %v %d %d %d", name, m.Type, m.KeySize, m.ValueSize, m.MaxEntries))
	}
	slices.Sort(out)
	return fmt.Append(nil, out)
}

// BenchmarkRequest is what the kernel's half costs who writes: the time that
// its programs take, as the kernel counts it. Others' I/O is in it.
func BenchmarkRequest(b *testing.B) {
	allowed(b, EBPF)
	name := prepare(b)
	s, err := loadKernelHalf(true)
	if err != nil {
		b.Fatal(err)
	}
	defer s.close()
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(page)
	for b.Loop() {
		if _, err := f.WriteAt(page, 0); err != nil {
			b.Fatal(err)
		}
	}
	for name, p := range s.coll.Programs {
		st, err := p.Stats()
		if err != nil {
			b.Fatal(err)
		}
		if st.RunCount > 0 {
			b.ReportMetric(float64(st.Runtime.Nanoseconds())/float64(st.RunCount), name+"-ns")
		}
	}
}
