// Package relist finds watches that end and begin again.
package relist
