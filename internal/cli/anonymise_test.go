package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/record/recordtest"
)

func TestAnonymise(t *testing.T) {
	recording := recordtest.Unpack(t, "apiserver-quota")
	dir := t.TempDir()
	out := filepath.Join(dir, "copy")
	run := func(args ...string) (code int, stdout, stderr string) {
		var o, e bytes.Buffer
		env := System()
		env.Stdout, env.Stderr = &o, &e
		code = Main(t.Context(), env, append([]string{"anonymise"}, args...))
		return code, o.String(), e.String()
	}
	for _, misuse := range [][]string{
		{recording}, {"--out", out}, {recording, "--out", out, "--keep", "everything"},
		{recording, "--out", out, "--map", filepath.Join(out, "map.json")}, {filepath.Join(dir, "none"), "--out", out},
	} {
		if code, _, stderr := run(misuse...); code != ExitMisused || stderr == "" {
			t.Errorf("%q: exit code %d, %s", misuse, code, stderr)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Fatal("a refused command wrote a folder")
	}
	names := filepath.Join(dir, "map.json")
	code, stdout, stderr := run(recording, "--out", out, "--map", names)
	if code != ExitOK || stdout != out+"\n" || !strings.Contains(stderr, "none left") {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if info, err := os.Stat(names); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("map: %v %v", info, err)
	}
	if code, _, stderr := run(recording, "--out", out); code != ExitMisused || !strings.Contains(stderr, "already holds") {
		t.Errorf("a second time: exit code %d, %s", code, stderr)
	}
}
