package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// gateway is what of etcd's JSON gateway a seeder speaks to.
type gateway struct {
	keys    map[string][]byte
	largest int // operations of one transaction
	broken  string
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.broken != "" {
		http.Error(w, g.broken, http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(r.Body)
	var txn transaction
	if err == nil {
		err = json.Unmarshal(body, &txn)
	}
	if err != nil || r.URL.Path != "/v3/kv/txn" || r.Method != http.MethodPost {
		http.Error(w, fmt.Sprintf("%s %s: %v", r.Method, r.URL.Path, err), http.StatusTeapot)
		return
	}
	g.largest = max(g.largest, len(txn.Success))
	succeeded := true
	for _, c := range txn.Compare {
		if c.Target != "VERSION" || c.Result != "EQUAL" || c.Version != "0" {
			http.Error(w, "compare", http.StatusTeapot)
			return
		}
		succeeded = succeeded && g.keys[string(c.Key)] == nil
	}
	for _, s := range txn.Success {
		if succeeded {
			g.keys[string(s.Put.Key)] = s.Put.Value
		}
	}
	answer := map[string]any{"header": map[string]any{"revision": "3"}}
	if succeeded { // the gateway leaves false out
		answer["succeeded"] = true
	}
	json.NewEncoder(w).Encode(answer)
}

func node(i int) Seedling {
	return Seedling{Key: fmt.Sprintf("minions/n-%d", i), Object: &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n-%d", i), Labels: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}},
	}}
}

// What is written is what the API server writes: its prefix, protobuf behind
// four bytes, and no more at once than etcd takes.
func TestSeeder(t *testing.T) {
	g := &gateway{keys: map[string][]byte{}}
	server := httptest.NewServer(g)
	defer server.Close()
	s := seeder{client: server.Client(), url: server.URL + "/v3/kv/txn"}
	const n = 2*seedBatch + 10
	for i := range n {
		if err := s.add(context.Background(), node(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(g.keys) != n || g.largest != seedBatch {
		t.Errorf("%d keys, %d in one transaction", len(g.keys), g.largest)
	}
	for i := range n {
		value := g.keys[fmt.Sprintf("/registry/minions/n-%d", i)]
		if !bytes.HasPrefix(value, []byte("k8s\x00")) {
			t.Fatalf("node %d is stored as %q", i, value)
		}
		o, kind, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, want := o.(*corev1.Node), node(i).Object.(*corev1.Node)
		if kind.Kind != "Node" || got.Name != want.Name || got.Labels["a"] != "b" || len(got.Spec.Taints) != 1 || got.Spec.Taints[0].Key != "x" {
			t.Fatalf("node %d is read as %+v", i, got)
		}
	}

	// Nothing is overwritten.
	before := string(g.keys["/registry/minions/n-5"])
	if err := s.add(context.Background(), node(5)); err != nil {
		t.Fatal(err)
	}
	if err := s.flush(context.Background()); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("a second n-5: %v", err)
	}
	if string(g.keys["/registry/minions/n-5"]) != before {
		t.Error("n-5 was overwritten")
	}

	g.broken = `{"error":"etcdserver: too many operations in txn request"}`
	if err := s.add(context.Background(), node(n)); err != nil {
		t.Fatal(err)
	}
	if err := s.flush(context.Background()); err == nil || !strings.Contains(err.Error(), "too many operations") {
		t.Errorf("etcd's own words are lost: %v", err)
	}
	if err := s.add(context.Background(), Seedling{Key: "minions/x", Object: &corev1.Node{}}); err == nil {
		t.Error("an object without a kind was taken")
	}
}

// Only what a lab can do without is left out.
func TestOff(t *testing.T) {
	flags, err := ProfileFlags("")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range components {
		err := Override{Off: true}.validate(name, flags)
		if can := name == ControllerManager || name == Scheduler; can != (err == nil) {
			t.Errorf("%s off: %v", name, err)
		}
	}
	if err := (Override{Off: true}).validate(Load, flags); err == nil {
		t.Error("our own load generator can be left out")
	}
}
