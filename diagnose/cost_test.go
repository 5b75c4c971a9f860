package diagnose_test

import (
	"testing"

	"github.com/kubedyno/kubedyno/diagnose"
)

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		n    float64
		want string
	}{{0, "0 B"}, {999, "999 B"}, {999.6, "1 kB"}, {80_000, "80 kB"}, {1_234_567, "1.23 MB"}, {2_147_483_648, "2.15 GB"}, {10_188_291_636, "10.2 GB"}, {3e15, "3000 TB"}} {
		if got := diagnose.Bytes(c.n); got != c.want {
			t.Errorf("Bytes(%v) = %q, want %q", c.n, got, c.want)
		}
	}
}
