// Package schedulerlimit finds a scheduler that is held back by its own
// client-side rate limit.
package schedulerlimit
