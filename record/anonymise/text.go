package anonymise

import (
	"net/netip"
	"net/url"
	"path"
	"strings"

	"github.com/kubedyno/kubedyno/internal/redact"
)

// text replaces names in what was written for people: the names that are
// known, and whatever looks like an address, a host, a UUID, a path, a URL, an
// e-mail address, an image or a pod.
func (n *names) free(s string) string {
	s = string(redact.Text([]byte(s)))
	if len(s) < 2 {
		return s
	}
	var out strings.Builder
	out.Grow(len(s) + 16)
	key, last := "", ""
	quoted, nested := false, false
	for i := 0; i < len(s); {
		// A backslash takes what it escapes with it: in \nfoo foo is a word.
		if s[i] == '\\' && i+1 < len(s) {
			w := 2
			if s[i+1] == 'u' && i+6 <= len(s) {
				w = 6
			}
			if s[i+1] == '"' {
				if nested = !nested; !nested {
					key = ""
				}
			}
			out.WriteString(s[i : i+w])
			i += w
			continue
		}
		if delimiter(s[i]) || s[i] == '\\' {
			switch s[i] {
			case '=':
				key = last
			case '"':
				nested = false
				if quoted = !quoted; !quoted {
					key = ""
				}
			case ' ', ',', '\t', ';', '&': // a name has none of these
				key = ""
			}
			out.WriteByte(s[i])
			i++
			continue
		}
		end := i
		for end < len(s) && !delimiter(s[end]) && s[end] != '\\' {
			end++
		}
		chunk := s[i:end]
		i = end
		if chunk == ":" { // "key":"value"
			key = last
			out.WriteByte(':')
			continue
		}
		if class, ok := identities[strings.ToLower(key)]; ok && class == "client" && (quoted || nested) {
			// A user agent has spaces and brackets inside.
			if w := strings.IndexAny(s[end:], `"\\`); w >= 0 {
				chunk, i = s[i-len(chunk):end+w], end+w
			}
			out.WriteString(n.valueOf(class, chunk))
		} else if ok {
			out.WriteString(n.valueOf(class, chunk))
		} else {
			out.WriteString(n.chunk(chunk, quoted || nested))
		}
		last = chunk
	}
	return n.known(out.String(), true)
}

func delimiter(c byte) bool {
	return c <= ' ' || strings.IndexByte("\"'`()[]{}<>,;|=&?", c) >= 0
}

// valueOf is the value of a key that names something: mostly a name, at times
// a sentence.
func (n *names) valueOf(class, s string) string {
	if p, ok := n.of[s]; ok {
		return p
	}
	switch s {
	case "none", "other", "all", "any", "unknown": // no name at all
		return s
	}
	if isKnown(s) || plain(s) || strings.Contains(s, "://") || strings.HasPrefix(s, "/") {
		return n.chunk(s, false)
	}
	switch class {
	case "user":
		return n.user(s)
	case "image":
		return n.image(s)
	case "client":
		if _, err := netip.ParseAddrPort(s); err == nil {
			return n.chunk(s, false)
		}
		return n.agent(s)
	case "host":
		return n.holder(s)
	}
	if ns, name, ok := strings.Cut(s, "/"); ok && !strings.Contains(name, "/") {
		return n.name("ns", ns) + "/" + n.object(class, ns, name)
	}
	if !objectish.MatchString(s) {
		return n.chunk(s, false)
	}
	return n.name(class, s)
}

// object is the name of an object in a namespace. Those that Kubernetes makes
// in its own namespaces stay.
func (n *names) object(class, namespace, name string) string {
	if p, ok := n.of[name]; ok {
		return p
	}
	if name == "" || ownObject(namespace, name) {
		return name
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return n.chunk(name, false)
	}
	return n.name(class, name)
}

func ownObject(namespace, name string) bool {
	return isKnown(name) || strings.HasPrefix(name, "system:") || ourOwnNamespaces[namespace] && familiar(name)
}

