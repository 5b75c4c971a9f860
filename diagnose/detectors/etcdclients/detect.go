package etcdclients

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/consumer"
)

const (
	handled = "grpc_server_handled_total"
	sent    = "etcd_network_client_grpc_sent_bytes_total"
	watched = "etcd_debugging_mvcc_events_total"
	// beside is how many requests the API server sends for each that it counts in
	// etcd_requests_total, at most: it asks for the newest revision and compacts without
	// counting. Healthy runs had 1.1 to 1.3; one of nothing but consistent lists, 1.33.
	beside = 1.5
	// twice what the API server asked is the least that is noticed.
	twice = 2.0
	// few is the rate of requests, a second, from which they are worth telling, and share
	// the least part of all that etcd answered.
	few, share = 20.0, 0.25
	// granted is the rate of leases, a second, that API servers need at most: they give the
	// Events of a minute one lease. With a short --event-ttl each has its own.
	granted = 5.0
	// flood is the rate of bytes, a second, from which what others read or write is worth
	// telling, and listed that of lists above which the API server may have read them.
	flood, listed = 5e6, 1.0
	// perRequest is what a request brings besides the object: the key, the lease, the
	// transaction around it.
	perRequest = 2e3
	// perEvent is how much of what is written the watch of a change sends, at most: the
	// object as it is, as it was, and the frame around both.
	perEvent = 3.0
	// full is the part of the time that etcd's log is being synced from which writes wait
	// for each other.
	full = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "etcd-clients",
	Title: "Others than the API server ask etcd",
	Doc: `etcd should serve the API servers of its cluster and nobody else. A backup that reads the whole key space, an exporter, an operator with its own client, a network plugin or a service discovery that keeps its state in the same etcd all take CPU and disk from it, and no audit log has them.

**Evidence.** etcd counts what it answers (grpc_server_handled_total), the API server what it asks (etcd_requests_total). Counted are: reads and transactions beyond 1.5 times what the API server asked, where there are twice as many; plain puts and deletions, which the API server never sends; leases beyond 5 a second and 1.5 for each Event that was written. At least 20 a second and a quarter of all that etcd answers, or 5 MB/s that etcd receives or sends and that the API server did not bring or list.

**Charged.** A waste by the part of etcd's CPU that goes to them, and a bottleneck where the CPU is full. Where they write and etcd's log is being synced at least half of the time, pods' lost time goes to them by their share of what is written.

**Look-alikes.** A slow disk (etcd-sync): the same log, filled by the API server alone. uncached-lists: the API server reads much from etcd since its own clients ask it to. etcd's defragmentation has a clock of its own (etcd-defrag).

**Not known.** Who it is: etcd does not tell its clients apart. Whose its watches are is not known either, so that what they send counts as the API server's. Several API servers of which not all are scraped are not assessed.`,
	Detect: detect,
}

