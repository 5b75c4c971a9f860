package schedulerperf

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedyno/kubedyno/experiment"
)

// Conversion is what became of one workload.
type Conversion struct {
	Test, Workload string
	// Name is that of the experiment, and FileName one that tells it from all
	// others of the file.
	Name, FileName string
	// YAML is the experiment; nil where the workload is refused.
	YAML []byte
	// Refused says which operation cannot be converted, and why.
	Refused string
	// Mapped counts operations by their code, and Changed says what is not done
	// as upstream does it.
	Mapped  []string
	Changed []string
}

// Convert converts the workloads that are meant, in the file's order.
func (f *File) Convert(s Select) []Conversion {
	var all []Conversion
	for _, t := range f.Tests {
		for _, w := range t.Workloads {
			if s.takes(t, w) {
				all = append(all, f.convert(t, w))
			}
		}
	}
	return all
}

func (f *File) convert(t Test, w Workload) Conversion {
	full := kebab(t.Name) + "-" + kebab(w.Name)
	c := Conversion{Test: t.Name, Workload: w.Name, Name: short(full), FileName: full + ".yaml"}
	x := converter{file: f, test: t, workload: w, out: &c, used: map[string]bool{}}
	if err := x.all(); err != nil {
		c.Refused, c.Mapped, c.Changed = err.Error(), nil, nil
		return c
	}
	data := x.render()
	if _, err := experiment.Parse(c.FileName, data); err != nil {
		var ps experiment.Problems
		reason := err.Error()
		if errors.As(err, &ps) && len(ps) > 0 {
			reason = strings.TrimPrefix(ps[0].Path+": ", ": ") + ps[0].Text
		}
		c.Refused, c.Mapped, c.Changed = "the experiment would be refused: "+reason, nil, nil
		return c
	}
	c.YAML = data
	return c
}

// longestName leaves room for what names of experiments are built into.
const longestName = 40

// short is a name that an experiment may have; what does not fit is told apart
// by a sum of it.
func short(name string) string {
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:longestName-7], "-") + "-" + hex.EncodeToString(sum[:3])
}

var (
	wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	acronym   = regexp.MustCompile(`([A-Z]+)([A-Z][a-z])`)
	notName   = regexp.MustCompile(`[^a-z0-9]+`)
)

// kebab is a name in lower case with dashes between its words.
func kebab(name string) string {
	name = wordStart.ReplaceAllString(acronym.ReplaceAllString(name, "$1-$2"), "$1-$2")
	return strings.Trim(notName.ReplaceAllString(strings.ToLower(name), "-"), "-")
}

// converter makes one experiment.
type converter struct {
	file     *File
	test     Test
	workload Workload
	out      *Conversion

	used       map[string]bool // parameters
	seeded     map[string]any  // of cluster: nodes and node
	begun      bool            // more was done than to make nodes and namespaces
	phases     []any
	makers     []maker
	background []any // phases that run beside the next one
	measuring  *startCollecting
	measured   int // phases
	mapped     map[string]int
}

// maker is a phase that made pods.
type maker struct {
	phase, namespace string
	labels           map[string]string
	awaited          bool
	deleted          bool
}

// A step converts one operation. Index is its number in the list.
type step func(x *converter, index int, data json.RawMessage) error

// steps are upstream's operations; those that the language has no word for say
// why.
var steps = map[string]step{
	"createNodes":            (*converter).createNodes,
	"createNamespaces":       (*converter).createNamespaces,
	"createPods":             (*converter).createPods,
	"createPodSets":          (*converter).createPodSets,
	"deletePods":             (*converter).deletePods,
	"churn":                  (*converter).churn,
	"barrier":                (*converter).barrier,
	"sleep":                  (*converter).sleep,
	"startCollectingMetrics": (*converter).startCollecting,
	"stopCollectingMetrics":  (*converter).stopCollecting,
	"createAny":              (*converter).createAny,
	"createResourceClaims":   (*converter).createAny,
	"updateAny":              no("it replaces whole objects, which takes their versions; patch changes parts of them"),
	"createResourceDriver":   no("it is a driver of devices inside upstream's test, with the slices that it publishes"),
	"allocResourceClaims":    no("it allocates claims inside upstream's test, in place of the scheduler"),
}

