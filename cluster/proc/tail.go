package proc

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// tailBytes bounds what is read of a log that may be gigabytes.
const tailBytes = 64 << 10

// tailFile returns the last n lines within the last tailBytes of a file;
// none when it cannot be read, since it is asked for while reporting an error.
func tailFile(path string, n int) []string {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	start := max(0, info.Size()-tailBytes)
	b, err := io.ReadAll(io.NewSectionReader(f, start, info.Size()-start))
	if err != nil || len(b) == 0 {
		return nil
	}
	if start > 0 { // the first line is cut
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return lines
}

// Tail returns the last n lines of a log file.
func Tail(path string, n int) []string { return tailFile(path, n) }
