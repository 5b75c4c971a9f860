package logs

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// An Event is an entry that says something known.
type Event struct {
	Time      time.Time // zero unknown
	Component string
	Kind      string
	// Seconds is the duration that the entry tells, or -1.
	Seconds float64
	// Count is how many things the entry stands for: 1, or what it tells, as
	// audit events that were dropped together.
	Count int64
	// Object is what it is about: a resource and name, a path, a key, a lock.
	Object string
	Verb   string // of the request, where it tells one
	Detail string // the message, shortened
	Source string // file:line in the program
	// Offset and Line say where in the component's log it stands.
	Offset, Line int64
	// Trace is set for slow requests.
	Trace *Trace
}

// A KindOf says what a kind of event is.
type KindOf struct {
	Kind string
	Doc  string
	// Waits: Seconds of its events add up to time that was waited.
	Waits bool
	// Sampled: the component leaves out events by design, so that counts and
	// sums are at least that much.
	Sampled bool
}

// Kinds are all kinds of events, in the order in which they are tried: an
// entry is of the first that fits.
var Kinds = []KindOf{
	{"panic", "a panic, a fatal error or a message of severity F", false, false},
	{"oom", "memory ran out", false, false},
	{"files-out", "a process has as many files open as it may", false, false},
	{"slow-request", "a request or scheduling cycle over its threshold, as a trace", true, true},
	{"client-throttled", "waited for the client's own rate limit before sending", true, true},
	{"retry-wait", "waited before a retry, as the server asked", true, true},
	{"conflict", "a write refused, since the object had been modified", false, false},
	{"create-refused", "a controller was refused what it wanted to create, with the reason", false, false},
	{"stale-cache", "a controller waited for its own writes to come back in its cache", false, false},
	{"lease-lost", "a component lost or could not renew its leader lease", false, false},
	{"lease-slow", "a leader lease was not renewed in one request", false, false},
	{"lease-acquired", "a component became leader", false, false},
	{"etcd-slow-apply", "etcd: apply request took too long (over 100 ms)", true, false},
	{"etcd-slow-fsync", "etcd: slow fdatasync (over 1 s)", true, false},
	{"etcd-slow-request", "etcd: a request over 300 ms (request stats)", true, false},
	{"etcd-trace", "etcd: a trace of a request over 100 ms", true, false},
	{"etcd-heartbeat", "etcd: leader failed to send out heartbeat on time", true, false},
	{"etcd-leader-lost", "etcd: the member lost its leader", false, false},
	{"etcd-leader", "etcd: a leader was elected", false, false},
	{"etcd-compaction", "etcd: a compaction ended", true, false},
	{"etcd-defrag", "etcd: a defragmentation ended", true, false},
	{"etcd-snapshot", "etcd: a snapshot was saved", false, false},
	{"etcd-quota", "etcd: the database is as large as its quota", false, false},
	{"audit-dropped", "audit events that were not written", false, false},
	{"apf-rejected", "a request rejected by priority and fairness (429)", false, false},
	{"slow-watcher", "a watcher closed, since it did not keep up", false, false},
	{"watch-cache-backlog", "events queued before the watch cache", false, false},
	{"watch-init-slow", "the first events of a watch took over 500 ms", true, false},
	{"tls-handshake", "a TLS handshake failed", false, false},
	{"timeout", "a deadline was exceeded", false, false},
	{"connection-refused", "nobody listened", false, false},
	{"start", "a component started; more than once is a restart", false, false},
	{"log-cut", "the recording has no more of this log", false, false},
}

// kindOf finds the description of a kind.
func kindOf(kind string) KindOf {
	for _, k := range Kinds {
		if k.Kind == kind {
			return k
		}
	}
	return KindOf{Kind: kind}
}

// maxDetail bounds what an event keeps of its message.
const maxDetail = 300

