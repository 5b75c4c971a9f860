package run

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"

	"github.com/kubedyno/kubedyno/cluster"
	"github.com/kubedyno/kubedyno/collect"
	"github.com/kubedyno/kubedyno/collect/blockio"
	"github.com/kubedyno/kubedyno/collect/logs"
	"github.com/kubedyno/kubedyno/collect/machine"
	"github.com/kubedyno/kubedyno/collect/metrics"
	"github.com/kubedyno/kubedyno/collect/objects"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/collect/profile"
	"github.com/kubedyno/kubedyno/collect/requests"
	"github.com/kubedyno/kubedyno/collect/stacks"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/internal/beat"
	"github.com/kubedyno/kubedyno/internal/introspect"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/storage"
)

// Components of a control plane. What an existing cluster does not show of
// them becomes gaps, so that nobody reads silence as health.
var planeComponents = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// notReached is why a component of an existing cluster was not observed.
const notReached = "only the API server is reached by a kubeconfig; run kubedyno where the component runs, or start a lab"

// startCollectors makes the collectors and starts them in two groups: those
// that ask components end before the control plane does, those that read what
// components leave behind end after it.
func (s *session) startCollectors(ctx context.Context) (asking, reading *collect.Group, err error) {
	rc, err := s.plane.RESTConfig("collect")
	if err != nil {
		return nil, nil, err
	}
	client, err := s.componentClient(rc)
	if err != nil {
		return nil, nil, err
	}
	level := s.o.Experiment.Observe.Level
	// What a component said before a session that only watches is not of it.
	fromStart := !s.watching
	var (
		mo = metrics.Options{Interval: s.scrapeInterval(), Later: metrics.Interval, Aside: metrics.Interval, Full: level == experiment.LevelFull}
		po profile.Options
		lo logs.Options
		ro = requests.Options{Path: cmp.Or(s.o.AuditLog, s.plane.RequestLog), FromStart: fromStart && s.o.AuditLog == "", ServerLog: s.o.ServerLog}
		co process.Options
	)
	if s.watching {
		mo.Aside = 0 // any of it may be asked for
	}
	if s.o.Experiment.Observe.Interval != 0 {
		mo.Later, mo.Aside = 0, 0 // it was asked for
	}
	if s.plane.Kind == cluster.KindLab {
		// The log is read to its end after the API server has closed it, so
		// there is nothing to wait for.
		ro.Quiet, ro.Patience = 50*time.Millisecond, 500*time.Millisecond
	}
	if s.plane.Kind != cluster.KindLab {
		ro.DumpURL, ro.DumpClient = s.plane.Server, client
		ro.Reason = "an audit log cannot be read through the API: name it with --audit-log where it is a file here, or the API server's own log with --server-log"
	}
	for _, c := range s.plane.Components {
		if c.MetricsURL != "" {
			t := metrics.Target{Component: c.Name, Instance: c.Instance, URL: c.MetricsURL, Client: client, Compress: c.PID == 0}
			if c.MetricsSocket != "" {
				t.URL, t.Client, t.Changes = "http://"+c.Name+"/metrics", overSocket(c.MetricsSocket), true
			}
			mo.Targets = append(mo.Targets, t)
		}
		if c.PprofURL != "" {
			po.Targets = append(po.Targets, profile.Target{Component: c.Name, Instance: c.Instance, URL: c.PprofURL, Client: client})
		}
		if c.LogFile != "" {
			lo.Files = append(lo.Files, logs.File{Component: c.Name, Path: c.LogFile, FromStart: fromStart})
		}
		co.Components = append(co.Components, process.Component{Name: c.Name, PID: c.PID, Cgroup: c.Cgroup})
	}
	if s.csi != nil {
		lo.Files = append(lo.Files, logs.File{Component: storage.ProcessName, Path: s.csi.log, FromStart: true})
	}
	for _, name := range planeComponents {
		c := s.plane.Component(name)
		if s.o.Experiment.Cluster.Components[name].Off {
			continue // nothing is missing: it is not there
		}
		if c == nil || c.MetricsURL == "" {
			mo.Missing = append(mo.Missing, metrics.Missing{Component: name, Reason: notReached})
		}
		if c == nil || c.PprofURL == "" {
			po.Missing = append(po.Missing, profile.Missing{Component: name, Reason: notReached})
		}
		if c == nil || c.LogFile == "" {
			lo.Missing = append(lo.Missing, logs.Missing{Component: name, Reason: notReached})
		}
		if c == nil || c.PID == 0 {
			s.w.Gap(record.Gap{Collector: "process", Subject: name, Reason: notReached})
		}
	}
	if s.plane.KeeperPID != 0 {
		co.Components = append(co.Components, process.Component{Name: "kubedyno-keeper", PID: s.plane.KeeperPID})
	}
	for _, app := range s.o.Experiment.Observe.Apps {
		if app.URL != "" {
			at := strings.TrimRight(app.URL, "/")
			mo.Targets = append(mo.Targets, metrics.Target{Component: app.Name, Instance: appInstance(app), URL: at + "/metrics", Native: true})
			po.Targets = append(po.Targets, profile.Target{Component: app.Name, Instance: appInstance(app), URL: at + "/debug/pprof"})
		}
		if app.PID != 0 {
			co.Components = append(co.Components, process.Component{Name: app.Name, PID: app.PID})
		}
		if app.Log != "" {
			lo.Files = append(lo.Files, logs.File{Component: app.Name, Path: app.Log})
		}
	}
	self := metrics.Local("kubedyno", fmt.Sprintf("kubedyno@%d", os.Getpid()), promhttp.HandlerFor(introspect.NewRegistry(), promhttp.HandlerOpts{}))
	self.Seldom = true
	mo.Targets = append(mo.Targets, self)
	s.process = process.New(co)
	inLab := s.plane.Kind == cluster.KindLab
	s.objects = objects.New(objects.Options{Config: rc, Run: s.watchedRun(), Stamps: inLab, Claims: level != experiment.LevelMinimal || s.o.Experiment.MakesClaims()})
	watch := objects.LivesOptions{
		Config: rc, Run: s.id,
		// Where nothing is loaded there are few, and they tell a lot.
		WithoutEvents: level != experiment.LevelFull && !s.watching,
		Warnings:      s.o.Experiment.MakesClaims(),
		OnlyClaims:    level == experiment.LevelMinimal,
		Stamps:        inLab,
	}
	lives := objects.NewLives(watch)
	if s.o.Experiment.MakesClaims() {
		s.claims = lives.Claims()
	}
	reads := []collect.Collector{s.process}
	asks := []collect.Collector{s.objects}
	if level == experiment.LevelMinimal {
		for _, name := range []string{"metrics", "profile", "logs", "requests", "stacks", "blockio"} {
			s.w.Gap(record.Gap{Collector: name, Reason: "left out by --observe minimal"})
		}
		if s.claims == nil {
			s.w.Gap(record.Gap{Collector: "lives", Reason: "left out by --observe minimal"})
		} else {
			asks = append(asks, lives)
		}
	} else {
		if po.Contention = level == experiment.LevelFull; !po.Contention {
			po.Share = profiledShare
		}
		s.metrics, s.profile, s.logs = metrics.New(mo), profile.New(po), logs.New(lo)
		s.stacks = stacks.New(stacks.Options{Components: co.Components})
		reads = append(reads, s.logs, requests.New(ro), s.stacks, blockio.New(blockio.Options{Component: s.process.ComponentOf, WithoutSyncs: level != experiment.LevelFull}))
		asks = append(asks, s.metrics, s.profile, lives)
	}
	reading = collect.Start(ctx, s.w, reads...)
	asking = collect.Start(reading.Context(), s.w, asks...)
	// Pods that exist before the watch does would have no time of creation.
	if err := s.objects.Ready(asking.Context()); err != nil {
		return asking, reading, fmt.Errorf("watch pods: %w", err)
	}
	if s.claims != nil {
		if err := lives.Ready(asking.Context()); err != nil {
			return asking, reading, fmt.Errorf("watch claims: %w", err)
		}
	}
	return asking, reading, nil
}

