package h2

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// As client-go has it: a connection that was quiet for so long is asked for a
// sign of life, and given up without one.
const (
	quietFor    = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// A Group looks after the connections of many transports: it finds those whose
// server has gone without a word. It does so while there are any.
type Group struct {
	look  time.Duration // how often
	quiet time.Duration
	ping  time.Duration

	mu    sync.Mutex // guards what follows
	conns map[*conn]struct{}
	looks bool // a check is planned
}

// NewGroup makes a group without transports.
func NewGroup() *Group {
	return newGroup(quietFor, pingTimeout)
}

func newGroup(quiet, ping time.Duration) *Group {
	return &Group{look: ping / 3, quiet: quiet, ping: ping, conns: map[*conn]struct{}{}}
}

// Transport makes one that trusts and names itself as conf says, and leaves
// what goes by a proxy to net/http; proxy may be nil.
func (g *Group) Transport(conf *tls.Config, proxy func(*http.Request) (*url.URL, error)) *Transport {
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &Transport{group: g, tls: conf, proxy: proxy, dialing: make(chan struct{}, 1)}
}

func (g *Group) add(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = struct{}{}
	if !g.looks {
		g.looks = true
		time.AfterFunc(g.look, g.check)
	}
}

// of lists a transport's connections, with those that take no new streams.
func (g *Group) of(t *Transport) (all []*conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		if c.t == t {
			all = append(all, c)
		}
	}
	return all
}

func (g *Group) remove(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

var errSilent = errors.New("the server did not answer a ping")

// check pings what was quiet, and gives up what did not answer.
func (g *Group) check() {
	var ask, dead []*conn
	now := time.Now()
	g.mu.Lock()
	for c := range g.conns {
		heard := time.Unix(0, c.heard.Load())
		pinged := time.Unix(0, c.pinged.Load())
		switch {
		case pinged.After(heard):
			if now.Sub(pinged) > g.ping {
				dead = append(dead, c)
			}
		case now.Sub(heard) > g.quiet:
			ask = append(ask, c)
		}
	}
	if g.looks = len(g.conns) > 0; g.looks {
		time.AfterFunc(g.look, g.check)
	}
	g.mu.Unlock()
	for _, c := range dead {
		c.close(errSilent)
	}
	for _, c := range ask {
		c.pinged.Store(now.UnixNano())
		c.control(appendFrame(nil, framePing, 0, 0, make([]byte, 8)))
	}
}
