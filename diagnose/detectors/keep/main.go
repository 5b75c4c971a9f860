// Command keep copies a recording into testdata/recordings, without what no
// detector reads, so that its diagnosis is tested from then on:
//
//	go run ./diagnose/detectors/keep RECORDING testdata/recordings/NAME
//	go test ./diagnose/detectors -run Recordings -update
package main

import (
	"fmt"
	"os"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: keep RECORDING FOLDER")
		os.Exit(2)
	}
	if err := keep(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "keep:", err)
		os.Exit(1)
	}
}

func keep(from, to string) error {
	rec, err := record.Open(from)
	if err != nil {
		return err
	}
	defer rec.Close()
	return record.Thin(rec, to, diagnose.Metrics, diagnose.ThinSeries, diagnose.ThinRequests(rec.Meta()))
}