func no(why string) step {
	return func(*converter, int, json.RawMessage) error { return errors.New(why) }
}

func (x *converter) all() error {
	if x.test.SchedulerConfigPath != "" {
		return errors.New("schedulerConfigPath: a configuration file takes the place of the scheduler's flags, its client limits among them")
	}
	x.mapped = map[string]int{}
	for i, data := range x.test.WorkloadTemplate {
		var op struct{ Opcode string }
		if err := json.Unmarshal(data, &op); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
		convert, known := steps[op.Opcode]
		if !known {
			return fmt.Errorf("unknown opcode %q (operation %d)", op.Opcode, i)
		}
		if err := convert(x, i, data); err != nil {
			return fmt.Errorf("%s (operation %d): %w", op.Opcode, i, err)
		}
		x.mapped[op.Opcode]++
	}
	switch {
	case x.seeded == nil:
		return errors.New("createNodes: none of its nodes is there at the start and of a plain shape; a run needs some to begin with")
	case len(x.background) > 0:
		return errors.New("an operation that goes on in the background has none beside it")
	case x.measuring != nil:
		return errors.New("startCollectingMetrics: nothing stops it")
	case x.measured == 0:
		return errors.New("nothing of it is measured")
	case x.measured > 1:
		return fmt.Errorf("%d operations are measured, each by itself; a run has one measure of all", x.measured)
	}
	for _, code := range slices.Sorted(maps.Keys(x.mapped)) {
		x.out.Mapped = append(x.out.Mapped, fmt.Sprintf("%s×%d", code, x.mapped[code]))
	}
	for _, name := range slices.Sorted(maps.Keys(x.workload.Params)) {
		if !x.used[name] {
			x.change("parameter %s is not used by any operation", name)
		}
	}
	if len(x.test.MetricsCollectorConfig) > 0 {
		x.change("metricsCollectorConfig is left out: a run records all of the scheduler's metrics")
	}
	return nil
}

// change notes what is not as upstream does it, once.
func (x *converter) change(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(x.out.Changed, text) {
		x.out.Changed = append(x.out.Changed, text)
	}
}

// param is a parameter of the workload: $name.
func param[T any](x *converter, name string) (T, error) {
	var zero T
	name = strings.TrimPrefix(name, "$")
	x.used[name] = true
	v, ok := x.workload.Params[name]
	if !ok {
		return zero, fmt.Errorf("parameter %s is not given", name)
	}
	t, ok := v.(T)
	if !ok {
		return zero, fmt.Errorf("parameter %s is %v", name, v)
	}
	return t, nil
}

// count is the number of objects: given, or a parameter.
func (x *converter) count(n int, name string) (int, error) {
	if name != "" {
		f, err := param[float64](x, name)
		if err != nil {
			return 0, err
		}
		n = int(f)
	}
	if n < 0 || name == "" && n == 0 {
		return 0, fmt.Errorf("a count of %d", n)
	}
	return n, nil
}

// unmeasured is the kind of phases that upstream does not measure.
const unmeasured = "warm-up"

// workers is how many requests upstream sends at a time where it creates pods
// "rapidly": test/utils/runners.go.
const workers = 30

// paced is how a phase's operations are sent: as upstream's workers do.
func paced(m map[string]any, n int) {
	if n > 1 {
		m["clients"] = workers
	}
}

func scheduled() map[string]any {
	return map[string]any{"for": "scheduled", "timeout": "10m", "stall": "10m"} // upstream's patience
}

func (x *converter) phase(name, kind, action string, does any) {
	p := map[string]any{"name": name, action: does}
	x.begun = x.begun || !strings.HasPrefix(name, "nodes-") && !strings.HasPrefix(name, "namespaces-")
	if kind != "" {
		p["kind"] = kind
	}
	if len(x.background) == 0 {
		x.phases = append(x.phases, p)
		return
	}
	together := append([]any{p}, x.background...) // the group is of the first one's kind
	x.background = nil
	x.phases = append(x.phases, map[string]any{"name": fmt.Sprintf("together-%d", len(x.phases)), "parallel": together})
}

