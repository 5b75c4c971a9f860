package profile

import (
	"bytes"
	"path"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"
)

// TestTold holds what is stored as it came against pprof's own reading and writing.
func TestTold(t *testing.T) {
	for _, kind := range []string{"heap", "goroutine", "mutex"} {
		var packed bytes.Buffer
		if err := pprof.Lookup(kind).WriteTo(&packed, 0); err != nil {
			t.Fatal(err)
		}
		message, err := unpack(packed.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		want, err := profile.ParseData(packed.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		paths := 0
		for _, m := range want.Mapping {
			if strings.Contains(m.File, "/") {
				paths++
			}
			if m.File != "" {
				m.File = path.Base(m.File)
			}
		}
		if paths == 0 {
			t.Errorf("%s: no file has a path, so that nothing is checked", kind)
		}
		want.Comments = append(want.Comments, "a comment")
		out, samples, err := told(message, "a comment")
		if err != nil {
			t.Fatal(err)
		}
		got, err := profile.ParseUncompressed(out)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() || strings.Join(got.Comments, "|") != strings.Join(want.Comments, "|") || samples != len(want.Sample) {
			t.Errorf("%s: %d samples\n%.1500s\nwant %d\n%.1500s", kind, samples, got, len(want.Sample), want)
		}
		if again, _, err := told(out, "another"); err != nil || bytes.Contains(again, []byte("/profile.test")) {
			t.Errorf("%s: %v, or a path travels", kind, err)
		}
		half := len(message) / 2
		for wholeUpTo(message, half) == half {
			half++ // what ends with a field is a profile, a shorter one
		}
		for _, torn := range [][]byte{message[:half], message[:1], nil, []byte("404 page not found\n"), []byte("{}")} {
			if _, _, err := told(torn, ""); err == nil {
				t.Errorf("%.100q is a profile", torn)
			}
		}
	}
	if _, err := unpack([]byte{0x1f, 0x8b, 1}); err == nil {
		t.Error("a torn package was unpacked")
	}
}

// wholeUpTo is where the last field ends that is whole in the first n bytes.
func wholeUpTo(message []byte, n int) (end int) {
	for end < n {
		_, _, length := protowire.ConsumeField(message[end:])
		if length < 0 || end+length > n {
			break
		}
		end += length
	}
	return end
}

func FuzzTold(f *testing.F) {
	f.Add([]byte("\n\x04\b\x01\x10\x022\x002\x05inuse2\x05bytes\x1a\x04\b\x01(\x01"))
	f.Fuzz(func(t *testing.T, message []byte) {
		out, _, err := told(message, "c")
		if err != nil {
			return
		}
		// What pprof can read it can read still.
		if before, err := profile.ParseUncompressed(message); err == nil {
			after, err := profile.ParseUncompressed(out)
			if err != nil || len(after.Sample) != len(before.Sample) {
				t.Errorf("%v: %q", err, message)
			}
		}
	})
}