// chunk is a stretch of text without spaces and brackets.
func (n *names) chunk(s string, quoted bool) string {
	core := strings.TrimRight(s, ".:!-")
	if core == "" {
		return s
	}
	tail := s[len(core):]
	if p, ok := n.of[core]; ok && !isWord(core) {
		return p + tail
	}
	if isKnown(core) || len(core) < 3 {
		return s
	}
	if i := indexUUID(core); i >= 0 {
		out := n.uuid(core[i : i+36])
		if i > 0 {
			out = n.chunk(core[:i], false) + out
		}
		if i+36 < len(core) {
			out += n.chunk(core[i+36:], false)
		}
		return out + tail
	}
	if i := strings.Index(core, "://"); i >= 0 {
		return core[:i+3] + n.afterScheme(core[i+3:]) + tail
	}
	if strings.IndexByte(core, '@') > 0 && email.MatchString(core) {
		if n.keep["users"] {
			return s
		}
		return n.name("user", core) + tail
	}
	if a, ok := n.addressIn(core); ok {
		return a + tail
	}
	if strings.HasPrefix(core, "-") {
		flag := strings.TrimLeft(core, "-")
		return core[:len(core)-len(flag)] + n.chunk(flag, false) + tail
	}
	if strings.HasPrefix(core, "/") {
		return n.path(core) + tail
	}
	if strings.HasPrefix(core, "~/") {
		return n.name("path", core) + tail
	}
	if i := strings.Index(core, ":/"); i >= 0 {
		return n.chunk(core[:i], false) + ":" + n.chunk(core[i+1:], false) + tail
	}
	if strings.HasPrefix(core, "$STATE") {
		return s
	}
	if strings.HasPrefix(core, "system:") {
		return n.user(core) + tail
	}
	if head, rest, ok := strings.Cut(core, "/"); ok {
		switch {
		case n.host(head) != "" && head != strings.ToUpper(head) && !isFile(head):
			if publicHost(head) && !registry(head) {
				return s // golang.org/x/net/http2.(*Framer).ReadFrame
			}
			return n.image(core) + tail
		case quoted && objectish.MatchString(head) && objectish.MatchString(rest) && (n.class[head] == "ns" || strings.HasPrefix(head, "kube-") || head == "default"):
			return n.name("ns", head) + "/" + n.object("object", head, rest) + tail
		}
		parts := strings.Split(core, "/")
		for i, p := range parts {
			parts[i] = n.word(p)
		}
		return strings.Join(parts, "/") + tail
	}
	return n.word(core) + tail
}

// word is a chunk without slashes.
func (n *names) word(s string) string {
	if i := strings.IndexAny(s, ":@+%~^*!"); i >= 0 {
		out := ""
		if i > 0 {
			out = n.word(s[:i])
		}
		return out + s[i:i+1] + n.word(s[i+1:])
	}
	if len(s) < minName || isKnown(s) {
		return s
	}
	if p, ok := n.of[s]; ok && !isWord(s) {
		return p
	}
	if a, ok := n.addressIn(s); ok {
		return a
	}
	switch {
	case isHex(s):
		return n.hex(s)
	case podLike.MatchString(s) && !n.familiar(s):
		return n.name("pod", s)
	case n.host(s) == "host":
		return n.name("host", s)
	case blob(s):
		return n.name("blob", s)
	}
	return n.known(s, true)
}

// known replaces the names of the set, and what follows them where that looks
// like what Kubernetes appends to names.
func (n *names) known(s string, patterns bool) string {
	var out strings.Builder
	from := 0
	for i := 0; i < len(s); i++ {
		if i > 0 && alnum(s[i-1]) {
			continue
		}
		if w := n.staying(s, i); w > 0 {
			i += w - 1
			continue
		}
		w := n.text.at(s, i)
		if w == 0 {
			continue
		}
		out.WriteString(s[from:i])
		out.WriteString(n.of[s[i:i+w]])
		i += w
		for patterns && i+1 < len(s) && (s[i] == '-' || s[i] == '.') {
			end := i + 1
			for end < len(s) && alnum(s[end]) {
				end++
			}
			if !random.MatchString(s[i+1:end]) || words[s[i+1:end]] || end < len(s) && s[end] == '_' {
				break
			}
			out.WriteByte(s[i])
			out.WriteString(n.segment(s[i+1 : end]))
			i = end
		}
		from = i
		i--
	}
	if from == 0 {
		return s
	}
	out.WriteString(s[from:])
	return out.String()
}