// beside keeps a phase until one comes that it runs beside of.
func (x *converter) beside(name, kind, action string, does any) {
	p := map[string]any{"name": name, "kind": kind, action: does}
	x.begun = true
	if action != "delete" { // which has an end of its own
		p["beside"] = true
	}
	x.background = append(x.background, p)
}

// alone refuses what cannot be beside an operation in the background.
func (x *converter) alone() error {
	if len(x.background) > 0 {
		return errors.New("an operation goes on in the background, and only pods can be created beside it")
	}
	return nil
}

func (x *converter) createNodes(i int, data json.RawMessage) error {
	var op createNodes
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	n, err := x.count(op.Count, op.CountParam)
	if err != nil || n == 0 {
		return err
	}
	if err := x.alone(); err != nil {
		return err
	}
	if op.NodeAllocatableStrategy != nil {
		return errors.New("nodeAllocatableStrategy changes the nodes' status and makes CSINode objects")
	}
	node := baseNode()
	if op.NodeTemplatePath != nil {
		if node, err = x.file.object(*op.NodeTemplatePath, n); err != nil {
			return err
		}
		canonical(node, reflect.TypeFor[corev1.Node]())
	}
	labels := map[string]any{}
	var zones []any
	switch s := op.LabelNodePrepareStrategy; {
	case s == nil:
	case s.LabelKey == zoneLabel && s.RoundRobinIdx == 0:
		for _, v := range s.LabelValues {
			zones = append(zones, v)
		}
	case len(s.LabelValues) == 1:
		labels[s.LabelKey] = s.LabelValues[0]
	default:
		return fmt.Errorf("labelNodePrepareStrategy gives the values of %s to the nodes in turn, which only zones are", s.LabelKey)
	}
	if s := op.UniqueNodeLabelStrategy; s != nil {
		labels[s.LabelKey] = fmt.Sprintf("unique-%d-{index}", i)
	}
	shape, plain := plainNode(node)
	if plain && x.seeded == nil && !x.begun && op.UniqueNodeLabelStrategy == nil {
		if zones != nil {
			shape["zones"] = zones
		}
		if len(labels) > 0 {
			all, _ := shape["labels"].(map[string]any)
			if all == nil {
				all = map[string]any{}
			}
			maps.Copy(all, labels)
			shape["labels"] = all
		}
		x.seeded = map[string]any{"nodes": map[string]any{"seeded": n}, "node": shape}
		x.change("%d nodes are written into etcd, in place of requests to create them", n)
		return nil
	}
	switch {
	case len(zones) > 1:
		return errors.New("labelNodePrepareStrategy gives zones to the nodes in turn, and only the nodes that come first, of a plain shape, can have them")
	case len(zones) == 1:
		labels[zoneLabel] = zones[0]
	}
	name := nameOf(node, i, n)
	labels[hostLabel] = name
	meta := part(node, "metadata")
	maps.Copy(part(meta, "labels"), labels)
	create := map[string]any{"count": n, "object": node}
	paced(create, n)
	x.phase(fmt.Sprintf("nodes-%d", i), unmeasured, "create", create)
	return nil
}

const (
	zoneLabel = "topology.kubernetes.io/zone"
	hostLabel = "kubernetes.io/hostname"
)

// nameOf gives a manifest a name in place of generateName, which is told apart
// from those of other operations, and returns it.
func nameOf(m map[string]any, i, n int) string {
	meta := part(m, "metadata")
	name, _ := meta["name"].(string)
	if name == "" {
		prefix, _ := meta["generateName"].(string)
		name = fmt.Sprintf("%s%d", prefix, i)
		if n > 1 {
			name += "-{index}"
		}
		if prefix == "" {
			name = strings.ToLower(fmt.Sprint(m["kind"])) + "-" + name
		}
	}
	delete(meta, "generateName")
	meta["name"] = name
	return name
}

func part(m map[string]any, key string) map[string]any {
	p, ok := m[key].(map[string]any)
	if !ok {
		p = map[string]any{}
		m[key] = p
	}
	return p
}

// baseNode is the node that upstream makes without a template.
func baseNode() map[string]any {
	resources := func() map[string]any { return map[string]any{"pods": "110", "cpu": "4", "memory": "32Gi"} }
	return map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"generateName": "node-"},
		"status": map[string]any{
			"capacity": resources(), "allocatable": resources(), "phase": "Running",
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		},
	}
}

