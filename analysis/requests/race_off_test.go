//go:build !race

package requests

const raceEnabled = false
