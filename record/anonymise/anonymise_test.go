package anonymise

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"pgregory.net/rapid"

	"cmp"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/compare"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/load/actor"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/kept"
	"github.com/kubedyno/kubedyno/record/recordtest"
	"maps"
	"regexp"
)

// sameNumbers compares two values of JSON; order of summation may cost a last
// digit.
func sameNumbers(path string, a, b any) error {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return fmt.Errorf("%s: %v, now %v", path, a, b)
		}
		for k := range x {
			if err := sameNumbers(path+"."+k, x[k], y[k]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return fmt.Errorf("%s: %v, now %v", path, a, b)
		}
		for i := range x {
			if err := sameNumbers(fmt.Sprintf("%s[%d]", path, i), x[i], y[i]); err != nil {
				return err
			}
		}
		return nil
	case float64:
		y, ok := b.(float64)
		if !ok || math.Abs(x-y) > 1e-9*max(math.Abs(x), 1) {
			return fmt.Errorf("%s: %v, now %v", path, a, b)
		}
		return nil
	}
	if !reflect.DeepEqual(a, b) && !sameList(a, b) {
		return fmt.Errorf("%s: %v, now %v", path, a, b)
	}
	return nil
}

// sameList says whether two texts are alike but for the order of what they list:
// names are listed in their own order, which pseudonyms have not.
func sameList(a, b any) bool {
	x, isText := a.(string)
	y, isTextToo := b.(string)
	if !isText || !isTextToo {
		return false
	}
	words := func(s string) []string {
		all := strings.Fields(s)
		for i, w := range all {
			all[i] = strings.TrimRight(w, ".,:;")
		}
		return slices.Sorted(slices.Values(all))
	}
	return slices.Equal(words(x), words(y))
}

func diagnosis(t testing.TB, rec *record.Recording) any {
	t.Helper()
	d, err := diagnose.Run(rec, detectors.All)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// renamer puts pseudonyms in the place of names.
func renamer(names map[string]map[string]string) func(string) string {
	pseudonyms := map[string]string{}
	for class, of := range names {
		if strings.HasPrefix(class, "arg") { // words of command lines, which are words elsewhere
			continue
		}
		for name, pseudonym := range of {
			pseudonyms[name] = pseudonym
		}
	}
	// The longest first, and whole words only: one name may hold another.
	sorted := slices.SortedFunc(maps.Keys(pseudonyms), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	if len(sorted) == 0 {
		return func(s string) string { return s }
	}
	for i, name := range sorted {
		sorted[i] = regexp.QuoteMeta(name)
	}
	anyName := regexp.MustCompile(`(?:^|\b)(?:` + strings.Join(sorted, "|") + `)(?:\b|$)`)
	return func(s string) string {
		return anyName.ReplaceAllStringFunc(s, func(name string) string { return pseudonyms[name] })
	}
}

// renamed is a value of JSON with all strings, and all keys, renamed.
func renamed(v any, rename func(string) string) any {
	switch x := v.(type) {
	case map[string]any:
		y := map[string]any{}
		for k := range x {
			y[rename(k)] = renamed(x[k], rename)
		}
		return y
	case []any:
		y := make([]any, len(x))
		for i := range x {
			y[i] = renamed(x[i], rename)
		}
		// Processes, and resources of one bound, come in the order of their names.
		slices.SortStableFunc(y, func(a, b any) int { return strings.Compare(nameOf(a), nameOf(b)) })
		return y
	case string:
		return rename(x)
	}
	return v
}

// nameOf is the name of a process of the harness or of a resource, which are told
// by what they hold; empty for all else.
func nameOf(v any) string {
	m, _ := v.(map[string]any)
	name := ""
	if _, ok := m["millisecondsPerPod"]; ok {
		name, _ = m["component"].(string)
	} else if _, ok := m["busySeconds"]; ok {
		name, _ = m["name"].(string)
	}
	return name
}

// sameDiagnosis checks that a copy says what its original says, of what has
// other names now.
func sameDiagnosis(t testing.TB, a, b *record.Recording, names map[string]map[string]string) {
	t.Helper()
	// In both: a name that is a word, as policy is, stands in the texts as well.
	rename := renamer(names)
	if err := sameNumbers("diagnosis", renamed(diagnosis(t, a), rename), renamed(diagnosis(t, b), rename)); err != nil {
		t.Errorf("%s: %v", a.Dir(), err)
	}
	c, err := compare.Recordings([]*record.Recording{a}, []*record.Recording{b}, compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Changed) != 0 {
		t.Errorf("%s: settings differ: %+v", a.Dir(), c.Changed)
	}
	for _, w := range c.Warnings {
		one, other, _ := strings.Cut(strings.TrimPrefix(w, "different experiments: "), " and ")
		if strings.HasPrefix(w, "different") && rename(one) != other {
			t.Errorf("%s: %s", a.Dir(), w)
		}
	}
}

// Names of metrics and of flags are made of words of our own, and stay: where
// somebody's object is called like a part of one it is no leak.
func TestWordsOfMetricsAndFlags(t *testing.T) {
	names := slices.Clone(diagnose.Metrics)
	for _, profile := range lab.Profiles() {
		flags, err := lab.ProfileFlags(profile)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flags {
			names = append(names, f.Name)
		}
	}
	for _, k := range actor.Kinds() {
		names = append(names, k.Name)
	}
	for _, name := range names {
		for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '-' }) {
			if len(part) >= 4 && !words[part] && !wellKnown[part] {
				t.Errorf("%q of %s is not among the words", part, name)
			}
		}
	}
}

