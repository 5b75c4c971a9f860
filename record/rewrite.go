package record

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/internal/table"
	"github.com/kubedyno/kubedyno/internal/tsdb"
)

// A Rewriter says what a copy of a recording tells otherwise. All its
// functions must be set. They are called one after the other.
type Rewriter struct {
	// Row changes a row of any table: *Pod, *Request, ….
	Row func(row any)
	// Meta changes what recording.json holds, but for schema, status, start
	// and end.
	Meta func(*Meta)
	// Experiment changes the experiment file.
	Experiment func([]byte) ([]byte, error)
	// Label returns the value that a label of a metric gets. It must not make
	// two series one.
	Label func(metric, label, value string) string
	// Profile changes a profile; its file is named after the changed ref.
	Profile func(*ProfileRef, *profile.Profile)
	// Log returns how the component is called from now on, and what becomes
	// of each line of its log: nothing, where that is nil. A line has its newline
	// where it had one.
	Log func(component string) (name string, line func([]byte) []byte)
}

// Rewrite copies a finished recording into dir, which must be empty or not
// exist, as the Rewriter tells it. Parts that the recording lacks the copy
// lacks too. Tables pass through row by row. Where that fails nothing is left.
func Rewrite(ctx context.Context, r *Recording, dir string, x Rewriter) (err error) {
	made, err := makeEmpty(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("copy recording %s to %s: %w", r.Dir(), dir, err)
		if made {
			_ = os.RemoveAll(dir)
			return
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries { // it was empty
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}()
	for _, t := range tables {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.rewrite(r.root, dir, x.Row); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if data, err := r.Experiment(); err == nil {
		if data, err = x.Experiment(data); err != nil {
			return fmt.Errorf("%s: %w", experimentFile, err)
		}
		if err := writeFile(filepath.Join(dir, experimentFile), data); err != nil {
			return err
		}
	} else if !errors.Is(err, ErrMissing) {
		return err
	}
	if c, err := r.Calibration(); err == nil {
		if err := c.write(filepath.Join(dir, calibrationFile)); err != nil {
			return err
		}
	} else if !errors.Is(err, ErrMissing) {
		return err
	}
	err = tsdb.Relabel(ctx, filepath.Join(r.home, metricsDir), filepath.Join(dir, metricsDir), x.Label)
	if err != nil && !errors.Is(err, tsdb.ErrEmpty) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := r.rewriteProfiles(ctx, dir, x); err != nil {
		return err
	}
	for _, component := range r.Logs() {
		if err := r.rewriteLog(ctx, component, dir, x); err != nil {
			return err
		}
	}
	m := r.Meta().clone()
	x.Meta(&m)
	old := r.Meta()
	m.Schema, m.Status, m.Started, m.Ended = old.Schema, old.Status, old.Started, old.Ended
	return writeMeta(dir, m)
}

// EachRow calls f for every row of every table that the recording has, *Pod,
// *Request and so on, table by table in the order of their files. What f is
// given is good until it returns.
func (r *Recording) EachRow(f func(row any) error) error {
	for _, t := range tables {
		if err := t.eachAny(r.root, f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (t tableOf[T]) eachAny(root *os.Root, f func(any) error) error {
	return t.each(root, func(row *T) error { return f(row) })
}

func (t tableOf[T]) rewrite(root *os.Root, dir string, change func(any)) error {
	if _, err := root.Stat(t.name.parquet()); err != nil {
		return err
	}
	stop := errors.New("stop")
	rows := func(yield func(T, error) bool) {
		err := t.each(root, func(row *T) error {
			changed := *row
			change(&changed)
			if !yield(changed, nil) {
				return stop
			}
			return nil
		})
		if err != nil && !errors.Is(err, stop) {
			yield(*new(T), err)
		}
	}
	return table.Write(filepath.Join(dir, t.name.parquet()), rows, map[string]string{"kubedyno.schema": fmt.Sprint(Schema)})
}

func (r *Recording) rewriteProfiles(ctx context.Context, dir string, x Rewriter) error {
	if len(r.profiles) == 0 {
		return nil
	}
	if err := os.Mkdir(filepath.Join(dir, profilesDir), 0o755); err != nil {
		return err
	}
	taken := map[string]bool{}
	var refs []ProfileRef
	for _, ref := range r.profiles {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := r.ReadProfile(ref)
		if errors.Is(err, ErrMissing) {
			continue
		}
		if err != nil {
			return err
		}
		x.Profile(&ref, p)
		stem := fileName(ref.Component) + "-" + fileName(ref.Phase) + "-" + fileName(ref.Kind)
		name := stem + ".pb.gz"
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s-%d.pb.gz", stem, n)
		}
		taken[name] = true
		ref.File = profilesDir + "/" + name
		f, err := os.Create(filepath.Join(dir, ref.File))
		if err != nil {
			return err
		}
		if err := errors.Join(p.Write(f), f.Close()); err != nil {
			return fmt.Errorf("%s: %w", ref.File, err)
		}
		refs = append(refs, ref)
	}
	data, err := json.MarshalIndent(refs, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, profilesIndex), append(data, '\n'))
}

func (r *Recording) rewriteLog(ctx context.Context, component, dir string, x Rewriter) (err error) {
	in, err := r.Log(component)
	if err != nil {
		return err
	}
	defer in.Close()
	name, change := x.Log(component)
	path := filepath.Join(dir, logsDir, fileName(name)+".log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<16)
	for lines := bufio.NewReaderSize(in, 1<<16); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if _, err := out.Write(change(line)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
