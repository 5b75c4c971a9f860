package objects

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

// only is what a server sends of a message whose watcher needs these fields. It looks
// for each field's path in the list, as one would with a pencil.
func only(t *testing.T, needs, path string, message []byte) (out []byte) {
	t.Helper()
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			t.Fatal("no message")
		}
		whole, tag := message[:n], protowire.SizeTag(number)
		message = message[n:]
		at := strings.TrimPrefix(path+"."+strconv.Itoa(int(number)), ".")
		paths := paths(needs)
		switch {
		case slices.Contains(paths, at):
			out = append(out, whole...)
		case kind == protowire.BytesType && slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, at+".") }):
			content, _ := protowire.ConsumeBytes(whole[tag:])
			out = protowire.AppendBytes(append(out, whole[:tag]...), only(t, needs, at, content))
		}
	}
	return out
}

// paths are those of the fields that are kept whole: "1(2,3)" has 1.2 and 1.3.
func paths(needs string) (all []string) {
	var at []string
	number := ""
	flush := func() {
		if number != "" {
			all = append(all, strings.Join(append(slices.Clone(at), number), "."))
		}
		number = ""
	}
	for _, c := range needs {
		switch c {
		case '(':
			at, number = append(at, number), ""
		case ')':
			flush()
			at = at[:len(at)-1]
		case ',':
			flush()
		default:
			number += string(c)
		}
	}
	flush()
	return all
}

// What we ask a server for is all that we read.
func TestNeeds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	fill := randfill.NewWithSeed(1).NilChance(.1).NumElements(0, 3).MaxDepth(30).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(s *intstr.IntOrString, c randfill.Continue) { *s = intstr.FromInt32(c.Int31()) },
		func(m *metav1.Time, c randfill.Continue) { m.Time = time.Unix(c.Int63n(1<<31), 0) },
		func(m *metav1.MicroTime, c randfill.Continue) { m.Time = time.UnixMicro(c.Int63n(1 << 50)) },
		// Words that are looked for, often.
		func(s *corev1.ConditionStatus, _ randfill.Continue) {
			*s = pick(random, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)
		},
		func(s *corev1.PodConditionType, _ randfill.Continue) {
			*s = pick(random, corev1.PodReady, corev1.DisruptionTarget, "Other")
		},
		func(s *corev1.NodeConditionType, _ randfill.Continue) { *s = pick(random, corev1.NodeReady, "Other") },
		func(s *appsv1.DeploymentConditionType, _ randfill.Continue) {
			*s = pick(random, appsv1.DeploymentProgressing, "Other")
		},
		func(s *batchv1.JobConditionType, _ randfill.Continue) {
			*s = pick(random, batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuspended, "Other")
		},
		func(m *map[string]string, c randfill.Continue) {
			*m = map[string]string{}
			for _, key := range []string{LabelRun, LabelPhase, LabelObject, "pod-template-hash", "volume.kubernetes.io/selected-node", "other"} {
				if c.Bool() {
					(*m)[key] = c.String(8)
				}
			}
		},
	)
	read := func(k string, m []byte) string {
		var err error
		var what any
		switch k {
		case "Pod":
			var s sight
			var claims []string
			err = s.pod(m)
			if err == nil {
				err = s.claims(func(c string) { claims = append(claims, c) })
			}
			s.spec, s.selectedNode = nil, nil // the latter is looked at for claims alone
			what = []any{s, claims}
		case "Event":
			var e occurrence
			err = e.read(m)
			e.selectedNode = nil
			what = e
		default:
			i := slices.IndexFunc(lifeKinds, func(l kind) bool { return l.name == k })
			var s seen
			err = s.object(&lifeKinds[i], m)
			if s.built = nil; k != claimKind {
				s.selectedNode = nil
			}
			what = s
		}
		if err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		return fmt.Sprintf("%q", what)
	}
	needs := map[string]string{"Pod": needsPod, "Event": needsEvent}
	for _, k := range lifeKinds {
		needs[k.name] = k.needs
	}
	for name, fresh := range map[string]func() object{
		"Pod": func() object { return &corev1.Pod{} }, "Event": func() object { return &corev1.Event{} },
		claimKind: func() object { return &corev1.PersistentVolumeClaim{} }, "PersistentVolume": func() object { return &corev1.PersistentVolume{} },
		"VolumeAttachment": func() object { return &storagev1.VolumeAttachment{} }, "Node": func() object { return &corev1.Node{} },
		"Lease": func() object { return &coordinationv1.Lease{} }, "Deployment": func() object { return &appsv1.Deployment{} },
		"ReplicaSet": func() object { return &appsv1.ReplicaSet{} }, "StatefulSet": func() object { return &appsv1.StatefulSet{} },
		"DaemonSet": func() object { return &appsv1.DaemonSet{} }, "Job": func() object { return &batchv1.Job{} },
	} {
		if needs[name] == "" {
			t.Fatalf("%s: nothing is needed", name)
		}
		different := map[string]bool{}
		before, after := 0, 0
		for range 200 {
			o := fresh()
			fill.Fill(o)
			m, err := o.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			less := only(t, needs[name], "", m)
			want := read(name, m)
			if got := read(name, less); got != want {
				t.Fatalf("%s: of all of it %s, of what is asked for %s", name, want, got)
			}
			different[want] = true
			before, after = before+len(m), after+len(less)
		}
		if len(different) < 150 || after >= before/2 {
			t.Errorf("%s: %d different objects, %d of %d bytes", name, len(different), after, before)
		}
		delete(needs, name)
	}
	if len(needs) > 0 {
		t.Errorf("not tried: %v", needs)
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }
