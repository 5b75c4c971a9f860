// Package logs derives from the logs of a recording what they say: typed
// events with times and durations for what is known to matter (throttling,
// conflicts, slow requests, lost leases), and templates with counts for
// everything else. It states what was; detectors judge.
//
// Any text is a log here, however long its lines and however broken: memory is
// bounded, and what is beyond the bounds is counted.
//
// Start with Analyze, then Entry, then Event.
package logs
