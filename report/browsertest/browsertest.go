// Package browsertest opens pages in a real Chromium, for tests of what they
// show and do.
package browsertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/kubedyno/kubedyno/ui"
)

// one is the Chromium that all tests of a package share.
var one struct {
	sync.Mutex
	ctx context.Context
	end func()
}

// Main runs a package's tests, and ends their Chromium.
func Main(m *testing.M) int {
	code := m.Run()
	one.Lock()
	defer one.Unlock()
	if one.end != nil {
		one.end()
	}
	return code
}

// New opens a tab in a headless Chromium with a fresh profile, which the
// package's TestMain ends. It is part of what `make test` needs; a machine
// without one is told how to get it.
func New(t *testing.T) context.Context {
	t.Helper()
	one.Lock()
	defer one.Unlock()
	if one.ctx == nil {
		start(t)
	}
	ctx, cancel := chromedp.NewContext(one.ctx)
	ctx, timeout := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(func() { timeout(); cancel() })
	return ctx
}

// start needs the lock.
func start(t *testing.T) {
	t.Helper()
	if _, _, built := ui.Bundle(); !built {
		t.Fatal("the report page is not built: run `cd ui && npm ci --no-audit --no-fund && npm run build`, then this test again")
	}
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Fatal("the report page is tested in Chromium, which is not here: run `apt-get update && apt-get install -y chromium`")
	}
	dir, err := os.MkdirTemp("", "kubedyno-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.DisableGPU,
		chromedp.UserDataDir(dir), chromedp.Env("TMPDIR="+dir), // it forgets files of its own there
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("hide-scrollbars", true))
	ctx, cancel := chromedp.NewContext(alloc)
	one.end = func() { cancel(); stop(); _ = os.RemoveAll(dir) }
	if err := chromedp.Do(ctx); err != nil { // tabs open in a browser that runs
		t.Fatal(err)
	}
	one.ctx = ctx
}

// Watched collects what a page must not do: complain, or ask the network.
type Watched struct {
	mu       sync.Mutex
	messages []string
	requests []string
}

// Watch begins to.
func Watch(t *testing.T, ctx context.Context) *Watched {
	t.Helper()
	w := &Watched{}
	if err := chromedp.Listen(ctx, func(ev any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			m := fmt.Sprintf("console.%s", ev.Type)
			for _, a := range ev.Args {
				m += " " + string(a.Value) + a.Description
			}
			w.messages = append(w.messages, m)
		case *runtime.EventExceptionThrown:
			m := ev.ExceptionDetails.Text
			if e := ev.ExceptionDetails.Exception; e != nil {
				m += " " + e.Description
			}
			w.messages = append(w.messages, m)
		case *log.EventEntryAdded:
			w.messages = append(w.messages, ev.Entry.Text)
		case *network.EventRequestWillBeSent:
			w.requests = append(w.requests, ev.Request.URL)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

// Check fails the test for what was seen since the last time. Requests to
// addresses that start with one of ours are the page itself.
func (w *Watched) Check(t *testing.T, ours ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.messages {
		t.Errorf("console: %s", m)
	}
	asked := 0
	for _, r := range w.requests {
		if slices.ContainsFunc(ours, func(o string) bool { return r == o || strings.HasSuffix(o, "/") && strings.HasPrefix(r, o) }) {
			asked++
			continue
		}
		t.Errorf("request to %s", r)
	}
	if asked == 0 {
		t.Error("the browser's requests were not seen, so none can be ruled out")
	}
	w.messages, w.requests = nil, nil
}

// Open loads the file as a reader with that window and colour scheme sees it.
func Open(t *testing.T, ctx context.Context, file string, width int64, dark bool) {
	t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	Call(t, ctx, network.Enable, network.EnableParams{})
	Call(t, ctx, log.Enable, cdp.Empty{})
	Call(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	Call(t, ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: width < 500,
	})
	if err := chromedp.Do(ctx, chromedp.Navigate(file)); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		switch Eval[string](t, ctx, `document.documentElement.dataset.ready || ""`) {
		case "true":
			Rest(t, ctx)
			return
		case "failed":
			t.Fatal(Eval[string](t, ctx, `document.body.innerText`))
		}
		if time.Since(start) > 20*time.Second {
			t.Fatal("the page does not get ready")
		}
	}
}

// Call sends one command of the protocol.
func Call[P, R any](t *testing.T, ctx context.Context, c cdp.Command[P, R], p P) R {
	t.Helper()
	r, err := chromedp.Call(ctx, c, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Eval is the value of an expression in the page.
func Eval[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Rest waits until the page rests: four frames in which nothing in it changed
// or moved. Charts draw in a microtask and fit their column in a frame.
func Rest(t *testing.T, ctx context.Context) {
	t.Helper()
	Eval[bool](t, ctx, `(() => {
  document.documentElement.rests = false
  let quiet = 0, y = scrollY
  const seen = new MutationObserver(() => { quiet = 0 })
  seen.observe(document, {subtree: true, childList: true, attributes: true, characterData: true})
  const frame = () => {
    if (scrollY !== y) { y = scrollY; quiet = 0 }
    if (++quiet < 5) { requestAnimationFrame(frame); return }
    seen.disconnect()
    document.documentElement.rests = true
  }
  requestAnimationFrame(frame)
  return true
})()`)
	Until(t, ctx, "the page rests", "document.documentElement.rests")
}

// Until waits for an expression to become true.
func Until(t *testing.T, ctx context.Context, what, expression string) {
	t.Helper()
	for start := time.Now(); !Eval[bool](t, ctx, "!!("+expression+")"); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// Set gives an input or a select a value, as a reader would.
func Set(t *testing.T, ctx context.Context, selector, value string) {
	t.Helper()
	Eval[bool](t, ctx, fmt.Sprintf(`((sel, v) => {
  const e = document.querySelector(sel)
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), 'value').set.call(e, v)
  e.dispatchEvent(new Event(e.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}))
  return true
})(%q, %q)`, selector, value))
	Rest(t, ctx)
}

// Click clicks on what a selector finds, and waits until the page rests.
func Click(t *testing.T, ctx context.Context, selector string) {
	t.Helper()
	if !Eval[bool](t, ctx, fmt.Sprintf(`(e => { e?.click(); return !!e })(document.querySelector(%q))`, selector)) {
		t.Fatalf("nothing to click on: %s", selector)
	}
	Rest(t, ctx)
}