// staying is the length of a well-known name or of a pseudonym at s[i], which
// is not to be looked into; 0 for none.
func (n *names) staying(s string, i int) int {
	end := i
	for end < len(s) && (alnum(s[end]) || s[end] == '-' || s[end] == '.' || s[end] == '_') {
		end++
	}
	for end > i && (s[end-1] == '.' || s[end-1] == '-') {
		end--
	}
	for ; end > i; end = i + strings.LastIndexAny(s[i:end], "-.") {
		if t := s[i:end]; len(t) >= minName && (wellKnown[t] || strings.ContainsAny(t, "-0123456789") && n.taken[t] && n.of[t] == "") {
			return end - i
		}
	}
	return 0
}

// addressIn is an IP address, with its port or the length of its prefix.
func (n *names) addressIn(s string) (string, bool) {
	if s == "" || !digit(s[0]) && strings.Count(s, ":") < 2 {
		return "", false
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return n.address(a), true
	}
	if a, err := netip.ParseAddrPort(s); err == nil {
		return netip.AddrPortFrom(n.parsed(a.Addr()), a.Port()).String(), true
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		if s == "10.96.0.0/12" { // what everybody has
			return s, true
		}
		return n.address(p.Addr()) + s[strings.IndexByte(s, '/'):], true
	}
	if i := strings.LastIndexByte(s, ':'); i > 0 { // 10.0.0.1:xyz
		if a, err := netip.ParseAddr(s[:i]); err == nil && a.Is4() {
			return n.address(a) + ":" + n.word(s[i+1:]), true
		}
	}
	return "", false
}

func (n *names) parsed(a netip.Addr) netip.Addr {
	b, err := netip.ParseAddr(n.address(a))
	if err != nil {
		return a
	}
	return b
}

// familiar says that s is made of words alone, and nobody's name.
func (n *names) familiar(s string) bool {
	_, ok := n.of[s]
	return !ok && familiar(s)
}

// host tells what a word is for the name of a host: "" none, "public" one that
// everybody talks to, "host".
func (n *names) host(s string) string {
	h, port, hasPort := strings.Cut(s, ":")
	if hasPort && !plain(port) {
		return ""
	}
	if h == "localhost" && hasPort {
		return "public"
	}
	labels := strings.Split(h, ".")
	if len(labels) < 2 || strings.HasPrefix(h, "-") || h != strings.ToLower(h) {
		return ""
	}
	for _, l := range labels {
		if l == "" || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return ""
		}
	}
	top := labels[len(labels)-1]
	if publicHost(h) {
		return "public"
	}
	if domains[top] || len(top) == 2 && lower(top[0]) && lower(top[1]) && !extensions[top] && !notDomains[top] {
		return "host"
	}
	return ""
}

func publicHost(h string) bool {
	h, _, _ = strings.Cut(h, ":")
	if publicNames[h] {
		return true
	}
	for _, d := range publicDomains {
		if h == d || strings.HasSuffix(h, "."+d) && d != "cluster.local" {
			return true
		}
	}
	return false
}

func registry(h string) bool {
	switch h {
	case "docker.io", "quay.io", "ghcr.io", "gcr.io", "public.ecr.aws", "mcr.microsoft.com":
		return true
	}
	return strings.HasSuffix(h, ".gcr.io") || h == "index.docker.io"
}

