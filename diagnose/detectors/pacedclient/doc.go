// Package pacedclient finds clients that their own limiter holds to a round number of requests a second.
package pacedclient
