// Package spikes derives from a recording when CPU was used in spikes, what
// repeats with a period, and what it costs: of each process, of each command
// line whose processes come and go, of each component, and of the machine. It
// states what was; detectors judge.
//
// Long-lived processes are read from their counters, once a second; a second
// that was not read is unknown. Processes that live shorter come from the table
// of exits: their starts are exact, so a period of theirs is good to
// milliseconds where one of a series is good to a few hundredths of a second.
//
// What repeats faster than every 2 s is not told apart at one reading a
// second, and may look slower than it is.
//
// Start with Find.
package spikes
