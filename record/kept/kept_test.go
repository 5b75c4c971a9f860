package kept

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

func TestPack(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"recording.json": "{}", "metrics/A/chunks/000001": "chunks"} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var packed [2][]byte
	for i := range packed {
		file := filepath.Join(t.TempDir(), "slow"+Ext)
		if err := Pack(dir, file); err != nil || Name(file) != "slow" {
			t.Fatal(Name(file), err)
		}
		if err := Pack(dir, file); err == nil {
			t.Error("a file is written over")
		}
		packed[i], _ = os.ReadFile(file)
		out := filepath.Join(t.TempDir(), "out")
		if err := Unpack(file, out); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(out, "metrics", "A", "chunks", "000001")); string(b) != "chunks" {
			t.Errorf("%q (%v)", b, err)
		}
	}
	if len(packed[0]) == 0 || !bytes.Equal(packed[0], packed[1]) {
		t.Error("the same files give other bytes")
	}
	if err := Pack(filepath.Join(dir, "none"), filepath.Join(t.TempDir(), "x")); err == nil {
		t.Error("a folder that is not there is packed")
	}
}

func TestUnpackStaysInItsFolder(t *testing.T) {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	to := tar.NewWriter(zip)
	_ = to.WriteHeader(&tar.Header{Name: "../out", Typeflag: tar.TypeReg, Mode: 0o644})
	_ = to.Close()
	_ = zip.Close()
	if err := unpack(&b, t.TempDir()); err == nil {
		t.Error("it writes beside its folder")
	}
	if err := unpack(bytes.NewReader([]byte("no archive")), t.TempDir()); err == nil {
		t.Error("what is no archive is unpacked")
	}
}
