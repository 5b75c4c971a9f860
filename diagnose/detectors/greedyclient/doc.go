// Package greedyclient finds a client that asks for more than all others do, of
// whatever it may be.
package greedyclient
