package realnode

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/hollow"
)

var update = flag.Bool("update", false, "record the real node anew")

// nodesPolicy makes the API server write down what nodes ask for, bodies
// included, and nothing else.
const nodesPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  userGroups: ["system:nodes"]
- level: None
`

// startListeningLab starts a control plane with an audit log that holds bodies and
// is complete at any time.
func startListeningLab(t testing.TB) (cp *cluster.ControlPlane, client kubernetes.Interface, audit string) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	audit = filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(nodesPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	mode := "blocking"
	cp, client = startLab(t, map[string]lab.Override{lab.APIServer: {Args: map[string]*string{
		"audit-log-path": &audit, "audit-policy-file": &policy, "audit-log-mode": &mode,
	}}})
	return cp, client, audit
}

// auditEvent is what we read of an audit event.
type auditEvent struct {
	AuditID    string
	Stage      string
	Verb       string
	RequestURI string
	UserAgent  string
	User       struct{ Username string }
	ObjectRef  struct{ Resource, Subresource, Namespace, Name string }
	Status     struct{ Code int } `json:"responseStatus"`
	Received   metav1.MicroTime   `json:"requestReceivedTimestamp"`
	Body       json.RawMessage    `json:"requestObject"`
}

// asked reads what a node has asked for, in order.
func asked(t testing.TB, path, node string) []auditEvent {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []auditEvent
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("audit log: %v in %s", err, lines.Text())
		}
		// A watch is told of twice: when it begins and when it ends.
		if e.User.Username != "system:node:"+node || e.UserAgent == KeeperName || seen[e.AuditID] {
			continue
		}
		seen[e.AuditID] = true
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b auditEvent) int { return a.Received.Compare(b.Received.Time) })
	return all
}

// A request is one of a recorded life, without what differs from one life to
// the next: names, addresses, times, identifiers.
type request struct {
	Verb     string   `json:"verb"`
	Resource string   `json:"resource"`
	Object   string   `json:"object,omitempty"`
	Code     int      `json:"code,omitempty"` // of the answer, unless it is a success
	Body     []string `json:"body,omitempty"` // its fields: path, or path=value
}

func (r request) String() string {
	s := r.Verb + " " + r.Resource
	if r.Object != "" {
		s += " " + r.Object
	}
	if r.Code != 0 {
		s += fmt.Sprintf(" (%d)", r.Code)
	}
	return s
}

// A life is what a node asks for about one pod, by lane. A kubelet talks in
// several lanes at a time; within one there is an order to compare.
type life struct {
	Status  []request `json:"status"`  // the pod itself
	Events  []request `json:"events"`  // about the pod
	Volumes []request `json:"volumes"` // what it refers to: ConfigMaps, Secrets, tokens
}

// A recording is all lives of one real node.
type recording struct {
	Kubernetes string          `json:"kubernetes"`
	Runtime    string          `json:"runtime"`
	Node       []request       `json:"node"` // about itself: the kinds there are
	Lives      map[string]life `json:"lives"`
}

// told are fields whose value is compared, not only their presence.
var told = map[string]bool{
	"type": true, "status": true, "reason": true, "phase": true, "exitCode": true, "ready": true, "started": true,
	"restartCount": true, "observedGeneration": true, "name": true, "gracePeriodSeconds": true,
	"count": true, "component": true, "fieldPath": true, "reportingComponent": true, "kind": true, "mountPath": true, "signal": true,
}

// merged are the lists that a patch merges by a key; their elements are known
// by it and not by their place.
var merged = map[string]string{
	"conditions": "type", "containerStatuses": "name", "initContainerStatuses": "name", "volumeMounts": "mountPath", "$setElementOrder/conditions": "type",
}

// fields lists the fields of a body.
func fields(body json.RawMessage) []string {
	var v any
	if len(body) == 0 || json.Unmarshal(body, &v) != nil {
		return nil
	}
	var all []string
	var walk func(path, key string, v any)
	walk = func(path, key string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if len(v) == 0 {
				all = append(all, path+"={}")
			}
			for k, child := range v {
				if k == "lastTransitionTime" {
					continue // there only if a second has gone by since the last
				}
				walk(path+"."+k, k, child)
			}
		case []any:
			for i, child := range v {
				name := fmt.Sprint(i)
				if m, ok := child.(map[string]any); ok && merged[key] != "" {
					name = fmt.Sprint(m[merged[key]])
				}
				walk(path+"["+name+"]", key, child)
			}
		case nil:
			all = append(all, path+"=null")
		default:
			if told[key] {
				path += fmt.Sprintf("=%v", v)
			}
			all = append(all, path)
		}
	}
	walk("", "", v)
	for i, f := range all {
		all[i] = anonymous(f)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// accessVolume is a name that the API server makes up.
var (
	accessVolume = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	eventName    = regexp.MustCompile(`\.[0-9a-f]{16}$`)
)

func anonymous(s string) string {
	return eventName.ReplaceAllString(accessVolume.ReplaceAllString(s, "kube-api-access"), ".TIME")
}

// live sorts a node's requests about one pod into lanes.
func live(all []auditEvent, pod *v1.Pod) life {
	var l life
	for _, e := range all {
		r := request{Verb: e.Verb, Resource: e.ObjectRef.Resource}
		if e.ObjectRef.Subresource != "" {
			r.Resource += "/" + e.ObjectRef.Subresource
		}
		if e.Status.Code >= 300 {
			r.Code = e.Status.Code
		}
		switch e.ObjectRef.Resource {
		case "pods":
			if e.ObjectRef.Name == pod.Name {
				r.Body = fields(e.Body)
				l.Status = append(l.Status, r)
			}
		case "events":
			var event v1.Event
			if json.Unmarshal(e.Body, &event) != nil || !strings.HasPrefix(cmp.Or(event.InvolvedObject.Name, e.ObjectRef.Name), pod.Name) {
				continue
			}
			r.Object = strings.TrimSpace(event.Type + " " + event.Reason + " " + event.InvolvedObject.FieldPath)
			r.Body = fields(e.Body)
			l.Events = append(l.Events, r)
		case "configmaps", "secrets", "serviceaccounts":
			if e.ObjectRef.Namespace != "default" {
				continue
			}
			r.Object = e.ObjectRef.Name
			if r.Object == "" {
				r.Object = selected(e.RequestURI)
			}
			r.Body = fields(e.Body)
			l.Volumes = append(l.Volumes, r)
		}
	}
	// They begin side by side.
	slices.SortStableFunc(l.Volumes, func(a, b request) int { return cmp.Compare(a.String(), b.String()) })
	return l
}

var fieldName = regexp.MustCompile(`metadata\.name(?:%3D|=)([a-z0-9.-]+)`)

func selected(uri string) string {
	if m := fieldName.FindStringSubmatch(uri); m != nil {
		return m[1]
	}
	return ""
}

// A kind is a pod whose life is compared.
type kind struct {
	name string
	pod  func() *v1.Pod
	// until says that it has lived long enough and may be deleted.
	until func(*v1.Pod) bool
}

func kinds() []kind {
	no := false
	base := func(name string, change func(*v1.Pod)) func() *v1.Pod {
		return func() *v1.Pod {
			p := pausePod(name)
			p.Spec.AutomountServiceAccountToken = &no
			change(p)
			return p
		}
	}
	return []kind{
		{"plain", base("plain", func(*v1.Pod) {}), isReady},
		{"volumes", base("volumes", func(p *v1.Pod) {
			request := func(cpu, memory string) v1.ResourceRequirements {
				return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}}
			}
			p.Spec.Containers = []v1.Container{
				{Name: "web", Image: pauseImage, Resources: request("10m", "16Mi"), VolumeMounts: []v1.VolumeMount{{Name: "config", MountPath: "/config"}}},
				{Name: "agent", Image: pauseImage, Resources: request("5m", "8Mi"), VolumeMounts: []v1.VolumeMount{{Name: "secret", MountPath: "/secret", ReadOnly: true}}},
			}
			p.Spec.Volumes = []v1.Volume{
				{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}},
				{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "password"}}},
			}
		}), isReady},
		{"init", base("init", func(p *v1.Pod) {
			p.Annotations = map[string]string{hollow.InitSeconds: "1.1"}
			p.Spec.InitContainers = []v1.Container{{Name: "first", Image: pauseImage, Command: []string{"/pause", "exit", "0", "1100ms"}}}
		}), isReady},
		{"crash", base("crash", func(p *v1.Pod) {
			p.Annotations = map[string]string{hollow.RunSeconds: "1.1", hollow.ExitCode: "1"}
			p.Spec.Containers[0].Command = []string{"/pause", "exit", "1", "1100ms"}
		}), func(p *v1.Pod) bool { // and is deleted while it waits, for 20 s, to be started again
			return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount == 2 && p.Status.ContainerStatuses[0].State.Terminated != nil
		}},
		{"job", base("job", func(p *v1.Pod) {
			p.Annotations = map[string]string{hollow.RunSeconds: "1.1"}
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			p.Spec.Containers[0].Command = []string{"/pause", "exit", "0", "1100ms"}
		}), func(p *v1.Pod) bool { return p != nil && p.Status.Phase == v1.PodSucceeded }},
		{"probe", base("probe", func(p *v1.Pod) {
			p.Spec.AutomountServiceAccountToken = nil
			p.Spec.Containers[0].ReadinessProbe = &v1.Probe{
				ProbeHandler:        v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"/pause", "exit", "0"}}},
				InitialDelaySeconds: 1, PeriodSeconds: 1,
			}
		}), isReady},
	}
}

// liveAll takes a pod of each kind through its life on the one node there is.
func liveAll(t *testing.T, client kubernetes.Interface, log, node string) map[string]life {
	t.Helper()
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	lives := map[string]life{}
	for _, k := range kinds() {
		pod := k.pod()
		before := len(asked(t, log, node))
		createPod(t, client, pod)
		eventually(t, k.name+" has lived", func() bool { return k.until(getPod(t, client, pod.Name)) })
		// What follows in the same second, or in the kubelet's next round.
		time.Sleep(2 * time.Second)
		if err := client.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, k.name+" is gone", func() bool { return getPod(t, client, pod.Name) == nil })
		time.Sleep(time.Second) // late events
		lives[k.name] = live(asked(t, log, node)[before:], pod)
	}
	return lives
}

const recordingFile = "testdata/kubelet.json"

// TestRecord records the real node's lives anew, when told so.
func TestRecord(t *testing.T) {
	if !*update {
		t.Skip("records only with -update")
	}
	needNode(t)
	cp, client, audit := startListeningLab(t)
	n := startNode(t, nodeConfig(t, cp, "real-0"))
	object, err := client.CoreV1().Nodes().Get(t.Context(), "real-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rec := recording{
		Kubernetes: object.Status.NodeInfo.KubeletVersion, Runtime: object.Status.NodeInfo.ContainerRuntimeVersion,
		Lives: liveAll(t, client, audit, "real-0"),
	}
	rec.Node = nodeRequests(asked(t, audit, "real-0"))
	if err := n.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	b, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordingFile, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	if keep := os.Getenv("KEEP_AUDIT"); keep != "" {
		b, _ := os.ReadFile(audit)
		_ = os.WriteFile(keep, b, 0o600)
	}
}

// nodeRequests are the kinds of requests of a node that are about no pod, each
// once: how often each comes depends on time.
func nodeRequests(all []auditEvent) []request {
	var out []request
	for _, e := range all {
		r := request{Verb: e.Verb, Resource: e.ObjectRef.Resource}
		if e.ObjectRef.Subresource != "" {
			r.Resource += "/" + e.ObjectRef.Subresource
		}
		if r.Resource == "" {
			r.Resource, _, _ = strings.Cut(e.RequestURI, "?")
		}
		switch e.ObjectRef.Resource {
		case "configmaps", "secrets", "serviceaccounts":
			continue
		case "pods":
			if e.Verb != "watch" {
				continue
			}
		case "events":
			var event v1.Event
			if json.Unmarshal(e.Body, &event) != nil || event.InvolvedObject.Kind != "Node" {
				continue
			}
			r.Object = event.Reason
		}
		if !slices.ContainsFunc(out, func(o request) bool { return o.String() == r.String() }) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b request) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// startHollow starts one hollow node.
func startHollow(t testing.TB, cp *cluster.ControlPlane, change func(*hollow.Config)) {
	t.Helper()
	conf := hollow.Config{
		Server: cp.Server, CAFile: cp.CA, NodeCA: &hollow.KeyPair{CertFile: cp.NodeCA.CertFile, KeyFile: cp.NodeCA.KeyFile},
		Nodes: 1, Seed: 1,
	}
	change(&conf)
	line, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	if conf, err = hollow.ParseConfig(line); err != nil { // fills in the defaults
		t.Fatal(err)
	}
	ready := make(chan struct{})
	fleet, err := hollow.NewFleet(conf, func(e hollow.Event) {
		if e.Event == "ready" {
			close(ready)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
}
