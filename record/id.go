package record

import (
	"encoding/hex"
	"io"
	"time"
)

// NewID makes a recording's ID: sortable by start, unique by its random end.
// A short read from rand leaves zeros, which costs uniqueness only.
func NewID(now time.Time, rand io.Reader) string {
	var b [3]byte
	_, _ = io.ReadFull(rand, b[:])
	return now.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(b[:])
}
