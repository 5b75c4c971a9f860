package spikes

import (
	"regexp"
	"strings"
)

const temporary = `/(?:var/)?tmp|/dev/shm|/run/user/\d+`

// masks take out of a command line what differs from one execution to the
// next. In order: what is longer and more certain first.
var masks = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`), "<uuid>"},
	{regexp.MustCompile(`\d{4}-?\d{2}-?\d{2}[T_ ]?\d{2}[:-]?\d{2}[:-]?\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?`), "<time>"},
	// A program keeps its name: it is what is looked for.
	{regexp.MustCompile(`^(` + temporary + `)/(?:\S+/)?([^/\s]+)`), "$1\x00$2"},
	{regexp.MustCompile(`(` + temporary + `)/[^\s,;:'"=]+`), "$1/<tmp>"},
	{regexp.MustCompile(`^(` + temporary + `)\x00`), "$1/"},
	{regexp.MustCompile(`\btmp[._-][A-Za-z0-9]{6,}`), "<tmp>"},
	{home, "$1~/"},
	{regexp.MustCompile(`\b0x[0-9a-fA-F]+\b`), "<hex>"},
}

// home is the same of another user, and none of a reader's business whose.
var home = regexp.MustCompile(`(^|[\s=:,'"])(?:/root|/home/[^/\s]+)/`)

var (
	hexWord  = regexp.MustCompile(`\b[0-9a-f]{8,}\b`)
	idWord   = regexp.MustCompile(`-[a-z0-9]{5,10}\b`)
	number   = regexp.MustCompile(`(^|[\s/=:,._@#([-])\d+(\.\d+)?\b`)
	sizeWord = regexp.MustCompile(`\d{4,}`)
)

// shown is a command line for people.
func shown(command string) string {
	return home.ReplaceAllString(strings.Join(strings.Fields(command), " "), "$1~/")
}

// Normal is a command line without what differs from one execution to the
// next: process IDs, temporary names, hashes, times. Executions with the same
// normal form are one command.
func Normal(command string) string {
	s := strings.Join(strings.Fields(command), " ")
	for _, m := range masks {
		s = m.re.ReplaceAllString(s, m.with)
	}
	s = hexWord.ReplaceAllStringFunc(s, func(w string) string {
		if strings.ContainsAny(w, "0123456789") && strings.ContainsAny(w, "abcdef") || len(w) >= 16 {
			return "<hex>"
		}
		return w
	})
	// Generated names end in letters and digits mixed: web-5d4f8-x7k2p.
	s = idWord.ReplaceAllStringFunc(s, func(w string) string {
		if strings.ContainsAny(w, "0123456789") && strings.Trim(w, "-0123456789") != "" {
			return "-<id>"
		}
		return w
	})
	// Twice: two numbers may share the character between them.
	for range 2 {
		s = number.ReplaceAllString(s, "$1<n>")
	}
	return sizeWord.ReplaceAllString(s, "<n>")
}
