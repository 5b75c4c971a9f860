package realnode

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/cluster"
)

func TestFullName(t *testing.T) {
	for image, want := range map[string]string{
		"nginx":                      "docker.io/library/nginx:latest",
		"nginx:1.27":                 "docker.io/library/nginx:1.27",
		"bitnami/nginx":              "docker.io/bitnami/nginx:latest",
		"registry.k8s.io/pause:3.10": "registry.k8s.io/pause:3.10",
		"localhost:5000/a/b":         "localhost:5000/a/b:latest",
		"localhost/a:1":              "localhost/a:1",
	} {
		if got, err := fullName(image); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", image, got, err, want)
		}
	}
	if _, err := fullName("pause@sha256:abc"); err == nil || !strings.Contains(err.Error(), "pinned by digest") {
		t.Errorf("a digest: %v", err)
	}
}

// TestRefused: what cannot work is refused before anything is made.
func TestRefused(t *testing.T) {
	good := Config{
		Name: "real-0", Server: "https://127.0.0.1:1", NodeCA: cluster.NodeCA{CertFile: "c", KeyFile: "k"},
		Lab: "/lab", Pause: "/pause", Dir: "/nowhere",
	}
	for want, change := range map[string]func(*Config){
		"name":                 func(c *Config) { c.Name = "Real_0" },
		"number 201":           func(c *Config) { c.Number = 201 },
		"pinned by digest":     func(c *Config) { c.Images = []string{"a@sha256:b"} },
		"run without --kubeco": func(c *Config) { c.NodeCA = cluster.NodeCA{} },
	} {
		c := good
		change(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
	if err := Check(false); err != nil && !errors.Is(err, ErrNotPossible) {
		t.Errorf("%v does not wrap ErrNotPossible", err)
	}
}

func TestImage(t *testing.T) {
	program := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(program, []byte("a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := Config{Pause: program, Images: []string{"nginx", "nginx:latest", "example.org/served:1"},
		Programs: map[string]string{"example.org/served:1": "/bin/kubedyno-served"}}
	images, err := c.images()
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 2 || images[1].entry != "served" || strings.Join(images[1].names, " ") != "example.org/served:1" {
		t.Errorf("images %+v", images)
	}
	if err := images[0].write(program + ".tar"); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(program + ".tar")
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.NewReader(written)
	var manifest []struct{ RepoTags []string }
	var layer []byte
	for r := tar.NewReader(b); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(r)
		switch h.Name {
		case "manifest.json":
			if err := json.Unmarshal(data, &manifest); err != nil {
				t.Fatal(err)
			}
		case "layer.tar":
			layer = data
		}
	}
	if len(manifest) != 1 || strings.Join(manifest[0].RepoTags, " ") != "docker.io/library/nginx:latest "+sandboxImage {
		t.Errorf("names %v", manifest)
	}
	r := tar.NewReader(bytes.NewReader(layer))
	h, err := r.Next()
	if err != nil || h.Name != "pause" || h.Mode != 0o755 {
		t.Fatalf("the layer begins with %+v (%v)", h, err)
	}
	if data, _ := io.ReadAll(r); string(data) != "a program" {
		t.Errorf("the program is %q", data)
	}
}
