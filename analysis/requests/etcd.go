package requests

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/record"
)

// EtcdRow is one kind of etcd operation, and the part of it that belongs to
// one agent.
//
// Operations and Seconds are measured, by the API server
// (etcd_request_duration_seconds) or by etcd (etcd_mvcc_*,
// grpc_server_handled_total). Nobody measures for whom: AttributedOperations
// and AttributedSeconds share them out by the requests that each agent sent
// for that resource and that kind of verb. An agent whose requests do nothing,
// or are repeated on conflicts inside the API server, is wronged by that.
type EtcdRow struct {
	Metric               string
	Operation            string // get, list, create, update, delete, …; etcd's own: put, range, txn, …
	Group, Resource      string // empty for etcd's own
	KeyPrefix            string // where such objects are kept, by convention; empty for etcd's own
	Operations           float64
	Seconds              float64 // -1 unknown
	Agent                string  // empty: no request explains it, the API server asked by itself
	Requests             int64
	Share                float64 // of the requests for it; 0 where none
	AttributedOperations float64
	AttributedSeconds    float64 // -1 unknown
}

// EtcdLoad counts requests by the etcd operation that they lead to.
type EtcdLoad struct {
	agents map[string]string
	by     map[etcdKey]map[string]int64
	size   int
}

type etcdKey struct{ operation, group, resource string }

// NewEtcdLoad returns an empty count.
func NewEtcdLoad() *EtcdLoad {
	return &EtcdLoad{agents: map[string]string{}, by: map[etcdKey]map[string]int64{}}
}

// operation is what a request makes the API server ask of etcd first. Reads
// that its cache serves, and writes that it refuses, ask nothing; which these
// are, a request does not tell.
func operation(r *record.Request) string {
	switch r.Verb {
	case "create":
		if r.Subresource != "" { // pods/binding, pods/eviction: change their object
			return "update"
		}
		return "create"
	case "update", "patch":
		return "update"
	case "delete", "deletecollection":
		return "delete"
	case "get":
		return "get"
	case "list":
		// Only lists of what has no watch cache are sure to reach etcd; the
		// others are the API server's own, to fill its caches.
		if r.Resource == "events" {
			return "list"
		}
	}
	return ""
}

// Add counts a request.
func (e *EtcdLoad) Add(r *record.Request) {
	op := operation(r)
	if op == "" || r.Resource == "" || r.Code >= 400 && r.Code != 409 && r.Code != 404 {
		return
	}
	switch r.Subresource {
	case "token", "proxy", "exec", "log", "portforward", "attach":
		return // not of the object's storage
	}
	agent, ok := e.agents[r.UserAgent]
	if !ok {
		if len(e.agents) >= 1<<16 {
			clear(e.agents)
		}
		agent = Agent(r.UserAgent)
		e.agents[r.UserAgent] = agent
	}
	k := etcdKey{op, storageGroup(r.Group, r.Resource), r.Resource}
	by := e.by[k]
	if by == nil {
		by = map[string]int64{}
		e.by[k] = by
	}
	if _, ok := by[agent]; !ok {
		if e.size >= maxGroups {
			agent = Others
		}
		e.size++
	}
	by[agent]++
}

// storageGroup is the group under which the API server counts: events of both
// groups are one kind of object.
func storageGroup(group, resource string) string {
	if resource == "events" {
		return ""
	}
	return group
}

// metricsSource is what Etcd needs of a recording.
type metricsSource interface {
	Increase(metric string, match map[string]string, w record.Window) (float64, bool, error)
	Points(metric string, match map[string]string, w record.Window) ([]record.Series, error)
}

// Etcd joins what was measured in the window with who asked. It fails with
// record.ErrMissing where the recording has no such metrics.
func Etcd(rec metricsSource, w record.Window, load *EtcdLoad) ([]EtcdRow, error) {
	rows, err := apiServerSide(rec, w, load)
	if err != nil {
		return nil, err
	}
	own, err := etcdSide(rec, w)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b EtcdRow) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(b.Operations, a.Operations),
			strings.Compare(a.Resource, b.Resource), strings.Compare(a.Group, b.Group), strings.Compare(a.Operation, b.Operation),
			cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Agent, b.Agent))
	})
	return append(rows, own...), nil
}

const (
	latencyMetric = "etcd_request_duration_seconds"
	countMetric   = "etcd_requests_total"
)

var errNoEtcdMetrics = errors.New("the recording has no " + latencyMetric + " of an API server")

