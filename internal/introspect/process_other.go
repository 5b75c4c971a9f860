//go:build !linux

package introspect

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

func ofProcess() []prometheus.Collector {
	return []prometheus.Collector{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
}