func TestSameDiagnosis(t *testing.T) {
	for _, file := range recordtest.Kept(t) {
		t.Run(kept.Name(file), func(t *testing.T) {
			t.Parallel()
			rec := recordtest.Open(t, recordtest.Unpack(t, kept.Name(file)))
			out := filepath.Join(t.TempDir(), "copy")
			r, err := Copy(t.Context(), rec, out, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Count() < 20 || r.Needles < 20 || r.Strings < 20 {
				t.Errorf("%d names replaced, %d looked for in %d strings", r.Count(), r.Needles, r.Strings)
			}
			again := recordtest.Open(t, out)
			sameDiagnosis(t, rec, again, r.Names)
			a, b := rec.Meta(), again.Meta()
			if a.ID != b.ID || a.Status != b.Status || !a.Ended.Equal(b.Ended) || a.Machine != b.Machine {
				t.Errorf("another run: %+v", b)
			}
			if g := b.Gaps[len(b.Gaps)-1]; g.Collector != Collector {
				t.Errorf("nothing says that it is a copy: %+v", b.Gaps)
			}
			pods, err := rec.Pods()
			if errors.Is(err, record.ErrMissing) && rec.Meta().Name == "idle" {
				return // there were none
			}
			if err != nil {
				t.Fatal(err)
			}
			copied, err := again.Pods()
			if err != nil || len(copied) != len(pods) {
				t.Fatal(len(copied), err)
			}
			at := map[int64]int{} // pods by their moment: those of one moment are sorted by name
			for _, p := range pods {
				at[p.CreatedMicros]++
			}
			owners := map[string]string{}
			for i, p := range copied {
				if p.Name == pods[i].Name || p.UID == pods[i].UID || p.CreatedMicros != pods[i].CreatedMicros {
					t.Errorf("%+v of %+v", p, pods[i])
				}
				if at[p.CreatedMicros] == 1 {
					if owner, ok := owners[pods[i].Owner]; ok && owner != p.Owner {
						t.Errorf("owner %s is %s and %s", pods[i].Owner, owner, p.Owner)
					}
					owners[pods[i].Owner] = p.Owner
				}
				if _, name, ok := strings.Cut(p.Owner, "/"); ok && !strings.HasPrefix(p.Name, name+"-") {
					t.Errorf("pod %s of %s", p.Name, p.Owner)
				}
			}
		})
	}
}

// private are names of a shop that must be nowhere in a copy; short ones and
// words are left out, for they cannot be told from others.
var private = []string{
	"acme", "checkout", "payments-prod", "worker-7.dc3.acme-corp.lan", "acme-billing", "bob.smith", "10.44.7.19", "fd12:3456:789a::7",
	"harbor.acme-corp.lan", "team-blue", "9f1c2d3e-4b5a-4c6d-8e7f-a0b1c2d3e4f5", "/srv/acme", "widgets", "acmedb", "rollouts.acme.io", "ledger-0",
	"data-ledger-0", "hunter2hunter2", "AcmeDatabase", "prod-eu-acme", "spring-sale", "libacme", "tenant-9", "shop-operator",
}

// shop is a recording of somebody's cluster, with names in every place that
// has one.
func shop(t testing.TB, dir string) {
	t.Helper()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	us := began.UnixMicro()
	w, err := record.Create(dir, record.Meta{
		Nodes: record.Nodes{Simulated: true, Fidelity: "a pod costs less (docs/fidelity.md)"},
		Name:  "spring-sale", Started: began, Warnings: []string{"node worker-7.dc3.acme-corp.lan left"},
		Settings: []string{"phases.spring-sale.create.pod.image=harbor.acme-corp.lan/team-blue/checkout:v1.2"},
		Cluster: record.Cluster{
			Kind: "existing", Name: "prod-eu-acme", Server: "https://api.acme-corp.lan:6443", Version: "v1.36.3",
			Components: []record.Component{
				{Name: "kube-apiserver", Instance: "kube-apiserver@1@2", Binary: "kube-apiserver", Args: []string{"--etcd-servers=https://10.44.7.19:2379", "--oidc-issuer-url=https://login.acme-corp.lan/acme", "--max-requests-inflight=400"},
					Flags: map[string]string{"advertise-address": "10.44.7.19", "cluster-name": "prod-eu-acme", "v": "3"}},
				{Name: "shop-operator", Instance: "shop-operator@7@8", Binary: "shop-operator", Args: []string{"--tenant=tenant-9", "/srv/acme/config.yaml"}, Env: []string{"ACME_TOKEN"}},
			},
		},
		Phases: []record.Phase{{Name: "spring-sale", Kind: record.PhaseSteady, Start: began, End: began.Add(10 * time.Second)}},
		Gaps:   []record.Gap{{Collector: "logs", Subject: "shop-operator", Reason: "open /srv/acme/operator.log: permission denied"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Experiment([]byte("name: spring-sale\ndescription: what acme does\nphases:\n  - name: spring-sale\n    create: {kind: Deployment, pod: {image: 'harbor.acme-corp.lan/team-blue/checkout:v1.2', labels: {tier: tenant-9}}}\n")); err != nil {
		t.Fatal(err)
	}
	const pod, uid, node = "checkout-6bc7d9f8c5-x2x9p", "9f1c2d3e-4b5a-4c6d-8e7f-a0b1c2d3e4f5", "worker-7.dc3.acme-corp.lan"
	w.Pod(record.Pod{Namespace: "payments-prod", Name: pod, UID: uid, Phase: "spring-sale", Owner: "Deployment/checkout", Node: node, CreatedMicros: us, FailedReason: `image "harbor.acme-corp.lan/team-blue/checkout:v1.2" is gone`})
	w.Operation(record.Operation{Phase: "spring-sale", Verb: "create", Resource: "deployments", Namespace: "payments-prod", Name: "checkout", Error: `Post "https://api.acme-corp.lan:6443/apis/apps/v1/namespaces/payments-prod/deployments": dial tcp 10.44.7.19:6443: i/o timeout`})
	w.Node(record.NodeSample{Name: node, CreatedMicros: us})
	w.Process(record.ProcessSample{TimeMicros: us, PID: 7, Component: "shop-operator", Command: "/srv/acme/bin/shop-operator --tenant=tenant-9 --listen 10.44.7.19:80"})
	w.Process(record.ProcessSample{TimeMicros: us, PID: 8, Command: "python3 /srv/acme/acme-billing.py tenant-9 --user bob.smith@acme-corp.lan -n 5"})
	w.Process(record.ProcessSample{TimeMicros: us, PID: 12, Command: "/srv/acme/browser --annotation=ptype=crash-catcher --crash-catcher-pid=4821"})
	w.Process(record.ProcessSample{TimeMicros: us, PID: 9, PPID: 2, Command: "[kworker/0:1-events]"})
	w.Exit(record.ProcessExit{TimeMicros: us, PID: 10, Command: "[acme-billing]"})
	w.StackSample(record.StackSample{TimeMicros: us, PID: 8, Command: "acme-billing", Stack: 1})
	// Of words alone, but a name: it must go everywhere or nowhere.
	w.Exit(record.ProcessExit{TimeMicros: us, PID: 11, Command: "/srv/acme/record.test -v"})
	w.Sync(record.Sync{TimeMicros: us, Command: "record.test", Call: "fsync"})
	// A path of known words is none, as a program and as what a program was told.
	w.Process(record.ProcessSample{TimeMicros: us, PID: 13, Command: "/storage/apps/kubedyno run"})
	w.Process(record.ProcessSample{TimeMicros: us, PID: 14, Command: "timeout 70 /storage/apps/kubedyno run"})
	for i, command := range []string{"bin/kubedyno run", "timeout 70 bin/kubedyno run", "nice acme/bin/kubectl get", "acme/bin/kubectl get", "less docs/fidelity.md", "ls docs"} {
		w.Process(record.ProcessSample{TimeMicros: us, PID: int32(17 + i), Command: command})
	}
	// What is a program in one command line is an argument in another, and somebody's name.
	w.Process(record.ProcessSample{TimeMicros: us, PID: 15, Command: "make lint"})
	w.Process(record.ProcessSample{TimeMicros: us, PID: 16, Command: "timeout 560 nice -n 19 make lint --user ruby"})
	w.Stack(record.Stack{ID: 1, Frames: "main;net/http.(*conn).serve;[libacme.so.2+0x1f2];do_syscall_64_[k]"})
	w.BlockIO(record.BlockIO{TimeMicros: us, Command: "acme-billing", Device: "nvme0n1"})
	w.Sync(record.Sync{TimeMicros: us, Command: "acme-billing", Call: "fsync"})
	w.Disk(record.DiskSample{TimeMicros: us, Device: "sda"})
	w.Object(record.ObjectChange{TimeMicros: us, Kind: "PersistentVolumeClaim", Namespace: "payments-prod", Name: "data-ledger-0", UID: uid, Owner: "StatefulSet/ledger", State: "Bound", Ref: "pvc-9f1c2d3e-4b5a-4c6d-8e7f-a0b1c2d3e4f5", Changes: 1})
	w.Object(record.ObjectChange{TimeMicros: us, Kind: "AcmeDatabase", Namespace: "payments-prod", Name: "acmedb", UID: uid, Changes: 1})
	w.Object(record.ObjectChange{TimeMicros: us, Kind: "Lease", Namespace: "kube-system", Name: "kube-scheduler", State: node + "_" + uid, Changes: 1})
	w.Event(record.Event{TimeMicros: us, Type: "Warning", Reason: "FailedScheduling", Reporter: "shop-operator", Kind: "Pod", Namespace: "payments-prod", Name: pod,
		Message: `0/3 nodes are available; pod payments-prod/` + pod + ` on ` + node + ` wants volume "data-ledger-0" of bob.smith@acme-corp.lan (password: "hunter2hunter2")`, Count: 1})
	for i, r := range []record.Request{
		{Verb: "list", Group: "acme.io", Resource: "widgets", Namespace: "payments-prod", User: "bob.smith", UserAgent: "shop-operator/v0.3 (linux/amd64) team-blue", URI: "fieldSelector=spec.nodeName%3D" + node + "&labelSelector=app%3Dcheckout%2Ctier+in+%28tenant-9%29&watch=true"},
		{Verb: "get", Group: "apps", Resource: "replicasets", Namespace: "payments-prod", Name: "checkout-6bc7d9f8c5", User: "system:serviceaccount:payments-prod:acme-billing", UserAgent: "kubectl/v1.36.3 (linux/amd64) kubernetes/0c1a23b"},
		{Verb: "patch", Resource: "nodes", Name: node, User: "system:node:" + node, UserAgent: "kubelet/v1.36.3 (linux/amd64) kubernetes/0c1a23b"},
		{Verb: "create", Resource: "events", Namespace: "payments-prod", Name: pod + ".18ea0704391475d0", User: "system:kube-scheduler", UserAgent: "kube-scheduler/v1.36.3 (linux/amd64) kubernetes/0c1a23b/scheduler"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-node-lease", Name: node, User: "system:node:" + node, UserAgent: "kubelet/v1.36.3 (linux/amd64) kubernetes/0c1a23b"},
	} {
		r.ReceivedMicros, r.DoneMicros, r.Code = us+int64(i), us+int64(i)+500, 200
		w.Request(r)
	}
	for i := range 5 {
		at := began.Add(time.Duration(i) * time.Second)
		for _, labels := range []map[string]string{
			{"component": "kube-apiserver", "instance": "kube-apiserver@1@2", "verb": "LIST", "resource": "widgets", "group": "acme.io", "code": "200"},
			{"component": "kube-apiserver", "instance": "kube-apiserver@1@2", "verb": "LIST", "resource": "pods", "group": "", "code": "200"},
			{"component": "shop-operator", "instance": "shop-operator@7@8", "namespace": "payments-prod", "pod": pod, "customer": "acme", "url": "https://harbor.acme-corp.lan/v2/"},
			{"component": "shop-operator", "instance": "10.44.7.19:9090", "node": node, "tenant": "tenant-9", "name": "rollouts.acme.io"},
		} {
			w.AppendSample("shop_requests_total", labels, at, float64(i))
		}
	}
	fn := &profile.Function{ID: 1, Name: "k8s.io/apiserver/pkg/server.(*Handler).ServeHTTP", SystemName: "x", Filename: "/srv/acme/go/pkg/mod/k8s.io/apiserver@v0.36.3/handler.go"}
	m := &profile.Mapping{ID: 1, Start: 1, Limit: 2, File: "/srv/acme/bin/shop-operator"}
	loc := &profile.Location{ID: 1, Mapping: m, Address: 1, Line: []profile.Line{{Function: fn, Line: 3}}}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}}, Mapping: []*profile.Mapping{m}, Function: []*profile.Function{fn}, Location: []*profile.Location{loc},
		Sample: []*profile.Sample{{Location: []*profile.Location{loc}, Value: []int64{7}, Label: map[string][]string{"namespace": {"payments-prod"}, "tenant": {"tenant-9"}}}}, Comments: []string{"taken on " + node},
	}
	var raw strings.Builder
	if err := p.Write(&raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Profile(record.ProfileRef{Component: "shop-operator", Phase: "spring-sale", Kind: "cpu"}, []byte(raw.String())); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kube-apiserver", "shop-operator"} {
		log, err := w.LogFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range logLines {
			fmt.Fprintln(log, line)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
}

var logLines = []string{
	`I0102 03:04:05.000001       1 schedule_one.go:314] "Successfully bound pod to node" pod="payments-prod/checkout-6bc7d9f8c5-x2x9p" node="worker-7.dc3.acme-corp.lan" evaluatedNodes=5`,
	`E0102 03:04:05.000002       1 controller.go:95] failed to sync "payments-prod/ledger-0": Get "https://harbor.acme-corp.lan/v2/team-blue/checkout?x=acme": dial tcp 10.44.7.19:443->[fd12:3456:789a::7]:443: i/o timeout`,
	`{"level":"warn","ts":"2026-01-02T03:04:05Z","caller":"etcdserver/util.go:170","msg":"apply request took too long","took":"120ms","request":"key:\"/registry/pods/payments-prod/checkout-6bc7d9f8c5-x2x9p\" ","holder":"worker-7.dc3.acme-corp.lan_9f1c2d3e-4b5a-4c6d-8e7f-a0b1c2d3e4f5"}`,
	`W0102 03:04:05.000003       1 dispatcher.go:210] Failed calling webhook, failing open rollouts.acme.io: bob.smith@acme-corp.lan is not allowed to write /srv/acme/state.db`,
	`I0102 03:04:05.000004       1 trace.go:236] Trace[123]: "List" accept:application/json,audit-id:9f1c2d3e-4b5a-4c6d-8e7f-a0b1c2d3e4f5,client:10.44.7.19,protocol:HTTP/2.0,resource:widgets,scope:namespace,url:/apis/acme.io/v1/namespaces/payments-prod/widgets,user-agent:shop-operator/v0.3,verb:LIST (02-Jan-2026 03:04:05.000) (total time: 612ms):`,
	`I0102 03:04:05.000005       1 server.go:9] token=hunter2hunter2 image="harbor.acme-corp.lan/team-blue/checkout@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"`,
	`I0102 03:04:05.000006       1 shared_informer.go:402] "Waiting for caches to sync" controller="node_authorizer"`,
}

// Nothing of the shop is left in the copy, and the parts are all there.
func TestNothingIsLeft(t *testing.T) {
	root := t.TempDir()
	shop(t, filepath.Join(root, "r"))
	var needles []Needle
	for _, p := range private {
		needles = append(needles, Needle{Text: p, What: p})
	}
	for _, n := range needles {
		found, err := Scan(t.Context(), filepath.Join(root, "r"), []Needle{n})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(found.Leaks, func(l Leak) bool { return l.What == n.What }) {
			t.Errorf("%s is not in the original: the test tests nothing", n.What)
		}
	}
	rec := recordtest.Open(t, filepath.Join(root, "r"))
	out := filepath.Join(root, "copy")
	res, err := Copy(t.Context(), rec, out, Options{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := Scan(t.Context(), out, needles)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range report.Leaks {
		t.Error(l)
	}
	again := recordtest.Open(t, out)
	texts := map[string]string{}
	for _, name := range again.Logs() {
		data, err := os.ReadFile(filepath.Join(out, "logs", name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(data)
	}
	pods, err := again.Pods()
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	p := pods[0]
	for _, want := range []string{
		`"Successfully bound pod to node" pod="` + p.Namespace + "/" + p.Name + `" node="` + p.Node + `" evaluatedNodes=5`,
		`key:\"/registry/pods/` + p.Namespace + "/" + p.Name + `\" `,
		`Failed calling webhook, failing open `, `"Waiting for caches to sync" controller="node_authorizer"`, `(total time: 612ms)`,
		`"caller":"etcdserver/util.go:170","msg":"apply request took too long","took":"120ms"`, `token=[redacted]`, `,verb:LIST (02-Jan-2026 03:04:05.000)`,
	} {
		if !strings.Contains(texts["kube-apiserver"], want) {
			t.Errorf("the log lacks %s:\n%s", want, texts["kube-apiserver"])
		}
	}
	if p.Owner != "Deployment/deployment-1" || p.Name != "deployment-1-s1-s2" {
		t.Errorf("pod %s of %s", p.Name, p.Owner)
	}
	requests, err := again.Requests()
	if err != nil || len(requests) != 5 {
		t.Fatal(requests, err)
	}
	if r := requests[0]; !strings.Contains(r.URI, "spec.nodeName%3D"+p.Node+"&") || !strings.HasSuffix(r.URI, "&watch=true") || r.Group == "acme.io" || !strings.HasPrefix(r.UserAgent, "component-1/v0.3 (linux/amd64) ") {
		t.Errorf("%+v", r)
	}
	if r := requests[1]; r.Name != "deployment-1-s1" || r.UserAgent != "kubectl/v1.36.3 (linux/amd64) kubernetes/0c1a23b" {
		t.Errorf("%+v", r)
	}
	if r := requests[2]; r.User != "system:node:"+p.Node || r.Name != p.Node {
		t.Errorf("%+v", r)
	}
	if r := requests[3]; r.Name != p.Name+"."+res.Names["hex"]["18ea0704391475d0"] || r.User != "system:kube-scheduler" {
		t.Errorf("%+v", r)
	}
	window := record.Window{Start: time.UnixMicro(p.CreatedMicros), End: time.UnixMicro(p.CreatedMicros).Add(5 * time.Second)}
	for match, want := range map[string]float64{"kube-apiserver": 8, "component-1": 8} {
		if v, ok, err := again.Increase("shop_requests_total", map[string]string{"component": match}, window); v != want || !ok || err != nil {
			t.Errorf("increase of %s: %v %v %v", match, v, ok, err)
		}
	}
	refs := again.Profiles()
	if len(refs) != 1 || refs[0].File != "profiles/component-1-experiment-1-cpu.pb.gz" {
		t.Fatalf("%+v", refs)
	}
	prof, err := again.ReadProfile(refs[0])
	if err != nil || prof.Sample[0].Value[0] != 7 || prof.Function[0].Name != "k8s.io/apiserver/pkg/server.(*Handler).ServeHTTP" || prof.Function[0].Filename != "k8s.io/apiserver@v0.36.3/handler.go" ||
		prof.Sample[0].Label["namespace"][0] != p.Namespace {
		t.Errorf("%v %v", prof, err)
	}
	stacks, err := again.Stacks()
	if err != nil || !strings.HasPrefix(stacks[0].Frames, "main;net/http.(*conn).serve;[module-") || !strings.HasSuffix(stacks[0].Frames, "+0x1f2];do_syscall_64_[k]") {
		t.Errorf("%+v %v", stacks, err)
	}
	commands, err := again.Processes()
	if err != nil || len(commands) != 14 || commands[2].Command != "[kworker/0:1-events]" || !strings.HasPrefix(commands[1].Command, "python3 /path-") || !strings.HasSuffix(commands[1].Command, " -n 5") ||
		!strings.HasSuffix(commands[3].Command, " --annotation=arg-2=arg-3 --crash-catcher-pid=4821") || commands[5].Command != "timeout 70 /storage/apps/kubedyno run" || !strings.HasPrefix(commands[7].Command, "timeout 560 arg-") || strings.Contains(commands[7].Command, "make") || strings.Contains(commands[7].Command, "ruby") || !strings.HasPrefix(commands[6].Command, "make arg-") {
		t.Errorf("%+v %v", commands, err)
	}
	if commands[8].Command != "bin/kubedyno run" || commands[9].Command != "timeout 70 bin/kubedyno run" || "nice "+commands[11].Command != commands[10].Command || !strings.HasSuffix(commands[11].Command, "/kubectl get") || commands[12].Command != "less docs/fidelity.md" || commands[13].Command != "ls docs" {
		t.Errorf("%+v", commands[8:])
	}
	m := again.Meta()
	if a := m.Cluster.Components[0].Args; a[2] != "--max-requests-inflight=400" || !strings.HasPrefix(a[0], "--etcd-servers=https://198.18.0.") || !strings.HasSuffix(a[0], ":2379") {
		t.Errorf("%q", a)
	}
	if m.Phases[0].Name != "experiment-1" || m.Gaps[0].Subject != "component-1" {
		t.Errorf("%+v %+v", m.Phases, m.Gaps)
	}
	objects, err := again.Objects()
	if err != nil || len(objects) != 3 || !slices.ContainsFunc(objects, func(o record.ObjectChange) bool {
		return o.Name == "kube-scheduler" && strings.HasPrefix(o.State, p.Node+"_00000000-0000-4000-8000-")
	}) {
		t.Errorf("%+v %v", objects, err)
	}
	// The same again is the same: numbers are given in the order of appearance.
	second := filepath.Join(root, "second")
	if again, err := Copy(t.Context(), rec, second, Options{}); err != nil || !reflect.DeepEqual(again.Names, res.Names) {
		t.Errorf("a second copy has other names (%v)", err)
	}
}

func TestKeep(t *testing.T) {
	root := t.TempDir()
	shop(t, filepath.Join(root, "r"))
	rec := recordtest.Open(t, filepath.Join(root, "r"))
	res, err := Copy(t.Context(), rec, filepath.Join(root, "copy"), Options{Keep: []string{"namespaces", "ips"}})
	if err != nil {
		t.Fatal(err)
	}
	again := recordtest.Open(t, filepath.Join(root, "copy"))
	pods, err := again.Pods()
	if err != nil || pods[0].Namespace != "payments-prod" || pods[0].Owner != "Deployment/deployment-1" || len(res.Names["ns"]) != 0 {
		t.Errorf("%+v %v", pods, err)
	}
	if g := again.Meta().Gaps; !strings.HasSuffix(g[len(g)-1].Reason, "kept: ips, namespaces") {
		t.Errorf("%+v", g)
	}
	if _, err := Copy(t.Context(), rec, filepath.Join(root, "x"), Options{Keep: []string{"everything"}}); err == nil {
		t.Error("an unknown class was accepted")
	}
	if _, err := os.Stat(filepath.Join(root, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a copy is left")
	}
}

func TestMap(t *testing.T) {
	r := &Result{Names: map[string]map[string]string{"ns": {"payments-prod": "ns-1"}}}
	path := filepath.Join(t.TempDir(), "m")
	if err := r.WriteMap(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := r.WriteMap(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a map was overwritten: %v", err)
	}
}

// A name that only the last line of a text shows to be one is gone from the
// first line too.
func TestNamesThatTextsTell(t *testing.T) {
	root := t.TempDir()
	w, err := record.Create(filepath.Join(root, "r"), record.Meta{Name: "density"})
	if err != nil {
		t.Fatal(err)
	}
	log, err := w.LogFile("etcd")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(log, "I0102 03:04:05.000001       1 x.go:1] removing zanzibar-blue now")
	fmt.Fprintln(log, `I0102 03:04:05.000001       1 x.go:1] "Removed" pod="default/zanzibar-blue"`)
	log.Close()
	if err := w.Finish(record.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), recordtest.Open(t, filepath.Join(root, "r")), filepath.Join(root, "c"), Options{}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "c", "logs", "etcd.log"))
	if err != nil || !strings.Contains(string(data), "removing pod-1 now") || strings.Contains(string(data), "zanzibar") {
		t.Errorf("%s %v", data, err)
	}
}

// A pseudonym is never the name of something else, and different names have
// different pseudonyms.
func TestPseudonymsAreOneToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNames(nil)
		word := rapid.SampledFrom([]string{"web", "node", "node-1", "node-2", "ns-1", "db", "web-1", "pod-3", "s1", "deployment-1", "web-6bc7d9f8c5-x2x9p", "web-6bc7d9f8c5-abcde", "kube-apiserver-node-1", "10", "x.y"})
		class := rapid.SampledFrom([]string{"ns", "node", "pod", "deployment"})
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]string { return [2]string{class.Draw(t, "class"), word.Draw(t, "name")} }), 1, 20).Draw(t, "names")
		for _, a := range all {
			n.collect(a[0], a[1])
		}
		n.assign()
		back := map[string]string{}
		for name, p := range n.of {
			if other, ok := back[p]; ok {
				t.Fatalf("%s and %s are both %s", name, other, p)
			}
			back[p] = name
			if name == p {
				t.Fatalf("%s kept its name", name)
			}
		}
		for _, a := range all {
			if n.name(a[0], a[1]) != n.of[a[1]] {
				t.Fatalf("%s has two pseudonyms", a[1])
			}
		}
	})
}

func FuzzFree(f *testing.F) {
	for _, l := range logLines {
		f.Add(l)
	}
	f.Add("fieldSelector=metadata.name%3Dx&labelSelector=a+in+(b,c)")
	f.Add(`\u003e\"`)
	f.Add(`ends in \`)
	f.Add("https://user@:80//?=&%zz")
	f.Fuzz(exercise[*testing.T])
}

// exercise calls all that reads foreign text, and asks of a text what the scan
// will ask.
func exercise[T interface{ Errorf(string, ...any) }](t T, s string) {
	n := newNames(nil)
	for _, p := range shopNames {
		n.collect("ns", p)
	}
	n.assign()
	out := n.free(s)
	for i := range len(out) {
		if w := n.text.at(out, i); w > 0 && stays(out, i) == 0 && slices.Contains(shopNames, out[i:i+w]) {
			t.Errorf("%q became %q", s, out)
		}
	}
	n.query(s)
	n.agent(s)
	n.user(s)
	c := copier{names: n}
	c.command("", s, false)
	c.command("kube-apiserver", s, false)
	c.frames(s)
	c.label("x", "tenant", s+"x")
	c.setting(s)
	c.comm(s)
	c.path(s)
	_, _ = c.experiment([]byte(s))
}

var shopNames = []string{"payments-prod", "checkout", "bob.smith"}

// Texts that look like logs, cut and glued at random.
func TestAnyText(t *testing.T) {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"payments-prod", "checkout", "bob.smith", "/", ":", "-", "--", ".", "=", `"`, `\"`, " ", "@", "://", "?", "&", "[", "]", "{", "}", "10.1.2.3", "::1", "node", "pod", "x",
			"system:", "apis", "/api/v1/namespaces/", "9f1c2d3e-4b5a-4c6d-8e7f-a0b1c2d3e4f5", "a.example.com", "+0x1", ";", "_", "client", "user", "%3D", "sha256:", "fieldSelector=", "labelSelector=", "image"}),
		rapid.StringN(0, 3, 6),
	)
	rapid.Check(t, func(t *rapid.T) {
		exercise(t, strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), ""))
	})
}

