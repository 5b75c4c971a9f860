// Package introspect lets our own processes be observed as components are: it
// serves their metrics and profiles on a free loopback port.
package introspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a registry with what Go and the kernel know of this
// process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(append(ofProcess(), collectors.NewGoCollector())...)
	return r
}

// Serve exposes metrics, and profiles where asked to, until ctx ends, and
// returns the metrics' URL at once. Wait for done before ending the process.
func Serve(ctx context.Context, metrics prometheus.Gatherer, withPprof bool) (url string, done <-chan error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("metrics port: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	if withPprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	closed := make(chan error, 1)
	go func() {
		defer close(closed)
		stop := context.AfterFunc(ctx, func() { s.Close() })
		defer stop()
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			closed <- err
		}
	}()
	return "http://" + l.Addr().String() + "/metrics", closed, nil
}
