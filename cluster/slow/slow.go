// Package slow makes things that a process relies on take longer: its syncs to
// disk, and its connections.
//
// Nothing of the process itself is changed. Syncs are held by the kernel
// (seccomp's user notification) until we let them go, so that they show in the
// process's own metrics; connections go through a proxy on loopback that passes
// everything on after a while. Both last as long as who made them.
//
// Start with Syncs and Proxy.
package slow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A Proxy passes connections on to another address of this machine.
type Proxy struct {
	listener net.Listener
	delay    time.Duration // of each direction

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	all    sync.WaitGroup
}

// Listen opens a proxy on a free port of loopback. What goes there and back
// takes roundTrip longer.
func Listen(roundTrip time.Duration) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("delay connections: %w", err)
	}
	return &Proxy{listener: l, delay: roundTrip / 2, conns: map[net.Conn]bool{}}, nil
}

// Port is where it listens.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Serve passes connections on to address until Close.
func (p *Proxy) Serve(ctx context.Context, address string) {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.pass(ctx, from, address) })
	}
}

// Close ends all connections and returns when they have ended.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
	return err
}

func (p *Proxy) pass(ctx context.Context, from net.Conn, address string) {
	if !p.keep(from) {
		return
	}
	defer p.drop(from)
	var d net.Dialer
	to, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return // who connected sees it end, as if it had been refused
	}
	if !p.keep(to) {
		return
	}
	defer p.drop(to)
	var both sync.WaitGroup
	both.Go(func() { p.copy(to, from) })
	both.Go(func() { p.copy(from, to) })
	both.Wait()
}

func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// piece is what came, and when it may go on.
type piece struct {
	data []byte
	due  time.Time
}

// inFlight is how many pieces may be under way: a delay is not a limit of the
// bandwidth, unless what comes is far more than etcd ever sends.
const inFlight = 4096

// copy passes on what comes, each piece a delay after it came and in order. It
// returns when from has ended and all is passed on, or nobody takes it.
func (p *Proxy) copy(to, from net.Conn) {
	under := make(chan piece, inFlight)
	var passing sync.WaitGroup
	passing.Go(func() {
		for q := range under {
			time.Sleep(time.Until(q.due))
			if _, err := to.Write(q.data); err != nil {
				_ = from.Close() // ends the reading
				for range under {
				}
				return
			}
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			under <- piece{append([]byte(nil), buf[:n]...), time.Now().Add(p.delay)}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = to.Close()
			}
			break
		}
	}
	close(under)
	passing.Wait()
}
