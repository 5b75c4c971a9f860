// Package export says in PromQL what kubedyno looks at, for those who already
// run Prometheus and Grafana: alert rules from the detectors that metrics alone
// can say, and dashboards.
//
// Both work on a cluster that Prometheus scrapes and on the block of metrics in
// a recording. What the two have in common is the metrics' own names and
// labels, and a label job for the component; nothing here relies on component
// or instance, which are a recording's.
//
// Start with Rules, then Dashboard.
package export
