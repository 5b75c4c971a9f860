package objects

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// A kind is one that Lives follow.
type kind struct {
	name       string // as rows have it
	version    string // path of the API group's version
	resource   string
	group      string
	namespaced bool
	read       func(s *seen, spec, status []byte) error
	fields     string // field selector; empty for all
	needs      string // what read reads, see needsMeta
}

// claimKind is the kind that is counted too: see Claims.
const claimKind = "PersistentVolumeClaim"

// subject names the resource as RBAC and kubectl do.
func (k kind) subject() string {
	if k.group == "" {
		return k.resource
	}
	return k.resource + "." + k.group
}

// lifeKinds are the kinds whose changes become rows. Pods have a collector of
// their own.
var lifeKinds = []kind{
	{claimKind, "/api/v1", "persistentvolumeclaims", "", true, (*seen).claim, "", needsClaim},
	{"PersistentVolume", "/api/v1", "persistentvolumes", "", false, (*seen).volume, "", needsMeta + ",2(4,6),3(1)"},
	{"VolumeAttachment", "/apis/storage.k8s.io/v1", "volumeattachments", "storage.k8s.io", false, (*seen).attachment, "", needsMeta + ",2(2(1),3),3(1,3,4)"},
	{"Node", "/api/v1", "nodes", "", false, (*seen).nodeObject, "", needsMeta + ",2(5(1,3)),3(4(1,2))"},
	{"Lease", "/apis/coordination.k8s.io/v1", "leases", "coordination.k8s.io", true, (*seen).lease, "", needsMeta + ",2(1)"},
	{"Deployment", "/apis/apps/v1", "deployments", "apps", true, (*seen).deployment, "", needsMeta + ",2(1,7),3(1,2,3,4,6(1,2),7)"},
	{"ReplicaSet", "/apis/apps/v1", "replicasets", "apps", true, (*seen).replicaSet, "", needsMeta + ",2(1),3(1,3,4,5)"},
	{"StatefulSet", "/apis/apps/v1", "statefulsets", "apps", true, (*seen).statefulSet, "", needsMeta + ",2(1),3(1,2,3,5,11)"},
	{"DaemonSet", "/apis/apps/v1", "daemonsets", "apps", true, (*seen).daemonSet, "", needsMeta + ",3(3,4,5,6,7)"},
	{"Job", "/apis/batch/v1", "jobs", "batch", true, (*seen).job, "", needsMeta + ",2(1,2),3(1(1,2),5)"},
}

// States that are not the object's own words.
var (
	stateAttached    = []byte("attached")
	stateAttaching   = []byte("attaching")
	stateDetaching   = []byte("detaching")
	stateFailed      = []byte("failed")
	stateReady       = []byte("Ready")
	stateNotReady    = []byte("NotReady")
	stateUnknown     = []byte("Unknown")
	stateComplete    = []byte("complete")
	stateProgressing = []byte("progressing")
	stateSuspended   = []byte("suspended")
	statePaused      = []byte("paused")
)

// seen is what is taken from an object for its row.
type seen struct {
	meta
	state, node, ref, controller []byte
	class                        []byte // storage class
	desired, ready               int32
	built                        []byte // what ref and controller are put together in
}

// object reads a message of the kind. All of them have metadata, spec and
// status as their first three fields.
func (s *seen) object(k *kind, m []byte) error {
	*s = seen{built: s.built[:0]}
	var spec, status []byte
	err := fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 1:
			return s.meta.read(b)
		case 2:
			spec = b
		case 3:
			status = b
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(s.ownerKind) > 0 {
		s.controller = s.build(s.ownerKind, '/', s.ownerName)
	}
	return k.read(s, spec, status)
}

// build joins two words, in memory that the next object uses again.
func (s *seen) build(a []byte, by byte, b []byte) []byte {
	from := len(s.built)
	s.built = append(append(append(s.built, a...), by), b...)
	return s.built[from:len(s.built):len(s.built)]
}

func (s *seen) claim(spec, status []byte) (err error) {
	s.node = s.selectedNode
	err = fields(spec, func(num protowire.Number, b []byte, _ uint64) error {
		switch num {
		case 3:
			s.ref = b
		case 5:
			s.class = b
		}
		return nil
	})
	if err == nil {
		s.state, err = text(status, 1)
	}
	return err
}

func (s *seen) volume(spec, status []byte) (err error) {
	err = fields(spec, func(num protowire.Number, b []byte, _ uint64) error {
		if num == 6 {
			s.class = b
		}
		if num != 4 { // claimRef
			return nil
		}
		var namespace, name []byte
		err := fields(b, func(num protowire.Number, b []byte, _ uint64) error {
			switch num {
			case 2:
				namespace = b
			case 3:
				name = b
			}
			return nil
		})
		s.ref = s.build(namespace, '/', name)
		return err
	})
	if err == nil {
		s.state, err = text(status, 1)
	}
	return err
}

func (s *seen) attachment(spec, status []byte) error {
	err := fields(spec, func(num protowire.Number, b []byte, _ uint64) (err error) {
		switch num {
		case 2:
			s.ref, err = text(b, 1)
		case 3:
			s.node = b
		}
		return err
	})
	if err != nil {
		return err
	}
	attached, failed := false, false
	err = fields(status, func(num protowire.Number, _ []byte, n uint64) error {
		switch num {
		case 1:
			attached = n != 0
		case 3, 4: // attachError, detachError
			failed = true
		}
		return nil
	})
	switch {
	case failed:
		s.state = stateFailed
	case s.deleting:
		s.state = stateDetaching
	case attached:
		s.state = stateAttached
	default:
		s.state = stateAttaching
	}
	return err
}

