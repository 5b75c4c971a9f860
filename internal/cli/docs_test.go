package cli

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command line in the documents is one that this program understands.
func TestCommandsInDocuments(t *testing.T) {
	root := filepath.Join("..", "..")
	n := 0
	for _, dir := range []string{".", "docs"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && dir == "." && path != filepath.Join(root, ".") {
				return fs.SkipDir
			}
			if filepath.Ext(path) != ".md" {
				return nil
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, line := range commandLines(data) {
				n++
				if err := understands(line); err != nil {
					t.Errorf("%s: `%s`: %v", path, line, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 20 {
		t.Errorf("only %d command lines found", n)
	}
}

// The examples in --help are held to the same.
func TestCommandsInHelp(t *testing.T) {
	n := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, line := range commandLines([]byte("```\n" + c.Example + "\n```\n")) {
			n++
			if err := understands(line); err != nil {
				t.Errorf("%s --help: `%s`: %v", c.CommandPath(), line, err)
			}
		}
		if c.HasParent() && c.Runnable() && !c.Hidden && c.Short == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand(testEnv()))
	if n < 15 {
		t.Errorf("only %d examples found", n)
	}
}

// commandLines are the lines of code blocks that call kubedyno.
func commandLines(text []byte) []string {
	var lines []string
	code := false
	for sc := bufio.NewScanner(bytes.NewReader(text)); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if strings.HasPrefix(line, "```") {
			code = !code
			continue
		}
		line = strings.TrimPrefix(line, "$ ")
		if !code || !strings.HasPrefix(line, "kubedyno ") {
			continue
		}
		// What follows in a shell is not ours.
		for _, cut := range []string{" #", " |", " >", ";", " &&"} {
			line, _, _ = strings.Cut(line, cut)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// understands finds the command of a line and parses its flags; it runs nothing.
func understands(line string) error {
	root := newRootCommand(testEnv())
	cmd, args, err := root.Find(strings.Fields(line)[1:])
	if err != nil {
		return err
	}
	return cmd.ParseFlags(args)
}

func testEnv() *Env {
	return &Env{Getenv: func(string) string { return "" }, Width: func() int { return 80 }}
}