// Event says what a known entry means; ok is false for any other.
func (e *Entry) Event() (ev Event, ok bool) {
	ev = Event{Time: e.Time, Component: e.Component, Seconds: -1, Count: 1, Source: e.Source, Offset: e.Offset, Line: e.Line}
	if !e.classify(&ev) {
		return Event{}, false
	}
	ev.Detail = clip(e.Message, maxDetail)
	for _, key := range []string{"err", "error"} {
		if s := e.Field(key); s != "" && len(ev.Detail) < maxDetail {
			ev.Detail = clip(ev.Detail+": "+s, maxDetail)
		}
	}
	// Not the long line that they are parts of.
	ev.Object, ev.Verb, ev.Detail = strings.Clone(clip(ev.Object, maxDetail)), strings.Clone(clip(ev.Verb, 60)), strings.Clone(ev.Detail)
	return ev, true
}

func (e *Entry) classify(ev *Event) bool {
	msg := e.Message
	has := func(s string) bool { return strings.Contains(msg, s) }
	is := func(kind string) bool { ev.Kind = kind; return true }

	if strings.HasPrefix(msg, "kubedyno: log cut here") {
		return is("log-cut")
	}
	switch {
	case strings.HasPrefix(msg, "runtime: out of memory"), has("Out of memory: Kill"), has("oom-kill"), has("OOMKilled"), has("cannot allocate memory"):
		return is("oom")
	case has("too many open files"), strings.Contains(e.Field("err")+e.Field("error"), "too many open files"):
		return is("files-out")
	case e.Severity == 'F', has("Observed a panic"), has("apiserver panic'd"), strings.HasPrefix(msg, "panic: "), strings.HasPrefix(msg, "fatal error: "):
		return is("panic")
	}
	if strings.HasPrefix(msg, "Trace[") {
		if t, ok := e.Trace(); ok {
			ev.Trace, ev.Seconds, ev.Object = t, t.Total.Seconds(), t.Name
			for _, f := range t.Fields {
				switch f.Key {
				case "verb":
					ev.Verb = f.Value
				case "resource", "url", "namespace", "name":
					if f.Value != "" {
						ev.Object += " " + f.Value
					}
				}
			}
			return is("slow-request")
		}
	}
	if e.throttled(ev) {
		return true
	}
	if strings.HasPrefix(msg, "AUDIT") { // the impacted events of a dropped batch
		return false
	}

	// What is looked for in messages may also be an error's text.
	err := e.Field("err")
	if err == "" {
		err = e.Field("error")
	}
	either := func(s string) bool { return strings.Contains(msg, s) || strings.Contains(err, s) }
	if either("the object has been modified; please apply your changes") {
		ev.Object = conflictOf(msg)
		if ev.Object == "" {
			ev.Object = conflictOf(err)
		}
		return is("conflict")
	}
	if either("is not as new as written version") {
		ev.Object = firstQuoted(err + msg)
		return is("stale-cache")
	}
	if reason := refusalOf(err); reason != "" {
		ev.Object = reason
		return is("create-refused")
	}
	switch {
	case msg == "Failed to renew lease", has("leaderelection lost"), has("leader election lost"), has("failed to renew lease"):
		ev.Object = e.Field("lock")
		return is("lease-lost")
	case strings.HasPrefix(msg, "Failed to update lease"), msg == "Failed to update lock", strings.HasPrefix(msg, "Error retrieving lease lock"), has("error retrieving resource lock"):
		ev.Object = e.Field("lock")
		return is("lease-slow")
	case msg == "Successfully acquired lease", strings.HasPrefix(msg, "successfully acquired lease"):
		ev.Object = e.Field("lock")
		if ev.Object == "" {
			ev.Object = strings.TrimPrefix(msg, "successfully acquired lease ")
		}
		return is("lease-acquired")
	}
	if kind := e.etcd(ev); kind != "" {
		return is(kind)
	}
	switch {
	case strings.HasPrefix(msg, "Error in audit plugin "):
		if _, s, ok := strings.Cut(msg, " affecting "); ok {
			n, _, _ := strings.Cut(s, " ")
			if n, err := strconv.ParseInt(n, 10, 64); err == nil && n > 0 {
				ev.Count = n
			}
		}
		return is("audit-dropped")
	case has("): rejecting request "), either("the server has received too many requests"), either("Too many requests, please try again later"):
		return is("apf-rejected")
	case strings.HasPrefix(msg, "Forcing ") && has("watcher close due to unresponsiveness"):
		ev.Object, _, _ = strings.Cut(strings.TrimPrefix(msg, "Forcing "), " ")
		return is("slow-watcher")
	case strings.HasPrefix(msg, "cacher (") && has("objects queued in incoming channel"):
		ev.Object, _, _ = strings.Cut(strings.TrimPrefix(msg, "cacher ("), ")")
		return is("watch-cache-backlog")
	case strings.HasPrefix(msg, "processing ") && has(" initEvents of "):
		_, s, _ := strings.Cut(msg, " initEvents of ")
		ev.Object, _, _ = strings.Cut(s, " ")
		ev.Seconds = seconds(msg[strings.LastIndexByte(msg, ' ')+1:])
		return is("watch-init-slow")
	case either("context canceled") && either("authentication handshake failed"): // given up by the client itself
		return false
	case either("TLS handshake error"), strings.HasPrefix(msg, "rejected connection on "), either("authentication handshake failed"), either("tls: "):
		ev.Object = e.Field("remote-addr")
		return is("tls-handshake")
	case either("context deadline exceeded"), either("i/o timeout"), either("Client.Timeout exceeded"), either("request timed out"),
		either("request did not complete within"), strings.HasPrefix(msg, "Timeout or abort while handling"), either("TLS handshake timeout"):
		ev.Verb, ev.Object = e.Field("method"), e.Field("URI")
		return is("timeout")
	case either("connection refused"):
		return is("connection-refused")
	case msg == "Golang settings", msg == "starting an etcd server":
		return is("start")
	}
	return false
}

