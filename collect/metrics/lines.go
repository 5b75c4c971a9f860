package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
)

// errOdd says that an answer has lines that are better left to the parser: with
// times of their own, or in a form that no client library writes.
var errOdd = errors.New("unusual lines")

// lines is a text answer taken apart. A component lists its series in the same
// order each time, and most have not moved since: to compare a line with the
// one at the same place of the last answer costs a tenth of parsing it.
type lines struct {
	text []byte
	at   []lineAt
}

type lineAt struct {
	start, value, end int // of the line, of its value
	x                 *series
	v                 float64
}

func isText(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.TrimSpace(kind)
	return kind == "" || kind == "text/plain"
}

// appendLines parses s.buf, an answer in the text format, into app.
func (s *scraper) appendLines(app storage.AppenderV2, at int64) (n, added int, err error) {
	if len(s.cache) == 0 {
		s.meet(s.buf.Bytes())
	}
	old := s.lines
	text := s.buf.Bytes()
	now := lines{text: append(s.spare.text[:0], text...), at: s.spare.at[:0]}
	text = now.text
	next := 0 // the old line that is expected
	for pos := 0; pos < len(text); {
		end := len(text)
		if i := bytes.IndexByte(text[pos:], '\n'); i >= 0 {
			end = pos + i
		}
		line := text[pos:end]
		start := pos
		pos = end + 1
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var l lineAt
		switch o := expected(old, next); {
		case o != nil && bytes.Equal(line, old.text[o.start:o.end]):
			l = lineAt{start, start + o.value - o.start, end, o.x, o.v}
			next++
		default:
			if l, next, err = s.readLine(text, start, end, old, o, next); err != nil {
				s.spare = now
				return n, added, err
			}
			if l.x == nil {
				continue
			}
		}
		stored, isNew, err := s.appendLine(app, &now, l, at)
		if err != nil {
			s.spare = now
			return n, added, err
		}
		n, added = n+stored, added+isNew
	}
	s.lines, s.spare = now, old
	return n, added, nil
}

// appendLine appends one line's sample, unless its series is left out, and says
// whether it did and whether the series is new.
func (s *scraper) appendLine(app storage.AppenderV2, now *lines, l lineAt, at int64) (stored, isNew int, err error) {
	l.x.place = len(now.at)
	now.at = append(now.at, l)
	if l.x.leftOut {
		return 0, 0, nil
	}
	if l.x.isNew() {
		isNew = 1
	}
	l.x.round, l.x.dead = s.round, false
	return 1, isNew, s.put(app, l.x, at, l.v)
}

// manipulation is the name of the form in which a lab's components tell what has
// changed since the last answer (docs/lab.md, Metrics).
const manipulation = "kubedyno-lines"

// appendChanges reads s.buf, an answer that says how its lines differ from those
// of the last, into app.
func (s *scraper) appendChanges(app storage.AppenderV2, at int64) (n, added int, err error) {
	old := s.lines
	now := lines{at: s.spare.at[:0], text: s.spare.text[:0]}
	defer func() {
		if err == nil {
			s.lines, s.spare = now, old
		} else {
			s.spare = now
		}
	}()
	next := 0 // the old line that comes
	take := func(l lineAt) error {
		stored, isNew, err := s.appendLine(app, &now, l, at)
		n, added = n+stored, added+isNew
		return err
	}
	for line := range bytes.Lines(s.buf.Bytes()) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		switch sign, rest := line[0], line[1:]; sign {
		case '=', '-':
			count, err := strconv.Atoi(string(rest))
			if err != nil || count < 0 || count > len(old.at)-next {
				return n, added, fmt.Errorf("changes of %d lines: %q after line %d", len(old.at), line, next)
			}
			for i := next; sign == '=' && i < next+count; i++ {
				if err := take(lineAt{x: old.at[i].x, v: old.at[i].v}); err != nil {
					return n, added, err
				}
			}
			next += count
		case '~':
			v, ok := parseValue(rest)
			if !ok || next == len(old.at) {
				return n, added, fmt.Errorf("changes of %d lines: %q after line %d", len(old.at), line, next)
			}
			if err := take(lineAt{x: old.at[next].x, v: v}); err != nil {
				return n, added, err
			}
			next++
		default:
			l, _, err := s.readLine(line, 0, len(line), lines{}, nil, 0)
			if err == nil {
				err = take(lineAt{x: l.x, v: l.v})
			}
			if err != nil {
				return n, added, err
			}
		}
	}
	if next != len(old.at) {
		return n, added, fmt.Errorf("changes of %d lines end after line %d", len(old.at), next)
	}
	return n, added, nil
}

func expected(old lines, i int) *lineAt {
	if i < len(old.at) {
		return &old.at[i]
	}
	return nil
}

// readLine reads a line that is not as it was. It returns the place of the old
// line that is to be expected next.
func (s *scraper) readLine(text []byte, start, end int, old lines, o *lineAt, next int) (lineAt, int, error) {
	line := text[start:end]
	id, rest, ok := splitLine(line)
	v, isNumber := parseValue(rest)
	if !ok || !isNumber {
		return lineAt{}, next, errOdd // the parser has the words for what is wrong
	}
	l := lineAt{start, end - len(rest), end, nil, v}
	if o != nil && bytes.Equal(id, old.text[o.start:o.start+min(len(id), o.end-o.start)]) && o.value-o.start == l.value-l.start {
		l.x = o.x
		return l, next + 1, nil
	}
	if x := s.cache[string(id)]; x != nil {
		if x.place >= 0 {
			next = x.place + 1
		}
		l.x = x
		return l, next, nil
	}
	x, err := s.parseLine(line)
	l.x = x
	return l, next, err
}

// parseLine leaves a line that was never met to Prometheus' parser.
func (s *scraper) parseLine(line []byte) (*series, error) {
	p := textparse.NewPromParser(append(bytes.Clone(line), '\n'), labels.NewSymbolTable(), false)
	if entry, err := p.Next(); err != nil || entry != textparse.EntrySeries {
		return nil, errOdd
	}
	id, _, _ := p.Series()
	if x := s.cache[string(id)]; x != nil {
		return x, nil
	}
	var set labels.Labels
	p.Labels(&set)
	return s.remember(string(id), set), nil
}

// meet caches the series of a first answer, all in one go of the parser: one at a time
// costs a quarter more. It stops at what the parser refuses, which comes again line by line.
func (s *scraper) meet(text []byte) {
	p := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if err != nil {
			return
		}
		if entry != textparse.EntrySeries {
			continue
		}
		id, _, _ := p.Series()
		if s.cache[string(id)] != nil {
			continue
		}
		var set labels.Labels
		p.Labels(&set)
		s.remember(string(id), set)
	}
}

// splitLine splits a line into the series' identity, as Prometheus' parser
// gives it, and what stands behind it. A brace in a label's value may come
// before the closing one, never after it.
func splitLine(line []byte) (id, rest []byte, ok bool) {
	i := bytes.LastIndexByte(line, '}') + 1
	if i == 0 {
		if i = bytes.IndexAny(line, " \t"); i < 0 {
			return nil, nil, false
		}
	}
	if line[0] == ' ' || line[0] == '\t' || i >= len(line) {
		return nil, nil, false
	}
	return line[:i], bytes.Trim(line[i:], " \t"), true
}

// parseValue reads a sample's value as Prometheus' parser does.
func parseValue(b []byte) (v float64, ok bool) {
	text := unsafe.String(unsafe.SliceData(b), len(b)) // ParseFloat keeps it in no result but its error
	if strings.ContainsAny(text, "pP_ \t") {
		return 0, false
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}