// plainNode is the shape of a node that differs from others in nothing but that.
func plainNode(node map[string]any) (shape map[string]any, ok bool) {
	meta, spec, status := part(node, "metadata"), part(node, "spec"), part(node, "status")
	shape = map[string]any{}
	for key := range meta {
		if key != "generateName" && key != "labels" {
			return nil, false
		}
	}
	if labels, has := meta["labels"].(map[string]any); has {
		for _, v := range labels {
			if s, isText := v.(string); !isText || strings.Contains(s, "{index}") {
				return nil, false
			}
		}
		shape["labels"] = maps.Clone(labels)
	}
	for key, v := range spec {
		if key != "taints" {
			return nil, false
		}
		taints, _ := v.([]any)
		for _, taint := range taints {
			t, _ := taint.(map[string]any)
			for k := range t {
				if k != "key" && k != "value" && k != "effect" {
					return nil, false
				}
			}
		}
		shape["taints"] = taints
	}
	for key := range status {
		if !slices.Contains([]string{"capacity", "allocatable", "conditions", "phase"}, key) {
			return nil, false
		}
	}
	capacity := part(status, "capacity")
	if a, has := status["allocatable"].(map[string]any); has && fmt.Sprint(a) != fmt.Sprint(capacity) {
		return nil, false
	}
	for key, v := range capacity {
		switch key {
		case "cpu", "memory":
			shape[key] = fmt.Sprint(v)
		case "pods":
			var pods int
			if _, err := fmt.Sscan(fmt.Sprint(v), &pods); err != nil {
				return nil, false
			}
			shape[key] = pods
		default:
			return nil, false
		}
	}
	conditions, _ := status["conditions"].([]any)
	if len(capacity) != 3 || len(conditions) != 1 || fmt.Sprint(conditions[0]) != fmt.Sprint(map[string]any{"type": "Ready", "status": "True"}) {
		return nil, false
	}
	return shape, true
}

func (x *converter) createNamespaces(i int, data json.RawMessage) error {
	var op createNamespaces
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	n, err := x.count(op.Count, op.CountParam)
	if err != nil || n == 0 {
		return err
	}
	if op.NamespaceTemplatePath == nil {
		return nil // those that pods go to are made when they do
	}
	if err := x.alone(); err != nil {
		return err
	}
	m, err := x.file.object(*op.NamespaceTemplatePath, 1)
	if err != nil {
		return err
	}
	meta := part(m, "metadata")
	delete(meta, "generateName")
	meta["name"] = op.Prefix + "-{index}"
	create := map[string]any{"count": n, "object": m}
	paced(create, n)
	x.phase(fmt.Sprintf("namespaces-%d", i), unmeasured, "create", create)
	return nil
}

// basePod is the pod that upstream makes without a template.
func basePod() map[string]any {
	resources := func() map[string]any { return map[string]any{"cpu": "100m", "memory": "500Mi"} }
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"generateName": "pod-"},
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "pause", "image": experiment.DefaultImage, "ports": []any{map[string]any{"containerPort": 80}},
			"resources": map[string]any{"limits": resources(), "requests": resources()},
		}}},
	}
}

// pod is the manifest of so many pods.
func (x *converter) pod(path *string, n int) (map[string]any, error) {
	if path == nil {
		path = x.test.DefaultPodTemplatePath
	}
	if path == nil {
		return basePod(), nil
	}
	m, err := x.file.object(*path, n)
	if err != nil {
		return nil, err
	}
	if m["kind"] != "Pod" {
		return nil, fmt.Errorf("%s is a %v, and no Pod", *path, m["kind"])
	}
	canonical(m, reflect.TypeFor[corev1.Pod]())
	spec := part(m, "spec")
	if spec["resourceClaims"] != nil {
		return nil, fmt.Errorf("%s: claims of devices need the resource claim controller, which upstream runs inside its test", *path)
	}
	volumes, _ := spec["volumes"].([]any)
	for _, v := range volumes {
		if v, _ := v.(map[string]any); v["persistentVolumeClaim"] != nil || v["ephemeral"] != nil {
			return nil, fmt.Errorf("%s: volumes that are bound need a volume controller, which upstream fakes inside its test", *path)
		}
	}
	return m, nil
}

