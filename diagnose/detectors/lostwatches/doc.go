// Package lostwatches finds components that had no watch for a time, and saw nothing
// of what happened meanwhile.
package lostwatches
