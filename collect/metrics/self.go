package metrics

import (
	"bytes"
	"io"
	"net/http"
)

// Local is a target inside this process: it is read without a socket, so that
// we need not listen to be observed.
func Local(component, instance string, h http.Handler) Target {
	return Target{Component: component, Instance: instance, URL: "http://local/metrics", Client: &http.Client{Transport: local{h}}}
}

type local struct{ h http.Handler }

func (l local) RoundTrip(req *http.Request) (*http.Response, error) {
	a := &answer{header: http.Header{}, code: http.StatusOK}
	l.h.ServeHTTP(a, req)
	return &http.Response{
		Status: http.StatusText(a.code), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: req,
	}, nil
}

type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
