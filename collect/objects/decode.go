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
// generated.proto files, which never change a number; tests compare.

// meta is what is taken from an object's metadata. Like all that is read here,
// its fields alias the event.
type meta struct {
	uid, name, namespace, version []byte
	generation                    int64
	deleting                      bool
	labelRun, labelPhase          []byte
	labelObject, labelHash        []byte
	selectedNode                  []byte // that the scheduler chose for a claim
	ownerKind, ownerName          []byte // of the controller
}

// sight is what is taken from a pod.
type sight struct {
	meta
	spec           []byte
	node           []byte
	status, reason []byte
	ready          bool
	exited         []byte // reason of a container that failed
	exitCode       int32
	waiting        []byte // reason of a container that cannot start
	disruption     []byte // reason why something else ends the pod
}

// What is read of objects, by the numbers of their fields: all that is read below
// must be among them, and TestNeeds holds that it is.
const (
	needsMeta  = "1(1,3,5,6,7,9,11,13(1,3,6))"
	needsPod   = needsMeta + ",2(1(1,2(10,29)),10),3(1,2(1,2,5),4,8(2),10(2))"
	needsEvent = needsMeta + ",2(1,2,3),3,4,5(1),6,7,8,9,10,11,14"
	needsClaim = "1(1,3,5,6,7,9,11,12,13(1,3,6)),2(3,5),3(1)" // and an annotation
)

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
			return s.meta.read(b)
		case 2:
			s.spec = b
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

// claims calls f with the name of each claim that the pod's volumes are of.
func (s *sight) claims(f func(claim string)) error {
	return fields(s.spec, func(num protowire.Number, b []byte, _ uint64) error {
		if num != 1 {
			return nil
		}
		var volume, source []byte
		err := fields(b, func(num protowire.Number, b []byte, _ uint64) error {
			switch num {
			case 1:
				volume = b
			case 2:
				source = b
			}
			return nil
		})
		if err != nil {
			return err
		}
		return fields(source, func(num protowire.Number, b []byte, _ uint64) error {
			switch num {
			case 10: // persistentVolumeClaim
				claim, err := text(b, 1)
				if len(claim) > 0 {
					f(string(claim))
				}
				return err
			case 29: // ephemeral: its claim is named after pod and volume
				f(string(s.name) + "-" + string(volume))
			}
			return nil
		})
	})
}

func (s *meta) read(m []byte) error {
	return fields(m, func(num protowire.Number, b []byte, n uint64) error {
		switch num {
		case 1:
			s.name = b
		case 3:
			s.namespace = b
		case 5:
			s.uid = b
		case 6:
			s.version = b
		case 7:
			s.generation = int64(n)
		case 9:
			s.deleting = true
		case 11:
			key, value, err := pair(b)
			switch string(key) {
			case LabelRun:
				s.labelRun = value
			case LabelPhase:
				s.labelPhase = value
			case LabelObject:
				s.labelObject = value
			case "pod-template-hash":
				s.labelHash = value
			}
			return err
		case 12:
			key, value, err := pair(b)
			if string(key) == "volume.kubernetes.io/selected-node" {
				s.selectedNode = value
			}
			return err
		case 13:
			return s.owner(b)
		}
		return nil
	})
}

// pair reads messages of two strings: entries of a map, and conditions, whose
// type and status come first.
func pair(m []byte) (first, second []byte, err error) {
	err = fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 1:
			first = b
		case 2:
			second = b
		}
		return nil
	})
	return first, second, err
}

// text reads one string of a message.
func text(m []byte, which protowire.Number) (found []byte, err error) {
	err = fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		if num == which {
			found = b
		}
		return nil
	})
	return found, err
}

func (s *meta) owner(m []byte) error {
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
			typ, status, err := pair(b)
			switch {
			case err != nil || string(status) != "True":
				return err
			case string(typ) == "Ready":
				s.ready = true
			case string(typ) == "DisruptionTarget":
				s.disruption, err = text(b, 5)
			}
			return err
		case 4:
			s.reason = b
		case 8, 10: // containers, init containers
			return s.container(b)
		}
		return nil
	})
}

// container looks for a container that failed, or that cannot start.
func (s *sight) container(m []byte) error {
	return fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		if num != 2 {
			return nil
		}
		return fields(b, func(num protowire.Number, b []byte, _ uint64) error {
			switch num {
			case 1: // waiting
				reason, err := text(b, 1)
				switch string(reason) {
				case "", "ContainerCreating", "PodInitializing": // as every container does
				default:
					if s.waiting == nil {
						s.waiting = reason
					}
				}
				return err
			case 3: // terminated
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
			}
			return nil
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

// trouble says why a pod that has not failed for good does not come up, or was
// ended; known is what was said before, which stays until the pod is running:
// reasons such as ErrImagePull and ImagePullBackOff take turns.
func (s *sight) trouble(deleted bool, known string) string {
	switch status := string(s.status); {
	case deleted && known == "":
		return string(s.disruption)
	case deleted:
		return known
	case status == "Running" || status == "Succeeded":
		return ""
	case known == "":
		return string(s.waiting)
	}
	return known
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

// Types of watch events.
const (
	typeAdded    = "ADDED"
	typeModified = "MODIFIED"
	typeDeleted  = "DELETED"
	typeBookmark = "BOOKMARK"
)

// decode reads a watch event's frame: its type, and the object's message.
func decode(data []byte) (typ string, object []byte, err error) {
	var what []byte
	err = fields(data, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 1:
			what = b
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
		return "", nil, fmt.Errorf("decode watch event: %w", err)
	}
	switch string(what) {
	case typeAdded:
		return typeAdded, object, nil
	case typeModified:
		return typeModified, object, nil
	case typeDeleted:
		return typeDeleted, object, nil
	case typeBookmark:
		return typeBookmark, object, nil
	case "ERROR":
		code, text, err := status(object)
		switch {
		case err != nil:
			return "", nil, fmt.Errorf("decode status: %w", err)
		case code == http.StatusGone:
			return "", nil, errGone
		}
		return "", nil, &statusError{code, text}
	}
	return "", nil, fmt.Errorf("decode watch event: type %q", what)
}

// decodeList calls each with the message of each object of a list.
func decodeList(m []byte, each func(object []byte) error) (version, next string, err error) {
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
			return each(b)
		}
		return nil
	})
	return version, next, err
}

// versionOf reads an object's version alone.
func versionOf(object []byte) ([]byte, error) {
	m, err := text(object, 1)
	if err != nil {
		return nil, err
	}
	return text(m, 6)
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