func apiServerSide(rec metricsSource, w record.Window, load *EtcdLoad) ([]EtcdRow, error) {
	series, err := rec.Points(latencyMetric+"_count", nil, w)
	if err != nil {
		return nil, err
	}
	if len(series) == 0 {
		return nil, errors.Join(errNoEtcdMetrics, record.ErrMissing)
	}
	// Series of several API servers have the same labels but for the
	// instance, and are summed. Before 1.34, `type` stood for the resource.
	kinds := map[etcdKey]map[string]string{}
	for _, s := range series {
		k := etcdKey{s.Labels["operation"], s.Labels["group"], s.Labels["resource"]}
		match := map[string]string{"operation": k.operation, "group": k.group, "resource": k.resource}
		if t := s.Labels["type"]; t != "" && k.resource == "" {
			k.group, k.resource = typeResource(t)
			match = map[string]string{"operation": k.operation, "type": t}
		}
		kinds[k] = match
	}
	var rows []EtcdRow
	for k, match := range kinds {
		count, ok, err := rec.Increase(latencyMetric+"_count", match, w)
		if err != nil {
			return nil, err
		}
		if !ok || count == 0 {
			continue
		}
		seconds, ok, err := rec.Increase(latencyMetric+"_sum", match, w)
		if err != nil {
			return nil, err
		}
		if !ok {
			seconds = -1
		}
		row := EtcdRow{
			Metric: latencyMetric, Operation: k.operation, Group: k.group, Resource: k.resource,
			KeyPrefix: keyPrefix(k.group, k.resource), Operations: count, Seconds: seconds,
			AttributedOperations: count, AttributedSeconds: seconds,
		}
		by := load.by[etcdKey{k.operation, storageGroup(k.group, k.resource), k.resource}]
		total := int64(0)
		for _, n := range by {
			total += n
		}
		if total == 0 {
			rows = append(rows, row)
			continue
		}
		for agent, n := range by {
			r := row
			r.Agent, r.Requests, r.Share = agent, n, float64(n)/float64(total)
			r.AttributedOperations = count * r.Share
			if seconds >= 0 {
				r.AttributedSeconds = seconds * r.Share
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// typeResource reads the label `type` of older API servers: "*core.Pod" or
// "/registry/pods", or plainly a resource.
func typeResource(t string) (group, resource string) {
	t = strings.TrimPrefix(t, "/registry/")
	if kind, ok := strings.CutPrefix(t, "*"); ok {
		if _, name, ok := strings.Cut(kind, "."); ok {
			return "", strings.ToLower(name) + "s"
		}
	}
	return "", t
}

// etcdSide is what etcd says of itself: not by resource, for it knows keys
// only.
func etcdSide(rec metricsSource, w record.Window) ([]EtcdRow, error) {
	match := map[string]string{"component": "etcd"}
	var rows []EtcdRow
	add := func(metric, operation string, match map[string]string) error {
		n, ok, err := rec.Increase(metric, match, w)
		if err != nil || !ok || n == 0 {
			return err
		}
		rows = append(rows, EtcdRow{Metric: metric, Operation: operation, Operations: n, Seconds: -1, AttributedOperations: n, AttributedSeconds: -1})
		return nil
	}
	for _, m := range []struct{ metric, operation string }{
		{"etcd_mvcc_range_total", "range"},
		{"etcd_mvcc_put_total", "put"},
		{"etcd_mvcc_delete_total", "delete"},
		{"etcd_mvcc_txn_total", "txn"},
	} {
		if err := add(m.metric, m.operation, match); err != nil {
			return nil, err
		}
	}
	series, err := rec.Points("grpc_server_handled_total", match, w)
	if err != nil {
		return nil, err
	}
	methods := map[string]bool{}
	for _, s := range series {
		methods[s.Labels["grpc_service"]+"/"+s.Labels["grpc_method"]] = true
	}
	names := make([]string, 0, len(methods))
	for m := range methods {
		names = append(names, m)
	}
	slices.Sort(names)
	for _, m := range names {
		service, method, _ := strings.Cut(m, "/")
		if err := add("grpc_server_handled_total", m, map[string]string{"component": "etcd", "grpc_service": service, "grpc_method": method}); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// keyPrefix is where the API server keeps objects of a resource, with the
// prefix that it has by default. Custom resources, whose groups are not of
// Kubernetes, stand below their group.
func keyPrefix(group, resource string) string {
	switch {
	case resource == "":
		return ""
	case group == "" && resource == "nodes":
		return "/registry/minions/"
	case group == "" && resource == "services":
		return "/registry/services/specs/"
	case group == "" && resource == "endpoints":
		return "/registry/services/endpoints/"
	case group == "" && resource == "replicationcontrollers":
		return "/registry/controllers/"
	case group == "networking.k8s.io" && resource == "ingresses":
		return "/registry/ingress/"
	case group == "apiregistration.k8s.io", group == "apiextensions.k8s.io",
		strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io"):
		return "/registry/" + group + "/" + resource + "/"
	}
	return "/registry/" + resource + "/"
}
