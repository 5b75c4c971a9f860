package logs

import (
	"strconv"
	"strings"
	"time"
)

// A Trace is what a component logs of a request that took too long
// (k8s.io/utils/trace, at 500 ms in the API server and 100 ms in the
// scheduler):
//
//	Trace[1234]: "Create" accept:…,client:… (02-Jan-2026 15:04:05.000) (total time: 812ms):
//	Trace[1234]: ---"Writing http response done" 300ms (15:04:05.500)
//	Trace[1234]: [812ms] [812ms] END
type Trace struct {
	Name   string
	Fields []Field
	Start  time.Time // in the zone of the log; zero unknown
	Total  time.Duration
	Steps  []TraceStep
}

// A TraceStep is one of its steps, or a trace within it.
type TraceStep struct {
	Name   string
	Fields []Field
	Took   time.Duration
	Nested bool
}

// maxSteps bounds the steps of one trace.
const maxSteps = 200

// Trace reads the entry as a trace.
func (e *Entry) Trace() (*Trace, bool) {
	s, ok := strings.CutPrefix(e.Message, "Trace[")
	if !ok {
		return nil, false
	}
	id, s, ok := strings.Cut(s, "]: ")
	if !ok {
		return nil, false
	}
	name, s, ok := quotedName(s)
	if !ok {
		return nil, false
	}
	t := &Trace{Name: name}
	at := strings.LastIndex(s, "(total time: ")
	if at < 0 {
		return nil, false
	}
	total, _, ok := strings.Cut(s[at+len("(total time: "):], ")")
	if !ok {
		return nil, false
	}
	var err error
	if t.Total, err = time.ParseDuration(total); err != nil {
		return nil, false
	}
	s = strings.TrimSpace(s[:at])
	if strings.HasSuffix(s, ")") {
		if open := strings.LastIndexByte(s, '('); open >= 0 {
			t.Start, _ = time.Parse("02-Jan-2006 15:04:05.000", s[open+1:len(s)-1])
			s = s[:open]
		}
	}
	t.Fields = traceFields(strings.TrimSpace(s))
	// The steps of nested traces stand behind theirs in one line:
	// Trace[1]: ["name" 5ms (…) Trace[1]:  ---"step" 1ms (…)]
	prefix := "Trace[" + id + "]: "
	for _, line := range strings.Split(e.More, "\n") {
		for _, part := range strings.Split(line, prefix) {
			if step, ok := traceStep(part); ok && len(t.Steps) < maxSteps {
				t.Steps = append(t.Steps, step)
			}
		}
	}
	return t, true
}

func traceStep(s string) (TraceStep, bool) {
	s = strings.TrimSpace(s)
	var step TraceStep
	switch {
	case strings.HasPrefix(s, "---"):
		s = s[3:]
	case strings.HasPrefix(s, `["`):
		step.Nested = true
		s = s[1:]
	default:
		return step, false
	}
	name, s, ok := quotedName(s)
	if !ok {
		return step, false
	}
	step.Name = name
	// What follows is key:value,… 300ms (15:04:05.500)
	open := strings.LastIndexByte(s, '(')
	if open < 0 {
		return step, false
	}
	s = strings.TrimSpace(s[:open])
	took := s
	if i := strings.LastIndexByte(s, ' '); i >= 0 {
		took = s[i+1:]
		step.Fields = traceFields(s[:i])
	}
	d, err := time.ParseDuration(took)
	if err != nil {
		return step, false
	}
	step.Took = d
	return step, true
}

// quotedName reads a name in Go's quotes.
func quotedName(s string) (name, rest string, ok bool) {
	q, err := strconv.QuotedPrefix(s)
	if err != nil || q == "" || q[0] != '"' {
		return "", "", false
	}
	name, err = strconv.Unquote(q)
	return name, s[len(q):], err == nil
}

// traceFields reads key:value,key:value. Values may hold commas and colons
// (user agents, URIs): a comma ends a value where a key follows.
func traceFields(s string) []Field {
	var fields []Field
	for len(s) > 0 && len(fields) < maxFields {
		key, rest, ok := strings.Cut(s, ":")
		if !ok {
			break
		}
		end := len(rest)
		for i := 0; i < len(rest); i++ {
			if rest[i] == ',' && startsKey(rest[i+1:]) {
				end = i
				break
			}
		}
		fields = append(fields, Field{key, rest[:end]})
		if end == len(rest) {
			break
		}
		s = rest[end+1:]
	}
	return fields
}

// startsKey reports that s begins with a word and a colon.
func startsKey(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c == ':':
			return i > 0
		case c == '-' || c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9':
		default:
			return false
		}
	}
	return false
}