// profiledShare is how much of a phase CPU profiles look at, where stacks are
// sampled all the time: to take and merge them costs more than all sampling.
const profiledShare = 0.25

// appInstance tells one start of a user's process from the next, where that can
// be known.
func appInstance(a experiment.App) string {
	if a.PID != 0 {
		return fmt.Sprintf("%s@%d", a.Name, a.PID)
	}
	return a.Name + "@" + a.URL
}

// watchedRun is the run whose pods are watched: this one's, or all where
// nothing is loaded.
func (s *session) watchedRun() string {
	if s.watching {
		return ""
	}
	return s.id
}

// scrapeInterval gives short loads a scrape each second, so that no judged
// window has fewer than ten.
func (s *session) scrapeInterval() time.Duration {
	e := s.o.Experiment
	switch {
	case e.Observe.Interval != 0:
		return e.Observe.Interval
	case s.watching && (s.length == 0 || s.length >= 10*metrics.Interval):
		return metrics.Interval
	case s.watching, e.Cluster.Nodes.All() <= 200 && e.ExpectedPods() <= 6000:
		return metrics.ShortInterval
	}
	return metrics.Interval
}

// componentClient reads the metrics and profiles of components: with the
// collect identity's certificate in a lab, with the kubeconfig elsewhere.
func (s *session) componentClient(rc *rest.Config) (*http.Client, error) {
	if s.plane.ClientCert == "" {
		rc := rest.CopyConfig(rc)
		rc.NextProtos = []string{"http/1.1"} // see below
		client, err := rest.HTTPClientFor(rc)
		if err != nil {
			return nil, fmt.Errorf("client for metrics: %w", err)
		}
		client.Transport = &introduced{to: client.Transport}
		return client, nil
	}
	cert, err := tls.LoadX509KeyPair(s.plane.ClientCert, s.plane.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("client for metrics: %w", err)
	}
	ca, err := os.ReadFile(s.plane.CA)
	if err != nil {
		return nil, fmt.Errorf("client for metrics: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("client for metrics: no certificate in %s", s.plane.CA)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // loopback only
	// An answer of megabytes costs both sides less over HTTP/1.1: HTTP/2 cuts it
	// into frames, each handed from one goroutine to another.
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig = &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: &introduced{to: transport}}, nil
}

// overSocket is a client of whoever listens at a Unix socket.
func overSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}
}

