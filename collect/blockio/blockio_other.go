//go:build !linux

package blockio

import (
	"context"
	"runtime"

	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/record"
)

// Sweep finds nothing: there are no trace instances.
func Sweep() (removed []string) { return nil }

// Collect implements collect.Collector.
func (c *Collector) Collect(context.Context, *record.Writer) error {
	return collect.NotSupported("block I/O by process is read through Linux' tracepoints, which %s has not", runtime.GOOS)
}
