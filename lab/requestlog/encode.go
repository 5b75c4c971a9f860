package requestlog

import (
	"bytes"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// quoted adds a JSON string.
func quoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			q, _ := json.Marshal(s) // a string has no error
			return append(b, q...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// timestamp adds a time as metav1.MicroTime writes it. To have package time read
// its layout each time would be the half of what a line costs.
func timestamp(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	micros := uint32(t.Nanosecond()) / 1000
	b = pair(append(b, '"'), uint32(year)/100)
	b = pair(b, uint32(year)%100)
	b = pair(append(b, '-'), uint32(month))
	b = pair(append(b, '-'), uint32(day))
	b = pair(append(b, 'T'), uint32(hour))
	b = pair(append(b, ':'), uint32(minute))
	b = pair(append(b, ':'), uint32(second))
	b = pair(append(b, '.'), micros/10_000)
	b = pair(b, micros/100%100)
	b = pair(b, micros%100)
	return append(b, 'Z', '"')
}

// pair adds a number of two digits. Its divisor is constant, so that nothing is divided.
func pair(b []byte, n uint32) []byte { return append(b, '0'+byte(n/10), '0'+byte(n%10)) }

// protobufMagic begins an object that is encoded as protobuf
// (apimachinery's runtime/serializer/protobuf).
var protobufMagic = []byte("k8s\x00")

// nameIn is metadata.name of the object that an answer begins with, as far as b
// holds it; empty where it cannot be told.
func nameIn(b []byte) string {
	if message, ok := bytes.CutPrefix(b, protobufMagic); ok {
		// runtime.Unknown has its object as field 2, an object its metadata as
		// field 1, and metadata its name as field 1.
		whole := false
		for _, field := range []protowire.Number{2, 1, 1} {
			if message, whole = fieldOf(message, field); message == nil {
				return ""
			}
		}
		if !whole {
			return ""
		}
		return string(message)
	}
	// Kubernetes encodes fields in the order of its types: kind, apiVersion,
	// metadata, and in this the name.
	_, rest, ok := bytes.Cut(b, []byte(`"metadata":{"name":"`))
	if !ok {
		return ""
	}
	name, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok || bytes.IndexByte(name, '\\') >= 0 {
		return ""
	}
	return string(name)
}

// fieldOf finds a field of bytes in a message, nil where there is none. The
// message may be cut: whole says whether all of the field is there.
func fieldOf(message []byte, want protowire.Number) (field []byte, whole bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, false
		}
		message = message[n:]
		if number == want && kind == protowire.BytesType {
			size, n := protowire.ConsumeVarint(message)
			if n < 0 {
				return nil, false
			}
			message = message[n:]
			return message[:min(size, uint64(len(message)))], size <= uint64(len(message))
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return nil, false
		}
		message = message[n:]
	}
	return nil, false
}
