package record

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// redacted stands where a secret was.
const redacted = "REDACTED"

// RedactArgs returns a command line's arguments without their secrets. It
// blanks, and rather too much than too little:
//
//   - the value of a flag or NAME=VALUE pair whose name has one of the words
//     password, passwd, passphrase, pwd, secret, token, credential(s), bearer, jwt,
//     apikey or authorization, or one of the pairs api-key, access-key, private-key,
//     secret-key, auth-key, encryption-key, certificate-key, key-data; in the
//     same argument (--token=x) or in the next (--token x);
//   - but not where the name ends in file, path, dir or another word that
//     names no secret (ttl, name, url, syncs, …), nor where the value is a
//     boolean or, unless it is a password, a number or a duration;
//   - whatever its name: a value with PEM inside, a JSON web token, a token
//     of a well-known form (kubeadm, GitHub, GitLab, Slack, AWS), what follows
//     Bearer or Basic or the name of a secret header, and the password in a URL.
//
// An argument that is itself a command line (sh -c "…") is treated word by word.
func RedactArgs(args []string) []string {
	out := make([]string, len(args))
	hide := plain
	for i, arg := range args {
		if hide != plain && (!strings.HasPrefix(arg, "-") || hide == always) {
			out[i], hide = hide.value(arg), plain
			continue
		}
		out[i], hide = redactArg(arg)
	}
	return out
}

// redactArg redacts one argument, and says how secret the next one is.
func redactArg(arg string) (string, secrecy) {
	if strings.Contains(arg, "-----BEGIN ") {
		if name, _, ok := strings.Cut(arg, "="); ok && !strings.Contains(name, "-----BEGIN ") {
			return name + "=" + redacted, plain
		}
		return redacted, plain
	}
	if strings.ContainsAny(arg, " \t\n") {
		return redactWords(arg), plain
	}
	if name, value, ok := strings.Cut(arg, "="); ok && nameLike.MatchString(name) {
		if s := secrecyOf(name); s != plain {
			return name + "=" + s.value(value), plain
		}
		return name + "=" + redactValue(value), plain
	}
	if name, value, ok := strings.Cut(arg, ":"); ok && value != "" && headerLike.MatchString(name) && secrecyOf(name) != plain {
		return name + ":" + redacted, plain
	}
	if strings.HasPrefix(arg, "-") {
		return redactValue(arg), secrecyOf(arg)
	}
	return redactValue(arg), plain
}

// redactWords redacts an argument that holds several words, keeping the
// space between them.
func redactWords(arg string) string {
	arg = scheme.ReplaceAllString(arg, "${1} "+redacted)
	var out strings.Builder
	hide := plain
	for _, part := range wordOrSpace.FindAllString(arg, -1) {
		if strings.TrimSpace(part) == "" {
			out.WriteString(part)
			continue
		}
		if hide != plain && !strings.HasPrefix(part, "-") {
			out.WriteString(hide.value(part))
			hide = plain
			continue
		}
		var word string
		word, hide = redactArg(part)
		if name, ok := strings.CutSuffix(strings.Trim(part, `"'`), ":"); ok && secrecyOf(name) != plain {
			// A header, "Authorization: Digest x": how far its value goes
			// is for the header to know.
			out.WriteString(word + " " + redacted)
			break
		}
		out.WriteString(word)
	}
	return out.String()
}

// secrecy is how much of a value a name makes secret.
type secrecy int

const (
	plain  secrecy = iota
	mostly         // but not booleans, numbers and durations
	always         // whatever it looks like
)

func (s secrecy) value(v string) string {
	if v == "" || s == plain || s == mostly && harmless.MatchString(strings.Trim(v, `"'`)) {
		return v
	}
	return redacted
}