// A secret is found in every form and place.
func TestScanFindsSecrets(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	needles := Secret("the key", secret)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	otherDER, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	one := func(s []byte) string { return strings.ReplaceAll(string(s), "\n", "") }
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"pem":            {string(secret), true},
		"one line":       {strings.ReplaceAll(string(secret), "\n", `\n`), true},
		"base64":         {"x " + base64.StdEncoding.EncodeToString(secret), true},
		"base64 shifted": {base64.StdEncoding.EncodeToString(append([]byte("ab"), secret...)), true},
		"der":            {"\x00\x01" + string(der) + "\x02", true},
		"body":           {one(secret)[30:], true},
		"another key":    {base64.StdEncoding.EncodeToString(otherDER), false},
	} {
		for place, write := range map[string]func(w *record.Writer){
			"table": func(w *record.Writer) { w.Event(record.Event{Message: c.text}) },
			"label": func(w *record.Writer) {
				w.AppendSample("x", map[string]string{"l": strings.ToValidUTF8(c.text, "")}, time.Now(), 1)
			},
			"log": func(w *record.Writer) { l, _ := w.LogFile("etcd"); _, _ = l.Write([]byte(c.text)); _ = l.Close() },
			"meta": func(w *record.Writer) {
				_ = w.Update(func(m *record.Meta) { m.EndReason = ""; m.Warnings = []string{c.text} })
			},
			"packed": func(w *record.Writer) { _ = w.Profile(record.ProfileRef{Component: "etcd"}, comment(t, c.text)) },
		} {
			if name == "der" && place != "log" && place != "packed" { // no text
				continue
			}
			dir := filepath.Join(t.TempDir(), "r")
			w, err := record.Create(dir, record.Meta{})
			if err != nil {
				t.Fatal(err)
			}
			write(w)
			if err := w.Finish(record.StatusComplete, ""); err != nil {
				t.Fatal(err)
			}
			report, err := Scan(context.Background(), dir, needles)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.ContainsFunc(report.Leaks, func(l Leak) bool { return l.What == "the key" }); got != c.want {
				t.Errorf("%s in a %s: found %v, want %v", name, place, got, c.want)
			}
		}
	}
	if n := Secret("short", []byte("abc")); len(n) != 0 {
		t.Errorf("%v", n)
	}
}