// asked is what etcd did for others.
type asked struct {
	kind       string // what they did most: read, wrote, took leases
	requests   float64
	writes     float64 // those of them that are written to the log
	all, own   float64 // what etcd answered; what API servers counted as asked
	log        float64 // what of all is written to the log
	received   float64 // bytes beyond what the API server brought
	sent       float64 // bytes beyond what the API server may have asked for
	bytes, out float64 // all that came in, and went out
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	methods, ok := v.IncreaseBy(diagnose.Etcd, handled, "grpc_method", diagnose.Labels{"grpc_service": "~etcdserverpb.(KV|Lease)"})
	if !ok || len(methods) == 0 || v.Span() <= 0 {
		return diagnose.NotAssessed("%s of etcd", handled)
	}
	of, ok := v.IncreaseBy(diagnose.APIServer, "etcd_requests_total", "instance", nil)
	switch {
	case !ok:
		return diagnose.NotAssessed("etcd_requests_total of kube-apiserver")
	case len(of) < v.Replicas():
		return diagnose.NotAssessed("etcd_requests_total of %d of %d API servers", v.Replicas()-len(of), v.Replicas())
	}
	// Behind one address may be several API servers, each with its own counters.
	if members, _ := v.IncreaseBy(diagnose.Etcd, handled, "instance", nil); !v.Local() && len(members) > len(of) {
		return diagnose.NotAssessed("etcd_requests_total of each API server: %d members of etcd were seen, and %d API servers", len(members), len(of))
	}
	operations, _ := v.IncreaseBy(diagnose.APIServer, "etcd_requests_total", "operation", nil)
	a := split(v, methods, operations, float64(max(1, len(of))))
	rate := a.requests / v.Span()
	often := rate >= few && a.requests >= share*a.all
	if !often && a.received < flood*v.Span() && a.sent < flood*v.Span() {
		return diagnose.NotThere("etcd answered %s requests a second, and the API server asked %s", diagnose.Digits(a.all/v.Span(), 3), diagnose.Digits(a.own/v.Span(), 3))
	}
	f := diagnose.Finding{
		Component: diagnose.Etcd, Resource: "cpu", Sources: 2, Direct: true,
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: handled + `{component="etcd"}`, Value: a.all / v.Span(), Unit: "1/s", Text: fmt.Sprintf("%.0f requests answered: %s", a.all, table(methods))},
			{Kind: "rate", Ref: `etcd_requests_total{component="kube-apiserver"}`, Value: a.own / v.Span(), Unit: "1/s", Text: fmt.Sprintf("of them the API server counted %.0f as its own", a.own)},
		},
		Advice:    diagnose.Advice{Text: "Find who it is: ss -tnp on etcd's machine shows who is connected to its client port besides the API server. Move that to an etcd of its own, have it ask the API server, or let it ask less often. Nobody but API servers needs a client certificate of this etcd."},
		RefutedBy: "a run without them in which etcd uses as much CPU and disk",
	}
	what := fmt.Sprintf("%s requests a second", diagnose.Digits(rate, 3))
	part, whole := a.requests/max(1, a.all), "all that it answers"
	if x := a.received / max(1, a.bytes); a.received >= flood*v.Span() {
		if x > part {
			part, whole = x, "all that it receives"
		}
		what += fmt.Sprintf(", %s/s written", diagnose.Bytes(a.received/v.Span()))
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: `etcd_network_client_grpc_received_bytes_total{component="etcd"}`, Value: a.bytes / v.Span(), Unit: "bytes/s", Text: fmt.Sprintf("%.0f %% of it did not come from the API server's clients", 100*x)})
	}
	if x := a.sent / max(1, a.out); a.sent >= flood*v.Span() {
		if x > part {
			part, whole = x, "all that it sends"
		}
		what = fmt.Sprintf("%s/s read", diagnose.Bytes(a.sent/v.Span()))
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: sent + `{component="etcd"}`, Value: a.out / v.Span(), Unit: "bytes/s", Text: "sent, while the API server lists nothing"})
	}
	f.Cause = fmt.Sprintf("others than the API server ask etcd: %s", what)
	f.Summary = fmt.Sprintf("Others than the API server %s etcd: %s, %.0f %% of %s.", a.kind, what, 100*part, whole)
	f.Cost = &diagnose.Cost{}
	if cpu, ok := v.CPU(diagnose.Etcd, v.Load); ok {
		x := cpu * part
		f.Cost.ServerCPUOf, f.Cost.ServerCPUSeconds, f.Cost.ServerCPUShare = diagnose.Etcd, &x, &part
	}
	consumer.Weigh(v, &f)
	charge(v, &f, a)
	return diagnose.Found(f)
}

