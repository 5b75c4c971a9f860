package metrics

import "regexp"

// debugging are the families of the debugging tier: many series, of use to who
// works on the component itself. What detectors, the USE checklist and the
// usual dashboards read is in the regular tier, and so are the sums and counts
// of histograms whose buckets are here.
var debugging = regexp.MustCompile(`^(kubernetes_feature_enabled` +
	`|(apiserver_request_body_size_bytes|apiserver_watch_list_duration_seconds|apiserver_watch_events_sizes|informer_processing_latency_seconds` +
	`|apiserver_flowcontrol_(priority_level_request_utilization|priority_level_seat_utilization|demand_seats|read_vs_write_current_requests` +
	`|work_estimated_seats|request_queue_length_after_enqueue|request_dispatch_no_accommodation))_bucket)$`)

// Debugging reports whether a family of metrics belongs to the debugging tier,
// which is kept on request only.
func Debugging(family string) bool { return debugging.MatchString(family) }