// throttled recognises waits for a client's rate limit, in the wordings of all
// client-go releases: since 1.31 structured, before that "Waited for 1.19s due
// to client-side throttling, not priority and fairness, request: GET:URL", and
// before 1.18 "Throttling request took 192.2ms, request: GET:URL".
func (e *Entry) throttled(ev *Event) bool {
	var took, reason, request string
	switch msg := e.Message; {
	case msg == "Waited before sending request":
		took, reason = e.Field("delay"), e.Field("reason")
		ev.Verb, ev.Object = e.Field("verb"), path(e.Field("URL"))
	case strings.HasPrefix(msg, "Waited for ") && strings.Contains(msg, " due to "):
		took, reason, _ = strings.Cut(strings.TrimPrefix(msg, "Waited for "), " due to ")
		reason, request, _ = strings.Cut(reason, ", request: ")
	case strings.HasPrefix(msg, "Throttling request took "):
		took, request, _ = strings.Cut(strings.TrimPrefix(msg, "Throttling request took "), ", request: ")
		reason = "client-side throttling"
	default:
		return false
	}
	if ev.Seconds = seconds(took); ev.Seconds < 0 {
		return false
	}
	if request != "" {
		verb, url, _ := strings.Cut(request, ":")
		ev.Verb, ev.Object = verb, path(url)
	}
	ev.Kind = "retry-wait"
	if strings.HasPrefix(reason, "client-side throttling") {
		ev.Kind = "client-throttled"
	}
	return true
}

// etcd recognises what etcd logs.
func (e *Entry) etcd(ev *Event) string {
	msg := e.Message
	switch {
	case msg == "apply request took too long":
		ev.Seconds, ev.Object = seconds(e.Field("took")), etcdKeyOf(e.Field("request"))
		ev.Verb = strings.TrimSpace(e.Field("prefix"))
		return "etcd-slow-apply"
	case msg == "slow fdatasync":
		ev.Seconds = seconds(e.Field("took"))
		return "etcd-slow-fsync"
	case msg == "request stats" && (e.Severity == 'W' || e.Severity == 'E'):
		ev.Seconds, ev.Object = seconds(e.Field("time spent")), etcdKeyOf(e.Field("request content"))
		ev.Verb = e.Field("response type")
		return "etcd-slow-request"
	case strings.HasPrefix(msg, "trace["):
		_, ev.Verb, _ = strings.Cut(msg, "] ")
		ev.Seconds, ev.Object = seconds(e.Field("duration")), etcdKeyOf(e.Field("detail"))
		return "etcd-trace"
	case strings.HasPrefix(msg, "leader failed to send out heartbeat on time"):
		ev.Seconds, ev.Object = seconds(e.Field("exceeded-duration")), e.Field("to")
		return "etcd-heartbeat"
	case strings.HasPrefix(msg, "raft.node: ") && strings.Contains(msg, " lost leader "):
		return "etcd-leader-lost"
	case strings.HasPrefix(msg, "raft.node: ") && (strings.Contains(msg, " elected leader ") || strings.Contains(msg, " changed leader ")):
		return "etcd-leader"
	case strings.HasPrefix(msg, "finished scheduled compaction"):
		ev.Seconds = seconds(e.Field("took"))
		return "etcd-compaction"
	case strings.HasPrefix(msg, "finished defragmenting directory"):
		ev.Seconds = seconds(e.Field("took"))
		return "etcd-defrag"
	case msg == "saved snapshot", strings.HasPrefix(msg, "saved snapshot to disk"):
		return "etcd-snapshot"
	case strings.HasPrefix(msg, "message exceeded backend quota"), strings.Contains(msg, "database space exceeded"), strings.Contains(e.Field("err"), "database space exceeded"):
		return "etcd-quota"
	}
	return ""
}