// split parts what etcd answered into what its API servers sent and the rest.
func split(v *diagnose.View, methods, operations []diagnose.Part, replicas float64) (a asked) {
	n, own := values(methods), values(operations)
	a.all, a.own = sum(methods), sum(operations)
	reads, txns := 0.0, 0.0
	if beyond := n["Range"] + n["Txn"] - beside*a.own; beyond > 0 && n["Range"]+n["Txn"] >= twice*a.own {
		txns = min(beyond, max(0, n["Txn"]-beside*(own["create"]+own["update"]+own["delete"])))
		reads = beyond - txns
	}
	puts := txns + n["Put"] + n["DeleteRange"]
	events, _ := v.Increase(diagnose.APIServer, "etcd_requests_total", diagnose.Labels{"resource": "events", "operation": "~create|update"})
	leases := max(0, n["LeaseGrant"]-beside*events-granted*replicas*v.Span())
	a.writes, a.requests = puts+leases, reads+puts+leases
	a.log = n["Txn"] + n["Put"] + n["DeleteRange"] + n["LeaseGrant"]
	switch {
	case reads >= a.writes:
		a.kind = "read"
	case leases > puts:
		a.kind = "take leases of"
	default:
		a.kind = "write to"
	}
	if in, ok := v.Increase(diagnose.Etcd, "etcd_network_client_grpc_received_bytes_total", nil); ok {
		a.bytes = in
		if body, ok := v.Increase(diagnose.APIServer, "apiserver_request_body_size_bytes_sum", nil); ok && puts > 0 {
			a.received = max(0, in-2*body-perRequest*(a.all-a.requests))
		}
		if out, ok := v.Increase(diagnose.Etcd, sent, nil); ok {
			a.out = out
			if own["list"]+own["listWithCount"] < listed*v.Span() {
				// Each API server watches all that is written, and reads what its clients ask
				// for. Whose watches have more is not known: without its cache, an API server has
				// one for each of its clients.
				changes, _ := v.Increase(diagnose.Etcd, watched, nil)
				a.sent = max(0, out-in*perEvent*max(replicas, changes/max(1, a.log))-fetched(v))
			}
		}
	}
	if a.sent >= flood*v.Span() && a.received < flood*v.Span() {
		a.kind = "read"
	}
	return a
}

// fetched is what an API server may have read of etcd for those who get single objects,
// in bytes, taken to be as large as those that were written of their kind.
func fetched(v *diagnose.View) (bytes float64) {
	gets, _ := v.IncreaseBy(diagnose.APIServer, "etcd_requests_total", "resource", diagnose.Labels{"operation": "get"})
	for _, p := range gets {
		body, n := 0.0, 0
		for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return t.Resource == p.Label }) {
			body, n = body+t.BodyBytes, n+t.Bodies
		}
		if n > 0 {
			bytes += p.Value * body / float64(n)
		}
	}
	return bytes
}

// charge makes it a bottleneck where the log is full of what they write.
func charge(v *diagnose.View, f *diagnose.Finding, a asked) {
	disk, ok := v.Resource(diagnose.Etcd, "disk")
	text, suffers := v.Suffers()
	lost := v.LostStages()
	if !ok || disk.Utilisation < full || !suffers || len(lost) == 0 || f.Class == diagnose.Bottleneck {
		return
	}
	part := max(a.writes/max(1, a.log), a.received/max(1, a.bytes))
	if a.writes == 0 || part < share {
		return
	}
	f.Class, f.Resource, f.Consumes, f.Claims = diagnose.Bottleneck, "disk", true, map[string]float64{}
	for _, s := range lost {
		f.Claims[s.Name] = part * *s.ExcessSeconds
	}
	if f.Stage = lost[0].Name; f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
	f.RequestSeconds = part * v.API.LostSeconds
	f.Summary += fmt.Sprintf(" Its log is being synced %.0f %% of the time, and %.0f %% of what is written is theirs: %s.", 100*disk.Utilisation, 100*part, text)
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: `etcd_disk_wal_fsync_duration_seconds_sum{component="etcd"}`, Value: disk.Utilisation, Unit: "1", Text: fmt.Sprintf("etcd's log was being synced %.0f %% of the time", 100*disk.Utilisation)})
}

func values(parts []diagnose.Part) map[string]float64 {
	n := map[string]float64{}
	for _, p := range parts {
		n[p.Label] = p.Value
	}
	return n
}

func sum(parts []diagnose.Part) (total float64) {
	for _, p := range parts {
		total += p.Value
	}
	return total
}

// table lists the methods by how often they were called.
func table(methods []diagnose.Part) string {
	var words []string
	for i, m := range methods {
		if i == 4 {
			break
		}
		words = append(words, fmt.Sprintf("%s %.0f", m.Label, m.Value))
	}
	return strings.Join(words, ", ")
}
