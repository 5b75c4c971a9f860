// Package serve shows a folder of recordings in a browser: a list, each one's
// report, any of them beside others, their history, PromQL over many of them,
// and a look at those that are still being written.
//
// It listens where it is told to, by default on loopback, and answers only who
// came by the address that it printed: a random token in it becomes a cookie.
// A recording is opened when somebody asks for it; the list reads the first
// file of each, and only again when that changed.
//
// Start with New and Server.Serve.
package serve
