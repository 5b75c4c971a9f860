package export

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// A Panel is one plot of the dashboard.
type Panel struct {
	Title string
	// About says what it shows, and what to think of it.
	About string
	Unit  string // in Grafana's names
	// Queries have the window of rates as [W].
	Queries []Query
	Stacked bool
	Wide    bool // takes the whole width
}

// A Query is a line of a panel, or several.
type Query struct {
	Expr   string
	Legend string // with {{label}}
}

// A Row is a heading with the panels below it.
type Row struct {
	Title  string
	Panels []Panel
}

func one(title, about, unit, expr, legend string) Panel {
	return Panel{Title: title, About: about, Unit: unit, Queries: []Query{{expr, legend}}}
}

func stacked(p Panel) Panel { p.Stacked = true; return p }

func wide(p Panel) Panel { p.Wide = true; return p }

// mean is what a histogram counted, a value.
func mean(histogram, match, by string) string {
	if match != "" {
		match = "{" + match + "}"
	}
	if by != "" {
		by = " by (" + by + ") "
	}
	return "sum" + by + "(rate(" + histogram + "_sum" + match + "[W])) / sum" + by + "(rate(" + histogram + "_count" + match + "[W]))"
}

// Dashboard has the rows in the order of a pod's way.
var Dashboard = []Row{
	{"Pods", []Panel{
		stacked(one("Attempts to schedule", "Bindings are those with result scheduled.", "ops", `sum by (result) (rate(scheduler_schedule_attempts_total[W]))`, "{{result}}")),
		stacked(one("Pods pending at the scheduler", "active: waiting for the loop; backoff, unschedulable and gated: set aside.", "short", `sum by (queue) (scheduler_pending_pods)`, "{{queue}}")),
		one("Writes of pods in etcd", "A pod that comes up is created once and updated three times or so.", "ops", `sum by (operation) (rate(etcd_requests_total{resource="pods",operation=~"create|update|delete"}[W]))`, "{{operation}}"),
		one("Start of a pod, 99 % quantile", "By the kubelets' own clocks, image pulls excluded; on real nodes only.", "s", `histogram_quantile(0.99, sum by (le) (rate(kubelet_pod_start_sli_duration_seconds_bucket[W])))`, "p99"),
	}},
	{"Where pods wait", []Panel{
		one("Controller: keys wait for a worker", "Mean time in the queues of the controllers that create pods.", "s", mean("workqueue_queue_duration_seconds", `name=~"deployment|replicaset|statefulset|daemonset|job|replicationmanager"`, "name"), "{{name}}"),
		one("Controller and scheduler: clients wait for their limit", "Seconds of waiting a second, over all requests of the component: from 0.5 on the limit holds it.", "short", `sum by (job) (rate(rest_client_rate_limiter_duration_seconds_sum[W]))`, "{{job}}"),
		stacked(one("Scheduler: time at its extension points", "Pod-seconds a second. Bind holds the wait for the client's limit and the request; PreBind volumes.", "short", `sum by (extension_point) (rate(scheduler_framework_extension_point_duration_seconds_sum[W]))`, "{{extension_point}}")),
		one("Scheduler: a pod's attempt, mean", "From taking a pod to its binding.", "s", mean("scheduler_scheduling_attempt_duration_seconds", "", "result"), "{{result}}"),
	}},
	{"CPU and memory", []Panel{
		stacked(one("CPU by component", "Of every process that Prometheus scrapes, the 12 that use most.", "none", `topk(12, sum by (job) (rate(process_cpu_seconds_total[W])))`, "{{job}}")),
		one("Memory by component", "Resident.", "bytes", `topk(12, sum by (job) (process_resident_memory_bytes))`, "{{job}}"),
		one("Share of CPU for garbage", "By the runtime's own estimate, idle workers left out; 5 to 18 % is usual.", "percentunit",
			`(sum by (job) (rate(go_cpu_classes_gc_total_cpu_seconds_total[W])) - sum by (job) (rate(go_cpu_classes_gc_mark_idle_cpu_seconds_total[W]))) / sum by (job) (rate(process_cpu_seconds_total[W]))`, "{{job}}"),
		one("Periods stopped by a CPU quota", "Of the control plane's containers, where they have a limit.", "percentunit",
			`sum by (pod) (rate(container_cpu_cfs_throttled_periods_total{container=~"etcd|kube-apiserver|kube-controller-manager|kube-scheduler"}[W])) / sum by (pod) (rate(container_cpu_cfs_periods_total{container=~"etcd|kube-apiserver|kube-controller-manager|kube-scheduler"}[W]))`, "{{pod}}"),
	}},
	{"Requests", []Panel{
		stacked(one("Requests by verb", "Without what only begins and lasts.", "reqps", `sum by (verb) (rate(apiserver_request_total{verb!~"WATCH|CONNECT"}[W]))`, "{{verb}}")),
		stacked(one("Requests by resource", "The 12 that are asked for most.", "reqps", `topk(12, sum by (resource) (rate(apiserver_request_total{verb!~"WATCH|CONNECT"}[W])))`, "{{resource}}")),
		one("Answers that are not good", "409 is a conflict, 429 priority and fairness, 403 a right or a quota, 5xx a webhook or trouble.", "reqps", `sum by (code) (rate(apiserver_request_total{code=~"[45].."}[W]))`, "{{code}}"),
		one("Time of a request, mean", "As clients see it, but for the network.", "s", mean("apiserver_request_duration_seconds", `verb!~"WATCH|CONNECT"`, "verb"), "{{verb}}"),
		one("Time of a request, 99 % quantile", "Without webhooks and waiting for seats: the objective is 1 s, 30 s for lists of a cluster.", "s", `histogram_quantile(0.99, sum by (le, verb) (rate(apiserver_request_sli_duration_seconds_bucket{verb!~"WATCH|CONNECT"}[W])))`, "{{verb}}"),
		one("Writes that conflict", "Share of updates and patches that are refused with 409 and begin again.", "percentunit", `sum by (resource) (rate(apiserver_request_total{verb=~"PUT|PATCH",code="409"}[W])) / sum by (resource) (rate(apiserver_request_total{verb=~"PUT|PATCH"}[W]))`, "{{resource}}"),
		one("Watch events sent", "By resource, the 12 with most; each change goes to all who watch it.", "ops", `topk(12, sum by (resource) (rate(apiserver_watch_events_total[W])))`, "{{resource}}"),
		one("Objects that lists read from the cache", "A list costs by what it reads.", "ops", `topk(12, sum by (resource) (rate(apiserver_cache_list_fetched_objects_total[W])))`, "{{resource}}"),
		one("Admission webhooks, mean", "What each write waits for.", "s", mean("apiserver_admission_webhook_admission_duration_seconds", "", "name, operation"), "{{name}} {{operation}}"),
		one("Filters, mean", "What each request passes before the work: audit, authentication, authorization, priority and fairness.", "s", mean("apiserver_request_filter_duration_seconds", "", "filter"), "{{filter}}"),
	}},
	{"Priority and fairness", []Panel{
		one("Waiting for a seat, mean", "From 5 ms on requests queue rather than pass.", "s", mean("apiserver_flowcontrol_request_wait_duration_seconds", `priority_level!="exempt"`, "priority_level"), "{{priority_level}}"),
		one("Requests refused with 429", "", "reqps", `sum by (priority_level, reason) (rate(apiserver_flowcontrol_rejected_requests_total[W]))`, "{{priority_level}} {{reason}}"),
		one("Seats taken, mean share", "Of each level's own.", "percentunit", mean("apiserver_flowcontrol_priority_level_seat_utilization", `phase="executing"`, "priority_level"), "{{priority_level}}"),
		one("Seats of each level", "What the limits give it.", "short", `max by (priority_level) (apiserver_flowcontrol_nominal_limit_seats)`, "{{priority_level}}"),
	}},
	{"etcd", []Panel{
		one("Time syncing the log", "Share of the time; with 5 ms and more a sync, from 0.7 on the disk holds all writes.", "percentunit", `sum by (job) (rate(etcd_disk_wal_fsync_duration_seconds_sum[W]))`, "{{job}}"),
		{Title: "A sync, and a commit, mean", About: "A good disk syncs in less than 1 ms.", Unit: "s", Queries: []Query{
			{mean("etcd_disk_wal_fsync_duration_seconds", "", ""), "sync of the log"}, {mean("etcd_disk_backend_commit_duration_seconds", "", ""), "commit of the database"}}},
		stacked(one("Requests to etcd", "By the API server; reads are those that its cache does not answer.", "reqps", `sum by (operation) (rate(etcd_requests_total[W]))`, "{{operation}}")),
		{Title: "A request to etcd, mean", About: "As the API server sees it, and what etcd needs to apply one: the rest is the way between them, the queue and the disk.", Unit: "s", Queries: []Query{
			{mean("etcd_request_duration_seconds", "", "operation"), "{{operation}}"}, {mean("etcd_server_apply_duration_seconds", "", ""), "applied by etcd"}}},
		one("Size of the database", "", "bytes", `max by (job) (etcd_mvcc_db_total_size_in_bytes)`, "{{job}}"),
		one("Lists that reach etcd", "The cache does not answer them.", "ops", `topk(12, sum by (resource) (rate(etcd_requests_total{operation="list"}[W])))`, "{{resource}}"),
	}},
	{"Work queues", []Panel{
		one("Depth", "The 12 longest.", "short", `topk(12, sum by (job, name) (workqueue_depth))`, "{{job}} {{name}}"),
		one("Wait for a worker, mean", "The 12 longest.", "s", "topk(12, "+mean("workqueue_queue_duration_seconds", "", "job, name")+")", "{{job}} {{name}}"),
		one("Workers at work", "As many as are busy at a time.", "short", `topk(12, sum by (job, name) (rate(workqueue_work_duration_seconds_sum[W])))`, "{{job}} {{name}}"),
		one("Keys that come back", "After a failure, or because a controller asks for it.", "ops", `topk(12, sum by (job, name) (rate(workqueue_retries_total[W])))`, "{{job}} {{name}}"),
	}},
	{"Scheduler", []Panel{
		one("The loop is busy", "Share of the time; from 0.85 on it places no more pods.", "percentunit", `sum by (job) (rate(scheduler_scheduling_algorithm_duration_seconds_sum[W]))`, "{{job}}"),
		one("A decision, mean", "", "s", mean("scheduler_scheduling_algorithm_duration_seconds", "", ""), "a pod"),
		wide(stacked(one("Time in plugins", "Seconds a second, the 12 that take most; sampled, one pod in ten.", "short", `topk(12, sum by (extension_point, plugin) (rate(scheduler_plugin_execution_duration_seconds_sum[W])))`, "{{plugin}} ({{extension_point}})"))),
	}},
	{"Clients and simulated nodes", []Panel{
		stacked(one("Requests by client", "Of every client that Prometheus scrapes.", "reqps", `topk(12, sum by (job) (rate(rest_client_requests_total[W])))`, "{{job}}")),
		{Title: "Simulated nodes are late, mean", About: "Of kubedyno's own nodes: timers that ended late are their fault, reports may wait for the API server.", Unit: "s", Queries: []Query{
			{mean("kubedyno_hollow_timer_lateness_seconds", "", ""), "timers"}, {mean("kubedyno_hollow_start_lateness_seconds", "", ""), "reports"}}},
	}},
}

