// Package klog reads lines of the text format that Kubernetes components log
// in: a header, a message, and key="value" pairs. It allocates only where a
// value has escapes.
//
// Start with Parse.
package klog

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"
)

// A Line is one line. Its parts alias the text that was parsed.
type Line struct {
	Severity byte // I, W, E or F
	// Month, Day and Clock are the local time of the process that logged:
	// the format has no year and no zone.
	Month time.Month
	Day   int
	Clock time.Duration // since midnight
	// Source is file:line.
	Source []byte
	// Rest is the message and its pairs.
	Rest []byte
}

// Parse reads a line's header: Lmmdd hh:mm:ss.uuuuuu threadid file:line].
func Parse(b []byte) (l Line, ok bool) {
	if len(b) < 30 || b[5] != ' ' || b[8] != ':' || b[11] != ':' || b[14] != '.' || b[21] != ' ' {
		return Line{}, false
	}
	switch b[0] {
	case 'I', 'W', 'E', 'F':
	default:
		return Line{}, false
	}
	month, ok1 := digits(b[1:3])
	day, ok2 := digits(b[3:5])
	h, ok3 := digits(b[6:8])
	m, ok4 := digits(b[9:11])
	s, ok5 := digits(b[12:14])
	us, ok6 := digits(b[15:21])
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || month < 1 || month > 12 || day < 1 || day > 31 || h > 23 || m > 59 || s > 59 {
		return Line{}, false
	}
	rest := bytes.TrimLeft(b[21:], " ")
	space := bytes.IndexByte(rest, ' ')
	if space <= 0 {
		return Line{}, false
	}
	if _, ok := digits(rest[:space]); !ok {
		return Line{}, false
	}
	rest = rest[space+1:]
	end := bytes.IndexByte(rest, ']')
	if end <= 0 || end > 256 || bytes.IndexByte(rest[:end], ' ') >= 0 {
		return Line{}, false
	}
	l = Line{
		Severity: b[0], Month: time.Month(month), Day: day,
		Clock:  time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond,
		Source: rest[:end],
		Rest:   bytes.TrimPrefix(rest[end+1:], []byte(" ")),
	}
	return l, true
}

// Time is when the line was written, by a process whose clock showed zone,
// in the year that brings it closest to near.
func (l *Line) Time(near time.Time, zone *time.Location) time.Time {
	year := near.In(zone).Year()
	var best time.Time
	var off time.Duration
	for y := year - 1; y <= year+1; y++ {
		t := time.Date(y, l.Month, l.Day, 0, 0, 0, 0, zone).Add(l.Clock)
		if d := t.Sub(near).Abs(); best.IsZero() || d < off {
			best, off = t, d
		}
	}
	return best
}

func digits(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// Message splits the rest of a line into its message and its pairs. The
// message of a structured line is in quotes; any other line is all message.
func Message(rest []byte) (message []byte, pairs []byte, structured bool) {
	if len(rest) == 0 || rest[0] != '"' {
		return rest, nil, false
	}
	message, n, ok := quoted(rest)
	if !ok || n < len(rest) && rest[n] != ' ' && rest[n] != '\n' {
		return rest, nil, false
	}
	return message, bytes.TrimLeft(rest[n:], " "), true
}

// Pair cuts the first key=value off pairs. Values are unquoted; one of several
// lines, key=<…>, comes without its indentation.
func Pair(pairs []byte) (key, value, rest []byte, ok bool) {
	eq := bytes.IndexByte(pairs, '=')
	if eq <= 0 || bytes.IndexByte(pairs[:eq], ' ') >= 0 {
		return nil, nil, nil, false
	}
	key, v := pairs[:eq], pairs[eq+1:]
	switch {
	case len(v) > 0 && v[0] == '"':
		s, n, ok := quoted(v)
		if !ok { // cut in the middle
			return key, v[1:], nil, true
		}
		return key, s, bytes.TrimLeft(v[n:], " \n"), true
	case bytes.HasPrefix(v, []byte("<\n")):
		block, rest, found := bytes.Cut(v[2:], []byte("\n >"))
		if !found {
			rest = nil
		}
		block = bytes.ReplaceAll(bytes.TrimPrefix(block, []byte("\t")), []byte("\n\t"), []byte("\n"))
		return key, block, bytes.TrimLeft(rest, " \n"), true
	case len(v) > 0 && (v[0] == '[' || v[0] == '{'):
		n := bracketed(v)
		return key, v[:n], bytes.TrimLeft(v[n:], " \n"), true
	}
	end := bytes.IndexAny(v, " \n")
	if end < 0 {
		end = len(v)
	}
	return key, v[:end], bytes.TrimLeft(v[end:], " \n"), true
}

// bracketed is the length of a list or struct at the start of b.
func bracketed(b []byte) int {
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}

// quoted reads a string that strconv.Quote wrote, and says how long it was
// with its quotes.
func quoted(b []byte) (s []byte, n int, ok bool) {
	escaped := false
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			if !escaped {
				return b[1:i], i + 1, true
			}
			return unquote(b[1:i]), i + 1, true
		}
	}
	return nil, 0, false
}

func unquote(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for s := string(b); len(s) > 0; {
		r, wide, tail, err := strconv.UnquoteChar(s, '"')
		if err != nil { // not Go's quoting: as it stands
			out = append(out, s[0])
			s = s[1:]
			continue
		}
		if wide {
			out = utf8.AppendRune(out, r)
		} else {
			out = append(out, byte(r))
		}
		s = tail
	}
	return out
}
