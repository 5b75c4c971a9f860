package logs

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// What stands for what varies.
const (
	maskNumber   = "<num>"
	maskDuration = "<dur>"
	maskIP       = "<ip>"
	maskUUID     = "<uuid>"
	maskHex      = "<hex>"
	maskName     = "<name>"
	maskText     = "<str>"
	maskTime     = "<time>"
	wildcard     = "<*>"
)

// maxTokens bounds the words of a template.
const maxTokens = 60

// tokens are the words of an entry, what varies masked: its message, and each
// pair with its value. Values that are text, as errors, are words themselves.
func (e *Entry) tokens(out []string) []string {
	out = words(out, e.Message)
	for _, f := range e.Fields {
		if len(out) >= maxTokens {
			break
		}
		key := clip(f.Key, 60)
		switch {
		case f.Key == "err" || f.Key == "error" || f.Key == "reason" || f.Key == "cause":
			n := len(out)
			out = words(out, f.Value)
			if len(out) > n {
				out[n] = key + "=" + out[n]
			} else {
				out = append(out, key+"=")
			}
		case strings.ContainsAny(f.Value, " \t\n/[{") || len(f.Value) > 40:
			out = append(out, key+"="+maskText)
		default:
			out = append(out, key+"="+mask(f.Value))
		}
	}
	return out
}

// words cuts text at spaces, outside of quotes, and masks each word.
func words(out []string, s string) []string {
	for len(out) < maxTokens {
		s = strings.TrimLeft(s, " \t\n\r")
		if s == "" {
			break
		}
		end := strings.IndexAny(s, " \t\n\r\"")
		if end >= 0 && s[end] == '"' { // what is quoted varies, and may have spaces
			stop := end + 1
			for stop < len(s) && s[stop] != '"' {
				if s[stop] == '\\' {
					stop++
				}
				stop++
			}
			stop = min(stop, len(s)-1)
			next := strings.IndexAny(s[stop+1:], " \t\n\r")
			if next < 0 {
				next = len(s) - stop - 1
			}
			tail := s[stop+1 : stop+1+next]
			out = append(out, clip(s[:end], 60)+`"`+maskText+`"`+clip(mask(tail), 60))
			s = s[stop+1+next:]
			continue
		}
		if end < 0 {
			end = len(s)
		}
		out = append(out, mask(s[:end]))
		s = s[end:]
	}
	return out
}

// mask replaces what varies in one word. Brackets and punctuation around it
// stay.
func mask(s string) string {
	if !hasDigit(s) {
		return clip(s, 80)
	}
	core := strings.TrimLeft(s, `([{<'"`)
	lead := s[:len(s)-len(core)]
	trimmed := strings.TrimRight(core, `)]}>'",.;:`)
	tail := core[len(trimmed):]
	core = trimmed
	if core == "" {
		return clip(s, 80)
	}
	if key, value, ok := strings.Cut(core, "="); ok && key != "" && value != "" {
		return clip(lead+key+"="+mask(value)+tail, 80)
	}
	return clip(lead, 20) + maskCore(core) + clip(tail, 20)
}

func maskCore(s string) string {
	if len(s) > 200 {
		return maskText
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return maskNumber
	}
	if _, err := time.ParseDuration(s); err == nil {
		return maskDuration
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return maskIP
	}
	if _, err := netip.ParseAddrPort(s); err == nil {
		return maskIP
	}
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' && isHex(strings.ReplaceAll(s, "-", "")) {
		return maskUUID
	}
	if h := strings.TrimPrefix(s, "0x"); len(h) >= 6 && isHex(h) {
		return maskHex
	}
	if len(s) >= 19 && s[4] == '-' && s[7] == '-' && (s[10] == 'T' || s[10] == ' ') {
		return maskTime
	}
	switch {
	case strings.Contains(s, "/"):
		// Of a path, the parts that vary.
		parts := strings.Split(s, "/")
		for i, p := range parts {
			if hasDigit(p) && !isVersion(p) {
				parts[i] = maskCore(p)
			}
		}
		if len(parts) > 1 {
			return clip(strings.Join(parts, "/"), 80)
		}
	case strings.ContainsAny(s, "-_") && len(s) > 4:
		return maskName
	}
	// A word with numbers in it, as v1.36.3 or shard3.
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] >= '0' && s[i] <= '9' {
			for i < len(s) && s[i] >= '0' && s[i] <= '9' {
				i++
			}
			b.WriteString(maskNumber)
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return clip(b.String(), 80)
}

// isVersion tells API versions, as v1 and v1beta2, which are few.
func isVersion(s string) bool {
	return len(s) >= 2 && len(s) <= 9 && s[0] == 'v' && s[1] >= '0' && s[1] <= '9' && strings.Trim(s[1:], "0123456789alphbet") == ""
}

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == "" }
