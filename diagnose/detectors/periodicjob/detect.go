package periodicjob

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kubedyno/kubedyno/analysis/spikes"
	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/stat"
)

const (
	// cycles and covered say when a rhythm is one; burst is how many requests each
	// time make it a job and no lease.
	cycles, covered, burst = 4, 0.8, 3
	// worth is the share of a CPU, or of the API server's requests, from which it
	// is worth a word.
	worth = 0.01
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "periodic-job",
	Title: "A job runs again and again by the clock",
	Doc: `A script that applies a folder of manifests every few seconds, a poller, a cron job that came to stay: each time it starts a process, reads the API's discovery, lists and patches, and changes nothing. On an
idle cluster such jobs are most of the CPU.

**Waste.** A command line whose processes start with a period (found in their exact start times and CPU), at least 1 % of a CPU; or a client whose requests come in bursts of three or more with a
period, at least 1 % of all. The period is claimed only where noise would hardly show one; its error is given. The writes' share that changed nothing is told where the API server's
metrics say it.

**Look-alikes.** The components' own clocks: leases, resyncs, compaction, the collectors of this recording.`,
	Detect: detect,
}

// A job is something that comes by the clock.
type job struct {
	diagnose.Finding
	period, weight float64
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	var jobs []job
	rows, watched := v.Rhythms()
	named := map[string]bool{}
	for _, row := range rows {
		if row.What != spikes.Command || v.IsHarness(row.Component) || row.Share < worth || row.Count < cycles || named[row.Name] {
			continue
		}
		named[row.Name] = true
		jobs = append(jobs, ofCommand(v, row, rows))
	}
	for _, c := range clients(v) {
		// One job, seen from both sides: its requests are evidence of the command.
		i := slices.IndexFunc(jobs, func(j job) bool {
			return j.Component == c.Component && math.Abs(j.period-c.period) <= 0.05*j.period
		})
		if i < 0 {
			jobs = append(jobs, c)
			continue
		}
		jobs[i].Evidence = append(jobs[i].Evidence, c.Evidence...)
		jobs[i].Sources = 2
	}
	switch {
	case len(jobs) > 0:
		slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.weight, a.weight) })
		var found []diagnose.Finding
		for _, j := range jobs {
			found = append(found, j.Finding)
		}
		return diagnose.Found(found...)
	case !watched && !v.HasRequests:
		return diagnose.NotAssessed("processes, or an audit log")
	case !watched:
		return diagnose.NotThere("no client's requests come by the clock; processes were not recorded")
	}
	return diagnose.NotThere("no command of at least %.0f %% of a CPU, and no client, came by the clock", 100*worth)
}

// ofCommand is a command line with a rhythm; all are the rhythms of the run, of
// which those of components in the same time tell what it makes others do.
func ofCommand(v *diagnose.View, row spikes.Row, all []spikes.Row) job {
	f := diagnose.Finding{
		Class: diagnose.Waste, Component: "client:" + program(row.Name), Resource: "cpu", Sources: 1,
		Cause:   fmt.Sprintf("%s every %.1f s", row.Name, row.Period),
		Summary: fmt.Sprintf("%q runs every %.1f s and takes %.2f CPU-seconds each time, %.1f %% of a CPU all the time.", short(row.Name), row.Period, row.Each, 100*row.Share),
		Evidence: []diagnose.Evidence{
			{Kind: "pattern", Ref: "exits, processes: " + row.Name, Value: row.Share, Unit: "CPUs", Text: fmt.Sprintf("every %.2f s ± %.2f, %d times, %.2f CPU-seconds each", row.Period, row.PeriodError, row.Count, row.Each)},
		},
		Advice:    diagnose.Advice{Text: "Let it act when something changes instead of by the clock, or much less often; a server-side watch, or a hook where the manifests are written, costs nothing at rest."},
		RefutedBy: "the same CPU while the command does not run",
	}
	for _, u := range all {
		// Its own component's share is the command's, and what started it.
		if u.What == spikes.Component && u.Name != row.Component && math.Abs(u.Period-row.Period) <= max(0.05*row.Period, 3*u.PeriodError) {
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "processes: " + u.Name, Value: u.Share, Unit: "CPUs", Text: fmt.Sprintf("%s uses another %.1f %% of a CPU in the same rhythm", u.Name, 100*u.Share)})
		}
	}
	name := program(row.Name)
	f.Cost = v.CostOf(v.TalksOf(func(t *diagnose.Talk) bool { return !t.Harness && program(t.Agent) == name }), "")
	f.Cost.ClientCPUSeconds = &row.Total
	return job{f, row.Period, row.Share}
}

