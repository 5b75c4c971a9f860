package stamps

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestParseFields(t *testing.T) {
	for _, bad := range []string{
		"", "x", "0", "-1", "257", "1,", ",1", "1(", "1()", "1(2", "1)", "1(2))", "1 2", "1(2)3",
		"1(1(1(1(1(1(1(1(1(1(1(1(1(1(1(1(1(1(1(1(1))))))))))))))))))))",
	} {
		if f, err := parseFields(bad); err == nil {
			t.Errorf("%q: %v", bad, f)
		}
	}
	f, err := parseFields("1(1,5(2)),3")
	if err != nil {
		t.Fatal(err)
	}
	if len(f) != 4 || f[0].kept || f[2].kept || !f[3].kept || f[3].of != nil || len(f[1].of) != 6 || f[1].of[1].of != nil || !f[1].of[5].of[2].kept {
		t.Errorf("%+v", f)
	}
}

// frame is what an API server writes of an event.
func frame(t testing.TB, typ string, object interface {
	Marshal() ([]byte, error)
}, kind string) []byte {
	t.Helper()
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}
	wrapped, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	e := metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), wrapped...)}}
	content, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
}

// object is the message in an event, and the event's type.
func object(t *testing.T, frame []byte) (typ string, raw []byte) {
	t.Helper()
	if n := int(binary.BigEndian.Uint32(frame)); n != len(frame)-4 {
		t.Fatalf("a frame of %d bytes says %d", len(frame)-4, n)
	}
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame[4:]); err != nil {
		t.Fatal(err)
	}
	var u runtime.Unknown
	if err := u.Unmarshal(bytes.TrimPrefix(e.Object.Raw, []byte("k8s\x00"))); err != nil {
		t.Fatal(err)
	}
	return e.Type, u.Raw
}

func large() *corev1.Pod {
	grace := int64(30)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "default", UID: "u", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Generation: 300,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: &metav1.FieldsV1{Raw: bytes.Repeat([]byte("x"), 5000)}}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n", TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Volumes: []corev1.Volume{{Name: "one"}, {Name: "two"}},
		},
		Status: corev1.PodStatus{Phase: "Running", Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True", Message: "m"}, {Type: "Other", Status: "False"}}},
	}
}

const some = "1(1,5,7,11),2(1(1),10),3(1,2(1,2))"

func kept() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Labels: map[string]string{"a": "b"}, Generation: 300},
		Spec:       corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{{Name: "one"}, {Name: "two"}}},
		Status:     corev1.PodStatus{Phase: "Running", Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}, {Type: "Other", Status: "False"}}},
	}
}

// What is asked for comes, in whatever pieces it is written, and nothing else.
func TestFields(t *testing.T) {
	gone := metav1.Status{Code: 410, Message: "too old", Reason: "Expired", Status: "Failure"}
	frames := [][]byte{
		frame(t, "ADDED", large(), "Pod"), frame(t, "MODIFIED", large(), "Pod"), frame(t, "BOOKMARK", &corev1.Pod{}, "Pod"), frame(t, "ERROR", &gone, "Status"),
	}
	stream := bytes.Join(frames, nil)
	for _, piece := range []int{1, 3, 4, 5, 100, len(stream)} {
		w := watchFields(some, watchInProtobuf, func(w http.ResponseWriter) {
			for rest := stream; len(rest) > 0; {
				n := min(piece, len(rest))
				if _, err := w.Write(rest[:n]); err != nil {
					t.Error(err)
				}
				rest = rest[n:]
			}
		})
		if w.header.Get(FieldsHeader) != some {
			t.Errorf("%v", w.header)
		}
		texts, _ := records(t, w.pieces[0])
		var got []byte
		for _, text := range texts {
			got = append(got, text...)
		}
		for i, want := range []string{"ADDED", "MODIFIED", "BOOKMARK", "ERROR"} {
			n := int(binary.BigEndian.Uint32(got)) + 4
			typ, raw := object(t, got[:n])
			if typ != want {
				t.Errorf("in pieces of %d: event %d is %s", piece, i, typ)
			}
			switch typ {
			case "ADDED", "MODIFIED":
				var p corev1.Pod
				if err := p.Unmarshal(raw); err != nil || p.String() != kept().String() {
					t.Errorf("in pieces of %d: %v, %v", piece, &p, err)
				}
				if n > 200 {
					t.Errorf("%d bytes", n)
				}
			case "ERROR":
				if !bytes.Equal(got[:n], frames[3]) {
					t.Errorf("the error is %q", got[:n])
				}
			}
			got = got[n:]
		}
		if len(got) > 0 {
			t.Errorf("%q is left", got)
		}
	}
}

