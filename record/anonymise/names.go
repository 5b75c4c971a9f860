package anonymise

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
)

// minName is the length from which on a name is looked for in texts.
const minName = 4

// definition is the class of CustomResourceDefinitions, which are called RESOURCE.GROUP.
const definition = "customresourcedefinition"

// names is the mapping of a recording's names to pseudonyms. One name has one
// pseudonym, whatever it is the name of: a namespace and a Deployment that are
// called alike are so afterwards.
type names struct {
	of    map[string]string // the pseudonym of a name
	class map[string]string // what a name is of
	keep  map[string]bool   // classes whose names stay
	// segments are the pseudonyms of what follows the owner's name in a pod's.
	segments map[string]string
	taken    map[string]bool // originals and pseudonyms: a new one must be neither
	count    map[string]int  // pseudonyms given, by class
	text     *matcher        // of the names that are looked for in texts
	pending  []string        // collected, in the order of their appearance
}

func newNames(keep map[string]bool) *names {
	return &names{of: map[string]string{}, class: map[string]string{}, keep: keep, segments: map[string]string{},
		taken: map[string]bool{}, count: map[string]int{}, text: newMatcher()}
}

// collect notes a name, to be given a pseudonym by assign: first all names must
// be known, so that no pseudonym is the name of something else.
func (n *names) collect(class, name string) {
	if isKnown(name) || n.class[name] != "" {
		return
	}
	n.class[name] = class
	n.taken[name] = true
	n.pending = append(n.pending, name)
}

// first are the classes whose names begin the names of others.
var first = []string{"ns", "node", "deployment", "statefulset", "daemonset", "cronjob", "job", "replicaset", "host", "user", "client", "component"}

// assign gives all that was collected its pseudonym: owners before what they
// own.
func (n *names) assign() {
	for _, class := range first {
		for _, name := range n.pending {
			if n.class[name] == class {
				n.name(class, name)
			}
		}
	}
	for _, name := range n.pending {
		n.name(n.class[name], name)
	}
	n.pending = nil
}

// name is the pseudonym of a name, which is given one where it has none.
func (n *names) name(class, name string) string {
	if isKnown(name) {
		return name
	}
	if p, ok := n.of[name]; ok {
		return p
	}
	if c := n.class[name]; c != "" {
		class = c // as it was first met
	}
	if n.keep[keepClass(class)] {
		return name
	}
	p, composed := "", false
	switch class {
	case "image", "path", "user", "client", "component", "command", "value", "kind", "group", "resource", "phase", "experiment", "cluster", "family":
	case definition: // its requests have resource and group apart
		p, composed = n.resource(name), true
	default:
		p, composed = n.compose(name)
	}
	if !composed {
		p = n.fresh(class)
	}
	n.set(class, name, p)
	return p
}

func (n *names) set(class, name, pseudonym string) {
	n.of[name], n.class[name] = pseudonym, class
	n.taken[name], n.taken[pseudonym] = true, true
	if !isWord(name) {
		n.text.add(name)
	}
}

// fresh is a pseudonym that nothing is called.
func (n *names) fresh(class string) string {
	for {
		n.count[class]++
		p := fmt.Sprintf("%s-%d", class, n.count[class])
		if class == "kind" || class == "resource" { // a dash may stand in neither
			p = fmt.Sprintf("%s%d", class, n.count[class])
		}
		if !n.taken[p] {
			n.taken[p] = true
			return p
		}
	}
}

// compose keeps what a name says of its owner: with a Deployment web called
// deployment-1, its pod web-6bc7d-x2x9p is deployment-1-s1-s2. Numbers stay.
func (n *names) compose(name string) (string, bool) {
	for i := len(name) - 1; i > 0; i-- {
		if c := name[i]; c != '-' && c != '.' && c != '_' {
			continue
		}
		head, rest := name[:i], name[i+1:]
		owner, ok := n.of[head]
		if !ok {
			for _, c := range components {
				if ok = c == head; ok {
					owner = head
					break
				}
			}
		}
		if !ok || rest == "" {
			continue
		}
		if p, ok := n.of[rest]; ok { // kube-apiserver-NODE
			return owner + name[i:i+1] + p, true
		}
		return owner + name[i:i+1] + n.rest(rest), true
	}
	return "", false
}

