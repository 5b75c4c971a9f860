// Package periodicjob finds clients that do the same thing again and again by the clock.
package periodicjob
