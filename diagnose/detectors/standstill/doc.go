// Package standstill finds components that did nothing for seconds, as a process
// does that was stopped.
package standstill