// introduced does not keep a connection on which it was refused. A component that has
// just begun to serve may not have read yet whose certificates it is to ask for; a
// connection of that time is anonymous for as long as it lives.
type introduced struct {
	to      http.RoundTripper
	refused sync.Map // hosts
}

func (t *introduced) RoundTrip(req *http.Request) (*http.Response, error) {
	_, last := t.refused.LoadAndDelete(req.URL.Host)
	if last {
		req = req.Clone(req.Context())
		req.Close = true
	}
	res, err := t.to.RoundTrip(req)
	if err == nil && !last && (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden) {
		t.refused.Store(req.URL.Host, true)
	}
	return res, err
}

// describeCluster puts the control plane as configured into the recording.
func (s *session) describeCluster() error {
	return s.w.Update(func(m *record.Meta) {
		m.Cluster = record.Cluster{
			Kind: s.plane.Kind, Name: s.plane.Name, Server: s.plane.Server, Version: s.plane.Version,
			Profile: s.plane.Profile, CPU: s.plane.CPU, APIReadySeconds: s.target.APIReady().Seconds(),
		}
		for _, c := range s.plane.Components {
			m.Cluster.Components = append(m.Cluster.Components, s.describe(c))
		}
		m.Cluster.Components = append(m.Cluster.Components, record.Component{Name: "kubedyno", Instance: "kubedyno", PID: os.Getpid(), Harness: true})
		if s.plane.KeeperPID != 0 {
			m.Cluster.Components = append(m.Cluster.Components, record.Component{Name: "kubedyno-keeper", Instance: "kubedyno-keeper", PID: s.plane.KeeperPID, Harness: true})
		}
	})
}

