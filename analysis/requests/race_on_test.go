//go:build race

package requests

// raceEnabled says that the race detector makes our code ten times slower, and
// nobody else's.
const raceEnabled = true
