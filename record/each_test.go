package record

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// EachRequest gives what Requests gives, and its caller's error back.
func TestEachRequest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w, err := Create(dir, Meta{Name: "x", Started: time.UnixMicro(1)})
	if err != nil {
		t.Fatal(err)
	}
	const n = 3000 // some batches
	for i := range int64(n) {
		w.Request(Request{ReceivedMicros: i + 1, DoneMicros: i + 2, Verb: "get", Name: string(rune('a' + i%26)), ServerMicros: -1})
	}
	if err := w.Finish(StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	rec, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	want, err := rec.Requests()
	if err != nil {
		t.Fatal(err)
	}
	var got []Request
	if err := rec.EachRequest(func(r *Request) error { got = append(got, *r); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != n || !slices.Equal(got, want) {
		t.Errorf("%d rows differ from %d", len(got), len(want))
	}
	enough := errors.New("enough")
	calls := 0
	if err := rec.EachRequest(func(*Request) error { calls++; return enough }); err != enough || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestEachRequestMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	w, err := Create(dir, Meta{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	w.Gap(Gap{Collector: "requests", Reason: "no audit log here"})
	if err := w.Finish(StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	rec, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if err := rec.EachRequest(func(*Request) error { return nil }); !errors.Is(err, ErrMissing) {
		t.Errorf("%v", err)
	}
}
