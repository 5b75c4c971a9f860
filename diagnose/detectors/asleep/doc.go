// Package asleep finds workloads that are paused or suspended, so that nobody makes
// their pods.
package asleep
