package record

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readAll reads everything that a recording offers. Errors are welcome here,
// panics are not.
func readAll(dir string) (errs []error) {
	r, err := Open(dir)
	if err != nil {
		return []error{err}
	}
	_, err = r.Pods()
	errs = append(errs, err)
	_, err = r.Operations()
	errs = append(errs, err)
	_, err = r.Processes()
	errs = append(errs, err)
	_, err = r.MachineSamples()
	errs = append(errs, err)
	_, err = r.Requests()
	errs = append(errs, err)
	_, err = r.Nodes()
	errs = append(errs, err)
	_, err = r.Query(`sum by (component) (rate(requests_total[10s]))`, at(15))
	errs = append(errs, err)
	_, _, err = r.Increase("requests_total", map[string]string{"component": "~.*"}, Window{at(3), at(9)})
	errs = append(errs, err)
	_, err = r.Points("kubedyno_pods", nil, Window{at(0), at(30)})
	errs = append(errs, err)
	for _, p := range r.Profiles() {
		_, err = r.ReadProfile(p)
		errs = append(errs, err)
	}
	r.Steady()
	return append(errs, r.Close())
}

// files lists the files of a recording by their stable order.
func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// mangle damages one file: it overwrites at an offset, and cuts.
func mangle(t testing.TB, path string, offset uint16, patch []byte, cut uint16) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 0 {
		copy(data[int(offset)%len(data):], patch)
		data = data[:len(data)-int(cut)%len(data)]
	}
	mustWrite(t, path, string(data))
}

// FuzzOpen opens recordings with one damaged file.
func FuzzOpen(f *testing.F) {
	live := crashed(f)
	done := crashed(f)
	if errs := readAll(done); errs[0] != nil {
		f.Fatal(errs)
	}
	f.Add(true, uint8(0), uint16(0), []byte{}, uint16(0))
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		patch := make([]byte, r.IntN(9))
		for i := range patch {
			patch[i] = byte(r.Uint32())
		}
		cut := uint16(0)
		if r.IntN(3) == 0 {
			cut = uint16(r.Uint32())
		}
		f.Add(r.IntN(3) == 0, uint8(r.Uint32()), uint16(r.Uint32()), patch, cut)
	}
	f.Fuzz(func(t *testing.T, alive bool, file uint8, offset uint16, patch []byte, cut uint16) {
		dir := filepath.Join(t.TempDir(), "r")
		source := done
		if alive {
			source = live
		}
		if err := copyFiles(dir, source); err != nil {
			t.Fatal(err)
		}
		all := files(t, dir)
		mangle(t, all[int(file)%len(all)], offset, patch, cut)
		readAll(dir)
	})
}

// TestDamageIsNamed checks that the error over a damaged file names it.
func TestDamageIsNamed(t *testing.T) {
	done := crashed(t)
	if errs := readAll(done); errs[0] != nil {
		t.Fatal(errs)
	}
	for _, name := range []string{"recording.json", "pods.parquet", "requests.parquet", "profiles/index.json", "profiles/etcd-steady-cpu.pb.gz", "metrics/*/index", "metrics/*/meta.json"} {
		dir := filepath.Join(t.TempDir(), "r")
		if err := copyFiles(dir, done); err != nil {
			t.Fatal(err)
		}
		found, _ := filepath.Glob(filepath.Join(dir, name))
		mangle(t, found[0], 0, []byte("garbage garbage garbage"), 0)
		text := fmt.Sprint(readAll(dir))
		named := found[0]
		if strings.HasPrefix(name, metricsDir) {
			named = filepath.Dir(named) // of a block, the folder
		}
		if !strings.Contains(text, named) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
