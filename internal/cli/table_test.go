package cli

import (
	"bytes"
	"strings"
	"testing"
)

// A name from a cluster neither moves the cursor, nor breaks a column, nor is
// taken for a formula.
func TestTablesAreInert(t *testing.T) {
	type row struct {
		Name string `json:"name"`
		Note string `json:"note"`
	}
	evil := row{"=HYPERLINK(\"http://x\")", "\x1b]0;owned\a\tb\u202etxt.exe\nnext" + strings.Repeat("w", 10_000)}
	for _, format := range tableFormats {
		var out bytes.Buffer
		table := &textTable{header: []string{"NAME", "NOTE"}}
		table.add(evil, evil.Name, evil.Note)
		if err := table.print(&Env{Stdout: &out}, format, 0); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		switch format {
		case "text":
			if strings.ContainsAny(got, "\x1b\a\u202e\t") || strings.Count(got, "\n") != 2 || len(got) > 5000 {
				t.Errorf("%d characters: %.200q", len(got), got)
			}
		case "csv":
			if !strings.Contains(got, `"'=HYPERLINK(`) {
				t.Errorf("a formula: %.100q", got)
			}
		case "json":
			if strings.ContainsAny(got, "\x1b\a") {
				t.Errorf("%.100q", got)
			}
		}
	}
}