func (x *converter) createPods(i int, data json.RawMessage) error {
	var op createPods
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	n, err := x.count(op.Count, op.CountParam)
	if err != nil || n == 0 {
		return err
	}
	namespace := fmt.Sprintf("namespace-%d", i) // upstream's default
	if op.Namespace != nil {
		namespace = *op.Namespace
	}
	return x.makePods(i, op, n, n, namespace, map[string]any{"namespace": namespace})
}

// makePods adds the phase of a createPods: n pods, of which each is seen among
// so many of its kind, in the namespaces that where names.
func (x *converter) makePods(i int, op createPods, n, each int, namespace string, where map[string]any) error {
	if op.SteadyStateParam != "" {
		var err error
		if op.SteadyState, err = param[bool](x, op.SteadyStateParam); err != nil {
			return err
		}
	}
	if op.DurationParam != "" {
		x.used[strings.TrimPrefix(op.DurationParam, "$")] = true
	}
	switch {
	case op.SteadyState:
		return errors.New("steadyState deletes pods once they are scheduled and makes new ones, until its time is over: no phase waits for the scheduler and goes on")
	case op.PersistentVolumeTemplatePath != nil || op.PersistentVolumeClaimTemplatePath != nil:
		return errors.New("persistentVolumeClaimTemplatePath: claims and volumes are bound to each other by upstream's test, and by a volume controller that it fakes")
	}
	pod, err := x.pod(op.PodTemplatePath, each)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("pods-%d", i)
	nameOf(pod, i, n)
	create := map[string]any{"count": n, "object": pod}
	maps.Copy(create, where)
	paced(create, n)
	kind := unmeasured
	if op.CollectMetrics {
		if x.measuring != nil {
			return errors.New("collectMetrics inside of startCollectingMetrics")
		}
		kind = "steady"
		x.measured++
	} else if x.measuring != nil {
		if !slices.Contains(x.measuring.Namespaces, namespace) || where["namespaces"] != nil {
			return errors.New("it makes pods in another namespace while those of some are measured")
		}
		kind = "steady"
	}
	m := maker{phase: name, namespace: namespace, labels: labelsOf(pod)}
	if !op.SkipWaitToCompletion {
		create["wait"] = scheduled()
		m.awaited = true
	}
	x.makers = append(x.makers, m)
	x.phase(name, kind, "create", create)
	if n > 1 {
		x.change("pods are created by %d clients without retries; upstream's retry", workers)
	}
	return nil
}

