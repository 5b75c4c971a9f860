package diagnose

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/pprof/profile"

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
	Exits() ([]record.ProcessExit, error)
	MachineSamples() ([]record.MachineSample, error)
	Cores() ([]record.CoreSample, error)
	Requests() ([]record.Request, error)
	BlockIO() ([]record.BlockIO, error)
	Objects() ([]record.ObjectChange, error)
	Events() ([]record.Event, error)
	Steady() (record.Window, bool)
	Calibration() (*record.Calibration, error)
	Increase(metric string, match map[string]string, w record.Window) (value float64, ok bool, err error)
	Points(metric string, match map[string]string, w record.Window) ([]record.Series, error)
	// Logs names the components that left a log.
	Logs() []string
	Log(component string) (io.ReadCloser, error)
	StackSamples() ([]record.StackSample, error)
	Stacks() ([]record.Stack, error)
	Profiles() []record.ProfileRef
	ReadProfile(ref record.ProfileRef) (*profile.Profile, error)
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
	"aggregator_openapi_v2_regeneration_count",
	"aggregator_unavailable_apiservice",
	"apiextensions_openapi_v2_regeneration_count",
	"apiserver_admission_controller_admission_duration_seconds_count",
	"apiserver_admission_controller_admission_duration_seconds_sum",
	"apiserver_admission_webhook_admission_duration_seconds_count",
	"apiserver_admission_webhook_admission_duration_seconds_sum",
	"apiserver_admission_webhook_fail_open_count",
	"apiserver_admission_webhook_rejection_count",
	"apiserver_authorization_webhook_duration_seconds_count",
	"apiserver_authorization_webhook_duration_seconds_sum",
	"apiserver_cache_list_fetched_objects_total",
	"apiserver_crd_conversion_webhook_duration_seconds_count",
	"apiserver_crd_conversion_webhook_duration_seconds_sum",
	"apiserver_envelope_encryption_kms_operations_latency_seconds_count",
	"apiserver_envelope_encryption_kms_operations_latency_seconds_sum",
	"apiserver_flowcontrol_nominal_limit_seats",
	"apiserver_flowcontrol_priority_level_seat_utilization_count",
	"apiserver_flowcontrol_priority_level_seat_utilization_sum",
	"apiserver_flowcontrol_rejected_requests_total",
	"apiserver_flowcontrol_request_execution_seconds_sum",
	"apiserver_flowcontrol_request_wait_duration_seconds_count",
	"apiserver_flowcontrol_request_wait_duration_seconds_sum",
	"apiserver_init_events_total",
	"apiserver_longrunning_requests",
	"apiserver_request_aborts_total",
	"apiserver_request_body_size_bytes_count",
	"apiserver_request_body_size_bytes_sum",
	"apiserver_request_duration_seconds_count",
	"apiserver_request_duration_seconds_sum",
	"apiserver_request_filter_duration_seconds_count",
	"apiserver_request_filter_duration_seconds_sum",
	"apiserver_request_terminations_total",
	"apiserver_storage_transformation_duration_seconds_count",
	"apiserver_storage_transformation_duration_seconds_sum",
	"apiserver_terminated_watchers_total",
	"apiserver_validating_admission_policy_check_duration_seconds_count",
	"apiserver_validating_admission_policy_check_duration_seconds_sum",
	"apiserver_validating_admission_policy_check_total",
	"apiserver_watch_events_sizes_count",
	"apiserver_watch_events_sizes_sum",
	"apiserver_watch_events_total",
	"etcd_debugging_lease_revoked_total",
	"etcd_debugging_mvcc_events_total",
	"etcd_debugging_server_alarms",
	"etcd_disk_backend_commit_duration_seconds_count",
	"etcd_disk_backend_commit_duration_seconds_sum",
	"etcd_disk_backend_defrag_duration_seconds_count",
	"etcd_disk_backend_defrag_duration_seconds_sum",
	"etcd_disk_wal_fsync_duration_seconds_count",
	"etcd_disk_wal_fsync_duration_seconds_sum",
	"etcd_mvcc_db_total_size_in_bytes",
	"etcd_mvcc_db_total_size_in_use_in_bytes",
	"etcd_mvcc_range_total",
	"etcd_network_client_grpc_received_bytes_total",
	"etcd_network_client_grpc_sent_bytes_total",
	"etcd_request_duration_seconds_bucket",
	"etcd_request_duration_seconds_count",
	"etcd_request_duration_seconds_sum",
	"etcd_request_errors_total",
	"etcd_requests_total",
	"etcd_server_apply_duration_seconds_count",
	"etcd_server_apply_duration_seconds_sum",
	"etcd_server_quota_backend_bytes",
	"etcd_snap_fsync_duration_seconds_count",
	"go_cpu_classes_gc_mark_idle_cpu_seconds_total",
	"go_cpu_classes_gc_total_cpu_seconds_total",
	"go_gc_cycles_total_gc_cycles_total",
	"go_gc_gogc_percent",
	"go_gc_gomemlimit_bytes",
	"go_gc_heap_allocs_bytes_total",
	"go_gc_heap_live_bytes",
	"go_sched_gomaxprocs_threads",
	"grpc_server_handled_total",
	"kubedyno_hollow_start_lateness_seconds_count",
	"kubedyno_hollow_start_lateness_seconds_sum",
	"kubedyno_hollow_start_wait_seconds_count",
	"kubedyno_hollow_start_wait_seconds_sum",
	"kubedyno_hollow_timer_lateness_seconds_count",
	"kubedyno_hollow_timer_lateness_seconds_sum",
	"kubelet_image_pull_duration_seconds_count",
	"kubelet_image_pull_duration_seconds_sum",
	"kubelet_run_podsandbox_duration_seconds_count",
	"kubelet_run_podsandbox_duration_seconds_sum",
	"leader_election_master_status",
	"node_collector_unhealthy_nodes_in_zone",
	"node_collector_zone_size",
	"process_max_fds",
	"process_open_fds",
	"rest_client_rate_limiter_duration_seconds_sum",
	"rest_client_request_duration_seconds_bucket",
	"rest_client_request_duration_seconds_count",
	"rest_client_request_duration_seconds_sum",
	"scheduler_framework_extension_point_duration_seconds_count",
	"scheduler_framework_extension_point_duration_seconds_sum",
	"scheduler_goroutines",
	"scheduler_cache_size",
	"scheduler_pending_pods",
	"scheduler_permit_wait_duration_seconds_sum",
	"scheduler_plugin_execution_duration_seconds_count",
	"scheduler_plugin_execution_duration_seconds_sum",
	"scheduler_preemption_attempts_total",
	"scheduler_preemption_victims_sum",
	"scheduler_schedule_attempts_total",
	"scheduler_scheduling_algorithm_duration_seconds_count",
	"scheduler_scheduling_algorithm_duration_seconds_sum",
	"scheduler_scheduling_attempt_duration_seconds_count",
	"scheduler_scheduling_attempt_duration_seconds_sum",
	"scheduler_unschedulable_pods",
	"up",
	"workqueue_queue_duration_seconds_count",
	"workqueue_queue_duration_seconds_sum",
	"workqueue_retries_total",
	"workqueue_work_duration_seconds_sum",
}

// ThinSeries says whether a diagnosis reads a series of one of Metrics: of those
// that have many it reads a few.
func ThinSeries(metric string, labels map[string]string) bool {
	switch metric {
	case "etcd_request_duration_seconds_bucket":
		return labels["operation"] == "get" && labels["le"] == "0.005"
	case "scheduler_goroutines":
		return labels["operation"] == "binding"
	case "grpc_server_handled_total":
		return labels["component"] == "etcd" && (labels["grpc_service"] == "etcdserverpb.KV" || labels["grpc_service"] == "etcdserverpb.Lease") && labels["grpc_code"] == "OK"
	case "rest_client_request_duration_seconds_bucket":
		return labels["le"] == "0.005" || labels["le"] == "0.1" || labels["le"] == "2" || labels["le"] == "8"
	case "apiserver_admission_controller_admission_duration_seconds_sum":
		return (labels["name"] == "ResourceQuota" || strings.HasSuffix(labels["name"], "AdmissionPolicy")) && labels["operation"] == "CREATE"
	case "apiserver_request_duration_seconds_count", "apiserver_request_duration_seconds_sum":
		return labels["verb"] == "POST" && labels["resource"] == "pods" && labels["subresource"] == ""
	case "apiserver_admission_controller_admission_duration_seconds_count":
		return labels["rejected"] == "true" && (labels["operation"] == "CREATE" || labels["operation"] == "UPDATE") || labels["operation"] == "CREATE" && labels["name"] == "NamespaceLifecycle"
	}
	return true
}