func comment(t testing.TB, text string) []byte {
	t.Helper()
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}}, Comments: []string{text}}
	var out strings.Builder
	if err := p.Write(&out); err != nil {
		t.Fatal(err)
	}
	return []byte(out.String())
}

// What looks like a secret is found though nobody knows it.
func TestScanFindsWhatLooksLikeSecrets(t *testing.T) {
	for text, want := range map[string]bool{
		"Authorization: Bearer abcdefghijklmnop": true, "token=REDACTED": false, "token=[redacted]": false, "https://u:hunter2hunter2@x/": true,
		"-----BEGIN RSA PRIVATE KEY-----\nMIIabc": true, "nothing": false, "--token-auth-file=/x/y": false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.log"), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		report, err := Scan(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(report.Leaks) > 0; got != want {
			t.Errorf("%q: %v", text, report.Leaks)
		}
	}
}

// A word that one process's flag has as its value and another's in its name
// stays; a copy would otherwise be refused for holding it.
func TestWordsOfFlags(t *testing.T) {
	c := &copier{names: newNames(nil), memo: map[memoKey]string{}, system: map[string]bool{}, threads: map[string]bool{}, plain: map[string]bool{"Debian": true}}
	rows := []string{
		"browser --type=zygote --ozone-platform=headless --no-sandbox --annotation=release=Debian --profile=acme-secret",
		"browser --headless --no-zygote-sandbox --acme-mode",
	}
	c.collectRow(&record.ProcessSample{Command: rows[0]})
	c.collectRow(&record.ProcessExit{Command: rows[1]})
	first, second := c.command("", rows[0], false), c.command("", rows[1], false)
	for _, want := range []string{"--type=zygote", "--ozone-platform=headless", "=Debian"} {
		if !strings.Contains(first, want) {
			t.Errorf("%s lost %s", first, want)
		}
	}
	if strings.Contains(first, "acme-secret") || !strings.Contains(second, "--headless --no-zygote-sandbox") {
		t.Errorf("%s\n%s", first, second)
	}
	for name, p := range c.of {
		if strings.Contains(second, name) && !strings.Contains(second, p) {
			t.Errorf("%s has a pseudonym, and stands in %s", name, second)
		}
	}
}