var (
	nameLike    = regexp.MustCompile(`^-{0,2}["']?[A-Za-z_][A-Za-z0-9_.\-]*$`)
	headerLike  = regexp.MustCompile(`^["']?[A-Za-z][A-Za-z0-9\-]*$`)
	harmless    = regexp.MustCompile(`^(?i:true|false|\d{1,7}(\.\d+)?|(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+)$`)
	wordOrSpace = regexp.MustCompile(`\s+|\S+`)
	scheme      = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[^\s"']+`)
	userinfo    = regexp.MustCompile(`(://[^/\s:@]*):[^@\s]+@`)
	wellKnown   = regexp.MustCompile(`eyJ[\w\-]+\.[\w\-]+\.[\w\-]*` + // JSON web token
		`|\b[a-z0-9]{6}\.[a-z0-9]{16}\b` + // kubeadm bootstrap token
		`|\b(gh[pousr]|github_pat|glpat|xox[abpors])[_\-][\w\-]{10,}` +
		`|\bAKIA[0-9A-Z]{16}\b`)

	alwaysWords = []string{"password", "passwd", "passphrase", "pwd", "pass"}
	secretWords = []string{"secret", "token", "credential", "credentials", "bearer", "jwt", "apikey", "authorization"}
	secretPairs = []string{"api-key", "access-key", "private-key", "secret-key", "auth-key", "encryption-key", "certificate-key", "key-data"}
	// plainEnds are last words that make a name harmless: it tells where or
	// how, not what.
	plainEnds = []string{"file", "files", "path", "paths", "dir", "directory", "name", "names", "namespace", "ttl", "timeout", "period",
		"url", "issuer", "audience", "audiences", "syncs", "expiration", "version", "type", "mode", "config", "provider", "plugin"}
)

func secrecyOf(name string) secrecy {
	words := splitName(name)
	if len(words) == 0 || slices.Contains(plainEnds, words[len(words)-1]) {
		return plain
	}
	for _, w := range words {
		if slices.Contains(alwaysWords, w) {
			return always
		}
	}
	for i, w := range words {
		if slices.Contains(secretWords, w) || i > 0 && slices.Contains(secretPairs, words[i-1]+"-"+w) {
			return mostly
		}
	}
	return plain
}

var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

func splitName(name string) []string {
	name = strings.ToLower(camel.ReplaceAllString(name, "${1}-${2}"))
	return strings.FieldsFunc(name, func(r rune) bool { return !('a' <= r && r <= 'z' || '0' <= r && r <= '9') })
}

func redactValue(v string) string {
	v = userinfo.ReplaceAllString(v, "${1}:"+redacted+"@")
	return wellKnown.ReplaceAllString(v, redacted)
}

// scrub takes out of m what must never be in a recording: values of
// environment variables, wherever they may have slipped in, and secrets on
// command lines.
func (m *Meta) scrub() {
	m.Settings = slices.Clone(m.Settings)
	for i, s := range m.Settings {
		m.Settings[i] = redactSetting(s)
	}
	if u, err := url.Parse(m.Cluster.Server); err == nil && u.User != nil {
		u.User = nil
		m.Cluster.Server = u.String()
	}
	m.Cluster.Components = slices.Clone(m.Cluster.Components)
	for i := range m.Cluster.Components {
		c := &m.Cluster.Components[i]
		c.Args = RedactArgs(c.Args)
		c.Env = slices.Clone(c.Env)
		for j, e := range c.Env {
			c.Env[j], _, _ = strings.Cut(e, "=")
		}
		flags := make(map[string]string, len(c.Flags))
		for name, v := range c.Flags {
			_, flags[name], _ = strings.Cut(RedactArgs([]string{"--" + name + "=" + v})[0], "=")
		}
		if c.Flags != nil {
			c.Flags = flags
		}
	}
}

// redactSetting blanks the value of PATH=VALUE where PATH is an environment
// variable or a flag with a secret.
func redactSetting(s string) string {
	path, v, ok := strings.Cut(s, "=")
	if !ok {
		return s
	}
	if strings.Contains(path, ".env.") {
		return path + "=" + redacted
	}
	name := path[strings.LastIndex(path, ".")+1:]
	_, v, _ = strings.Cut(RedactArgs([]string{"--" + name + "=" + v})[0], "=")
	return path + "=" + v
}