// image is registry/repository:tag@digest. Tags that are versions stay.
func (n *names) image(s string) string {
	if strings.HasPrefix(s, "registry.k8s.io/") || strings.HasPrefix(s, "k8s.gcr.io/") || isKnown(s) || n.keep["images"] {
		return s
	}
	rest, digest, hasDigest := strings.Cut(s, "@")
	tag := ""
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, tag = rest[:i], rest[i:]
	}
	out := n.name("image", rest)
	if head, _, ok := strings.Cut(rest, "/"); ok && registry(head) {
		out = head + "/" + out
	}
	if tag != "" && versionRE.MatchString(tag[1:]) {
		out += tag
	} else if tag != "" {
		out += ":" + n.name("tag", tag[1:])
	}
	if algorithm, sum, ok := strings.Cut(digest, ":"); hasDigest && ok {
		out += "@" + algorithm + ":" + n.hex(sum)
	}
	return out
}

// afterScheme is [user@]host[:port][/path].
func (n *names) afterScheme(s string) string {
	authority, rest := s, ""
	if i := strings.IndexByte(s, '/'); i >= 0 {
		authority, rest = s[:i], s[i:]
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	}
	return n.server(authority) + n.path(rest)
}

// server is host[:port].
func (n *names) server(s string) string {
	h, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.Count(s, ":") == 1 {
		h, port = s[:i], s[i:]
	}
	if h == "" {
		return s
	}
	if a, ok := n.addressIn(h); ok {
		return a + port
	}
	if publicHost(h) || isKnown(h) || strings.HasPrefix(h, "%") || h == "$STATE" {
		return s
	}
	return n.name("host", h) + port
}

// path is a path of a file, of the API, or of etcd.
func (n *names) path(p string) string {
	if p == "" || p == "/" || n.keep["paths"] {
		return p
	}
	parts := strings.Split(p, "/")
	if parts[0] == "" {
		switch parts[1] {
		case "api", "apis", "registry":
			return n.apiPath(parts)
		}
		if ownPaths[parts[1]] {
			return n.known(p, false)
		}
	}
	own := true
	for _, part := range parts {
		own = own && (part == "" || n.familiar(strings.TrimSuffix(part, path.Ext(part))) && (path.Ext(part) == "" || extensions[path.Ext(part)[1:]] || plain(path.Ext(part)[1:])))
	}
	if own && !strings.HasPrefix(p, "/home/") && !strings.HasPrefix(p, "/tmp/") || strings.HasPrefix(p, "/usr/local/go/") || strings.HasPrefix(p, "/proc/") {
		return n.known(p, false)
	}
	if q, ok := n.of[p]; ok {
		return q
	}
	q := n.fresh("path")
	if parts[0] == "" {
		q = "/" + q
	}
	if ext := path.Ext(p); len(ext) > 1 && extensions[ext[1:]] {
		q += ext
	}
	n.set("path", p, q)
	return q
}

// apiPath renames what stands where the path has names.
func (n *names) apiPath(parts []string) string {
	kind, group := "", false
	ns := ""
	for i, part := range parts {
		if i < 2 {
			continue
		}
		low := strings.ToLower(part)
		switch {
		case part == "" || plain(part) && !strings.Contains(part, "."):
		case i == 2 && parts[1] == "apis" || i == 2 && strings.Contains(part, "."):
			group = !builtinGroup(part)
			parts[i] = n.group(part)
		case kind == "namespaces":
			ns = part
			parts[i] = n.name("ns", part)
			kind = ""
		case kindOf(low) && kind == "":
			kind = low
			if parts[1] == "registry" && low == "services" {
				kind = ""
			}
		case kind != "" && words[low] && i == len(parts)-1 && i > 3 && !isAPIObject(parts, i):
			// a subresource
		case group && kind == "" && objectish.MatchString(part):
			parts[i] = n.resource(part)
			kind = "objects"
		case kind == "" && n.familiar(part):
		default:
			if parts[1] == "registry" && ns == "" && i < len(parts)-1 {
				ns = part
				parts[i] = n.name("ns", part)
				continue
			}
			parts[i] = n.object(classOfResource(kind), ns, part)
		}
	}
	return strings.Join(parts, "/")
}

// isAPIObject says that parts[i] directly follows a resource: it is a name and
// no subresource.
func isAPIObject(parts []string, i int) bool { return i > 0 && kindOf(strings.ToLower(parts[i-1])) }