func labelsOf(m map[string]any) map[string]string {
	labels := map[string]string{}
	meta, _ := m["metadata"].(map[string]any)
	given, _ := meta["labels"].(map[string]any)
	for k, v := range given {
		labels[k] = fmt.Sprint(v)
	}
	return labels
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (x *converter) createPodSets(i int, data json.RawMessage) error {
	var op createPodSets
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	sets, err := x.count(op.Count, op.CountParam)
	if err != nil || sets == 0 {
		return err
	}
	each, err := x.count(op.CreatePodsOp.Count, op.CreatePodsOp.CountParam)
	if err != nil || each == 0 {
		return err
	}
	if op.CreatePodsOp.CollectMetrics {
		return errors.New("collectMetrics measures each set by itself; a run has one measure of all")
	}
	if op.CreatePodsOp.Namespace != nil {
		return errors.New("its pods name a namespace of their own")
	}
	x.change("the pods of sets go to their namespaces in turn; upstream fills one after the other")
	return x.makePods(i, op.CreatePodsOp, sets*each, each, op.NamespacePrefix, map[string]any{"namespace": op.NamespacePrefix, "namespaces": sets})
}

func (x *converter) deletePods(i int, data json.RawMessage) error {
	var op deletePods
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	var from *maker
	for k := range x.makers {
		m := &x.makers[k]
		if m.namespace != op.Namespace || m.deleted || !matches(m.labels, op.LabelSelector) {
			continue
		}
		if from != nil {
			return fmt.Errorf("the pods of namespace %s come from several operations, and a phase deletes those of one", op.Namespace)
		}
		from = m
	}
	if from == nil {
		return fmt.Errorf("no operation made pods in namespace %s that it could delete", op.Namespace)
	}
	from.deleted = true
	does := map[string]any{"phase": from.phase}
	if op.DeletePodsPerSecond > 0 {
		does["rate"] = fmt.Sprintf("%d/s", op.DeletePodsPerSecond)
	} else {
		does["clients"] = workers
		x.change("pods are deleted one by one by %d clients; upstream deletes all in one request", workers)
	}
	name := fmt.Sprintf("delete-%d", i)
	if op.SkipWaitToCompletion {
		x.beside(name, "drain", "delete", does)
		return nil
	}
	if err := x.alone(); err != nil {
		return err
	}
	x.phase(name, "drain", "delete", does)
	return nil
}

// longestChurn is for how long churn goes on at most: upstream's patience with
// whatever it goes on beside of.
const longestChurn = 10 * time.Minute

func (x *converter) churn(i int, data json.RawMessage) error {
	var op churn
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	if op.Mode != "create" && op.Mode != "recreate" {
		return fmt.Errorf("unknown mode %q", op.Mode)
	}
	if op.Mode == "recreate" && op.Number <= 0 {
		return errors.New("mode recreate needs a number")
	}
	interval := time.Duration(op.IntervalMilliseconds) * time.Millisecond
	if interval == 0 {
		interval = 500 * time.Millisecond // upstream's default
	}
	rate := fmt.Sprintf("%g/s", 1/interval.Seconds())
	most := max(int(longestChurn/interval), 1)
	namespace := fmt.Sprintf("namespace-%d", i)
	if op.Namespace != nil {
		namespace = *op.Namespace
	}
	for k, path := range op.TemplatePaths {
		m, err := x.file.object(path, 1) // upstream reads it without .Index
		if err != nil {
			return err
		}
		n := op.Number
		if op.Mode == "create" && n == 0 {
			n = most
		}
		if meta := part(m, "metadata"); meta["generateName"] == nil && meta["name"] != nil && (n > 1 || op.Mode == "recreate") {
			return fmt.Errorf("%s: all its objects would have the same name", path)
		}
		nameOf(m, i, max(n, 2))
		name := fmt.Sprintf("churn-%d-%d", i, k)
		if m["kind"] == "Pod" {
			// They need not be scheduled ever, and nobody waits for them.
			x.makers = append(x.makers, maker{phase: name, namespace: namespace, labels: labelsOf(m), awaited: true})
		}
		create := map[string]any{"count": n, "object": m}
		if !clusterScoped(m) {
			create["namespace"] = namespace
		}
		if op.Mode == "create" {
			create["rate"] = rate
			x.beside(name, unmeasured, "create", create)
			continue
		}
		if err := x.alone(); err != nil && k == 0 {
			return err
		}
		paced(create, n)
		x.before(name, "create", create)
		x.beside(name+"-again", unmeasured, "churn", map[string]any{"phase": name, "percent": 100, "cycles": max(most/(2*n), 1), "rate": rate})
		x.change("churn finds its objects made, and deletes first; upstream makes them at the interval")
	}
	return nil
}

// before adds a phase that what goes on in the background begins with.
func (x *converter) before(name, action string, does any) {
	x.begun = true
	x.phases = append(x.phases, map[string]any{"name": name, "kind": unmeasured, action: does})
}

// clusterScoped asks the language.
func clusterScoped(m map[string]any) bool {
	return experiment.Objects{Object: experiment.Manifest(m)}.ClusterScoped()
}

func (x *converter) barrier(i int, data json.RawMessage) error {
	var op barrier
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	if op.StageRequirement != "" && op.StageRequirement != "Scheduled" {
		return fmt.Errorf("stageRequirement %s: whether the scheduler has tried a pod is not to be seen from outside", op.StageRequirement)
	}
	if err := x.alone(); err != nil {
		return err
	}
	open := 0
	for k := range x.makers {
		m := &x.makers[k]
		if m.awaited || m.deleted {
			continue
		}
		if len(op.Namespaces) > 0 && !slices.Contains(op.Namespaces, m.namespace) || !matches(m.labels, op.LabelSelector) {
			return errors.New("it waits for some of the pods that are not scheduled yet, and a wait is for all")
		}
		m.awaited = true
		open++
	}
	if open == 0 {
		return nil // upstream finds them scheduled too
	}
	if slices.ContainsFunc(x.makers, func(m maker) bool { return strings.HasPrefix(m.phase, "churn") }) {
		return errors.New("pods of churn may never be scheduled, and a wait is for all")
	}
	kind := unmeasured
	if x.measuring != nil {
		kind = "steady"
	}
	x.phase(fmt.Sprintf("barrier-%d", i), kind, "wait", scheduled())
	return nil
}

func (x *converter) sleep(i int, data json.RawMessage) error {
	var op sleep
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	if op.DurationParam != "" {
		text, err := param[string](x, op.DurationParam)
		if err != nil {
			return err
		}
		if op.Duration.Duration, err = time.ParseDuration(text); err != nil {
			return err
		}
	}
	if x.measuring != nil {
		return errors.New("it is inside of what is measured, and a phase that does nothing is not")
	}
	if err := x.alone(); err != nil || op.Duration.Duration == 0 {
		return err
	}
	x.phase(fmt.Sprintf("sleep-%d", i), "", "settle", op.Duration.String())
	return nil
}

func (x *converter) startCollecting(_ int, data json.RawMessage) error {
	var op startCollecting
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	switch {
	case x.measuring != nil:
		return errors.New("the one before has not been stopped")
	case len(op.LabelSelector) > 0:
		return errors.New("labelSelector: it measures some of the pods of a namespace")
	}
	for _, m := range x.makers {
		if slices.Contains(op.Namespaces, m.namespace) {
			return fmt.Errorf("it measures pods of namespace %s that were made before, and a run measures those of its steady phases", m.namespace)
		}
	}
	x.measuring = &op
	return nil
}

func (x *converter) stopCollecting(int, json.RawMessage) error {
	if x.measuring == nil {
		return errors.New("nothing was started")
	}
	if slices.ContainsFunc(x.makers, func(m maker) bool { return slices.Contains(x.measuring.Namespaces, m.namespace) && !m.awaited }) {
		return errors.New("it stops before the pods that are measured are scheduled")
	}
	x.measuring = nil
	x.measured++
	return nil
}

func (x *converter) createAny(i int, data json.RawMessage) error {
	var op createAny
	if err := decodeJSON(data, &op); err != nil {
		return err
	}
	n := 1
	if op.Count != nil {
		n = *op.Count
	}
	if op.CountParam != "" {
		var err error
		if n, err = x.count(n, op.CountParam); err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	if err := x.alone(); err != nil {
		return err
	}
	m, err := x.file.object(op.TemplatePath, n)
	if err != nil {
		return err
	}
	if version, _ := m["apiVersion"].(string); strings.HasPrefix(version, "resource.k8s.io/") {
		return fmt.Errorf("%s: a %v belongs to the allocation of devices, which needs the resource claim controller that upstream runs inside its test", op.TemplatePath, m["kind"])
	}
	nameOf(m, i, n)
	if m["kind"] == "Node" {
		meta := part(m, "metadata")
		part(meta, "labels")[hostLabel] = meta["name"]
	}
	create := map[string]any{"count": n, "object": m}
	if op.Namespace != "" {
		create["namespace"] = op.Namespace
	}
	if n > 1 {
		create["clients"] = 1 // one after another, as upstream does
	}
	name := fmt.Sprintf("objects-%d", i)
	if m["kind"] == "Pod" {
		x.makers = append(x.makers, maker{phase: name, namespace: op.Namespace, labels: labelsOf(m)})
	}
	x.phase(name, unmeasured, "create", create)
	return nil
}

// gates are the feature gates of the workload, in a flag's form.
func (x *converter) gates() string {
	all := maps.Clone(x.test.FeatureGates)
	if all == nil {
		all = map[string]bool{}
	}
	maps.Copy(all, x.workload.FeatureGates)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, fmt.Sprintf("%s=%t", name, all[name]))
	}
	return strings.Join(parts, ",")
}
