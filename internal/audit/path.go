package audit

import (
	"bytes"

	"github.com/kubedyno/kubedyno/record"
)

// Object fills in what a request's path names: group, resource, subresource,
// namespace and name. It reports false where the path is not of a resource.
//
// /api/v1/… is the core group, /apis/GROUP/VERSION/… any other. A namespace
// itself is at namespaces/NAME, and what is in it at namespaces/NAME/RESOURCE.
func Object(path []byte, r *record.Request, name func([]byte) string) bool {
	parts, n := split(path)
	var p [][]byte
	switch {
	case n >= 3 && string(parts[0]) == "api":
		p = parts[2:n]
	case n >= 4 && string(parts[0]) == "apis":
		r.Group = name(parts[1])
		p = parts[3:n]
	default:
		return false
	}
	if string(p[0]) == "watch" && len(p) > 1 { // deprecated form of ?watch=1
		p = p[1:]
	}
	if string(p[0]) == "namespaces" && len(p) > 2 && string(p[2]) != "status" && string(p[2]) != "finalize" {
		r.Namespace = name(p[1])
		p = p[2:]
	} else if string(p[0]) == "namespaces" && len(p) > 1 {
		r.Namespace = name(p[1])
	}
	r.Resource = name(p[0])
	if len(p) > 1 {
		r.Name = name(p[1])
	}
	if len(p) > 2 {
		r.Subresource = name(p[2])
	}
	return true
}

// split cuts a path at its slashes, into at most eight parts: the last may
// hold more, as the paths behind proxy subresources do.
func split(path []byte) (parts [8][]byte, n int) {
	for path = bytes.Trim(path, "/"); len(path) > 0 && n < len(parts); n++ {
		part, rest, _ := bytes.Cut(path, []byte{'/'})
		parts[n], path = part, rest
	}
	return parts, n
}