func kindOf(low string) bool { _, ok := kinds[low]; return ok }

func classOfResource(resource string) string {
	if c := classOf[kinds[strings.ToLower(resource)]]; c != "" {
		return c
	}
	return "object"
}

func (n *names) group(g string) string {
	if builtinGroup(g) {
		return g
	}
	return n.name("group", g)
}

// resource is a built-in one, or one that somebody defined.
func (n *names) resource(r string) string {
	name, group, ok := strings.Cut(r, ".")
	name, sub, hasSub := strings.Cut(name, "/")
	if r == "" || strings.HasPrefix(r, "/") {
		return n.path(r)
	}
	out := name
	if !kindOf(strings.ToLower(name)) {
		out = n.name("resource", name)
	}
	if hasSub {
		out += "/" + sub
	}
	if ok {
		out += "." + n.group(group)
	}
	return out
}

func (n *names) kind(k string) string {
	if k == "" || kindOf(strings.ToLower(k)) {
		return k
	}
	return n.name("kind", k)
}

// user is who asked: system:node:NODE, system:serviceaccount:NS:NAME, or a
// person.
func (n *names) user(s string) string {
	parts := strings.Split(s, ":")
	switch {
	case isKnown(s):
		return s
	case strings.HasPrefix(s, "system:node:") && len(parts) == 3:
		return "system:node:" + n.name("node", parts[2])
	case strings.HasPrefix(s, "system:serviceaccount:") && len(parts) == 4:
		return "system:serviceaccount:" + n.name("ns", parts[2]) + ":" + n.object("account", parts[2], parts[3])
	case strings.HasPrefix(s, "system:bootstrap:"):
		return "system:bootstrap:" + n.name("token", parts[2])
	case parts[0] == "system" || parts[0] == "kubeadm" || parts[0] == "kubedyno":
		return n.known(s, false)
	}
	return n.name("user", s)
}

// agent is a User-Agent: program/version (os/arch) rest. Programs that come
// with Kubernetes stay.
func (n *names) agent(s string) string {
	program, rest, ok := strings.Cut(s, "/")
	if s == "" {
		return s
	}
	if !isKnown(program) {
		program = n.name("client", program)
	}
	if !ok {
		return program
	}
	return program + "/" + agentWord.ReplaceAllStringFunc(rest, func(w string) string {
		switch {
		case strings.HasPrefix(w, "system:"):
			return n.user(w)
		case n.familiar(w) || versionRE.MatchString(w) || isHexish(w):
			return w
		}
		if changed := n.chunk(w, false); changed != w {
			return changed
		}
		return n.name("client", w)
	})
}

func isHexish(s string) bool { return len(s) >= 7 && strings.Trim(s, "0123456789abcdef") == "" }

// holder is who holds a lease: HOST_UUID, or a host.
func (n *names) holder(s string) string {
	if i := indexUUID(s); i > 0 && (s[i-1] == '_' || s[i-1] == '-') {
		return n.holder(s[:i-1]) + s[i-1:i] + n.uuid(s[i:i+36]) + n.chunkOr(s[i+36:])
	}
	if isKnown(s) {
		return s
	}
	if i := strings.LastIndexByte(s, ':'); i > 0 && plain(s[i+1:]) {
		return n.server(s)
	}
	if a, ok := n.addressIn(s); ok {
		return a
	}
	return n.name("host", s)
}

func (n *names) chunkOr(s string) string {
	if s == "" {
		return ""
	}
	return n.chunk(s, false)
}

