// Package podsparked finds pods that the scheduler has set aside.
package podsparked
