package diagnose

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubedyno/kubedyno/record"
)

// Requests of the load are those between its first and its last microsecond, and
// one that came at its beginning is none of the time at rest.
func TestSelectRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Int64Range(0, 30)
		window := func(name string) record.Window {
			a := at.Draw(t, name+" from")
			return record.Window{Start: time.UnixMicro(a), End: time.UnixMicro(max(a, at.Draw(t, name+" to")))}
		}
		v := &View{Load: window("load"), Rest: window("rest")}
		if v.Rest.Start.After(v.Load.Start) {
			v.Rest = record.Window{}
		}
		times := rapid.SliceOf(at).Draw(t, "received")
		slices.Sort(times)
		var all, load, rest []record.Request
		for _, x := range times {
			r := record.Request{ReceivedMicros: x}
			all = append(all, r)
			switch received := time.UnixMicro(x); {
			case !received.Before(v.Load.Start) && !received.After(v.Load.End):
				load = append(load, r)
			case v.Rest.Contains(received) && received.Before(v.Load.Start):
				rest = append(rest, r)
			}
		}
		v.selectRequests(all)
		if !slices.Equal(v.Requests, load) || !slices.Equal(v.RestRequests, rest) {
			t.Fatalf("load %v, rest %v: got %v and %v, want %v and %v", v.Load, v.Rest, v.Requests, v.RestRequests, load, rest)
		}
	})
}