func (s *session) describe(c cluster.Component) record.Component {
	r := record.Component{
		Name: c.Name, Instance: c.Instance, PID: c.PID, Version: c.Version,
		Env: c.Env, CPU: c.CPU, Flags: map[string]string{},
	}
	if c.Binary != "" {
		r.Binary = filepath.Base(c.Binary)
	}
	for _, a := range record.RedactArgs(c.Args) {
		a = s.withoutPaths(a)
		r.Args = append(r.Args, a)
		if name, value, ok := strings.Cut(strings.TrimLeft(a, "-"), "="); ok {
			r.Flags[name] = value
		}
	}
	return r
}

// withoutPaths takes the lab's state folder out of an argument: it is private,
// and gone when the recording is read.
func (s *session) withoutPaths(arg string) string {
	if s.plane.StateDir == "" {
		return arg
	}
	return strings.ReplaceAll(arg, s.plane.StateDir, "$STATE")
}

// attach tells the collectors of a process that has been started.
func (s *session) attach(c process.Component) {
	s.process.Attach(c)
	if s.stacks != nil {
		s.stacks.Attach(c)
	}
}

// addHarness notes one of our own processes.
func (s *session) addHarness(c record.Component) error {
	c.Harness = true
	s.mu.Lock()
	s.own = append(s.own, c.PID)
	s.mu.Unlock()
	if c.Instance == "" {
		c.Instance = fmt.Sprintf("%s@%d", c.Name, c.PID)
	}
	return s.w.Update(func(m *record.Meta) { m.Cluster.Components = append(m.Cluster.Components, c) })
}

// fingerprint describes the machine; what cannot be read stays empty.
func fingerprint(dir string) record.Machine { return machine.Fingerprint(filepath.Dir(dir)) }

// tell keeps the watcher informed once a second.
func (s *session) tell(ctx context.Context) {
	tick := beat.NewTicker(time.Second)
	defer tick.Stop()
	before, then := s.process.Used()
	own, plane := -1.0, -1.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, at := s.process.Used()
		if dt := at.Sub(then).Seconds(); dt > 0 && !then.IsZero() { // else the last ones still hold
			own, plane = s.cores(before, now, dt)
		}
		before, then = now, at
		st := State{OwnCores: own, ControlPlaneCores: plane, EndsBound: s.o.Experiment.Cluster.Nodes.Seeded > 0}
		s.mu.Lock()
		of, claims, since := s.of, s.ofClaims, s.phase.Start
		st.Phase, st.Total, st.Claims = s.phase.Name, s.asked[of], claims
		if claims {
			st.Total = s.askedClaims[of]
		}
		s.mu.Unlock()
		c := s.counts(claims, of)
		st.Created, st.Bound, st.Running, st.Gone = c.Created, c.Bound, c.Running, c.Deleted
		if of == everyPhase { // pods go; what there was of them is the whole
			st.Total = c.Created
		}
		if whole := st.lasts(s.o.Now().Sub(since)); whole > 0 && s.metrics != nil {
			s.metrics.Lasts(whole)
		}
		s.o.Watch.Update(st)
	}
}

// lasts is how long the phase will last in all, if the rest of its pods or claims comes
// as what has come within that time; 0 where that cannot be told.
func (st *State) lasts(sofar time.Duration) time.Duration {
	done := st.Running
	if st.Claims || st.EndsBound {
		done = st.Bound
	}
	if done <= 0 || st.Total < done {
		return 0
	}
	return time.Duration(float64(sofar) * float64(st.Total) / float64(done))
}

// cores is what our processes and the control plane's used between two scans;
// -1 where there are none.
func (s *session) cores(before, now map[int32]float64, seconds float64) (own, plane float64) {
	used := func(pids []int) float64 {
		sum, known := 0.0, false
		for _, pid := range pids {
			if v, ok := now[int32(pid)]; ok {
				sum, known = sum+max(0, v-before[int32(pid)]), true
			}
		}
		if !known {
			return -1
		}
		return sum / seconds
	}
	var components []int
	for _, c := range s.plane.Components {
		if c.PID != 0 {
			components = append(components, c.PID)
		}
	}
	s.mu.Lock()
	ours := append([]int{os.Getpid()}, s.own...)
	s.mu.Unlock()
	return used(ours), used(components)
}
