// Package tugofwar finds clients that undo each other's changes.
package tugofwar
