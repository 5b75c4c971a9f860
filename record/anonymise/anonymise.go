// Package anonymise makes a copy of a recording that is safe to send: names,
// addresses, hosts, paths and users are replaced by pseudonyms, the same ones
// all over the recording, and numbers, times and structure stay, so that the
// copy has the same diagnosis. It also finds names and secrets that were left
// in a recording.
//
// What is replaced and what stays is specified in docs/anonymise.md. Start
// with Copy, then Scan.
package anonymise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/record"
)

// Options say what to leave as it is.
type Options struct {
	// Keep are classes of names that stay, see Classes.
	Keep []string
}

// classes of names that may be kept, with the classes of pseudonyms in each.
var classes = map[string][]string{
	"namespaces":  {"ns"},
	"nodes":       {"node"},
	"workloads":   {"deployment", "statefulset", "daemonset", "replicaset", "cronjob", "job", "service"},
	"pods":        {"pod", "suffix"},
	"objects":     {"object", "claim", "volume", "lease", "account", "container"},
	"users":       {"user"},
	"clients":     {"client", "component"},
	"hosts":       {"host", "cluster"},
	"ips":         {"ip"},
	"uuids":       {"uuid", "hex"},
	"paths":       {"path"},
	"images":      {"image", "tag"},
	"commands":    {"command", "arg", "module", "env"},
	"resources":   {"group", "resource", "kind"},
	"experiments": {"experiment", "phase"},
	"values":      {"value", "blob", "token", "device"},
}

// Classes are the classes of names that Options may keep, sorted.
func Classes() []string { return slices.Sorted(maps.Keys(classes)) }

// keepClass is the class for people of a class of pseudonyms.
func keepClass(class string) string {
	for name, of := range classes {
		if slices.Contains(of, class) {
			return name
		}
	}
	return ""
}

// Collector is the name under which a copy's gap says that it is anonymised.
const Collector = "anonymise"

// A Result is what Copy did.
type Result struct {
	// Names are the pseudonyms by class and original: with them the copy can
	// be read, and undone.
	Names map[string]map[string]string
	// Files, Bytes and Strings were looked through for what must not be left;
	// Needles is for how many names.
	Files, Strings, Needles int
	Bytes                   int64
}

// Count is how many names were replaced.
func (r *Result) Count() int {
	n := 0
	for _, m := range r.Names {
		n += len(m)
	}
	return n
}

// A LeakError says that a copy still held what it must not, so that it was
// removed.
type LeakError struct{ Leaks []Leak }

func (e *LeakError) Error() string {
	var shown []string
	for _, l := range e.Leaks[:min(5, len(e.Leaks))] {
		shown = append(shown, l.String())
	}
	least := ""
	if len(e.Leaks) >= maxLeaks {
		least = "at least "
	}
	return fmt.Sprintf("the copy still held names or secrets (%s%d) and was removed; the first: %s", least, len(e.Leaks), strings.Join(shown, "; "))
}

// Copy writes an anonymised copy of a finished recording to dir, which must be
// empty or not exist, and scans it. Where the scan finds something, the copy is
// removed and the error is a *LeakError.
func Copy(ctx context.Context, rec *record.Recording, dir string, o Options) (*Result, error) {
	keep := map[string]bool{}
	for _, k := range o.Keep {
		if classes[k] == nil {
			return nil, fmt.Errorf("anonymise: there are no names of class %q; there are %s", k, strings.Join(Classes(), ", "))
		}
		keep[k] = true
	}
	c := &copier{names: newNames(keep), kept: o.Keep, memo: map[memoKey]string{}, system: map[string]bool{}, threads: map[string]bool{}, plain: map[string]bool{
		"docs": true, "docs/fidelity.md": true, // what is said of simulated nodes names it
	}}
	if err := c.collectAll(ctx, rec); err != nil {
		return nil, err
	}
	c.assign()
	_, err := os.Stat(dir)
	there := err == nil
	var report *ScanReport
	for range maxPasses {
		clear(c.memo)
		if report, err = c.pass(ctx, rec, dir); err != nil {
			return nil, err
		}
		// A name that only a text tells may stand in what was written before
		// it was met. By now it is known, so once more finds it.
		if len(report.Leaks) == 0 {
			break
		}
		if err := empty(dir, there); err != nil {
			return nil, err
		}
	}
	if len(report.Leaks) > 0 {
		return nil, &LeakError{report.Leaks}
	}
	r := &Result{Names: map[string]map[string]string{}, Files: report.Files, Strings: report.Strings, Bytes: report.Bytes, Needles: report.Needles}
	for name, p := range c.of {
		class := c.class[name]
		if r.Names[class] == nil {
			r.Names[class] = map[string]string{}
		}
		r.Names[class][name] = p
	}
	return r, nil
}

// maxPasses bounds how often a recording is copied until nothing is left.
const maxPasses = 3

// pass writes the copy and scans it. Where it fails nothing is left.
func (c *copier) pass(ctx context.Context, rec *record.Recording, dir string) (*ScanReport, error) {
	_, err := os.Stat(dir)
	there := err == nil
	err = record.Rewrite(ctx, rec, dir, record.Rewriter{
		Row: c.row, Meta: c.meta, Experiment: c.experiment, Label: c.label, Profile: c.profile, Log: c.log,
	})
	if err != nil {
		return nil, err
	}
	report, err := Scan(ctx, dir, c.needles())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("scan the copy: %w", err), empty(dir, there))
	}
	return report, nil
}

// empty removes a copy; the folder stays where it was there before.
func empty(dir string, there bool) error {
	if !there {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// WriteMap writes the mapping as JSON for its owner's eyes only. The file must
// not exist.
func (r *Result) WriteMap(path string) (err error) {
	data, err := json.MarshalIndent(r.Names, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the map of names: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(fmt.Errorf("write the map of names: %w", err), os.Remove(path))
		}
	}()
	_, err = f.Write(append(data, '\n'))
	return err
}

// needles are the originals that must not be left in the copy. A name that is
// a word, or that is also somebody's pseudonym, cannot be told from it.
func (n *names) needles() []Needle {
	pseudonyms := map[string]bool{}
	for _, p := range n.of {
		pseudonyms[p] = true
	}
	var out []Needle
	for name, p := range n.of {
		if name != p && !isWord(name) && !pseudonyms[name] {
			out = append(out, Needle{Text: name, What: n.class[name] + " " + name, Word: true})
		}
	}
	slices.SortFunc(out, func(a, b Needle) int { return strings.Compare(a.Text, b.Text) })
	return out
}
