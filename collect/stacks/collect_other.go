//go:build !linux

package stacks

import (
	"context"
	"runtime"

	"github.com/kubedyno/kubedyno/collect"
)

func (c *Collector) collect(context.Context, sink, func()) error {
	return collect.NotSupported("call stacks of the machine are sampled with Linux' perf_event_open, which %s has not", runtime.GOOS)
}
