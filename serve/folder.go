package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/report"
)

const (
	// maxDepth is how deep below the folder recordings are looked for: in
	// folders of proofs and campaigns, which are in folders of their own.
	maxDepth = 4
	// maxFolders bounds the search in a folder that is not one of recordings.
	maxFolders = 20_000
)

// folder knows the recordings below a folder by their first files.
type folder struct {
	dir string

	mu    sync.Mutex
	known map[string]listed // by place below dir
}

// listed is a recording as its first file told at a moment.
type listed struct {
	stamp string
	meta  record.Meta
	err   error
}

// errUnknown is for a name that is no recording of the folder.
var errUnknown = errors.New("no such recording in this folder")

// scan looks for recordings, and reads the first file of those that changed.
// It follows no links: what is shown lies in the folder.
func (f *folder) scan(ctx context.Context) ([]report.Entry, error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, fmt.Errorf("read folder: %w", err)
	}
	defer root.Close()
	found := map[string]string{} // stamps
	folders := 0
	var look func(dir string, depth int) error
	look = func(dir string, depth int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if folders++; folders > maxFolders {
			return fmt.Errorf("%s has more than %d folders: name one with recordings in it", f.dir, maxFolders)
		}
		info, err := root.Lstat(path.Join(dir, record.MetaFile))
		if err == nil && info.Mode().IsRegular() {
			found[dir] = fmt.Sprintf("%d-%d", info.ModTime().UnixNano(), info.Size())
			return nil
		}
		if depth == maxDepth {
			return nil
		}
		entries, err := fs.ReadDir(root.FS(), dir)
		if err != nil {
			return nil // not ours to read, or gone meanwhile
		}
		for _, e := range entries {
			if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				if err := look(path.Join(dir, e.Name()), depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := look(".", 0); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = map[string]listed{}
	}
	for name := range f.known {
		if _, ok := found[name]; !ok {
			delete(f.known, name)
		}
	}
	entries := []report.Entry{}
	for name, stamp := range found {
		l, ok := f.known[name]
		if !ok || l.stamp != stamp {
			l = listed{stamp: stamp}
			l.meta, l.err = record.ReadMeta(f.path(name))
			f.known[name] = l
		}
		entries = append(entries, f.entry(name, l))
	}
	slices.SortFunc(entries, func(a, b report.Entry) int {
		if c := b.Started.Compare(a.Started); c != 0 { // the latest first
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return entries, nil
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

func (f *folder) entry(name string, l listed) report.Entry {
	if l.err != nil {
		return report.Entry{Name: name, Status: "damaged", Damaged: l.err.Error(), Stamp: l.stamp}
	}
	e := report.EntryOf(name, l.meta)
	e.Stamp = l.stamp
	if l.meta.Status == record.StatusRunning && !record.Written(f.path(name)) {
		e.Status = "broken off"
	}
	return e
}

// one is a recording that the last scan found.
func (f *folder) one(name string) (report.Entry, record.Meta, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.known[name]
	if !ok {
		return report.Entry{}, record.Meta{}, fmt.Errorf("%.200q: %w", name, errUnknown)
	}
	return f.entry(name, l), l.meta, l.err
}
