// Package record defines the recording: all that one run observed, as a folder
// on disk and as values in memory, with its one writer and its one reader.
//
// The live half of kubedyno writes recordings through a Writer; the offline
// half reads them through a Recording and needs no cluster. A recording
// written by any release opens in every later one, and one whose writer was
// killed opens too: opening finishes it. Every file is in a format that other
// tools open; docs/recording.md specifies them.
//
// Start with Meta and the table rows (Pod, Operation, …), then Create and Open.
package record
