package browsertest

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/page"
)

// Picture writes what a selector finds as a picture of few colours.
func Picture(t *testing.T, ctx context.Context, selector, file string) int {
	t.Helper()
	beyond := true
	box := Eval[map[string]float64](t, ctx, fmt.Sprintf(`(r => ({x: Math.max(0, r.x + scrollX - 8), y: Math.max(0, r.y + scrollY), w: r.width + 16, h: Math.min(3000, r.height + 8)}))(document.querySelector(%q).getBoundingClientRect())`, selector))
	shot := Call(t, ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Clip: &page.Viewport{X: box["x"], Y: box["y"], Width: box["w"], Height: box["h"], Scale: 1}, CaptureBeyondViewport: &beyond,
	}).Data
	b := indexed(t, shot)
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// indexed keeps the 256 most frequent colours, to which others come near: our
// pages are flat.
func indexed(t *testing.T, shot []byte) []byte {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(Posterise(t, shot)))
	if err != nil {
		t.Fatal(err)
	}
	count := map[color.NRGBA]int{}
	b := img.Bounds()
	at := func(x, y int) color.NRGBA { return color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA) }
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	var all []color.NRGBA
	for c := range count {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, c color.NRGBA) int {
		if d := count[c] - count[a]; d != 0 {
			return d
		}
		return int(a.R)<<16 + int(a.G)<<8 + int(a.B) - int(c.R)<<16 - int(c.G)<<8 - int(c.B)
	})
	var few color.Palette
	for _, c := range all[:min(256, len(all))] {
		few = append(few, c)
	}
	nearest := map[color.NRGBA]uint8{}
	for _, c := range all {
		nearest[c] = uint8(few.Index(c))
	}
	out := image.NewPaletted(b, few)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			out.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	var buf bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buf, out); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// Posterise drops the lowest bits of each colour, which nobody sees on a page
// of flat colours and which cost a third of the file.
func Posterise(t *testing.T, shot []byte) []byte {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	b := img.Bounds()
	out := image.NewNRGBA(b)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			round := func(v uint8) uint8 { return uint8(min(255, (int(v)+4)/8*8)) }
			out.SetNRGBA(x, y, color.NRGBA{round(c.R), round(c.G), round(c.B), 255})
		}
	}
	var buf bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buf, out); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