// seconds of a duration as Go or zap writes it; -1 where it is none.
func seconds(s string) float64 {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil || d < 0 {
		return -1
	}
	return d.Seconds()
}

// path takes scheme, host and query off a URL.
func path(url string) string {
	if _, after, ok := strings.Cut(url, "://"); ok {
		if i := strings.IndexByte(after, '/'); i >= 0 {
			url = after[i:]
		}
	}
	url, _, _ = strings.Cut(url, "?")
	return url
}

// conflictOf reads `Operation cannot be fulfilled on deployments.apps "web": …`.
func conflictOf(s string) string {
	_, s, ok := strings.Cut(s, "Operation cannot be fulfilled on ")
	if !ok {
		return ""
	}
	resource, rest, ok := strings.Cut(s, " ")
	if !ok {
		return ""
	}
	return resource + " " + firstQuoted(rest)
}

// refusalOf reads why the API server refused what a controller creates: `sync
// "ns/web" failed with pods "web-x" is forbidden: exceeded quota: …`, `… failed with
// admission webhook "w" denied the request: …`, `… failed with policy 'p' with binding
// 'b' denied request: …` of a MutatingAdmissionPolicy, `… failed calling webhook "w": …`,
// `… pods is forbidden: User "u" cannot create resource "pods" …`. That somebody has no
// right to anything else is not what this is about. Of Pod "web-x" is invalid:
// spec.a: Not found: "b" the values are left out, which differ from pod to pod.
func refusalOf(err string) string {
	if i := strings.Index(err, `admission webhook "`); i >= 0 && strings.Contains(err[i:], `" denied the request`) {
		return err[i:]
	}
	if i := strings.Index(err, "policy '"); i >= 0 && strings.Contains(err[i:], "' denied request: ") && !strings.Contains(err[:i], " is forbidden: ") {
		return err[i:]
	}
	if i := strings.Index(err, `failed calling webhook "`); i >= 0 {
		return err[i:]
	}
	if i := strings.Index(err, `" is invalid: `); i >= 0 {
		return quotedValue.ReplaceAllString(err[i+2:], `"…"`)
	}
	_, reason, ok := strings.Cut(err, ` is forbidden: `)
	if !ok || strings.HasPrefix(reason, `User "`) && !strings.Contains(reason, `" cannot create resource "`) {
		return ""
	}
	return reason
}

// quotedValue is a value in a message of the API's validation.
var quotedValue = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// firstQuoted is the first string in quotes, escaped or not.
func firstQuoted(s string) string {
	_, s, ok := strings.Cut(s, `"`)
	if !ok {
		return ""
	}
	s, _, _ = strings.Cut(s, `"`)
	return strings.TrimSuffix(s, `\`)
}

// etcdKeyOf finds the key in etcd's text of a request: key:"/registry/pods/…"
// or "range_begin:/registry/pods/; range_end:…".
func etcdKeyOf(s string) string {
	if _, after, ok := strings.Cut(s, `key:"`); ok {
		key, _, _ := strings.Cut(after, `"`)
		return strings.TrimSuffix(key, `\`)
	}
	if _, after, ok := strings.Cut(s, "range_begin:"); ok {
		key, _, _ := strings.Cut(after, ";")
		return key
	}
	return ""
}

// clip shortens s to at most n bytes, at the start of a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
