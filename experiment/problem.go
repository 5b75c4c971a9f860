package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Problem is one thing wrong with an experiment, and where.
type Problem struct {
	File         string // or the --set setting
	Line, Column int    // from 1; 0 where there is no file
	Path         string // of the key: phases[1].create.rate
	Text         string // what is wrong, with a hint where there is one
}

func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	if p.File != "" {
		b.WriteString(": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems is all that is wrong with an experiment, in the file's order.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Err is the problems as an error, sorted; nil where there are none.
func (ps Problems) Err() error { return ps.err() }

func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			strings.Compare(a.File, b.File), strings.Compare(a.Path, b.Path), strings.Compare(a.Text, b.Text))
	})
	return slices.CompactFunc(ps, func(a, b Problem) bool { return a == b })
}

// errNothing reports an experiment without content.
var errNothing = errors.New("the experiment is empty: it needs at least name and phases")

// quote shows a name so that look-alike letters of other scripts show.
func quote(s string) string {
	const longest = 80
	if r := []rune(s); len(r) > longest {
		s = string(r[:longest]) + "…"
	}
	q := strconv.Quote(s)
	ascii := strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII && r != '…' }) < 0
	if ascii {
		return q
	}
	return q + " (in ASCII " + strconv.QuoteToASCII(s) + ")"
}

// unknown says that name is no what, and what it could have been.
func unknown(what, name string, valid []string) string {
	return "unknown " + what + " " + quote(name) + suggest(name, valid)
}

// Suggest says what a name could have been.
func Suggest(name string, valid []string) string { return suggest(name, valid) }

func suggest(name string, valid []string) string {
	if near := nearest(name, valid); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return " (" + oneOf(valid) + ")"
}

// oneOf lists valid names.
func oneOf(valid []string) string {
	if len(valid) == 1 {
		return "only " + valid[0] + " is valid"
	}
	return "valid: " + strings.Join(valid, ", ")
}

// nearest is the valid name that name was most likely meant to be, or "".
func nearest(name string, valid []string) string {
	best, distance := "", 1+max(1, len([]rune(name))/3)
	for _, v := range valid {
		d := editDistance(strings.ToLower(name), strings.ToLower(v))
		if strings.EqualFold(flatten(name), flatten(v)) {
			d = 0
		}
		if d < distance {
			best, distance = v, d
		}
	}
	return best
}

// flatten drops what people vary in compound names.
func flatten(s string) string { return strings.NewReplacer("-", "", "_", "", " ", "").Replace(s) }

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours (optimal string alignment).
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > 100 || len(y) > 100 {
		return max(len(x), len(y)) // nobody meant that
	}
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(x)][len(y)]
}
