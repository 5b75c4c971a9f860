// Package load puts an experiment's load on a cluster: it makes, changes, reads
// and deletes objects of any kind, each at a time fixed in advance, and tells of
// every operation when it was due, sent and answered.
//
// The generator is a process of its own, kubedyno-load, so that its cost shows
// apart from the system under test and a CPU quota holds it alone. It is the
// kubedyno binary under that name: main hands over to ProcessMain. It reads
// commands from its standard input and ends when that closes, so it cannot
// outlive the process that started it.
//
// What a phase makes is compiled once; for each object only the texts that vary
// are set. Requests are protobuf where the API takes it, carry the user agent
// kubedyno-load, pass no client-side limiter and are never retried: what the
// cluster answered is what the operation got.
//
// Start with Start and Worker.Run.
package load
