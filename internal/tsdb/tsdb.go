// Package tsdb keeps a run's metrics in a Prometheus TSDB and answers PromQL
// over them: a Store takes samples while a run is live and cuts them into one
// block at its end, a Reader queries the block. It is the only package that
// knows the TSDB and the PromQL engine; it knows nothing of recordings.
//
// A folder of metrics holds a write-ahead log while live, and afterwards one
// ordinary block and an empty log, so that Prometheus, promtool and Thanos
// open it.
package tsdb

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
)

// blocks lists the block folders in dir, oldest first.
func blocks(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries { // ReadDir sorts, and ULIDs sort by time
		if _, err := ulid.ParseStrict(e.Name()); err == nil && e.IsDir() {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	return found, nil
}

// Clean removes from dir what only a live Store needs: everything but blocks.
// Beside a block it leaves an empty folder for the log, without which
// "promtool tsdb dump" refuses to read past the block's end, as it does by
// default.
func Clean(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	done, err := blocks(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if slices.Contains(done, path) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	if len(done) == 0 {
		return nil
	}
	return os.Mkdir(filepath.Join(dir, walDir), 0o755)
}

func millis(t time.Time) int64 { return t.UnixMilli() }

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
