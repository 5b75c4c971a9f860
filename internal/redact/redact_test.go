package redact

import (
	"strings"
	"testing"
)

const token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLXNpZ25hdHVyZQ"

func TestLines(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "I1 scheduler.go:1] \"bound\" pod=\"a/b\"\n", "I1 scheduler.go:1] \"bound\" pod=\"a/b\"\n"},
		{"jwt", "got " + token + " from x\n", "got [redacted] from x\n"},
		{"bearer", "curl -H \"Authorization: Bearer abcdefghijk\" https://x\n", "curl -H \"Authorization: Bearer [redacted]\" https://x\n"},
		{"json", `{"token":"abcdefghijk","n":1}` + "\n", `{"token":"[redacted]","n":1}` + "\n"},
		{"words stay", "token expired, secret missing: 3\n", "token expired, secret missing: 3\n"},
		{"key", "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----\nb\n", "a\n[private key redacted]\nb\n"},
		{"key in one line", `x "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n" y` + "\n", `x "[private key redacted]\n" y` + "\n"},
		{"certificate stays", "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"},
	} {
		var l Lines
		var got strings.Builder
		for line := range strings.Lines(c.in) {
			got.Write(l.Line([]byte(line)))
		}
		if got.String() != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got.String(), c.want)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add("-----BEGIN PRIVATE KEY-----\nsecretsecret\n-----END PRIVATE KEY-----\n")
	f.Add("Bearer abcdefghijkl -----END ---------BEGIN x PRIVATE KEY-----")
	f.Fuzz(func(t *testing.T, s string) {
		var l Lines
		for line := range strings.Lines(s) {
			l.Line([]byte(line))
		}
	})
}

func BenchmarkLine(b *testing.B) {
	var l Lines
	line := []byte(`I1120 16:50:00.123456   20106 schedule_one.go:314] "Successfully bound pod to node" pod="default/density-0-abc" node="hollow-12" evaluatedNodes=50 feasibleNodes=50` + "\n")
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		l.Line(line)
	}
}