// query is the query of a request: selectors name objects, labels and their
// values.
func (n *names) query(s string) string {
	if s == "" {
		return s
	}
	if strings.HasPrefix(s, "/") {
		p, q, ok := strings.Cut(s, "?")
		if !ok {
			return n.path(p)
		}
		return n.path(p) + "?" + n.query(q)
	}
	parts := strings.Split(s, "&")
	for i, part := range parts {
		k, v, ok := strings.Cut(part, "=")
		if !ok {
			parts[i] = n.chunk(part, false)
			continue
		}
		plainValue, err := url.QueryUnescape(v)
		if err != nil {
			plainValue = v
		}
		var changed string
		switch k {
		case "fieldSelector":
			changed = n.selector(plainValue, true)
		case "labelSelector":
			changed = n.selector(plainValue, false)
		case "resourceVersion", "continue", "limit", "timeout", "timeoutSeconds", "watch", "allowWatchBookmarks", "resourceVersionMatch", "sendInitialEvents":
			changed = plainValue
			if k == "continue" && blob(plainValue) {
				changed = n.name("blob", plainValue) // it holds the last name of a list
			}
		default:
			changed = n.free(plainValue)
		}
		if changed != plainValue {
			parts[i] = k + "=" + url.QueryEscape(changed)
		}
	}
	return strings.Join(parts, "&")
}

// selector keeps keys and operators.
func (n *names) selector(s string, fields bool) string {
	terms := splitSelector(s)
	for i, t := range terms {
		j := strings.IndexAny(t, "=!")
		if j < 0 {
			// key, !key, key in (a,b), key notin (a,b)
			open := strings.IndexByte(t, '(')
			if open < 0 {
				continue
			}
			vs := strings.Split(strings.TrimSuffix(t[open+1:], ")"), ",")
			for k, v := range vs {
				vs[k] = n.labelValue(strings.TrimSpace(v))
			}
			terms[i] = t[:open+1] + strings.Join(vs, ",") + ")"
			continue
		}
		key := t[:j]
		v := strings.TrimLeft(t[j:], "=!")
		op := t[j : len(t)-len(v)]
		switch {
		case key == "" || v == "":
		case fields && key == "metadata.name":
			terms[i] = key + op + n.object("object", "", v)
		case fields && strings.HasSuffix(key, "nodeName"):
			terms[i] = key + op + n.name("node", v)
		case fields && strings.HasSuffix(key, "namespace"):
			terms[i] = key + op + n.name("ns", v)
		case fields && strings.HasSuffix(key, ".name"):
			terms[i] = key + op + n.object("object", "", v)
		case fields && strings.HasSuffix(key, ".uid"):
			terms[i] = key + op + n.chunk(v, false)
		case fields:
			terms[i] = key + op + n.free(v)
		default:
			terms[i] = key + op + n.labelValue(v)
		}
	}
	return strings.Join(terms, ",")
}

// splitSelector splits at commas outside of brackets.
func splitSelector(s string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, s[from:i])
				from = i + 1
			}
		}
	}
	return append(out, s[from:])
}

// labelValue is a value that nobody explains: words and numbers stay.
func (n *names) labelValue(s string) string {
	if n.familiar(s) {
		return s
	}
	return n.name("value", s)
}

func indexUUID(s string) int {
	for i := 0; i+36 <= len(s); i++ {
		if s[i+8] == '-' && s[i+13] == '-' && s[i+18] == '-' && s[i+23] == '-' && hexDashes(s[i:i+36]) &&
			(i == 0 || !alnum(s[i-1])) && (i+36 == len(s) || !alnum(s[i+36])) {
			return i
		}
	}
	return -1
}

func hexDashes(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF-") == "" }

// isHex tells digests and ids: of 16 digits and more, not all of one kind.
func isHex(s string) bool {
	return len(s) >= 16 && strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0123456789") != "" && strings.Trim(s, "abcdef") != ""
}

// blob tells base64.
func blob(s string) bool {
	if len(s) < 40 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=") != "" {
		return false
	}
	var ups, lows, digits int
	for i := range len(s) {
		switch c := s[i]; {
		case upper(c):
			ups++
		case lower(c):
			lows++
		case digit(c):
			digits++
		}
	}
	return ups > 4 && lows > 4 && digits > 2
}

// isFile tells server.go from server.example.
func isFile(s string) bool {
	s, _, _ = strings.Cut(s, ":")
	ext := path.Ext(s)
	return len(ext) > 1 && extensions[ext[1:]]
}
