package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/kubedyno/kubedyno/report/browsertest"
)

func write(t *testing.T, p Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := WritePage(&b, p); err != nil {
		t.Fatal(err)
	}
	f := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(f, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kB", b.Len()/1000)
	return "file://" + f
}

// inked counts charts whose canvas holds more than one colour.
const inked = `[...document.querySelectorAll('.plot canvas')].filter(c => {
  const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)
  return new Set(d).size > 20
}).length`

const tooWide = `document.documentElement.scrollWidth - innerWidth`

func TestPageInBrowser(t *testing.T) {
	p := synthPage()
	file := write(t, p)
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	for _, c := range []struct {
		name  string
		width int64
		dark  bool
	}{{"light", 1400, false}, {"dark", 1400, true}, {"phone", 360, false}, {"phone-dark", 360, true}} {
		t.Run(c.name, func(t *testing.T) {
			browsertest.Open(t, ctx, file, c.width, c.dark)
			text := browsertest.Eval[string](t, ctx, `document.body.innerText`)
			charts := browsertest.Eval[int](t, ctx, inked)
			wide := browsertest.Eval[int](t, ctx, tooWide)
			background := browsertest.Eval[string](t, ctx, `getComputedStyle(document.documentElement).backgroundColor`)
			shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			if err != nil {
				t.Fatal(err)
			}
			w.Check(t, file)
			if want := 1 + 3*7; /* three rounds; the dose has none of its own */ charts != want {
				t.Errorf("%d charts have something drawn, want %d", charts, want)
			}
			if wide > 0 {
				t.Errorf("the page is %d px wider than its window", wide)
			}
			if dark := background != "rgb(255, 255, 255)"; dark != c.dark {
				t.Errorf("background %s, dark wanted: %t", background, c.dark)
			}
			for _, r := range p.Rounds {
				if !strings.Contains(text, r.Name) {
					t.Errorf("no sign of %s", r.Name)
				}
			}
			if dir := os.Getenv("KUBEDYNO_SCREENSHOTS"); dir != "" { // to look at
				if err := os.WriteFile(filepath.Join(dir, c.name+".png"), shot, 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestPageAnswers walks through what a reader can do, by clicks and by keyboard.
func TestPageAnswers(t *testing.T) {
	file := write(t, synthPage())
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	browsertest.Open(t, ctx, file, 1400, false)
	pixels := `document.querySelectorAll('#time .plot canvas')[14].toDataURL()` // round 3, curves
	before := browsertest.Eval[string](t, ctx, pixels)
	click := func(what, selector string) {
		t.Helper()
		if !browsertest.Eval[bool](t, ctx, fmt.Sprintf(`(e => { if (e) { e.focus(); e.click() } return !!e && document.activeElement === e })(document.querySelector(%q))`, selector)) {
			t.Fatalf("%s: %s cannot be clicked and focused", what, selector)
		}
		browsertest.Rest(t, ctx)
	}
	click("own axes", "#time .switch")
	own := browsertest.Eval[string](t, ctx, pixels)
	if own == before {
		t.Error("own axes draw the same picture as shared ones")
	}
	click("hide a line", "#time .round:nth-child(3) .legend button:nth-child(4)")
	if browsertest.Eval[string](t, ctx, pixels) == own {
		t.Error("a hidden line is still drawn")
	}
	click("another component", "#functions .tabs button:nth-child(1)")
	if got := browsertest.Eval[string](t, ctx, `document.querySelector('#functions tbody').innerText`); !strings.Contains(got, "runtime.futex") {
		t.Errorf("etcd's functions are not shown: %.100s", got)
	}
	click("sort", "#functions thead tr:nth-child(2) th:nth-child(2) button")
	if got := browsertest.Eval[string](t, ctx, `document.querySelector('#functions tbody tr').innerText`); !strings.Contains(got, "runtime.goexit") {
		t.Errorf("the first function by cumulative CPU is %.60s", got)
	}
	click("a function of the table", "#functions tbody tr:nth-child(2) button")
	browsertest.Rest(t, ctx)
	asked := browsertest.Eval[string](t, ctx, `document.querySelector('#functions tbody tr:nth-child(2) code').textContent`)
	if got := browsertest.Eval[string](t, ctx, `document.querySelector('#flame .framename code').textContent`); got != asked {
		t.Errorf("the flame graph shows %s, asked for %s", got, asked)
	}
	click("data of a chart", "#time details.data summary")
	if got := browsertest.Eval[int](t, ctx, `document.querySelectorAll('#time details.data[open] tbody tr').length`); got < 10 {
		t.Errorf("the chart's table has %d rows", got)
	}
	w.Check(t, file)

	// The cursor moves in all charts of a round, and the legend tells the values.
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.querySelectorAll('#time .plot')[0].scrollIntoView({block: 'center'}), true`)); err != nil {
		t.Fatal(err)
	}
	browsertest.Rest(t, ctx)
	box := browsertest.Eval[map[string]float64](t, ctx, `(r => ({x: r.x + r.width / 2, y: r.y + r.height / 2}))(document.querySelectorAll('#time .plot .u-over')[0].getBoundingClientRect())`)
	if err := chromedp.Do(ctx, chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, box["x"], box["y"])); err != nil {
		t.Fatal(err)
	}
	browsertest.Rest(t, ctx)
	if got := browsertest.Eval[int](t, ctx, `document.querySelectorAll('#time .round:nth-child(1) .legend b').length`); got != 4+3+3+8+3+2+1 {
		t.Errorf("%d values are told at the cursor, want those of all charts", got)
	}
}

// TestPageWithHostileText shows that names from a cluster stay text.
func TestPageWithHostileText(t *testing.T) {
	p := synthPage()
	evil := `</script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">` + "\u202eabc" + strings.Repeat("w", 10_000)
	p.Title, p.Verdict = evil, evil
	p.Rounds[0].Name = evil
	p.Rounds[0].Verdict = evil
	p.Rounds[0].Findings[0].Summary = evil
	p.Rounds[0].Findings[0].Set = []string{evil}
	p.Rounds[0].Functions[0].Rows[0].Name = evil
	p.Rounds[0].CPU.Series[0].Component = evil
	r := &p.Rounds[0]
	r.Recording.Machine[0].Value = evil
	r.Recording.Phases[0].Name = evil
	for i := range r.Flames.Names {
		r.Flames.Names[i] = evil + fmt.Sprint(i)
	}
	r.Flames.Notes = []Note{{0, evil}}
	r.Flames.Classes[0] = evil
	r.Flames.Trees[0].Component, r.Flames.Trees[0].Phase = evil, evil
	r.Tracks.Spikes = []Mark{{1, 3, evil}}
	r.Tracks.Rhythms = []Rhythm{{evil, evil, []float64{1}}}
	r.Tracks.Disk[0].Name, r.Tracks.Disk[0].Unit = evil, evil
	for i := range r.Tracks.Requests {
		g := &r.Tracks.Requests[i]
		g.Agent, g.Verb, g.Resource = evil+fmt.Sprint(i), evil, evil
	}
	file := write(t, p)
	ctx := browsertest.New(t)
	w := browsertest.Watch(t, ctx)
	dir := t.TempDir()
	browsertest.Call(t, ctx, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{Behavior: "allow", DownloadPath: dir})
	browsertest.Open(t, ctx, file, 1000, false)
	// Every view that can show a name does.
	for _, step := range []string{
		`[...document.querySelectorAll('#flame button')].find(b => b.textContent === 'table').click()`,
		fmt.Sprintf(set, "#flame input[type=search]", "owned"),
		`[...document.querySelectorAll('#flame .flame')].at(-1).dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown', bubbles: true}))`,
		`[...document.querySelectorAll('#flame .flame')].at(-1).dispatchEvent(new KeyboardEvent('keydown', {key: 's', bubbles: true}))`,
		`[...document.querySelectorAll('#flame button')].find(b => b.textContent === 'svg').click()`,
		`document.querySelectorAll('details').forEach(d => d.open = true)`,
	} {
		browsertest.Eval[any](t, ctx, "("+step+", true)")
		browsertest.Rest(t, ctx)
	}
	if n := browsertest.Eval[int](t, ctx, `document.querySelectorAll('#flame canvas').length`); n != 2 {
		t.Errorf("%d graphs: the sandwich is not shown", n)
	}
	var picture []byte
	for start := time.Now(); len(picture) == 0 && time.Since(start) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
		picture, _ = os.ReadFile(filepath.Join(dir, "flame.svg"))
	}
	if err := wellFormed(picture); err != nil {
		t.Errorf("the saved picture: %v", err)
	}
	w.Check(t, file)
	title := browsertest.Eval[string](t, ctx, `document.title`)
	scripts, images := browsertest.Eval[int](t, ctx, `document.scripts.length`), browsertest.Eval[int](t, ctx, `document.images.length`)
	wide := browsertest.Eval[int](t, ctx, tooWide)
	if title == "owned" || scripts != 2 || images != 0 {
		t.Errorf("title %.20q, %d scripts, %d images", title, scripts, images)
	}
	if wide > 0 {
		t.Errorf("a long word makes the page %d px too wide", wide)
	}
}

// TestPicture writes the README's picture where KUBEDYNO_PICTURE names a file.
func TestPicture(t *testing.T) {
	out := os.Getenv("KUBEDYNO_PICTURE")
	if out == "" {
		t.Skip("writes the README's picture; set KUBEDYNO_PICTURE to a path to make it")
	}
	file := write(t, synthPage())
	if from := os.Getenv("KUBEDYNO_REPORT"); from != "" {
		abs, err := filepath.Abs(from)
		if err != nil {
			t.Fatal(err)
		}
		file = "file://" + abs
	}
	ctx := browsertest.New(t)
	browsertest.Open(t, ctx, file, 1360, false)
	shot := browsertest.Call(t, ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Clip: &page.Viewport{Width: 1360, Height: 900, Scale: 1},
	}).Data
	shot = browsertest.Posterise(t, shot)
	if len(shot) > 200_000 {
		t.Errorf("the picture has %d kB, more than a README should carry", len(shot)/1000)
	}
	if err := os.WriteFile(out, shot, 0o644); err != nil {
		t.Fatal(err)
	}
}
