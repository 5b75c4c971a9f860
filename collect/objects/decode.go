package objects

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/encoding/protowire"
)

// A pod event has about 3 KB, of which a row needs ten fields. Decoding it
// into a Pod takes 20 µs and 83 allocations, most of them for managed fields;
// walking over it takes 1 µs. The field numbers are those of Kubernetes'
// generated.proto files, which never change a number; a test compares.

// sight is what is taken from a pod. Its fields alias the event.
type sight struct {
	uid, name, namespace, version      []byte
	labelPhase, labelObject, labelHash []byte
	ownerKind, ownerName               []byte // of the controller
	node                               []byte
	status, reason                     []byte
	ready                              bool
	exited                             []byte // reason of a container that failed
	exitCode                           int32
}

var errWire = errors.New("not valid protobuf")

// fields calls f for each field: b is the content of a message or string, n
// the value of a number.
func fields(m []byte, f func(num protowire.Number, b []byte, n uint64) error) error {
	for len(m) > 0 {
		num, typ, size := protowire.ConsumeTag(m)
		if size < 0 {
			return errWire
		}
		m = m[size:]
		var b []byte
		var n uint64
		switch typ {
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(m)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(m)
		default:
			size = protowire.ConsumeFieldValue(num, typ, m)
		}
		if size < 0 {
			return errWire
		}
		m = m[size:]
		if err := f(num, b, n); err != nil {
			return err
		}
	}
	return nil
}

// pod reads a Pod message.
func (s *sight) pod(m []byte) error {
	*s = sight{}
	return fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 1:
			return s.meta(b)
		case 2:
			return fields(b, func(num protowire.Number, b []byte, _ uint64) error {
				if num == 10 {
					s.node = b
				}
				return nil
			})
		case 3:
			return s.podStatus(b)
		}
		return nil
	})
}

func (s *sight) meta(m []byte) error {
	return fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 1:
			s.name = b
		case 3:
			s.namespace = b
		case 5:
			s.uid = b
		case 6:
			s.version = b
		case 11:
			return s.label(b)
		case 13:
			return s.owner(b)
		}
		return nil
	})
}

func (s *sight) label(m []byte) error {
	var key, value []byte
	err := fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 1:
			key = b
		case 2:
			value = b
		}
		return nil
	})
	switch string(key) {
	case LabelPhase:
		s.labelPhase = value
	case LabelObject:
		s.labelObject = value
	case "pod-template-hash":
		s.labelHash = value
	}
	return err
}

func (s *sight) owner(m []byte) error {
	var kind, name []byte
	controller := false
	err := fields(m, func(num protowire.Number, b []byte, n uint64) error {
		switch num {
		case 1:
			kind = b
		case 3:
			name = b
		case 6:
			controller = n != 0
		}
		return nil
	})
	if controller && s.ownerKind == nil {
		s.ownerKind, s.ownerName = kind, name
	}
	return err
}

func (s *sight) podStatus(m []byte) error {
	return fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 1:
			s.status = b
		case 2:
			var typ, status []byte
			err := fields(b, func(num protowire.Number, b []byte, _ uint64) error {
				switch num {
				case 1:
					typ = b
				case 2:
					status = b
				}
				return nil
			})
			if string(typ) == "Ready" && string(status) == "True" {
				s.ready = true
			}
			return err
		case 4:
			s.reason = b
		case 8:
			return s.container(b)
		}
		return nil
	})
}

// container looks for a container that failed: state, terminated.
func (s *sight) container(m []byte) error {
	return fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		if num != 2 {
			return nil
		}
		return fields(b, func(num protowire.Number, b []byte, _ uint64) error {
			if num != 3 {
				return nil
			}
			var code int32
			var reason []byte
			err := fields(b, func(num protowire.Number, b []byte, n uint64) error {
				switch num {
				case 1:
					code = int32(n)
				case 3:
					reason = b
				}
				return nil
			})
			if code != 0 && s.exitCode == 0 {
				s.exitCode, s.exited = code, reason
			}
			return err
		})
	})
}

// failure says why a pod failed.
func (s *sight) failure() string {
	switch {
	case len(s.reason) > 0:
		return string(s.reason)
	case len(s.exited) > 0:
		return string(s.exited)
	case s.exitCode != 0:
		return fmt.Sprintf("exit code %d", s.exitCode)
	}
	return "Failed"
}

// ofOwner is Kind/name of what the pod was made for, empty for a bare pod. A
// ReplicaSet stands for its Deployment.
func (s *sight) ofOwner() string {
	kind, name := string(s.ownerKind), s.ownerName
	if kind == "" {
		return ""
	}
	if kind == "ReplicaSet" && len(s.labelHash) > 0 {
		kind = "Deployment"
		name = bytes.TrimSuffix(name, append([]byte{'-'}, s.labelHash...))
		if len(s.labelObject) > 0 {
			name = s.labelObject
		}
	}
	return kind + "/" + string(name)
}

// decode reads a watch event's frame.
func decode(data []byte, p *sight) (kind string, err error) {
	var typ, object []byte
	err = fields(data, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 1:
			typ = b
		case 2:
			return fields(b, func(num protowire.Number, b []byte, _ uint64) error {
				if num == 1 {
					object = b
				}
				return nil
			})
		}
		return nil
	})
	if err == nil {
		object, err = unwrap(object)
	}
	if err != nil {
		return "", fmt.Errorf("decode watch event: %w", err)
	}
	switch string(typ) {
	case "ERROR":
		code, text, err := status(object)
		switch {
		case err != nil:
			return "", fmt.Errorf("decode status: %w", err)
		case code == http.StatusGone:
			return "", errGone
		}
		return "", &statusError{code, text}
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
	default:
		return "", fmt.Errorf("decode watch event: type %q", typ)
	}
	if err := p.pod(object); err != nil {
		return "", fmt.Errorf("decode pod: %w", err)
	}
	return string(typ), nil
}

// decodeList reads a PodList.
func decodeList(m []byte, each func(*sight)) (version, next string, err error) {
	err = fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 1:
			return fields(b, func(num protowire.Number, b []byte, _ uint64) error {
				switch num {
				case 2:
					version = string(b)
				case 3:
					next = string(b)
				}
				return nil
			})
		case 2:
			var p sight
			if err := p.pod(b); err != nil {
				return err
			}
			each(&p)
		}
		return nil
	})
	return version, next, err
}

func status(m []byte) (code int, text string, err error) {
	err = fields(m, func(num protowire.Number, b []byte, n uint64) error {
		switch num {
		case 3:
			text = string(b)
		case 6:
			code = int(int32(n))
		}
		return nil
	})
	return code, text, err
}

var magic = []byte("k8s\x00")

// unwrap takes an object out of its protobuf envelope.
func unwrap(b []byte) (raw []byte, err error) {
	if !bytes.HasPrefix(b, magic) {
		return nil, errors.New("answer is not Kubernetes protobuf")
	}
	err = fields(b[len(magic):], func(num protowire.Number, b []byte, _ uint64) error {
		if num == 2 {
			raw = b
		}
		return nil
	})
	return raw, err
}
