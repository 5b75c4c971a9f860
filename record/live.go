package record

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/kubedyno/kubedyno/internal/table"
)

// ReadMeta is what recording.json holds now. It opens nothing, finishes nothing
// and reads no table, so that hundreds of recordings can be listed. A status of
// running says that the writer lives, or died: Written tells.
func ReadMeta(dir string) (Meta, error) { return readMeta(dir) }

// Written reports whether the process that writes the recording in dir lives,
// as its status of running claims. It takes no lock, so that a writer never
// fails for being looked at.
func Written(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	var writer owner
	return json.Unmarshal(data, &writer) == nil && !writer.Finishing && writer.alive()
}

// A Tail follows the pods of a recording that is being written, by the files
// that its writer flushes twice a second. It reads each row once. Its methods
// may not be called at the same time.
type Tail struct {
	dir    string
	offset int64
	pods   map[string]*Pod
	began  os.FileInfo
}

// NewTail follows the recording in dir.
func NewTail(dir string) *Tail { return &Tail{dir: dir, pods: map[string]*Pod{}} }

// Read takes what was written since the last call. A recording that was
// finished meanwhile has no live file: what was read before stays.
func (t *Tail) Read() error {
	path := filepath.Join(t.dir, pods.name.live())
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if t.began != nil && (!os.SameFile(t.began, info) || info.Size() < t.offset) { // another run in the same folder
		t.offset, t.pods = 0, map[string]*Pod{}
	}
	t.began = info
	t.offset, err = table.ReadLogFrom(path, t.offset, func(p Pod) error {
		t.pods[pods.key(&p)] = &p
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Pods are those read so far, as they were last seen, sorted like
// Recording.Pods.
func (t *Tail) Pods() []Pod {
	rows := make([]Pod, 0, len(t.pods))
	for _, p := range slices.SortedFunc(maps.Values(t.pods), pods.compare) {
		rows = append(rows, *p)
	}
	return rows
}
