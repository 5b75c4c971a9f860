package klog

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What klog writes is read back: strings in Go's quotes, as
// internal/serialize/keyvalues.go of klog v2 writes them.
func TestPairsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := rapid.String().Draw(t, "message")
		values := rapid.SliceOfN(rapid.String(), 0, 5).Draw(t, "values")
		line := "E0229 23:59:59.000001       7 a/b.go:12] " + strconv.Quote(message)
		for i, v := range values {
			line += " k" + strconv.Itoa(i) + "=" + strconv.Quote(v)
		}
		l, ok := Parse([]byte(line))
		if !ok || l.Severity != 'E' || l.Month != time.February || l.Day != 29 || string(l.Source) != "a/b.go:12" {
			t.Fatalf("%q: %+v, %v", line, l, ok)
		}
		got, pairs, structured := Message(l.Rest)
		if !structured || string(got) != message {
			t.Fatalf("%q: message %q", line, got)
		}
		for i, want := range values {
			key, value, rest, ok := Pair(pairs)
			if !ok || string(key) != "k"+strconv.Itoa(i) || string(value) != want {
				t.Fatalf("%q: %s=%q", line, key, value)
			}
			pairs = rest
		}
		if len(pairs) != 0 {
			t.Fatalf("%q: %q is left", line, pairs)
		}
	})
}

func TestNoHeader(t *testing.T) {
	for _, s := range []string{"", "I", "X0102 03:04:05.000001 1 a.go:1] x", "I1302 03:04:05.000001 1 a.go:1] x", "I0102 03:04:05.000001 x a.go:1] x", "I0102 03:04:05.000001 1 no bracket", "I0102 03:04:65.000001 1 a.go:1] x", "I0102 03:04:05.000001 1 " + strings.Repeat("a", 300) + "] x"} {
		if l, ok := Parse([]byte(s)); ok {
			t.Errorf("%q: %+v", s, l)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add([]byte("I0102 03:04:05.000001 1 a.go:1] \"m\\\"\" a=\"b\" c=<\n\tx\n > d=[1 \"]\"] e={x} f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, ok := Parse(b)
		if !ok {
			return
		}
		_, pairs, _ := Message(l.Rest)
		for {
			_, _, rest, ok := Pair(pairs)
			if !ok {
				break
			}
			if len(rest) >= len(pairs) {
				t.Fatalf("%q does not get shorter", pairs)
			}
			pairs = rest
		}
	})
}
