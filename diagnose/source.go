package diagnose

import (
	"errors"
	"fmt"

	"github.com/kubedyno/kubedyno/record"
)

// Source is what a diagnosis reads of a recording; *record.Recording is one.
// Methods return an error that wraps record.ErrMissing for what was not
// recorded.
type Source interface {
	Meta() record.Meta
	Pods() ([]record.Pod, error)
	Operations() ([]record.Operation, error)
	Processes() ([]record.ProcessSample, error)
	MachineSamples() ([]record.MachineSample, error)
	Requests() ([]record.Request, error)
	Objects() ([]record.ObjectChange, error)
	Events() ([]record.Event, error)
	Steady() (record.Window, bool)
	Calibration() (*record.Calibration, error)
	Increase(metric string, match map[string]string, w record.Window) (value float64, ok bool, err error)
}

var _ Source = (*record.Recording)(nil)

// optional turns "not recorded" into false; other errors stay errors.
func optional[T any](what string, rows []T, err error) ([]T, bool, error) {
	switch {
	case errors.Is(err, record.ErrMissing):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read %s: %w", what, err)
	}
	return rows, len(rows) > 0, nil
}

// Metrics are those that a diagnosis reads. A recording with no others has the
// same diagnosis.
var Metrics = []string{
	"etcd_disk_wal_fsync_duration_seconds_count",
	"etcd_disk_wal_fsync_duration_seconds_sum",
	"kubedyno_hollow_start_lateness_seconds_count",
	"kubedyno_hollow_start_lateness_seconds_sum",
	"kubedyno_hollow_timer_lateness_seconds_count",
	"kubedyno_hollow_timer_lateness_seconds_sum",
	"rest_client_rate_limiter_duration_seconds_sum",
	"scheduler_framework_extension_point_duration_seconds_count",
	"scheduler_framework_extension_point_duration_seconds_sum",
	"scheduler_permit_wait_duration_seconds_sum",
	"scheduler_plugin_execution_duration_seconds_count",
	"scheduler_plugin_execution_duration_seconds_sum",
	"scheduler_scheduling_algorithm_duration_seconds_count",
	"scheduler_scheduling_algorithm_duration_seconds_sum",
	"scheduler_scheduling_attempt_duration_seconds_count",
	"scheduler_scheduling_attempt_duration_seconds_sum",
	"workqueue_work_duration_seconds_sum",
}
