package stacks

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A file is one that processes map to run code from.
type file struct {
	id     fileID
	path   string
	object *object
	tried  bool
	used   bool // by a process that lives; of the last sweep
}

// A mapping is a stretch of a process's memory that code runs in.
type mapping struct {
	lo, hi, offset uint64
	file           *file
}

// A space is the code in a process's memory. It is never changed, so that a
// child can share its parent's.
type space struct {
	id       uint64 // of all spaces there were
	mappings []mapping
}

// find is the mapping that an address is in.
func (s *space) find(addr uint64) *mapping {
	i, ok := slices.BinarySearchFunc(s.mappings, addr, func(m mapping, addr uint64) int { return cmp.Compare(m.lo, addr) })
	if !ok {
		i--
	}
	if i < 0 || addr >= s.mappings[i].hi {
		return nil
	}
	return &s.mappings[i]
}

// with is the space after a new mapping, which takes the place of what was there.
func (s *space) with(id uint64, m mapping) *space {
	out := make([]mapping, 0, len(s.mappings)+2)
	for _, old := range s.mappings {
		if old.hi <= m.lo || old.lo >= m.hi {
			out = append(out, old)
			continue
		}
		if old.lo < m.lo {
			left := old
			left.hi = m.lo
			out = append(out, left)
		}
		if old.hi > m.hi {
			right := old
			right.offset += m.hi - old.lo
			right.lo = m.hi
			out = append(out, right)
		}
	}
	out = append(out, m)
	slices.SortFunc(out, func(a, b mapping) int { return cmp.Compare(a.lo, b.lo) })
	return &space{id, out}
}

// A mapLine is a line of /proc/PID/maps.
type mapLine struct {
	lo, hi, offset uint64
	exec           bool
	file           fileID
	path           string
}

// parseMaps reads the executable mappings of /proc/PID/maps; lines that are
// not of its format are left out.
func parseMaps(b []byte) (lines []mapLine) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		if m, ok := parseMapLine(string(line)); ok && m.exec {
			lines = append(lines, m)
		}
	}
	return lines
}

// parseMapLine reads "lo-hi perms offset major:minor inode   path".
func parseMapLine(line string) (m mapLine, ok bool) {
	var f [5]string
	for i := range f {
		f[i], line, _ = strings.Cut(line, " ")
	}
	lo, hi, ok1 := strings.Cut(f[0], "-")
	major, minor, ok2 := strings.Cut(f[3], ":")
	if !ok1 || !ok2 || len(f[1]) < 3 {
		return m, false
	}
	for _, n := range []struct {
		text string
		base int
		to   *uint64
	}{{lo, 16, &m.lo}, {hi, 16, &m.hi}, {f[2], 16, &m.offset}, {f[4], 10, &m.file.inode}} {
		v, err := strconv.ParseUint(n.text, n.base, 64)
		if err != nil {
			return m, false
		}
		*n.to = v
	}
	a, err1 := strconv.ParseUint(major, 16, 32)
	b, err2 := strconv.ParseUint(minor, 16, 32)
	if err1 != nil || err2 != nil || m.hi <= m.lo {
		return m, false
	}
	m.file.major, m.file.minor = uint32(a), uint32(b)
	m.exec = f[1][2] == 'x'
	m.path = strings.TrimSuffix(strings.TrimLeft(line, " "), " (deleted)")
	return m, true
}
