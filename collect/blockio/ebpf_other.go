//go:build linux && !amd64 && !arm64

package blockio

import (
	"fmt"
	"runtime"
)

func openEBPF(bool) (source, error) {
	return nil, fmt.Errorf("the eBPF programs are built for amd64 and arm64, not for %s", runtime.GOARCH)
}