// WriteDashboard writes Dashboard in Grafana's JSON. A window of 0 leaves it to
// Grafana, which goes by the interval of scrapes that its datasource is told.
func WriteDashboard(w io.Writer, window time.Duration) error {
	in := "[$__rate_interval]"
	if window != 0 {
		if window < time.Second || window%time.Second != 0 {
			return fmt.Errorf("a dashboard with a window of %v %w: want whole seconds, one at least", window, ErrOptions)
		}
		in = "[" + model.Duration(window).String() + "]"
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(dashboard(in))
}

// The parts of Grafana's dashboards that this one uses.
type (
	grafanaDashboard struct {
		UID           string          `json:"uid"`
		Title         string          `json:"title"`
		Description   string          `json:"description"`
		Tags          []string        `json:"tags"`
		SchemaVersion int             `json:"schemaVersion"`
		Version       int             `json:"version"`
		Editable      bool            `json:"editable"`
		GraphTooltip  int             `json:"graphTooltip"` // 1: one cursor for all panels
		Time          grafanaTime     `json:"time"`
		Templating    grafanaList     `json:"templating"`
		Annotations   grafanaNothing  `json:"annotations"`
		Panels        []*grafanaPanel `json:"panels"`
	}
	grafanaTime struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	grafanaNothing struct {
		List []struct{} `json:"list"`
	}
	grafanaList struct {
		List []grafanaVariable `json:"list"`
	}
	grafanaVariable struct {
		Name       string   `json:"name"`
		Label      string   `json:"label"`
		Type       string   `json:"type"`
		Query      string   `json:"query"`
		Refresh    int      `json:"refresh"`
		Current    struct{} `json:"current"`
		IncludeAll bool     `json:"includeAll"`
		Multi      bool     `json:"multi"`
	}
	grafanaSource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	grafanaGrid struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	grafanaTarget struct {
		RefID      string        `json:"refId"`
		Datasource grafanaSource `json:"datasource"`
		EditorMode string        `json:"editorMode"`
		Expr       string        `json:"expr"`
		Legend     string        `json:"legendFormat"`
		Range      bool          `json:"range"`
	}
	grafanaPanel struct {
		ID          int             `json:"id"`
		Type        string          `json:"type"`
		Title       string          `json:"title"`
		Description string          `json:"description,omitempty"`
		Datasource  *grafanaSource  `json:"datasource,omitempty"`
		Grid        grafanaGrid     `json:"gridPos"`
		Collapsed   bool            `json:"collapsed,omitempty"`
		Panels      []struct{}      `json:"panels,omitempty"`
		Targets     []grafanaTarget `json:"targets,omitempty"`
		Field       *grafanaField   `json:"fieldConfig,omitempty"`
		Options     *grafanaOptions `json:"options,omitempty"`
	}
	grafanaField struct {
		Defaults  grafanaDefaults `json:"defaults"`
		Overrides []struct{}      `json:"overrides"`
	}
	grafanaDefaults struct {
		Unit   string        `json:"unit"`
		Min    float64       `json:"min"`
		Custom grafanaCustom `json:"custom"`
	}
	grafanaCustom struct {
		DrawStyle   string          `json:"drawStyle"`
		LineWidth   int             `json:"lineWidth"`
		FillOpacity int             `json:"fillOpacity"`
		ShowPoints  string          `json:"showPoints"`
		SpanNulls   bool            `json:"spanNulls"`
		Stacking    grafanaStacking `json:"stacking"`
	}
	grafanaStacking struct {
		Mode  string `json:"mode"`
		Group string `json:"group"`
	}
	grafanaOptions struct {
		Legend  grafanaLegend  `json:"legend"`
		Tooltip grafanaTooltip `json:"tooltip"`
	}
	grafanaLegend struct {
		ShowLegend  bool     `json:"showLegend"`
		DisplayMode string   `json:"displayMode"`
		Placement   string   `json:"placement"`
		Calcs       []string `json:"calcs"`
	}
	grafanaTooltip struct {
		Mode string `json:"mode"`
		Sort string `json:"sort"`
	}
)

const (
	gridWidth   = 24
	panelHeight = 8
)

func dashboard(window string) grafanaDashboard {
	source := grafanaSource{"prometheus", "${datasource}"}
	d := grafanaDashboard{
		UID: "kubedyno-control-plane", Title: "Kubernetes control plane (kubedyno)", Tags: []string{"kubernetes", "kubedyno"},
		Description:   "What kubedyno's detectors look at, along a pod's way. Made by 'kubedyno export grafana'.",
		SchemaVersion: 39, Version: 1, Editable: true, GraphTooltip: 1,
		Time:        grafanaTime{"now-1h", "now"},
		Templating:  grafanaList{[]grafanaVariable{{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1}}},
		Annotations: grafanaNothing{[]struct{}{}},
	}
	id, y := 0, 0
	add := func(p *grafanaPanel) {
		id++
		p.ID = id
		d.Panels = append(d.Panels, p)
	}
	for _, row := range Dashboard {
		add(&grafanaPanel{Type: "row", Title: row.Title, Grid: grafanaGrid{1, gridWidth, 0, y}})
		y++
		x := 0
		for _, p := range row.Panels {
			width := gridWidth / 2
			if p.Wide {
				width = gridWidth
			}
			if x+width > gridWidth {
				x, y = 0, y+panelHeight
			}
			g := &grafanaPanel{
				Type: "timeseries", Title: p.Title, Description: p.About, Datasource: &source, Grid: grafanaGrid{panelHeight, width, x, y},
				Field: &grafanaField{
					Defaults:  grafanaDefaults{Unit: p.Unit, Custom: grafanaCustom{DrawStyle: "line", LineWidth: 1, FillOpacity: 10, ShowPoints: "never", Stacking: grafanaStacking{"none", "A"}}},
					Overrides: []struct{}{},
				},
				Options: &grafanaOptions{grafanaLegend{true, "table", "right", []string{"mean", "max"}}, grafanaTooltip{"multi", "desc"}},
			}
			if p.Stacked {
				g.Field.Defaults.Custom.FillOpacity = 60
				g.Field.Defaults.Custom.Stacking.Mode = "normal"
			}
			for i, q := range p.Queries {
				g.Targets = append(g.Targets, grafanaTarget{
					RefID: string(rune('A' + i)), Datasource: source, EditorMode: "code", Range: true,
					Expr: strings.ReplaceAll(q.Expr, "[W]", window), Legend: q.Legend,
				})
			}
			add(g)
			x += width
		}
		y += panelHeight
	}
	return d
}
