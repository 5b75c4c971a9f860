// Package conflicts finds clients that overwrite each other's changes and begin again.
package conflicts
