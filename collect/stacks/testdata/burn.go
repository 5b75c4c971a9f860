// Burn uses CPU in known functions until its stdin closes.
package main

import (
	"io"
	"net"
	"os"
)

func main() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	// The resolver is what brings C code in, where cgo is on.
	_, _ = net.LookupHost("127.0.0.1")
	for {
		burnMost(3)
		burnLess(1)
	}
}

var burned uint64

//go:noinline
func burnMost(n int) { spin(n) }

//go:noinline
func burnLess(n int) { spin(n) }

//go:noinline
func spin(n int) {
	for range n {
		rest() // a function that calls nothing has no frame, and hides its caller
		sum := uint64(0)
		for i := range uint64(200_000) {
			sum += mixed(i)
		}
		burned += sum
	}
}

//go:noinline
func rest() {}

func mixed(x uint64) uint64 {
	x = (x ^ x>>7) * 0x9e3779b97f4a7c15
	x = (x ^ x>>9) * 0x9e3779b97f4a7c15
	return (x ^ x>>11) * 0x9e3779b97f4a7c15
}
