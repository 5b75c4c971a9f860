// Package loadrefused finds load that the API server refuses.
package loadrefused
