// Package requests derives tables from the requests that an API server served:
// sums by who asked for what, LISTs told apart by who sends them and why, and
// etcd's operations shared out among those who asked. It states what was;
// detectors judge.
//
// Rows come from a recording (Each), or straight from an audit log or from an
// API server's own log at -v=3 (EachInFile).
//
// Start with Aggregator, then Lists, then Etcd.
package requests
