package schedulerperf

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// render writes the experiment.
func (x *converter) render() []byte {
	cluster := map[string]any{"profile": "tuned"}
	maps.Copy(cluster, x.seeded)
	server := map[string]any{"disable-admission-plugins": "ServiceAccount,TaintNodesByCondition,Priority"}
	components := map[string]any{
		"kube-controller-manager": map[string]any{"off": true},
		"kube-apiserver":          map[string]any{"args": server},
	}
	if gates := x.gates(); gates != "" {
		// Upstream's test is one process, in which gates are the same for all.
		scheduler := map[string]any{"feature-gates": gates}
		server["feature-gates"] = gates
		if strings.Contains(","+gates+",", ",SchedulerQueueingHints=false,") {
			// The gate is locked since 1.34. Upstream emulates the version before,
			// for such workloads alone (setupTestCase in scheduler_perf.go).
			scheduler["emulated-version"], server["emulated-version"] = "kube=1.33", "kube=1.33"
		}
		components["kube-scheduler"] = map[string]any{"args": scheduler}
	}
	cluster["components"] = components

	var b bytes.Buffer
	fmt.Fprintf(&b, "# Converted from scheduler_perf: test %s, workload %s.\n", x.out.Test, x.out.Workload)
	b.WriteString("# As upstream's test has it: no controller manager, no kubelets, a scheduler without a client limit that shows,\n# and an API server without three admission plugins that need controllers.\n")
	for _, c := range x.out.Changed {
		fmt.Fprintf(&b, "# Changed: %s.\n", c)
	}
	for _, line := range x.thresholds() {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	top := &yaml.Node{Kind: yaml.MappingNode}
	add(top, "name", x.out.Name)
	add(top, "description", fmt.Sprintf("scheduler_perf %s/%s", x.out.Test, x.out.Workload))
	add(top, "cluster", cluster)
	add(top, "phases", x.phases)
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(top); err != nil {
		panic(fmt.Sprintf("schedulerperf: maps and texts are always YAML: %v", err))
	}
	_ = enc.Close()
	return b.Bytes()
}

// thresholds tells of upstream's lower bounds, and does not judge by them: they
// are the least that upstream's own machines have shown, of another mean.
func (x *converter) thresholds() []string {
	if len(x.workload.Threshold) == 0 {
		return nil
	}
	selector := x.workload.ThresholdMetricSelector
	if selector == nil {
		selector = x.test.DefaultThresholdMetricSelector
	}
	if selector != nil && selector.Name != "SchedulingThroughput" {
		return []string{fmt.Sprintf("Upstream's threshold: %s, of %s.", x.workload.Threshold, selector.Name)}
	}
	lines := []string{fmt.Sprintf("Upstream's threshold on its own machines: average throughput of %s pods/s. To judge by it here:", x.workload.Threshold)}
	if text := string(x.workload.Threshold); !strings.HasPrefix(text, "{") {
		lines = append(lines, fmt.Sprintf("objectives: [{indicator: throughput, limit: %s/s}]", text))
	}
	return lines
}

// order is that of keys where people read them; others follow by their names.
var order = []string{
	"name", "kind", "beside", "profile", "nodes", "node", "components", "phase", "count", "namespace", "namespaces", "clients", "rate", "object", "apiVersion", "metadata", "wait",
}

func add(n *yaml.Node, key string, v any) {
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, node(v))
}

// node is a value as YAML, its keys in an order that is always the same.
func node(v any) *yaml.Node {
	switch x := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		rank := func(key string) int {
			if i := slices.Index(order, key); i >= 0 {
				return i
			}
			return len(order)
		}
		keys := slices.Sorted(maps.Keys(x))
		slices.SortStableFunc(keys, func(a, b string) int { return rank(a) - rank(b) })
		for _, k := range keys {
			add(n, k, x[k])
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range x {
			n.Content = append(n.Content, node(item))
		}
		return n
	}
	n := &yaml.Node{}
	if err := n.Encode(v); err != nil {
		panic(fmt.Sprintf("schedulerperf: %T is no value of YAML: %v", v, err))
	}
	return n
}
