// Package createsrefused finds controllers whose pods the API server refuses.
package createsrefused
