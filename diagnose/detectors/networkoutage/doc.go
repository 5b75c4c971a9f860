// Package networkoutage finds times in which nothing that was sent over the control
// plane's network arrived.
package networkoutage
