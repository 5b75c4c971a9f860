package hollow

import (
	"bytes"
	"encoding/binary"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kubelet decodes each watched pod whole. Of most events a hollow node needs
// a UID, a generation and whether deletion began, a few dozen bytes out of four
// thousand, so it walks the protobuf fields and skips the rest. Slices returned
// from here point into the input.

var errWire = errors.New("malformed protobuf")

// magic starts every protobuf object of the Kubernetes API.
var magic = []byte("k8s\x00")

// A field is one decoded protobuf field: a number in n or bytes in b.
type field struct {
	num int
	n   uint64
	b   []byte
}

// next reads the first field of b and returns what follows it.
func next(b []byte) (f field, rest []byte, err error) {
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return field{}, nil, errWire
	}
	b = b[n:]
	f.num = int(tag >> 3)
	switch tag & 7 {
	case 0: // varint
		f.n, n = binary.Uvarint(b)
		if n <= 0 {
			return field{}, nil, errWire
		}
		return f, b[n:], nil
	case 1: // 64 bit
		if len(b) < 8 {
			return field{}, nil, errWire
		}
		return f, b[8:], nil
	case 2: // length and bytes
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return field{}, nil, errWire
		}
		end := n + int(size)
		f.b = b[n:end:end]
		return f, b[end:], nil
	case 5: // 32 bit
		if len(b) < 4 {
			return field{}, nil, errWire
		}
		return f, b[4:], nil
	}
	return field{}, nil, errWire // groups do not occur in Kubernetes types
}

// unwrap takes an object out of its envelope (runtime.Unknown).
func unwrap(b []byte) (raw []byte, err error) {
	b, ok := bytes.CutPrefix(b, magic)
	if !ok {
		return nil, errWire
	}
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return nil, err
		}
		if f.num == 2 {
			raw = f.b
		}
	}
	return raw, nil
}

// wrap puts a marshalled object into its envelope.
func wrap(apiVersion, kind string, size int, marshalTo func([]byte) (int, error)) ([]byte, error) {
	meta := 2 + len(apiVersion) + 2 + len(kind) // each well below 128 bytes
	b := make([]byte, 0, len(magic)+2+meta+1+binary.MaxVarintLen64+size)
	b = append(b, magic...)
	b = append(b, 1<<3|2, byte(meta), 1<<3|2, byte(len(apiVersion)))
	b = append(b, apiVersion...)
	b = append(b, 2<<3|2, byte(len(kind)))
	b = append(b, kind...)
	b = append(b, 2<<3|2)
	b = binary.AppendUvarint(b, uint64(size))
	head := len(b)
	b = b[:head+size]
	if n, err := marshalTo(b[head:]); err != nil || n != size {
		return nil, errors.Join(errWire, err)
	}
	return b, nil
}

// watchEvent takes a frame of a watch apart: its type and the object within
// its envelope, still marshalled.
func watchEvent(b []byte) (kind, object []byte, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return nil, nil, err
		}
		switch f.num {
		case 1:
			kind = f.b
		case 2: // RawExtension
			for ext := f.b; len(ext) > 0; {
				var in field
				if in, ext, err = next(ext); err != nil {
					return nil, nil, err
				}
				if in.num == 1 {
					if object, err = unwrap(in.b); err != nil {
						return nil, nil, err
					}
				}
			}
		}
	}
	return kind, object, nil
}

// A header is what every object says about itself, and the phase of a pod.
type header struct {
	namespace, name, uid, version []byte
	generation                    int64
	deleting                      bool
	initialEnd                    bool // a bookmark that ends the initial events
	phase                         []byte
}

// readHeader reads the header of a marshalled object, and a pod's phase.
func readHeader(b []byte, isPod bool) (h header, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return h, err
		}
		switch {
		case f.num == 1:
			err = h.meta(f.b)
		case f.num == 3 && isPod:
			err = h.podStatus(f.b)
		}
		if err != nil {
			return h, err
		}
	}
	return h, nil
}

func (h *header) meta(b []byte) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		switch f.num {
		case 1:
			h.name = f.b
		case 3:
			h.namespace = f.b
		case 5:
			h.uid = f.b
		case 6:
			h.version = f.b
		case 7:
			h.generation = int64(f.n)
		case 9:
			h.deleting = true
		case 12:
			// An annotation is a map entry: field 1 is its key.
			if key, _, err := next(f.b); err == nil && key.num == 1 && string(key.b) == metav1.InitialEventsAnnotationKey {
				h.initialEnd = true
			}
		}
	}
	return nil
}

// podNode is the node of a marshalled pod.
func podNode(b []byte) []byte {
	for _, number := range []int{2, 10} { // spec, nodeName
		var f field
		var err error
		for rest := b; ; {
			if len(rest) == 0 {
				return nil
			}
			if f, rest, err = next(rest); err != nil {
				return nil
			}
			if f.num == number {
				break
			}
		}
		b = f.b
	}
	return b
}

func (h *header) podStatus(b []byte) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		b = rest
		if f.num == 1 {
			h.phase = f.b
		}
	}
	return nil
}

// items calls each for every marshalled item of a marshalled list and returns
// the list's resource version.
func items(b []byte, each func([]byte) error) (version string, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return "", err
		}
		switch f.num {
		case 1: // ListMeta
			for meta := f.b; len(meta) > 0; {
				var in field
				if in, meta, err = next(meta); err != nil {
					return "", err
				}
				if in.num == 2 {
					version = string(in.b)
				}
			}
		case 2:
			if err := each(f.b); err != nil {
				return "", err
			}
		}
	}
	return version, nil
}
