package slow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary plays a process that is held, and syncs once.
func TestMain(m *testing.M) {
	if name := os.Getenv("SYNCS"); name != "" {
		runtime.LockOSThread()
		if os.Getenv("HELD") == "" {
			must(Hold(os.NewFile(3, "held")))
			must(os.Setenv("HELD", "yes"))
			must(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
		}
		f, err := os.Create(name)
		must(err)
		_, err = f.WriteString("durable")
		must(err)
		began := time.Now()
		must(f.Sync())
		fmt.Print(time.Since(began))
		return
	}
	goleak.VerifyTestMain(m)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A sync takes as much longer as it should, in the program that the process
// becomes, and does what it did before.
func TestSyncsTakeLonger(t *testing.T) {
	const delay = 150 * time.Millisecond
	syncs, err := NewSyncs(delay)
	if err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "SYNCS="+file)
	cmd.ExtraFiles = []*os.File{syncs.Handle}
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	syncs.Handle.Close()
	served := make(chan error, 1)
	go func() { served <- syncs.Serve(t.Context()) }()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, words.String())
	}
	took, err := time.ParseDuration(out.String())
	if err != nil || took < delay {
		t.Errorf("a sync took %q (%v), with %v more than ever", out.String(), err, delay)
	}
	if b, err := os.ReadFile(file); string(b) != "durable" {
		t.Errorf("the file holds %q (%v)", b, err)
	}
	if err := <-served; err != nil { // the process is gone: there is nothing left to do
		t.Error(err)
	}
}

func TestSyncsOfNobody(t *testing.T) {
	syncs, err := NewSyncs(time.Second)
	if err != nil {
		t.Skip(err)
	}
	syncs.Handle.Close() // the process died before it was held
	if err := syncs.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "before it could be held") {
		t.Errorf("err = %v", err)
	}
}

// echo answers with what it is told.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func proxied(t *testing.T, delay time.Duration, address string) (p *Proxy, dial func() net.Conn) {
	t.Helper()
	p, err := Listen(delay)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		p.Serve(context.Background(), address)
	}()
	t.Cleanup(func() {
		if err := p.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		<-served
	})
	return p, func() net.Conn {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Port()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// What goes there and back takes longer, all of it arrives in order, and many
// messages under way together do not take many times as long.
func TestProxy(t *testing.T) {
	const delay = 100 * time.Millisecond
	_, dial := proxied(t, delay, echo(t))
	c := dial()
	began := time.Now()
	const n = 50
	var sent bytes.Buffer
	go func() {
		for i := range n {
			_, _ = fmt.Fprintf(c, "message %d;", i)
			time.Sleep(time.Millisecond)
		}
	}()
	for i := range n {
		fmt.Fprintf(&sent, "message %d;", i)
	}
	got := make([]byte, sent.Len())
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent.Bytes()) {
		t.Errorf("got %q (%v)", got, err)
	}
	if took := time.Since(began); took < delay || took > n*delay/2 {
		t.Errorf("%d messages took %v there and back", n, took)
	}
	// Who says that it has said everything is still answered.
	large := bytes.Repeat([]byte("x"), 3<<20)
	d := dial().(*net.TCPConn)
	go func() {
		_, _ = d.Write(large)
		_ = d.CloseWrite()
	}()
	back, err := io.ReadAll(d)
	if err != nil || !bytes.Equal(back, large) {
		t.Errorf("%d of %d bytes came back (%v)", len(back), len(large), err)
	}
}

// Nobody behind it: who connects sees the connection end.
func TestProxyToNobody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, dial := proxied(t, time.Millisecond, l.Addr().String())
	if b, err := io.ReadAll(dial()); len(b) != 0 {
		t.Errorf("nobody said %q (%v)", b, err)
	}
}

// Its end ends what goes through it.
func TestProxyCloses(t *testing.T) {
	p, dial := proxied(t, time.Millisecond, echo(t))
	c := dial()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives on")
	}
}
