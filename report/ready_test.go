package report

import (
	"testing"

	"github.com/kubedyno/kubedyno/report/browsertest"
)

// TestReady says when a page can be used, and holds that of 30,000 pods to a
// few times that of 1,500: its charts and tables have bounds, and so has the
// time that they take.
func TestReady(t *testing.T) {
	ctx := browsertest.New(t)
	ready := func(pods int) float64 {
		file := write(t, assemble([]Round{round(long(pods), Input{})}, RenderOptions{}))
		best := 0.0
		for i := range 3 { // the first has the browser's own beginnings in it
			w := browsertest.Watch(t, ctx)
			browsertest.Open(t, ctx, file, 1280, false)
			w.Check(t, file)
			ms := browsertest.Eval[float64](t, ctx, `performance.getEntriesByName('ready')[0].startTime`)
			if i == 0 || ms < best {
				best = ms
			}
		}
		return best
	}
	few, many := ready(1500), ready(30_000)
	t.Logf("ready after %.0f ms with 1,500 pods, after %.0f ms with 30,000; the page's budget is 1,500 ms", few, many)
	if many > 6*few {
		t.Errorf("30,000 pods take %.1f times as long as 1,500", many/few)
	}
}