func watchFields(fields, contentType string, h func(w http.ResponseWriter)) *sent {
	req := httptest.NewRequest("GET", "/api/v1/pods?watch=1", nil)
	req.Header.Set(Header, "50ms")
	req.Header.Set(FieldsHeader, fields)
	w := &sent{header: http.Header{}}
	Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(http.StatusOK)
		h(w)
	})).ServeHTTP(w, req)
	w.Flush()
	return w
}

// What is no watch in protobuf, what asks for no fields, and what is torn is as ever.
func TestFieldsOfOthers(t *testing.T) {
	whole := string(frame(t, "ADDED", large(), "Pod"))
	huge := "\xff\xff\xff\xffmore"
	for name, c := range map[string]struct{ fields, contentType, sent string }{
		"JSON":       {some, "application/json", whole},
		"no fields":  {"", watchInProtobuf, whole},
		"wrong":      {"pods", watchInProtobuf, whole},
		"torn":       {some, watchInProtobuf, whole[:len(whole)/2]},
		"torn early": {some, watchInProtobuf, whole[:3]},
		"no frames":  {some, watchInProtobuf, huge + whole},
		"no event":   {some, watchInProtobuf, "\x00\x00\x00\x05hello"},
	} {
		w := watchFields(c.fields, c.contentType, func(w http.ResponseWriter) {
			if _, err := io.WriteString(w, c.sent); err != nil {
				t.Error(err)
			}
		})
		texts, _ := records(t, w.pieces[0])
		if len(texts) != 1 || texts[0] != c.sent {
			t.Errorf("%s: %d records, %q", name, len(texts), texts)
		}
	}
}

// Whatever is written, the same events come out or all of it as it was.
func FuzzEvent(f *testing.F) {
	f.Add(frame(f, "ADDED", large(), "Pod")[4:])
	f.Add(frame(f, "ERROR", &metav1.Status{Code: 410}, "Status")[4:])
	list, err := parseFields(some)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		out := list.event(nil, content)
		if int(binary.BigEndian.Uint32(out)) != len(out)-lenBytes {
			t.Fatalf("%q", out)
		}
		var before, after metav1.WatchEvent
		if before.Unmarshal(content) != nil {
			return
		}
		if err := after.Unmarshal(out[lenBytes:]); err != nil || after.Type != before.Type {
			t.Errorf("%q, %v", out, err)
		}
		if again := list.event(nil, out[lenBytes:]); !bytes.Equal(again, out) {
			t.Errorf("%q, then %q", out, again)
		}
	})
}

// BenchmarkEvent gives what it takes to make a pod's event shorter.
func BenchmarkEvent(b *testing.B) {
	event := frame(b, "MODIFIED", large(), "Pod")
	list, err := parseFields(some)
	if err != nil {
		b.Fatal(err)
	}
	t := trimmer{fields: list}
	b.ReportAllocs()
	b.SetBytes(int64(len(event)))
	for b.Loop() {
		t.write(event[:4])
		if len(t.write(event[4:])) == 0 {
			b.Fatal("nothing is sent")
		}
	}
}
