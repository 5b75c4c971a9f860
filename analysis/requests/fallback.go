package requests

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/logs"
	"github.com/kubedyno/kubedyno/internal/audit"
	"github.com/kubedyno/kubedyno/record"
)

// SourceTrace is the source of rows that come from slow-request traces.
const SourceTrace = "trace"

// EachTrace calls f for each request over 500 ms of which an API server's log
// in the recording has a trace, which it writes at -v=2 and above. A trace has
// no user and no code; fast requests have none.
func EachTrace(rec *record.Recording, f func(*record.Request) error) error {
	m := rec.Meta()
	found := false
	for _, name := range rec.Logs() {
		if !strings.HasPrefix(name, "kube-apiserver") {
			continue
		}
		found = true
		in, err := rec.Log(name)
		if err != nil {
			return err
		}
		_, err = logs.Read(in, name, logs.Clock{Started: m.Started, Ended: m.Ended}, func(e *logs.Entry) error {
			t, ok := e.Trace()
			if !ok {
				return nil
			}
			r, ok := traced(e, t)
			if !ok {
				return nil
			}
			return f(&r)
		})
		if err = errors.Join(err, in.Close()); err != nil {
			return fmt.Errorf("traces in the log of %s: %w", name, err)
		}
	}
	if !found {
		_, err := rec.Log("kube-apiserver")
		return err
	}
	return nil
}

// traced makes a row of a trace of a request handler, whose fields are those
// of apiserver's endpoints/handlers/trace_util.go.
func traced(e *logs.Entry, t *logs.Trace) (record.Request, bool) {
	r := record.Request{
		DoneMicros: e.Time.UnixMicro(), ServerMicros: t.Total.Microseconds(),
		EtcdMicros: 0, QueueMicros: -1, WebhookMicros: 0, AuthenticationMicros: -1, AuthorizationMicros: -1, RequestBytes: -1, ResponseBytes: -1, Source: SourceTrace,
	}
	r.ReceivedMicros = r.DoneMicros - r.ServerMicros
	method := ""
	for _, f := range t.Fields {
		switch f.Key {
		case "verb":
			method = f.Value
		case "url":
			path, _, _ := strings.Cut(f.Value, "?")
			audit.Object([]byte(path), &r, func(b []byte) string { return string(b) })
		case "user-agent":
			r.UserAgent = f.Value
		}
	}
	if method == "" || r.Resource == "" || e.Time.IsZero() {
		return r, false
	}
	switch t.Name {
	case "Get", "List", "Create", "Update", "Patch", "Delete":
		r.Verb = strings.ToLower(t.Name)
	default:
		r.Verb = audit.Verb(method)
	}
	for _, s := range t.Steps {
		switch {
		case s.Nested && strings.HasSuffix(s.Name, " etcd3"):
			r.EtcdMicros += s.Took.Microseconds()
		case s.Nested && strings.HasPrefix(s.Name, "Call ") && strings.HasSuffix(s.Name, " webhook"):
			r.WebhookMicros += s.Took.Microseconds()
		}
	}
	return r, true
}

// MetricRow is what the API servers' metrics tell of requests: what was asked,
// never by whom.
type MetricRow struct {
	Verb, Group, Resource, Subresource  string
	Count, Errors, Conflicts, Throttled float64
	Seconds                             float64 // -1 unknown
}

const (
	totalMetric    = "apiserver_request_total"
	durationMetric = "apiserver_request_duration_seconds_sum"
)

// Metrics sums apiserver_request_total and apiserver_request_duration_seconds
// over a window, the most time first and watches last: what remains where
// there are neither an audit log nor any other source. It fails with
// record.ErrMissing where these were not recorded.
func Metrics(rec metricsSource, w record.Window) ([]MetricRow, error) {
	series, err := rec.Points(totalMetric, nil, w)
	if err != nil {
		return nil, err
	}
	if len(series) == 0 {
		return nil, fmt.Errorf("%s: %w", totalMetric, record.ErrMissing)
	}
	type kind struct{ verb, group, resource, subresource string }
	codes := map[kind]map[string]bool{}
	for _, s := range series {
		k := kind{s.Labels["verb"], s.Labels["group"], s.Labels["resource"], s.Labels["subresource"]}
		if codes[k] == nil {
			codes[k] = map[string]bool{}
		}
		codes[k][s.Labels["code"]] = true
	}
	var rows []MetricRow
	for k, codes := range codes {
		match := map[string]string{"verb": k.verb, "group": k.group, "resource": k.resource, "subresource": k.subresource}
		row := MetricRow{Verb: audit.Verb(k.verb), Group: k.group, Resource: k.resource, Subresource: k.subresource, Seconds: -1}
		if s, ok, err := rec.Increase(durationMetric, match, w); err != nil {
			return nil, err
		} else if ok {
			row.Seconds = s
		}
		for code := range codes {
			match["code"] = code
			n, _, err := rec.Increase(totalMetric, match, w)
			if err != nil {
				return nil, err
			}
			row.Count += n
			if len(code) == 3 && code[0] >= '4' {
				row.Errors += n
			}
			switch code {
			case "409":
				row.Conflicts += n
			case "429":
				row.Throttled += n
			}
		}
		if row.Count > 0 {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b MetricRow) int {
		if aw, bw := a.Verb == "watch", b.Verb == "watch"; aw != bw {
			if bw {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(b.Count, a.Count), strings.Compare(a.Resource, b.Resource),
			strings.Compare(a.Subresource, b.Subresource), strings.Compare(a.Verb, b.Verb), strings.Compare(a.Group, b.Group))
	})
	return rows, nil
}
