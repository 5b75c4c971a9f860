package anonymise

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/kubedyno/kubedyno/internal/redact"
	"github.com/kubedyno/kubedyno/internal/table"
	"github.com/kubedyno/kubedyno/internal/tsdb"
)

// A Needle is something that must not be in a recording.
type Needle struct {
	Text string // at least four bytes
	What string // it is, for people; of a secret this must not show it
	// Word looks for it only where it stands by itself, neither after nor
	// before a letter or a digit, and not in what Kubernetes and kubedyno name.
	Word bool
}

// A Leak is a needle that was found, or what looks like a secret.
type Leak struct {
	File string // inside the recording
	At   string // column, label, log line or the like
	What string
}

func (l Leak) String() string {
	if l.At == "" {
		return fmt.Sprintf("%s: %s", l.File, l.What)
	}
	return fmt.Sprintf("%s, %s: %s", l.File, l.At, l.What)
}

// A ScanReport is what Scan found, and how much it looked through.
type ScanReport struct {
	Leaks   []Leak // maxLeaks at most; each needle once a file
	Files   int
	Bytes   int64 // unpacked
	Strings int   // values of tables, labels and profiles
	Needles int
}

const (
	maxLeaks = 100
	// secretWindow is how much of a secret's line is looked for: PEM lines of
	// keys of one kind begin alike, and end unlike each other.
	secretWindow = 20
)

// Secret is what to look for so that no form of a secret is missed: as it is,
// the lines of a PEM body each, in base64 at each alignment, and in hex.
// Secrets of less than 16 bytes give nothing: they would be found everywhere.
func Secret(what string, secret []byte) []Needle {
	var out []Needle
	seen := map[string]bool{}
	add := func(s string) {
		if len(s) >= 16 && !seen[s] {
			seen[s] = true
			out = append(out, Needle{Text: s, What: what})
		}
	}
	tail := func(s string) string { return s[max(0, len(s)-secretWindow):] }
	for line := range bytes.Lines(secret) {
		s := strings.TrimSpace(string(line))
		if len(s) < 16 || strings.HasPrefix(s, "-----") {
			continue
		}
		add(tail(s))
		// Base64 of it, as a kubeconfig or a Secret holds it: cut to what the
		// bytes beside it have no part in.
		window := []byte(tail(s))
		for shift := range 3 {
			enc := base64.StdEncoding.EncodeToString(append(make([]byte, shift), window...))
			from := (shift*8 + 5) / 6
			until := (shift + len(window)) * 8 / 6
			add(enc[from:until])
			add(strings.NewReplacer("+", "-", "/", "_").Replace(enc[from:until]))
		}
		add(hex.EncodeToString(window))
		if der, err := base64.StdEncoding.DecodeString(s); err == nil && len(der) >= 16 {
			add(string(der[len(der)-16:])) // the key itself, of whatever frame
		}
	}
	return out
}

type scanner struct {
	words, anywhere *matcher
	what            map[string]string
	report          *ScanReport
	found           map[[2]string]bool // file, what
}

// Scan looks through all files of the recording in dir for needles and for
// what looks like a secret: tables, labels of metrics and profiles unpacked,
// and each file as it is too. What kubedyno took out (REDACTED) is none.
func Scan(ctx context.Context, dir string, needles []Needle) (*ScanReport, error) {
	s := &scanner{words: newMatcher(), anywhere: newMatcher(), what: map[string]string{}, report: &ScanReport{Needles: len(needles)}, found: map[[2]string]bool{}}
	for _, n := range needles {
		if len(n.Text) < minName {
			return nil, fmt.Errorf("scan %s: %s is too short to look for", dir, n.What)
		}
		s.what[n.Text] = n.What
		if n.Word {
			s.words.add(n.Text)
		} else {
			s.anywhere.add(n.Text)
		}
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if name != "." {
			s.text(name, "name of the file", []byte(e.Name()))
		}
		if e.IsDir() || !e.Type().IsRegular() {
			return nil
		}
		s.report.Files++
		return s.file(path, name)
	})
	if err == nil {
		err = s.labels(ctx, dir)
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(s.report.Leaks, func(a, b Leak) int { return strings.Compare(a.File, b.File) })
	return s.report, nil
}

