// Package controllerlimit finds a controller of the controller manager that is
// held back by its own client-side rate limit.
package controllerlimit
