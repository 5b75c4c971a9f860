package table

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
)

// BenchmarkAppend gives what one row of a live file costs. The rows of encoding/json are what the
// standard library takes to make the same bytes.
func BenchmarkAppend(b *testing.B) {
	frames := strings.TrimSuffix(strings.Repeat("k8s.io/apiserver/pkg/endpoints/handlers.(*WatchServer).HandleHTTP;", 25), ";")
	for name, row := range map[string]any{
		"request": struct {
			Received  int64  `json:"received"`
			Done      int64  `json:"done"`
			Verb      string `json:"verb"`
			Group     string `json:"group,omitempty"`
			Resource  string `json:"resource"`
			Namespace string `json:"namespace,omitempty"`
			Name      string `json:"name,omitempty"`
			User      string `json:"user"`
			UserAgent string `json:"userAgent"`
			Code      int32  `json:"code"`
		}{
			1_790_000_000_000_000, 1_790_000_000_005_000, "update", "coordination.k8s.io", "leases", "kube-node-lease", "node-0042",
			"system:node:node-0042", "kubedyno-hollow/v0.1.0", 200,
		},
		"stack": struct {
			Stack  int64  `json:"stack"`
			Frames string `json:"frames"`
		}{0x1234_5678_9abc_def0, frames},
	} {
		b.Run(name+"/ours", func(b *testing.B) {
			log, err := CreateLog(os.DevNull)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := log.Append(row); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			if _, err := log.Close(); err != nil {
				b.Fatal(err)
			}
		})
		b.Run(name+"/encoding-json", func(b *testing.B) {
			e := json.NewEncoder(io.Discard)
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Encode(row); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
