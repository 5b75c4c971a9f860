package introspect

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url, done, err := Serve(ctx, NewRegistry(), true)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(url string) (int, string) {
		res, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	if code, body := get(url); code != 200 || !strings.Contains(body, "process_cpu_seconds_total ") || !strings.Contains(body, "go_goroutines ") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := get(strings.TrimSuffix(url, "/metrics") + "/debug/pprof/goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile") {
		t.Errorf("%d %s", code, body)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := client.Get(url); err == nil {
		t.Error("it still serves")
	}
}
