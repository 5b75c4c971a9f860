package etcdcommits

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
)

const (
	commits = "etcd_disk_backend_commit_duration_seconds"
	saved   = "etcd_snap_fsync_duration_seconds_count"
	revoked = "etcd_debugging_lease_revoked_total"
	// often is the rate of commits that the defaults do not reach, beside those
	// that snapshots of the log ask for: etcd commits every 100 ms, and early only
	// for 10,000 changes. Without a flag that says so it must be twice that.
	often, oftenUnsaid = 15.0, 30.0
	// limit and interval are the defaults of --backend-batch-limit and
	// --backend-batch-interval.
	limit    = 10000
	interval = 100 * time.Millisecond
	// shared is the life of Events from which on they share leases: the API server gives one
	// to what ends within a twentieth of that life, in whole seconds.
	shared = 20 * time.Second
	// slowly: where each commit waits for a slow disk, there are few of them
	// however small they are. The flags and the time spent tell it then.
	slowly = 0.3
	// held is the share of the time from which commits hold up writes: these wait
	// while one runs.
	held = 0.5
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "etcd-commits",
	Title: "etcd commits its database after every few changes",
	Doc: `etcd gathers changes and commits them to its database every 100 ms, or after 10,000 of them (--backend-batch-interval, --backend-batch-limit). Each commit writes the pages that changed and waits for the disk twice; writes wait while one runs. What is not committed yet is not lost: it is in the log.

**Evidence.** At least 30 commits a second (etcd_disk_backend_commit_duration_seconds), or 15 where a flag asks for small batches, beside one for each snapshot of the log and for the end of each lease: the defaults make so many only of 150,000 changes a second. Where the disk is slow, commits are few and long: then a small batch in the flags, and 30 % of the time spent on commits.

**Class.** Waste: writes to the disk that nobody needs. A bottleneck where pods lose time and a commit runs at least half of the time: the finding claims that share of it.

**Leases.** The end of a lease is committed at once. Where these are the commits, it is told how many end, and --event-ttl where it is so short that Events share none.

**Look-alikes.** A slow disk (etcd-sync): the mean commit is long, and there are ten a second at most. Much load: changes come in bulk, and commits do not.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	n, ok := v.Increase(diagnose.Etcd, commits+"_count", nil)
	spent, has := v.Increase(diagnose.Etcd, commits+"_sum", nil)
	if !ok || !has || v.Span() <= 0 {
		return diagnose.NotAssessed("%s of etcd", commits)
	}
	rate, busy := n/v.Span(), spent/v.Span()
	snapshots, counted := v.Increase(diagnose.Etcd, saved, nil)
	set, text := flags(v)
	least := often
	if len(set) == 0 {
		least = oftenUnsaid
	}
	if rate >= least && !counted {
		return diagnose.NotAssessed("%s of etcd, for each snapshot asks for a commit", saved)
	}
	// The end of a lease is a deletion, which etcd commits at once.
	ends, _ := v.Increase(diagnose.Etcd, revoked, nil)
	if rest := rate - snapshots/v.Span(); rest >= least && rest-ends/v.Span() < least {
		return diagnose.Found(leases(v, rate, ends, busy))
	}
	if rate-snapshots/v.Span() < least && (len(set) == 0 || busy < slowly) {
		return diagnose.NotThere("etcd committed its database %.1f times a second, which took %.0f %% of the time", rate, 100*busy)
	}
	f := diagnose.Finding{
		Class: diagnose.Waste, Component: diagnose.Etcd, Resource: "disk", Sources: 1,
		Cause:   fmt.Sprintf("etcd commits its database %.0f times a second", rate),
		Summary: fmt.Sprintf("etcd commits its database %.0f times a second, %.1f ms each, where ten times are usual: two syncs of the disk for every few changes.", rate, 1000*spent/max(1, n)),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: commits + `_count{component="etcd"}`, Value: rate, Unit: "1/s", Text: "commits of etcd's database"},
			{Kind: "busy", Ref: commits + `_sum{component="etcd"}`, Value: busy, Unit: "1", Text: fmt.Sprintf("of the time a commit ran, %.1f ms each (n=%.0f)", 1000*spent/max(1, n), n)},
		},
		Advice:    diagnose.Advice{Text: "Look at etcd's --backend-batch-limit and --backend-batch-interval: 10000 and 100ms are the defaults."},
		RefutedBy: "a run with the default batches in which etcd commits as often",
	}
	if len(set) > 0 {
		f.Sources = 2
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "pattern", Ref: "etcd " + text, Text: text + "; the defaults are 10000 changes and 100ms"})
		f.Advice = diagnose.Advice{Set: set, Text: "Go back to the defaults of --backend-batch-limit and --backend-batch-interval. It costs nothing: changes that are not committed yet are in etcd's log, and are read from there after a crash."}
	}
	charge(v, &f, busy)
	return diagnose.Found(f)
}

// charge makes it a bottleneck where writes wait for commits.
func charge(v *diagnose.View, f *diagnose.Finding, busy float64) {
	lost := v.LostStages()
	if !v.StagesOK || !v.Symptom() || busy < held || v.Upstream() != "" || len(lost) == 0 {
		return
	}
	f.Class, f.Stage, f.Claims = diagnose.Bottleneck, lost[0].Name, map[string]float64{}
	for _, s := range lost {
		f.Claims[s.Name] = min(1, busy) * *s.ExcessSeconds
	}
	if f.Stage == diagnose.Scheduling {
		f.Stage = diagnose.Queue
	}
}

// leases is the finding where commits are the ends of leases.
func leases(v *diagnose.View, rate, ends, busy float64) diagnose.Finding {
	f := diagnose.Finding{
		Class: diagnose.Waste, Component: diagnose.Etcd, Resource: "disk", Sources: 2, Direct: true,
		Cause:   fmt.Sprintf("%.0f leases of etcd end a second, each with a commit of its own", ends/v.Span()),
		Summary: fmt.Sprintf("etcd commits its database %.0f times a second, where ten times are usual: %.0f leases end a second, and the end of each is committed at once, two syncs of the disk.", rate, ends/v.Span()),
		Evidence: []diagnose.Evidence{
			{Kind: "rate", Ref: commits + `_count{component="etcd"}`, Value: rate, Unit: "1/s", Text: "commits of etcd's database"},
			{Kind: "rate", Ref: revoked + `{component="etcd"}`, Value: ends / v.Span(), Unit: "1/s", Text: "leases that ended"},
			{Kind: "busy", Ref: commits + `_sum{component="etcd"}`, Value: busy, Unit: "1", Text: "of the time a commit ran"},
		},
		Advice:    diagnose.Advice{Text: "Find who takes so many leases: one can be shared by many keys that end at about the same time. The API server shares one among the Events of a minute, unless --event-ttl is short; other clients of etcd take their own."},
		RefutedBy: "a run with as many commits in which no lease ends",
	}
	if text, set, _ := v.Flag(diagnose.APIServer, "event-ttl"); set {
		if ttl, err := time.ParseDuration(text); err == nil && ttl < shared {
			f.Component = diagnose.APIServer
			f.Cause += fmt.Sprintf(" (--event-ttl=%s)", text)
			f.Summary += fmt.Sprintf(" With --event-ttl=%s each Event has a lease of its own.", text)
			f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "config", Ref: "kube-apiserver --event-ttl", Value: ttl.Seconds(), Unit: "s", Text: "of Events; the default is an hour"})
			f.Advice = diagnose.Advice{Set: map[string]string{diagnose.APIServer + ".args.event-ttl": "1h"}, Text: "Go back to --event-ttl=1h. The price: Events of an hour are kept, some kB each."}
		}
	}
	charge(v, &f, busy)
	return f
}

// flags are the settings that lift batches which are smaller than the defaults,
// and the flags as they are.
func flags(v *diagnose.View) (set map[string]string, text string) {
	set = map[string]string{}
	if x, has, _ := v.Flag(diagnose.Etcd, "backend-batch-limit"); has {
		if n, err := strconv.Atoi(x); err == nil && n > 0 && n < limit {
			set[diagnose.Etcd+".args.backend-batch-limit"] = strconv.Itoa(limit)
			text = "--backend-batch-limit=" + x
		}
	}
	if x, has, _ := v.Flag(diagnose.Etcd, "backend-batch-interval"); has {
		if d, err := time.ParseDuration(x); err == nil && d > 0 && d < interval {
			set[diagnose.Etcd+".args.backend-batch-interval"] = interval.String()
			if text != "" {
				text += " "
			}
			text += "--backend-batch-interval=" + x
		}
	}
	return set, text
}
