// Package experiment defines the experiment file: what cluster to have, what
// load to put on it, what to observe and which objectives to judge.
//
// It is data only: it decodes, checks, changes and prints experiments, and
// touches nothing else. Decoding is strict. An unknown, unused or repeated
// key, a wrong type and an impossible value are errors with file, line, column
// and the nearest valid name, and all errors of a file are reported at once.
// The language is described in docs/experiments.md.
//
// One decoder, driven by the Go types and their tags, serves files, --set and
// the printed form, so a new field is a new line in types.go.
//
// Start with Experiment, then ParseFile, Builtin and ParseSets.
package experiment
