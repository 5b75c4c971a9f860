// Command keep copies a recording into testdata/recordings, without what no
// detector reads, so that its diagnosis is tested from then on:
//
//	go run ./diagnose/detectors/keep RECORDING NAME
//	go test ./diagnose/detectors -run Recordings -update
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/kept"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: keep RECORDING NAME")
		os.Exit(2)
	}
	if err := keep(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "keep:", err)
		os.Exit(1)
	}
}

func keep(from, name string) error {
	rec, err := record.Open(from)
	if err != nil {
		return err
	}
	defer rec.Close()
	temp, err := os.MkdirTemp("", "keep-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	thin := filepath.Join(temp, "r")
	if err := record.Thin(rec, thin, record.Wanted{Metrics: diagnose.Metrics, Series: diagnose.ThinSeries, Request: diagnose.ThinRequests(rec.Meta()), BlockIO: diagnose.ThinBlockIO}); err != nil {
		return err
	}
	return kept.Pack(thin, filepath.Join("testdata", "recordings", name+kept.Ext))
}
