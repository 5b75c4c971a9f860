// Package heartbeats finds heartbeats that come more often than they need.
package heartbeats