func (s *scanner) labels(ctx context.Context, dir string) error {
	err := tsdb.EachLabel(ctx, filepath.Join(dir, "metrics"), func(label, value string) error {
		s.report.Strings++
		if label != "__name__" {
			s.text("metrics", "label "+label, []byte(value))
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tsdb.ErrEmpty) {
		return nil
	}
	return err
}

func (s *scanner) file(path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	switch {
	case strings.HasSuffix(name, ".parquet"):
		err := table.EachString(f, path, func(column string, value []byte) error {
			s.report.Strings++
			s.text(name, "column "+column, value)
			return nil
		})
		if err != nil {
			return err
		}
		return s.raw(f, name)
	case strings.HasSuffix(name, ".gz"):
		return s.packed(f, name)
	case strings.HasPrefix(name, "metrics/"):
		return s.raw(f, name)
	}
	return s.lines(f, name)
}

// raw looks at bytes as they are. What is not text is only looked through for
// secrets: names are in strings, which are looked at one by one.
func (s *scanner) raw(f *os.File, name string) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	const block = 1 << 20
	overlap := max(s.anywhere.max, minName)
	buf := make([]byte, 0, block+overlap)
	for {
		n, err := io.ReadFull(f, buf[len(buf):len(buf)+block])
		buf = buf[:len(buf)+n]
		s.report.Bytes += int64(n)
		s.secrets(name, "", string(buf))
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		buf = buf[:copy(buf, buf[len(buf)-min(overlap, len(buf)):])]
	}
}

func (s *scanner) packed(f *os.File, name string) error {
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.report.Bytes += int64(len(data))
	s.secrets(name, "", string(data))
	p, err := profile.ParseUncompressed(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	visit := func(at, text string) {
		s.report.Strings++
		s.text(name, at, []byte(text))
	}
	for _, c := range p.Comments {
		visit("comment", c)
	}
	for _, m := range p.Mapping {
		visit("mapping", m.File)
		visit("build ID", m.BuildID)
	}
	for _, fn := range p.Function {
		visit("function", fn.Name)
		visit("function", fn.SystemName)
		visit("file of a function", fn.Filename)
	}
	for _, sample := range p.Sample {
		for k, vs := range sample.Label {
			for _, v := range vs {
				visit("label "+k, v)
			}
		}
	}
	return nil
}

// lines looks at a text file: a secret may begin on one line and end on
// another.
func (s *scanner) lines(f *os.File, name string) error {
	data, err := io.ReadAll(f) // a log has 16 MiB at most
	if err != nil {
		return err
	}
	s.report.Bytes += int64(len(data))
	n := 0
	var net redact.Lines
	for line := range bytes.Lines(data) {
		n++
		at := fmt.Sprintf("line %d", n)
		s.match(name, at, string(line))
		s.net(name, at, line, net.Line)
	}
	return nil
}

// text looks at one value.
func (s *scanner) text(file, at string, value []byte) {
	s.match(file, at, string(value))
	s.net(file, at, value, func(b []byte) []byte { return new(redact.Lines).Line(b) })
}

// net finds what looks like a secret: what the net that logs pass through
// would take out.
func (s *scanner) net(file, at string, value []byte, clean func([]byte) []byte) {
	marked := bytes.ReplaceAll(value, []byte("REDACTED"), []byte(redact.Mark))
	if !bytes.Equal(clean(marked), marked) {
		s.leak(file, at, "what looks like a secret")
	}
}

func (s *scanner) match(file, at, value string) {
	s.secrets(file, at, value)
	if s.words.max == 0 {
		return
	}
	for i := 0; i < len(value); i++ {
		if i > 0 && alnum(value[i-1]) {
			continue
		}
		if w := stays(value, i); w > 0 {
			i += w - 1
			continue
		}
		if w := s.words.at(value, i); w > 0 {
			what := s.what[value[i:i+w]]
			// What one program was told may be part of another one's flag, whose name is
			// its program's and stays, or a program that everybody runs.
			if !strings.HasPrefix(what, "arg ") || !inFlag(value[:i]) && !runs(value, i, i+w) {
				s.leak(file, at, what)
			}
		}
	}
}

// runs says whether s[i:j] is the program of a command line, and one of those that stay.
func runs(s string, i, j int) bool {
	ends := j == len(s) || s[j] == ' '
	return ends && programs[s[i:j]] && !strings.ContainsAny(s[:i], " \t\n\x00")
}

// inFlag says whether what follows is within a flag's name.
func inFlag(before string) bool {
	word := before[strings.LastIndexAny(before, " \t\n\x00")+1:]
	return strings.HasPrefix(word, "-") && !strings.Contains(word, "=")
}

// stays is the length of a well-known name at s[i].
func stays(s string, i int) int {
	end := i
	for end < len(s) && (alnum(s[end]) || s[end] == '-' || s[end] == '.' || s[end] == '_') {
		end++
	}
	for ; end > i; end = i + strings.LastIndexAny(s[i:end], "-.") {
		if end-i >= minName && wellKnown[s[i:end]] {
			return end - i
		}
	}
	return 0
}

func (s *scanner) secrets(file, at, value string) {
	if s.anywhere.max == 0 {
		return
	}
	for i := range len(value) {
		if w := s.anywhere.anywhere(value, i); w > 0 {
			s.leak(file, at, s.what[value[i:i+w]])
		}
	}
}

func (s *scanner) leak(file, at, what string) {
	if len(s.report.Leaks) < maxLeaks && !s.found[[2]string{file, what}] {
		s.found[[2]string{file, what}] = true
		s.report.Leaks = append(s.report.Leaks, Leak{file, at, what})
	}
}
