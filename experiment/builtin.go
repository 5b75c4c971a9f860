package experiment

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"text/template"
)

//go:embed builtin/*.yaml
var builtinFiles embed.FS

//go:embed starter/mine.yaml
var starter []byte

// Params are a built-in experiment's parameters by name, as the command line
// has them: {"nodes": "50"}. What is left out keeps its default.
type Params map[string]string

// Param describes one parameter.
type Param struct{ Name, Default, Help string }

// Info describes a built-in experiment.
type Info struct {
	Name    string
	Summary string
	Params  []Param
}

var (
	nodesParam       = Param{"nodes", "50", "hollow nodes"}
	podsPerNodeParam = Param{"pods-per-node", "30", "pods for each node"}
	rateParam        = Param{"rate", "20/s", "how fast pods are created"}
	batchNodesParam  = Param{"nodes", "10", "hollow nodes"}
	claimsParam      = Param{"claims", "100", "claims, and pods that use them"}
	batchRateParam   = Param{"rate", "burst", "how fast claims, and then pods, are created"}
	seededParam      = Param{"nodes", "1000", "seeded nodes"}
	podsParam        = Param{"pods", "1000", "pods to schedule"}
	initPodsParam    = Param{"init-pods", "0", "pods that are bound before the run begins"}
	burstParam       = Param{"rate", "burst", "how fast pods are created"}
	churnRateParam   = Param{"rate", "5/s", "how fast Deployments are created and deleted"}
)

// Builtins lists the built-in experiments, sorted by name.
func Builtins() []Info {
	return []Info{
		{"churn", "Deployments of 10 pods that come and go, a tenth of them in each cycle: what does steady turnover cost?", []Param{nodesParam, podsPerNodeParam, churnRateParam}},
		{"density", "one Deployment with 30 pods for each node, created at once: how fast do pods start?", []Param{nodesParam, podsPerNodeParam}},
		{"density-direct", "the same number of bare pods at a fixed rate: does the cluster keep up?", []Param{nodesParam, podsPerNodeParam, rateParam}},
		{"idle", "nodes and nothing else, for two minutes: what does the cluster cost before anybody uses it?", []Param{nodesParam}},
		{"pvc-batch", "100 volume claims at once, and a pod for each: are all bound within 180 s, without an error?", []Param{batchNodesParam, claimsParam, batchRateParam}},
		{"scheduler", "pods at once on nodes that nobody stands behind, without a controller manager: how fast does the scheduler decide?", []Param{seededParam, podsParam, initPodsParam, burstParam}},
	}
}

// Builtin returns a built-in experiment.
func Builtin(name string, p Params) (*Experiment, error) {
	data, err := BuiltinYAML(name, p)
	if err != nil {
		return nil, err
	}
	e, err := Parse(name, data)
	var ps Problems
	if errors.As(err, &ps) {
		for i := range ps {
			ps[i].Line = 0
		}
		return nil, ps
	}
	if err != nil {
		return nil, err
	}
	// Positions in a file that the user never saw would not help in messages
	// about settings.
	for path, pl := range e.source.place {
		pl.line = 0
		e.source.place[path] = pl
	}
	return e, nil
}

// BuiltinYAML is a built-in experiment as a commented file to start from.
func BuiltinYAML(name string, p Params) ([]byte, error) {
	all := Builtins()
	i := slices.IndexFunc(all, func(b Info) bool { return b.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, b := range all {
			names[i] = b.Name
		}
		return nil, Problems{{Text: unknown("experiment", name, names)}}
	}
	values, err := all[i].values(p)
	if err != nil {
		return nil, err
	}
	text, err := builtinFiles.ReadFile("builtin/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("built-in experiment: %w", err)
	}
	t, err := template.New(name).Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("built-in experiment: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, values); err != nil {
		return nil, fmt.Errorf("built-in experiment: %w", err)
	}
	return b.Bytes(), nil
}

// builtinValues is what the built-in files' templates see.
type builtinValues struct {
	Nodes, PodsPerNode, Pods, NodePods int
	// Of churn: with what is going, a tenth more pods than stay, and a little.
	Deployments, ChurnPods int
	Claims, NodeVolumes    int
	Rate                   string
	InitPods               int
}

func (info Info) values(p Params) (builtinValues, error) {
	v := builtinValues{}
	var ps Problems
	given := map[string]string{}
	names := make([]string, len(info.Params))
	for i, param := range info.Params {
		names[i], given[param.Name] = param.Name, param.Default
	}
	for _, name := range sortedKeys(p) {
		if !slices.Contains(names, name) {
			ps = append(ps, Problem{Text: info.Name + ": " + unknown("parameter", name, names)})
		}
		given[name] = p[name]
	}
	number := func(name string, most int) int {
		n, err := strconv.Atoi(given[name])
		if err != nil || n < 1 || n > most {
			ps = append(ps, Problem{File: "--" + name, Text: fmt.Sprintf("want a whole number from 1 to %d, got %s", most, quote(given[name]))})
		}
		return n
	}
	const mostNodes, mostPods, mostClaims, mostPodsInAll = 20_000, 1000, 10_000, 1_000_000
	v.Nodes = number("nodes", mostNodes)
	if _, ok := given["pods-per-node"]; ok {
		v.PodsPerNode = number("pods-per-node", mostPods)
	}
	if _, ok := given["claims"]; ok {
		v.Claims = number("claims", mostClaims)
		// The scheduler spreads pods well enough for twice their mean.
		v.NodeVolumes = max(defaultVolumesPerNode, 2*(v.Claims+v.Nodes-1)/max(v.Nodes, 1))
		v.PodsPerNode = v.NodeVolumes
	}
	v.Pods = v.Nodes * v.PodsPerNode
	if _, ok := given["pods"]; ok {
		v.Pods = number("pods", mostPodsInAll)
	}
	if text, ok := given["init-pods"]; ok && text != "0" {
		v.InitPods = number("init-pods", mostPodsInAll)
	}
	mostOnOne := 0
	if _, ok := given["pods"]; ok { // the scheduler need not spread them evenly
		mostOnOne = 2 * (v.Pods + v.InitPods) / max(v.Nodes, 1)
	}
	// Asking for more pods on a node than it holds by default is asking for larger nodes.
	v.NodePods = max(defaultNodePods, v.PodsPerNode, mostOnOne)
	v.Deployments = max(1, v.Pods/10)
	v.ChurnPods = max(defaultNodePods, v.PodsPerNode*5/4, 20)
	if rate, ok := given["rate"]; ok {
		if _, err := ParseRate(rate); err != nil {
			ps = append(ps, Problem{File: "--rate", Text: fmt.Sprintf("%v, got %s", err, quote(rate))})
		}
		v.Rate = rate
	}
	return v, ps.err()
}
