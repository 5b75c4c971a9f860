package stamps

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// FieldsHeader is the request's and the answer's header that says which fields of an
// object its watcher reads.
//
// A pod has 3 KB and more, of which nearly all is of no interest to who asks when it ran;
// but to encrypt, send and receive it is most of what a watch costs once its events
// travel together. With "1(1,5),3" only the fields 1 and 5 of the object's field 1 and all of
// its field 3 are sent, by the numbers in Kubernetes' generated.proto files. Events of
// errors are sent whole, and so is what is no watch in protobuf.
const FieldsHeader = "Kubedyno-Fields"

const (
	maxFields = 1 << 10 // bytes of the header
	maxField  = 1 << 8  // field number
	maxDepth  = 16
	// maxFrame is the longest event that is waited for as a whole.
	maxFrame = 16 << 20
	lenBytes = 4
)

var errFields = errors.New("not a list of fields")

// fields are those that are kept of a message, by their number.
type fields []field

type field struct {
	kept bool
	of   fields // what is kept of it; nil: all
}

// parseFields reads what FieldsHeader describes.
func parseFields(s string) (fields, error) {
	if s == "" || len(s) > maxFields {
		return nil, errFields
	}
	f, rest, err := parseList(s, maxDepth)
	if err == nil && rest != "" {
		err = errFields
	}
	return f, err
}

func parseList(s string, depth int) (f fields, rest string, err error) {
	for {
		end := strings.IndexAny(s, ",()")
		if end < 0 {
			end = len(s)
		}
		n, err := strconv.Atoi(s[:end])
		if err != nil || n < 1 || n > maxField || depth == 0 {
			return nil, "", errFields
		}
		for len(f) <= n {
			f = append(f, field{})
		}
		f[n].kept = true
		s = s[end:]
		if strings.HasPrefix(s, "(") {
			if f[n].of, s, err = parseList(s[1:], depth-1); err != nil {
				return nil, "", err
			}
			if !strings.HasPrefix(s, ")") {
				return nil, "", errFields
			}
			s = s[1:]
		}
		if !strings.HasPrefix(s, ",") {
			return f, s, nil
		}
		s = s[1:]
	}
}

// keep appends what is kept of a message; ok is false where it is none.
func (f fields) keep(to, message []byte) (_ []byte, ok bool) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return to, false
		}
		n := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if n < 0 {
			return to, false
		}
		whole := message[:tag+n]
		message = message[tag+n:]
		switch {
		case int(number) >= len(f) || !f[number].kept:
		case f[number].of == nil || kind != protowire.BytesType:
			to = append(to, whole...)
		default:
			content, _ := protowire.ConsumeBytes(whole[tag:])
			to = append(to, whole[:tag]...)
			if to, ok = nested(to, func(to []byte) ([]byte, bool) { return f[number].of.keep(to, content) }); !ok {
				return to, false
			}
		}
	}
	return to, true
}

// nested appends the length of what write appends, and then that.
func nested(to []byte, write func([]byte) ([]byte, bool)) ([]byte, bool) {
	at := len(to)
	to, ok := write(to)
	size := uint64(len(to) - at)
	n := protowire.SizeVarint(size)
	to = append(to, make([]byte, n)...)
	copy(to[at+n:], to[at:])
	protowire.AppendVarint(to[:at], size)
	return to, ok
}

// Of a watch event (meta/v1), of the RawExtension that its object is, and of the Unknown in that.
const (
	eventType, eventObject = 1, 2
	extensionRaw           = 1
	unknownRaw             = 2
)

var envelope = []byte("k8s\x00")

// event appends the frame of an event of which only the fields are kept: its length
// and its content. What is not as expected is appended as it is.
func (f fields) event(to, content []byte) []byte {
	from := len(to)
	to = append(to, make([]byte, lenBytes)...)
	to, ok := rewrite(to, content, eventObject, func(to, extension []byte) ([]byte, bool) {
		return rewrite(to, extension, extensionRaw, func(to, raw []byte) ([]byte, bool) {
			unknown, ok := bytes.CutPrefix(raw, envelope)
			if !ok {
				return to, false
			}
			return rewrite(append(to, envelope...), unknown, unknownRaw, f.keep)
		})
	})
	if !ok || isError(content) {
		to = append(to[:from+lenBytes], content...)
	}
	binary.BigEndian.PutUint32(to[from:], uint32(len(to)-from-lenBytes))
	return to
}

// rewrite appends a message in which the content of one field is what write makes of it.
func rewrite(to, message []byte, which protowire.Number, write func(to, content []byte) ([]byte, bool)) (_ []byte, ok bool) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return to, false
		}
		n := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if n < 0 {
			return to, false
		}
		whole := message[:tag+n]
		message = message[tag+n:]
		if number != which || kind != protowire.BytesType {
			to = append(to, whole...)
			continue
		}
		content, _ := protowire.ConsumeBytes(whole[tag:])
		to = append(to, whole[:tag]...)
		if to, ok = nested(to, func(to []byte) ([]byte, bool) { return write(to, content) }); !ok {
			return to, false
		}
	}
	return to, true
}

func isError(event []byte) bool {
	for len(event) > 0 {
		number, kind, tag := protowire.ConsumeTag(event)
		if tag < 0 {
			return false
		}
		n := protowire.ConsumeFieldValue(number, kind, event[tag:])
		if n < 0 {
			return false
		}
		if number == eventType && kind == protowire.BytesType {
			what, _ := protowire.ConsumeBytes(event[tag:])
			return string(what) == "ERROR"
		}
		event = event[tag+n:]
	}
	return false
}

// A trimmer makes the answer of a watch shorter, as it is written.
type trimmer struct {
	fields  fields
	partial []byte // the beginning of an event
	out     []byte
	off     bool // it is no answer of a watch
}

// write returns what can be sent now that p was written, until it is called again.
func (t *trimmer) write(p []byte) []byte {
	if t.off {
		return p
	}
	t.out = t.out[:0]
	if len(t.partial) == lenBytes && int(binary.BigEndian.Uint32(t.partial)) == len(p) && len(p) <= maxFrame {
		// As it is written: a length, then the content. What is left out of it is not even read.
		t.partial, t.out = t.partial[:0], t.fields.event(t.out, p)
		return t.out
	}
	t.partial = append(t.partial, p...)
	rest := t.partial
	for len(rest) >= lenBytes {
		size := int(binary.BigEndian.Uint32(rest))
		if size > maxFrame {
			t.out = append(t.out, rest...)
			t.off, rest = true, nil
			break
		}
		if len(rest) < lenBytes+size {
			break
		}
		t.out = t.fields.event(t.out, rest[lenBytes:lenBytes+size])
		rest = rest[lenBytes+size:]
	}
	t.partial = t.partial[:copy(t.partial, rest)]
	return t.out
}
