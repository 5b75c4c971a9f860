// Package kept packs a recording into one file, in which tests keep it, and unpacks
// it again: tables are compressed by themselves, but the metrics' index, which is
// half of a small recording, is not.
package kept

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Ext is how the names of such files end.
const Ext = ".tar.gz"

// Pack writes the files of a folder into file, which must not be there yet. The
// same files give the same bytes.
func Pack(dir, file string) (err error) {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if err != nil {
			_ = os.Remove(file)
			err = fmt.Errorf("pack %s: %w", dir, err)
		}
	}()
	zip, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	to := tar.NewWriter(zip)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := to.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err = to.Write(data)
		return err
	})
	return errors.Join(err, to.Close(), zip.Close())
}

// Unpack makes a folder of what Pack wrote.
func Unpack(file, dir string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := unpack(in, dir); err != nil {
		return fmt.Errorf("unpack %s: %w", file, err)
	}
	return nil
}

func unpack(in io.Reader, dir string) error {
	zip, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	from := tar.NewReader(zip)
	for {
		h, err := from.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !fs.ValidPath(h.Name) {
			return fmt.Errorf("%s is no file of a recording", h.Name)
		}
		data, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return err
		}
	}
}

// Name is the name of the recording in a file.
func Name(file string) string { return strings.TrimSuffix(path.Base(filepath.ToSlash(file)), Ext) }
