// Package idletwins finds replicas that nobody needs.
package idletwins
