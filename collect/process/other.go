//go:build !linux

package process

import (
	"runtime"
	"time"

	"github.com/kubedyno/kubedyno/collect"
)

func bootTime() time.Time { return time.Time{} }

func kernelEvents() (exitSource, error) {
	return nil, collect.NotSupported("%s tells nobody of the end of processes", runtime.GOOS)
}

func newCensus() (census, error) {
	return nil, collect.NotSupported("%s has no BPF", runtime.GOOS)
}