// short is a command line as a sentence can hold it; all of it is in the cause.
func short(command string) string {
	const most = 60
	if r := []rune(command); len(r) > most+10 {
		return strings.TrimSpace(string(r[:most])) + " …"
	}
	return command
}

// clients are the user agents whose requests come in bursts by the clock.
func clients(v *diagnose.View) (found []job) {
	by := map[string][]diagnose.Talk{}
	for _, t := range v.TalksOf(func(t *diagnose.Talk) bool { return !t.Harness && !t.Long && !component(t.Agent) }) {
		by[t.Agent] = append(by[t.Agent], t)
	}
	for _, agent := range slices.Sorted(maps.Keys(by)) {
		var times []float64
		var writes []diagnose.Talk
		for _, t := range by[agent] {
			times = append(times, t.Times...)
			if t.Writes() {
				writes = append(writes, t)
			}
		}
		p, ok := stat.PeriodOfEvents(times, stat.PeriodOptions{})
		cost := v.CostOf(by[agent], "")
		if !ok || p.Cycles < cycles || p.Coverage < covered || float64(len(times)) < burst*float64(p.Cycles) || cost.RequestShare < worth {
			continue
		}
		f := diagnose.Finding{
			Class: diagnose.Waste, Component: "client:" + program(agent), Resource: "cpu", Sources: 1, Cost: cost,
			Cause:   fmt.Sprintf("%s comes every %.1f s", agent, p.Seconds),
			Summary: fmt.Sprintf("%s comes every %.1f s with %.0f requests: %s.", agent, p.Seconds, float64(len(times))/float64(p.Cycles), cost),
			Evidence: []diagnose.Evidence{
				{Kind: "pattern", Ref: "requests by " + agent, Value: cost.RequestShare, Unit: "1", Text: fmt.Sprintf("%d requests in bursts every %.2f s ± %.2f, %d times", len(times), p.Seconds, p.Error, p.Cycles)},
			},
			Advice:    diagnose.Advice{Text: "Let it watch, or act when something changes, instead of by the clock."},
			RefutedBy: "requests of that client between the bursts",
		}
		for _, t := range writes {
			resource, _, _ := strings.Cut(t.Resource, "/")
			if ratio, n, ok := v.UpdatesPerWrite(resource); ok && ratio < 0.5 && float64(t.Count) >= n/2 {
				f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: fmt.Sprintf("etcd_requests_total{operation=\"update\",resource=%q}", resource), Value: ratio, Unit: "1",
					Text: fmt.Sprintf("of %.0f writes of %s, %.0f %% changed something", n, resource, 100*ratio)})
			}
		}
		found = append(found, job{f, p.Seconds, cost.RequestShare})
	}
	return found
}

// component says whether a user agent is of the control plane or of a node:
// their clocks are their own.
func component(agent string) bool {
	p := program(agent)
	switch p {
	case diagnose.APIServer, diagnose.ControllerManager, diagnose.Scheduler, diagnose.Etcd, "kubelet", "kube-proxy", "cloud-controller-manager":
		return true
	}
	return false
}

// program is what a command line or a user agent begins with.
func program(name string) string {
	name, _, _ = strings.Cut(name, " ")
	if strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") { // a path, no user agent
		return name[strings.LastIndex(name, "/")+1:]
	}
	name, _, _ = strings.Cut(name, "/")
	return name
}