// rest is what follows an owner's name.
func (n *names) rest(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		end := strings.IndexAny(s, "-._")
		if end < 0 {
			end = len(s)
		}
		out.WriteString(n.segment(s[:end]))
		if end < len(s) {
			out.WriteByte(s[end])
			end++
		}
		s = s[end:]
	}
	return out.String()
}

func (n *names) segment(s string) string {
	if s == "" || strings.Trim(s, "0123456789") == "" && len(s) < 16 {
		return s
	}
	if p, ok := n.of[s]; ok {
		return p
	}
	if p, ok := n.segments[s]; ok {
		return p
	}
	p := n.fresh("s")
	p = "s" + strings.TrimPrefix(p, "s-")
	n.segments[s] = p
	if len(s) >= 8 && random.MatchString(s) { // by itself a label's value: pod-template-hash
		n.set("suffix", s, p)
	}
	return p
}

// uuid, address and hex have the shape of what they stand for, so that
// whoever reads the copy takes them for such.
func (n *names) uuid(s string) string {
	return n.shaped("uuid", strings.ToLower(s), func(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", i) })
}

func (n *names) hex(s string) string {
	return n.shaped("hex", s, func(i int) string { return fmt.Sprintf("%0*x", len(s), i) })
}

func (n *names) address(a netip.Addr) string {
	for _, p := range keptPrefixes {
		if p.Contains(a.Unmap()) {
			return a.String()
		}
	}
	return n.shaped("ip", a.String(), func(i int) string {
		if a.Unmap().Is4() && i >= 1<<17 { // RFC 1112: for a future that never came
			return netip.AddrFrom4([4]byte{240 | byte(i>>24)&15, byte(i >> 16), byte(i >> 8), byte(i)}).String()
		}
		if a.Unmap().Is4() { // RFC 2544: for benchmarks, never on the internet
			return netip.AddrFrom4([4]byte{198, byte(18 + i>>16&1), byte(i >> 8), byte(i)}).String()
		}
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 12: byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}).String()
	})
}

func (n *names) shaped(class, s string, form func(int) string) string {
	if p, ok := n.of[s]; ok {
		return p
	}
	if n.keep[keepClass(class)] {
		return s
	}
	for {
		n.count[class]++
		if p := form(n.count[class]); !n.taken[p] {
			n.set(class, s, p)
			return p
		}
	}
}

// A matcher finds names of a set in a text, where they stand as words of their
// own: neither after nor before a letter or a digit.
type matcher struct {
	set    map[uint64][]string // by hash
	starts [1 << 13]uint64     // a bit for the hash of a name's first four bytes
	max    int                 // length of the longest
}

func newMatcher() *matcher { return &matcher{set: map[uint64][]string{}} }

func startBit(s string) (int, uint64) {
	h := (uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24) * 2654435761
	h >>= 32 - 19
	return int(h >> 6), 1 << (h & 63)
}

func (m *matcher) add(s string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	k := h.Sum64()
	for _, have := range m.set[k] {
		if have == s {
			return
		}
	}
	m.set[k] = append(m.set[k], s)
	m.max = max(m.max, len(s))
	i, bit := startBit(s)
	m.starts[i] |= bit
}

// at is the length of the longest name that begins at s[i]; 0 for none.
func (m *matcher) at(s string, i int) int {
	if i > 0 && alnum(s[i-1]) {
		return 0
	}
	return m.find(s, i, true)
}

// anywhere is at without regard to what stands before and behind.
func (m *matcher) anywhere(s string, i int) int { return m.find(s, i, false) }

func (m *matcher) find(s string, i int, word bool) int {
	if len(s)-i < minName {
		return 0
	}
	if w, bit := startBit(s[i:]); m.starts[w]&bit == 0 {
		return 0
	}
	longest := 0
	h := uint64(14695981039346656037) // FNV-1a, as add has it
	for j := i; j < len(s) && j-i < m.max; j++ {
		h = (h ^ uint64(s[j])) * 1099511628211
		if j+1-i < minName || word && j+1 < len(s) && alnum(s[j+1]) && alnum(s[j]) {
			continue
		}
		for _, name := range m.set[h] {
			if name == s[i:j+1] {
				longest = len(name)
			}
		}
	}
	return longest
}