func (s *seen) nodeObject(spec, status []byte) error {
	var taints [][]byte
	err := fields(spec, func(num protowire.Number, b []byte, _ uint64) error {
		if num != 5 {
			return nil
		}
		var key, effect []byte
		err := fields(b, func(num protowire.Number, b []byte, _ uint64) error {
			switch num {
			case 1:
				key = b
			case 3:
				effect = b
			}
			return nil
		})
		taints = append(taints, s.build(key, ':', effect))
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(taints, bytes.Compare)
	s.ref = bytes.Join(taints, []byte{','})
	is, err := condition(status, 4, "Ready")
	switch string(is) {
	case "True":
		s.state = stateReady
	case "False":
		s.state = stateNotReady
	case "Unknown":
		s.state = stateUnknown
	}
	return err
}

// condition is the status of a condition in a list of them.
func condition(m []byte, list protowire.Number, name string) (is []byte, err error) {
	err = fields(m, func(num protowire.Number, b []byte, _ uint64) error {
		if num != list {
			return nil
		}
		typ, status, err := pair(b)
		if string(typ) == name {
			is = status
		}
		return err
	})
	return is, err
}

func (s *seen) lease(spec, _ []byte) (err error) {
	if string(s.namespace) == "kube-node-lease" {
		s.node = s.name
	}
	s.state, err = text(spec, 1)
	return err
}

// number is a field that holds one, and where it goes.
type number struct {
	field protowire.Number
	to    *int64
}

// numbers reads a message's fields of numbers.
func numbers(m []byte, wanted ...number) error {
	return fields(m, func(num protowire.Number, _ []byte, n uint64) error {
		for _, w := range wanted {
			if w.field == num {
				*w.to = int64(n)
			}
		}
		return nil
	})
}

// roll is how far a workload's controller has come.
type roll struct {
	desired, observed, all, updated, ready, available int64
}

func (s *seen) rolled(r roll, done bool) {
	s.desired, s.ready = int32(r.desired), int32(r.ready)
	s.state = stateProgressing
	// Numbers of an older generation say nothing about this one.
	if done && r.observed >= s.generation {
		s.state = stateComplete
	}
}

func (s *seen) deployment(spec, status []byte) error {
	r := roll{desired: 1}
	var paused int64
	if err := numbers(spec, number{1, &r.desired}, number{7, &paused}); err != nil {
		return err
	}
	if err := numbers(status, number{1, &r.observed}, number{2, &r.all}, number{3, &r.updated}, number{4, &r.available}, number{7, &r.ready}); err != nil {
		return err
	}
	s.rolled(r, r.updated == r.desired && r.all == r.desired && r.available == r.desired)
	is, err := condition(status, 6, "Progressing")
	switch {
	case string(is) == "False": // its deadline has passed
		s.state = stateFailed
	case paused != 0 && string(s.state) == string(stateProgressing):
		s.state = statePaused
	}
	return err
}

func (s *seen) replicaSet(spec, status []byte) error {
	r := roll{desired: 1}
	if err := numbers(spec, number{1, &r.desired}); err != nil {
		return err
	}
	err := numbers(status, number{1, &r.all}, number{3, &r.observed}, number{4, &r.ready}, number{5, &r.available})
	s.rolled(r, r.all == r.desired && r.available == r.desired)
	return err
}

func (s *seen) statefulSet(spec, status []byte) error {
	r := roll{desired: 1}
	if err := numbers(spec, number{1, &r.desired}); err != nil {
		return err
	}
	err := numbers(status, number{1, &r.observed}, number{2, &r.all}, number{3, &r.ready}, number{5, &r.updated}, number{11, &r.available})
	s.rolled(r, r.updated == r.desired && r.all == r.desired && r.available == r.desired)
	return err
}

func (s *seen) daemonSet(_, status []byte) error {
	var r roll
	err := numbers(status, number{3, &r.desired}, number{4, &r.ready}, number{5, &r.observed}, number{6, &r.updated}, number{7, &r.available})
	s.rolled(r, r.updated == r.desired && r.available == r.desired)
	return err
}

func (s *seen) job(spec, status []byte) error {
	parallelism, completions := int64(1), int64(-1)
	if err := numbers(spec, number{1, &parallelism}, number{2, &completions}); err != nil {
		return err
	}
	var succeeded int64
	if err := numbers(status, number{5, &succeeded}); err != nil {
		return err
	}
	if completions < 0 { // a work queue: done when its pods say so
		completions = parallelism
	}
	s.desired, s.ready = int32(completions), int32(succeeded)
	s.state = stateProgressing
	for _, c := range []struct {
		name  string
		state []byte
	}{{"Suspended", stateSuspended}, {"Complete", stateComplete}, {"Failed", stateFailed}} {
		is, err := condition(status, 1, c.name)
		if err != nil {
			return err
		}
		if string(is) == "True" {
			s.state = c.state
		}
	}
	return nil
}
