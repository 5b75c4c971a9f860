package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/analysis/requests"
	"github.com/kubedyno/kubedyno/record"
)

// defaultColumns say who asked for what.
var defaultColumns = []string{"userAgent", "verb", "resource"}

func newRequestsCommand(env *Env) *cobra.Command {
	var (
		f           requestFlags
		format      string
		limit       int
		etcd, lists bool
	)
	cmd := &cobra.Command{
		Use:   "requests RECORDING|LOG",
		Short: "Say who asked the API server for what, and what it took",
		Long: `Requests sums a recording's requests by who asked for what: count, errors, and
the time that the API server took; watches and other long-running ones apart.
It also reads an audit log (JSON lines) or an API server's own log at -v=3,
compressed with gzip or not.

Columns for --by: ` + strings.Join(requests.Columns, ", ") + `.
User agents are shortened to program and role.

--lists tells informers from direct LISTs. --etcd shows etcd's operations by
resource, and shares them out among who asked for that resource; what is shared
out is marked with ~: nobody measures it.`,
		Example: `  kubedyno requests r --phase load
  kubedyno requests r --by user,code --sort errors
  kubedyno requests r --component kube-scheduler --by verb,resource,name
  kubedyno requests /var/log/kubernetes/audit.log.gz --lists
  kubedyno requests r --etcd -o csv`,
		Args: exactlyOne("RECORDING|LOG", "a recording, an audit log or an API server's log"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkFormat(format, tableFormats...); err != nil {
				return err
			}
			if etcd && lists {
				return Misusef("--etcd and --lists are two tables: ask for one at a time")
			}
			for _, c := range f.by {
				if !slices.Contains(requests.Columns, c) {
					return Misusef("no column %q for --by; there are %s", c, strings.Join(requests.Columns, ", "))
				}
			}
			if !slices.Contains(requestSources, f.source) {
				return Misusef("no source %q for --source; there are %s", f.source, strings.Join(requestSources, ", "))
			}
			if f.source == "metrics" && (etcd || lists || len(f.agents) > 0) {
				return Misusef("metrics do not tell who asked: --source metrics goes with neither --etcd, --lists nor --component")
			}
			if !slices.Contains(requests.Orders, f.order) {
				return Misusef("no order %q for --sort; there are %s", f.order, strings.Join(requests.Orders, ", "))
			}
			src, err := openRequests(args[0], f.phase)
			if err != nil {
				return err
			}
			defer src.close()
			if src.rec == nil && f.source != "table" {
				return Misusef("--source %s needs a recording: %s is a log", f.source, args[0])
			}
			var t *textTable
			var notes []string
			switch {
			case f.source == "metrics":
				t, notes, err = f.metrics(src)
			case etcd:
				t, notes, err = f.etcd(src)
			case lists:
				t, notes, err = f.lists(src)
			default:
				t, notes, err = f.table(src)
			}
			if errors.Is(err, record.ErrMissing) {
				return fmt.Errorf("requests: not assessed: %w", err)
			}
			if err != nil {
				return err
			}
			if err := t.print(env, format, limit); err != nil || format != "text" {
				return err
			}
			for _, n := range notes {
				fmt.Fprintln(env.Stdout, n)
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&f.by, "by", defaultColumns, "`columns` to sum by")
	cmd.Flags().StringVar(&f.order, "sort", "time", "order of the rows: "+strings.Join(requests.Orders, ", "))
	cmd.Flags().StringSliceVar(&f.agents, "component", nil, "only requests of `agents` whose short name has this in it")
	cmd.Flags().StringSliceVar(&f.verbs, "verb", nil, "only these `verbs`: get, list, watch, create, update, patch, delete, deletecollection")
	cmd.Flags().StringVar(&f.phase, "phase", "", "only this phase of the run")
	cmd.Flags().StringVar(&f.source, "source", "table", "what to read of a recording: its `table` of requests, traces of slow requests in logs, or metrics")
	cmd.Flags().BoolVar(&etcd, "etcd", false, "etcd's operations by resource, and who asked for them")
	cmd.Flags().BoolVar(&lists, "lists", false, "who lists and who watches: informers, relists, direct LISTs")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "table as text, csv or json (one object a line)")
	cmd.Flags().IntVar(&limit, "limit", 50, "most rows of a text table; 0 prints all")
	for name, values := range map[string][]string{
		"by": requests.Columns, "source": requestSources, "sort": requests.Orders, "output": tableFormats,
		"verb": {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// requestFlags say which requests, and how to sum them.
type requestFlags struct {
	by, agents, verbs []string
	order, phase      string
	source            string // of requestSources; empty: table
}

// requestSources are what a recording may tell of requests, the best first.
var requestSources = []string{"table", "traces", "metrics"}

// requestSource is a recording, or a log by itself.
type requestSource struct {
	rec   *record.Recording
	in    record.Window // of a recording; zero for a log
	path  string
	close func()
}

func openRequests(path, phase string) (*requestSource, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		if phase != "" {
			return nil, Misusef("--phase needs a recording: %s is a log", path)
		}
		return &requestSource{path: path, close: func() {}}, nil
	}
	rec, err := openRecording(path)
	if err != nil {
		return nil, err
	}
	in, err := windowOf(rec, phase)
	if err != nil {
		rec.Close()
		return nil, err
	}
	return &requestSource{rec: rec, in: in, path: path, close: func() { rec.Close() }}, nil
}

// each calls f for the requests that the flags ask for. before takes, of a
// recording, those too that came before its window.
func (s *requestSource) each(flags *requestFlags, before bool, f func(*record.Request)) ([]string, error) {
	from, to := s.in.Start.UnixMicro(), s.in.End.UnixMicro()
	one := func(r *record.Request) error {
		if s.rec != nil && (r.ReceivedMicros >= to || r.ReceivedMicros < from && !before) || !flags.wants(r) {
			return nil
		}
		f(r)
		return nil
	}
	switch {
	case s.rec != nil && flags.source == "traces":
		return []string{"traces are of requests over 500 ms only, and have neither user nor code"}, requests.EachTrace(s.rec, one)
	case s.rec != nil:
		return nil, s.rec.EachRequest(one)
	}
	stats, err := requests.EachInFile(s.path, one)
	if errors.Is(err, requests.ErrNotALog) {
		return nil, Misuse(err)
	}
	var notes []string
	if stats.Bad > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d lines were not understood and are not counted", stats.Bad, stats.Lines))
	}
	return notes, err
}

func (f *requestFlags) wants(r *record.Request) bool {
	if len(f.verbs) > 0 && !slices.Contains(f.verbs, r.Verb) {
		return false
	}
	if len(f.agents) == 0 {
		return true
	}
	agent := requests.Agent(r.UserAgent)
	return slices.ContainsFunc(f.agents, func(s string) bool { return strings.Contains(agent, s) })
}

// requestRow is a sum, for programs.
type requestRow struct {
	UserAgent      string  `json:"userAgent,omitempty"`
	User           string  `json:"user,omitempty"`
	Verb           string  `json:"verb,omitempty"`
	Group          string  `json:"group,omitempty"`
	Resource       string  `json:"resource,omitempty"`
	Subresource    string  `json:"subresource,omitempty"`
	Namespace      string  `json:"namespace,omitempty"`
	Name           string  `json:"name,omitempty"`
	Code           string  `json:"code,omitempty"`
	URI            string  `json:"uri,omitempty"`
	Source         string  `json:"source,omitempty"`
	LongRunning    bool    `json:"longRunning"`
	Count          int64   `json:"count"`
	Open           int64   `json:"open"`
	PerPod         float64 `json:"perPod"` // -1 where there were no pods
	Errors         int64   `json:"errors"`
	Conflicts      int64   `json:"conflicts"`
	Throttled      int64   `json:"tooManyRequests"`
	Seconds        float64 `json:"seconds"`
	Share          float64 `json:"share"`
	MeanMillis     float64 `json:"meanMilliseconds"`
	P50Millis      float64 `json:"p50Milliseconds"` // -1 unknown
	P99Millis      float64 `json:"p99Milliseconds"` // -1 below 100 requests
	LongestMillis  float64 `json:"longestMilliseconds"`
	Layered        int64   `json:"layered"`     // requests of which the next five are known: all of a lab's, those above 500 ms of an audit log
	EtcdSeconds    float64 `json:"etcdSeconds"` // of reads; -1 unknown
	QueueSeconds   float64 `json:"queueSeconds"`
	WebhookSeconds float64 `json:"webhookSeconds"`
	// Until the server knew who asks, and whether they may.
	AuthenticationSeconds float64 `json:"authenticationSeconds"`
	AuthorizationSeconds  float64 `json:"authorizationSeconds"`
	BodyBytes             int64   `json:"bodyBytes"` // of the requests themselves; -1 unknown
	Bytes                 int64   `json:"bytes"`     // -1 unknown
}

func (r *requestRow) set(column, value string) {
	for _, c := range []struct {
		name string
		into *string
	}{
		{"userAgent", &r.UserAgent}, {"user", &r.User}, {"verb", &r.Verb}, {"group", &r.Group}, {"resource", &r.Resource},
		{"subresource", &r.Subresource}, {"namespace", &r.Namespace}, {"name", &r.Name}, {"code", &r.Code}, {"uri", &r.URI}, {"source", &r.Source},
	} {
		if c.name == column {
			*c.into = value
		}
	}
}

var columnTitles = map[string]string{"userAgent": "USER AGENT", "uri": "URI"}

// table sums requests; the most time first, because volume is not load.
func (f *requestFlags) table(src *requestSource) (*textTable, []string, error) {
	a, err := requests.NewAggregator(f.by)
	if err != nil {
		return nil, nil, Misuse(err)
	}
	notes, err := src.each(f, false, a.Add)
	if err != nil {
		return nil, nil, err
	}
	pods := a.PodCreates
	if src.rec != nil {
		pods = podsIn(src.rec, src.in)
	}
	rows := a.Rows(f.order)
	sized := slices.ContainsFunc(rows, func(r requests.Row) bool { return r.Sized > 0 })
	// Of an audit log only slow requests are known by their parts, which tells
	// nothing of a row's.
	var parts []part
	for _, p := range requestParts {
		if slices.ContainsFunc(rows, func(r requests.Row) bool { return p.known(r) && p.seconds(r) >= 0.005*r.Seconds && p.seconds(r) > 0 }) {
			parts = append(parts, p)
		}
	}
	t := &textTable{}
	for _, name := range f.by {
		title, ok := columnTitles[name]
		if !ok {
			title = strings.ToUpper(name)
		}
		t.header = append(t.header, title)
	}
	t.header = append(t.header, "COUNT", "/POD", "ERRORS", "409", "429", "SECONDS", "SHARE", "MEAN ms", "P50 ms", "P99 ms", "MAX ms")
	for _, p := range parts {
		t.header = append(t.header, p.title)
	}
	if sized {
		t.header = append(t.header, "BYTES IN", "BYTES OUT")
	}
	verbs := slices.Contains(f.by, "verb")
	for _, r := range rows {
		out := requestRow{
			LongRunning: r.Long, Count: r.Count, Open: r.Open, PerPod: -1, Errors: r.Errors, Conflicts: r.Conflicts, Throttled: r.Throttled,
			Seconds: r.Seconds, Share: r.Share, MeanMillis: r.MeanMillis, P50Millis: r.P50Millis, P99Millis: r.P99Millis, LongestMillis: r.LongestMillis,
			Layered: r.Layered, EtcdSeconds: r.EtcdSeconds, QueueSeconds: r.QueueSeconds, WebhookSeconds: r.WebhookSeconds,
			AuthenticationSeconds: r.AuthenticationSeconds, AuthorizationSeconds: r.AuthorizationSeconds, BodyBytes: -1, Bytes: -1,
		}
		if r.Sized > 0 {
			out.Bytes = r.Bytes
		}
		if r.Bodies > 0 {
			out.BodyBytes = r.BodyBytes
		}
		if r.Timed == 0 {
			out.EtcdSeconds = -1
		}
		var cells []string
		for i, name := range f.by {
			out.set(name, r.Key[i])
			cells = append(cells, dash(printable(r.Key[i], 100)))
		}
		if r.Long && !verbs && len(cells) > 0 {
			cells[0] += " (long-running)"
		}
		perPod := "–"
		if pods > 0 {
			out.PerPod = float64(r.Count) / float64(pods)
			perPod = fmt.Sprintf("%.2f", out.PerPod)
		}
		share := "–"
		if !r.Long {
			share = fmt.Sprintf("%.1f %%", 100*r.Share)
		}
		cells = append(cells, fmt.Sprint(r.Count), perPod, fmt.Sprint(r.Errors), fmt.Sprint(r.Conflicts), fmt.Sprint(r.Throttled),
			fmt.Sprintf("%.2f", r.Seconds), share, millis(r.MeanMillis), millis(r.P50Millis), millis(r.P99Millis), millis(r.LongestMillis))
		for _, p := range parts {
			cell := "–"
			if p.known(r) && r.Seconds > 0 {
				cell = fmt.Sprintf("%.0f %%", 100*min(1, p.seconds(r)/r.Seconds))
			}
			cells = append(cells, cell)
		}
		if sized {
			cells = append(cells, bytesOf(out.BodyBytes), bytesOf(out.Bytes))
		}
		t.add(out, cells...)
	}
	return t, append([]string{f.summary(src, a, pods)}, append(notes, losses(src)...)...), nil
}

// A part is what of requests' time was spent in one place.
type part struct {
	title   string
	seconds func(requests.Row) float64
	of      func(requests.Row) int64 // how many requests it is known of
}

var requestParts = []part{
	{"IN ETCD", func(r requests.Row) float64 { return r.EtcdSeconds }, func(r requests.Row) int64 { return r.Timed }},
	{"AUTH", func(r requests.Row) float64 { return r.AuthenticationSeconds + r.AuthorizationSeconds }, func(r requests.Row) int64 { return r.Layered }},
	{"QUEUED", func(r requests.Row) float64 { return r.QueueSeconds }, func(r requests.Row) int64 { return r.Layered }},
	{"WEBHOOKS", func(r requests.Row) float64 { return r.WebhookSeconds }, func(r requests.Row) int64 { return r.Layered }},
}

// known says whether the server told this part of a row's requests.
func (p part) known(r requests.Row) bool {
	return !r.Long && r.Count > 0 && float64(p.of(r)) >= 0.99*float64(r.Count)
}

func (f *requestFlags) summary(src *requestSource, a *requests.Aggregator, pods int64) string {
	over := float64(a.Last-a.First) / 1e6
	if src.rec != nil {
		over = src.in.Seconds()
	}
	var sources []string
	for name := range a.Sources {
		sources = append(sources, name)
	}
	slices.Sort(sources)
	s := fmt.Sprintf("%d requests in %.1f s", a.Requests, over)
	if over > 0 {
		s += fmt.Sprintf(" (%.1f/s)", float64(a.Requests)/over)
	}
	if pods > 0 {
		s += fmt.Sprintf(", %d pods created", pods)
	}
	return s + "; source: " + strings.Join(sources, ", ") + ". Share is of the time of all but long-running ones."
}

// losses says what a recording knows of requests that its rows lack.
func losses(src *requestSource) []string {
	if src.rec == nil {
		return nil
	}
	var notes []string
	for _, g := range src.rec.Meta().Gaps {
		if g.Collector == "requests" {
			notes = append(notes, "gap: "+printable(g.Reason, 300))
		}
	}
	d, err := requests.AuditLosses(src.rec, src.in)
	if err == nil && d.Events > 0 {
		notes = append(notes, fmt.Sprintf("audit events: %.0f, of which %.0f were not written (apiserver_audit_error_total)", d.Events, d.Lost))
	}
	return notes
}

// podsIn counts the pods that were created in the window.
func podsIn(rec *record.Recording, in record.Window) (n int64) {
	pods, err := rec.Pods()
	if err != nil {
		return 0
	}
	for _, p := range pods {
		if p.CreatedMicros != 0 && in.Contains(time.UnixMicro(p.CreatedMicros)) {
			n++
		}
	}
	return n
}

func millis(ms float64) string {
	if ms < 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", ms)
}

func bytesOf(n int64) string {
	if n < 0 {
		return "–"
	}
	return fmt.Sprint(n)
}

// metrics sums what the API servers' metrics tell.
func (f *requestFlags) metrics(src *requestSource) (*textTable, []string, error) {
	rows, err := requests.Metrics(src.rec, src.in)
	if err != nil {
		return nil, nil, err
	}
	type row struct {
		Verb        string  `json:"verb"`
		Group       string  `json:"group,omitempty"`
		Resource    string  `json:"resource,omitempty"`
		Subresource string  `json:"subresource,omitempty"`
		Count       float64 `json:"count"`
		Errors      float64 `json:"errors"`
		Conflicts   float64 `json:"conflicts"`
		Throttled   float64 `json:"tooManyRequests"`
		Seconds     float64 `json:"seconds"` // -1 unknown
	}
	t := &textTable{header: []string{"VERB", "RESOURCE", "COUNT", "ERRORS", "409", "429", "SECONDS", "MEAN ms"}}
	for _, r := range rows {
		if len(f.verbs) > 0 && !slices.Contains(f.verbs, r.Verb) {
			continue
		}
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		seconds, mean := "–", "–"
		if r.Seconds >= 0 {
			seconds, mean = fmt.Sprintf("%.2f", r.Seconds), millis(r.Seconds*1e3/r.Count)
		}
		t.add(row(r), r.Verb, dash(printable(resource, 80)), fmt.Sprintf("%.0f", r.Count), fmt.Sprintf("%.0f", r.Errors), fmt.Sprintf("%.0f", r.Conflicts), fmt.Sprintf("%.0f", r.Throttled), seconds, mean)
	}
	return t, []string{"source: apiserver_request_total, which does not tell who asked."}, nil
}

func (f *requestFlags) lists(src *requestSource) (*textTable, []string, error) {
	l := requests.NewLists()
	if src.rec != nil {
		l.From = src.in.Start.UnixMicro()
	}
	notes, err := src.each(f, true, l.Add)
	if err != nil {
		return nil, nil, err
	}
	type row struct {
		UserAgent       string  `json:"userAgent"`
		Group           string  `json:"group,omitempty"`
		Resource        string  `json:"resource"`
		Verdict         string  `json:"verdict"`
		Informers       int64   `json:"informers"`
		Relists         int64   `json:"relists"`
		Quorum          int64   `json:"directQuorum"`
		Cached          int64   `json:"directCached"`
		Exact           int64   `json:"directExact"`
		Pages           int64   `json:"pages"`
		Limited         int64   `json:"limited"`
		Resumed         int64   `json:"resumedWatches"`
		Failed          int64   `json:"failed"`
		DirectSeconds   float64 `json:"directSeconds"`
		InformerSeconds float64 `json:"informerSeconds"`
	}
	t := &textTable{header: []string{"USER AGENT", "RESOURCE", "WHAT", "INFORMERS", "RELISTS", "QUORUM", "CACHED", "EXACT", "PAGES", "RESUMED", "FAILED", "DIRECT s", "INFORMER s"}}
	for _, r := range l.Rows() {
		resource := r.Resource
		if r.Group != "" {
			resource += "." + r.Group
		}
		t.add(row{r.Agent, r.Group, r.Resource, r.Verdict, r.Informers, r.Relists, r.Quorum, r.Cached, r.Exact, r.Pages, r.Limited, r.Resumed, r.Failed, r.DirectSeconds, r.InformerSeconds},
			dash(printable(r.Agent, 100)), printable(resource, 80), r.Verdict, fmt.Sprint(r.Informers), fmt.Sprint(r.Relists), fmt.Sprint(r.Quorum), fmt.Sprint(r.Cached),
			fmt.Sprint(r.Exact), fmt.Sprint(r.Pages), fmt.Sprint(r.Resumed), fmt.Sprint(r.Failed), fmt.Sprintf("%.3f", r.DirectSeconds), fmt.Sprintf("%.3f", r.InformerSeconds))
	}
	if l.Blind() {
		notes = append(notes, "the source shows a watch only when it ends: an informer whose watch is still open counts as a direct list")
	}
	if l.Unsorted > 0 {
		notes = append(notes, fmt.Sprintf("%d requests are left out: too many agents, users and selectors", l.Unsorted))
	}
	return t, append(notes, "QUORUM, CACHED and EXACT lists are direct: no watch followed. QUORUM names no version and is answered as of now."), nil
}

func (f *requestFlags) etcd(src *requestSource) (*textTable, []string, error) {
	if src.rec == nil {
		return nil, nil, Misusef("--etcd needs a recording: %s has no metrics", src.path)
	}
	load := requests.NewEtcdLoad()
	notes, err := src.each(f, false, load.Add)
	switch {
	case errors.Is(err, record.ErrMissing):
		notes = append(notes, "not assessed who asked: "+err.Error())
	case err != nil:
		return nil, nil, err
	}
	rows, err := requests.Etcd(src.rec, src.in, load)
	if err != nil {
		return nil, nil, err
	}
	type row struct {
		Metric               string  `json:"metric"`
		Operation            string  `json:"operation"`
		Group                string  `json:"group,omitempty"`
		Resource             string  `json:"resource,omitempty"`
		KeyPrefix            string  `json:"keyPrefix,omitempty"`
		Operations           float64 `json:"operations"`
		Seconds              float64 `json:"seconds"` // -1 unknown
		UserAgent            string  `json:"userAgent,omitempty"`
		Requests             int64   `json:"requests"`
		Share                float64 `json:"share"`
		AttributedOperations float64 `json:"attributedOperations"`
		AttributedSeconds    float64 `json:"attributedSeconds"` // -1 unknown
	}
	t := &textTable{header: []string{"OPERATION", "KEYS", "OPS", "SECONDS", "MEAN ms", "USER AGENT", "REQUESTS", "SHARE", "~OPS", "~SECONDS"}}
	for _, r := range rows {
		seconds, mean, attributed := "–", "–", "–"
		if r.Seconds >= 0 {
			seconds, mean, attributed = fmt.Sprintf("%.3f", r.Seconds), millis(r.Seconds*1e3/r.Operations), fmt.Sprintf("%.3f", r.AttributedSeconds)
		}
		agent, asked, share, ops := printable(r.Agent, 100), fmt.Sprint(r.Requests), fmt.Sprintf("%.0f %%", 100*r.Share), fmt.Sprintf("%.0f", r.AttributedOperations)
		switch {
		case r.Resource == "" && r.KeyPrefix == "" && r.Metric != "etcd_request_duration_seconds":
			agent, asked, share, ops, attributed = "(all, as etcd counts)", "–", "–", "–", "–"
		case r.Agent == "":
			agent, asked, share, ops, attributed = "(the API server itself)", "–", "–", "–", "–"
		}
		t.add(row{r.Metric, r.Operation, r.Group, r.Resource, r.KeyPrefix, r.Operations, r.Seconds, r.Agent, r.Requests, r.Share, r.AttributedOperations, r.AttributedSeconds},
			printable(r.Operation, 60), dash(printable(r.KeyPrefix, 80)), fmt.Sprintf("%.0f", r.Operations), seconds, mean, agent, asked, share, ops, attributed)
	}
	return t, append(notes,
		"~ is attributed by the share of requests for these keys, not measured. OPS, SECONDS are of the whole operation, and repeat with each agent.",
		"OPS ÷ REQUESTS below 1: writes that changed nothing, or reads from the cache; above 1: writes repeated on conflicts."), nil
}

// requestTable is what `show RECORDING requests` prints.
func requestTable(rec *record.Recording, in record.Window) (*textTable, error) {
	f := &requestFlags{by: defaultColumns, order: "time"}
	t, _, err := f.table(&requestSource{rec: rec, in: in})
	return t, err
}

// printable makes text of foreign origin safe for a terminal: characters that
// a terminal would act on are escaped, and it is cut at n characters.
func printable(s string, n int) string {
	var b strings.Builder
	count := 0
	for i, r := range s {
		if count == n {
			b.WriteRune('…')
			break
		}
		count++
		switch {
		case r == '\uFFFD' && s[i] != 0xEF: // not UTF-8
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\t':
			b.WriteByte(' ')
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' || r == '\u200e' || r == '\u200f':
			fmt.Fprintf(&b, `\u%04x`, r) // turn the direction of what follows
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
