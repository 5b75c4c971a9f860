package etcdsync

import (
	"fmt"
	"slices"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/diskwait"
)

const (
	// busy is the share of the time from which the single writer never rests.
	// By itself it says little: one sync carries all writes that wait, so a
	// fast disk is kept busy too.
	busy = 0.7
	// slow is the mean sync, in seconds, from which a disk is slow for etcd:
	// its guide asks for 10 ms at the 99 % quantile; a healthy one takes 0.2-2 ms
	// here, under full load.
	slow = 0.005
	// good is what one takes where the disk is good, in seconds, at most.
	good = 0.001
	// noticed is that which must be left of a sync, in seconds, where the CPU is full and
	// what etcd's threads waited for one is taken off.
	noticed = 0.002
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "etcd-sync",
	Title: "etcd waits for its disk",
	Doc: `etcd writes each batch of changes to its log and waits until the disk has it (fdatasync), one batch at a time. Every write of the cluster queues in front of it.

**Evidence.** The sum of etcd_disk_wal_fsync_duration_seconds grows by at least 0.7 s a second, and a sync takes at least 5 ms on average. Time alone is not enough: a
sync carries all writes that wait, so that under load even a fast disk is never idle.

**Explaining-away.** A full machine or a starved etcd makes the sums of waiting grow too, without a slow disk: where the CPU of the machine or a component's quota is used up, this
cause is ruled out, unless all syncs together took longer than all of etcd's threads waited for a CPU, by the kernel's clock (on full machines with good disks they took a fifth to three fifths of that), and 2 ms of a sync are left without it. Then pods are charged what is left, for each write of theirs, and the CPU the rest.

Where pods do not wait, or wait for something else, such as a client limit, and it explains less than 10 %, it is a risk.

**Second source.** The API server's own clock: a write to etcd takes it at least as long as a sync.

**Look-alikes.** CPU starvation, as said; latency between API server and etcd (etcd's own times are normal).`,
	Detect: detect,
}

func detect(v *diagnose.View, earlier []diagnose.Finding) diagnose.Outcome {
	if !v.StagesOK {
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	r, ok := v.Resource(diagnose.Etcd, "disk")
	up := v.Upstream()
	waited, delayed := v.RunDelay(diagnose.Etcd, v.Load)
	switch {
	case !ok:
		return diagnose.NotAssessed("etcd_disk_wal_fsync_duration_seconds of etcd")
	case r.Utilisation < busy:
		return diagnose.NotThere("etcd's log was being synced %.0f %% of the time", 100*r.Utilisation)
	case up != "" && (!delayed || r.BusySeconds <= waited):
		return diagnose.NotThere("syncs look long, but %s: waiting for a CPU counts as syncing too", up)
	case up != "" && slices.ContainsFunc(earlier, func(f diagnose.Finding) bool { return f.ID == "disk-neighbour" }):
		return diagnose.NotThere("etcd's log was being synced %.0f %% of the time, and disk-neighbour says why", 100*r.Utilisation)
	case slices.ContainsFunc(earlier, func(f diagnose.Finding) bool { return f.ID == "etcd-clients" && f.Resource == "disk" }):
		return diagnose.NotThere("etcd's log was being synced %.0f %% of the time, with what others than the API server write (etcd-clients)", 100*r.Utilisation)
	}
	syncs, counted := v.Increase(diagnose.Etcd, "etcd_disk_wal_fsync_duration_seconds_count", nil)
	if !counted || syncs == 0 {
		return diagnose.NotAssessed("etcd_disk_wal_fsync_duration_seconds_count of etcd")
	}
	mean := r.BusySeconds / syncs
	if mean < slow {
		return diagnose.NotThere("etcd's log was being synced %.0f %% of the time, but a sync takes only %.1f ms", 100*r.Utilisation, 1000*mean)
	}
	left := mean - waited/syncs
	if up != "" && left < noticed {
		return diagnose.NotThere("a sync of etcd's log takes %.1f ms, but %s, and etcd's threads waited %.1f ms of that for a CPU", 1000*mean, up, 1000*waited/syncs)
	}
	less := mean - good
	if up != "" {
		less = left - good
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Etcd, Resource: "disk", Claims: map[string]float64{}, Sources: 1,
		Cause:   "syncs of etcd's write-ahead log use up the time there is",
		Summary: fmt.Sprintf("etcd spends %.0f %% of the time waiting for its disk, %.1f ms a sync, and all writes queue behind it.", 100*r.Utilisation, 1000*mean),
		Next:    fmt.Sprintf("etcd spends %.0f %% of the time waiting for its disk, %.1f ms a sync. All writes queue behind it, and it holds pods back as soon as what they wait for now is gone.", 100*r.Utilisation, 1000*mean),
		Evidence: []diagnose.Evidence{
			{Kind: "busy", Ref: `etcd_disk_wal_fsync_duration_seconds_sum{component="etcd"}`, Value: r.Utilisation, Unit: "1", Text: fmt.Sprintf("%.1f s of syncing in %.1f s", r.BusySeconds, r.BusySeconds/r.Utilisation)},
		},
		Advice:    diagnose.Advice{Text: fmt.Sprintf("Put etcd's data (at least --wal-dir) on a faster disk that nothing else writes to: where a sync takes %.0f ms, a write waits %.0f ms less. Never --unsafe-no-fsync in production. The price: that disk, and moving the data, one member at a time.", 1000*good, 1000*less)},
		RefutedBy: "a run with etcd's data on tmpfs in which pods do not come faster",
	}
	if up != "" {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "processes: run_delay_s of etcd", Value: waited, Unit: "s", Text: fmt.Sprintf("that all threads of etcd waited for a CPU, while %s: %.1f ms of a sync are left", up, 1000*left)})
	}
	if lost := v.LostStages(); v.Symptom() && len(lost) > 0 {
		f.Stage = lost[0].Name
		for _, s := range lost {
			f.Claims[s.Name] = *s.ExcessSeconds
		}
		if up != "" {
			diskwait.Charge(v, &f, left)
		}
		if f.Class == diagnose.Risk {
			f.Next = ""
			f.Summary = fmt.Sprintf("etcd's disk has no time to spare: etcd spends %.0f %% of the time waiting for it, %.1f ms a sync, of which %.1f ms are no waiting for a CPU. Pods wait more for that: %s.", 100*r.Utilisation, 1000*mean, 1000*left, up)
		}
	} else {
		f.Class, f.Next = diagnose.Risk, ""
		f.Summary = fmt.Sprintf("etcd's disk has no time to spare: etcd spends %.0f %% of the time waiting for it, %.1f ms a sync. Pods were not held up by it yet.", 100*r.Utilisation, 1000*mean)
	}
	if wrote, n, ok := v.Mean(diagnose.APIServer, "etcd_request_duration_seconds", diagnose.Labels{"operation": "~create|update|delete"}); ok && wrote >= mean {
		f.Sources = 2
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: `etcd_request_duration_seconds{component="kube-apiserver"}`, Value: wrote, Unit: "s", Text: fmt.Sprintf("the API server waits %.0f ms for a write to etcd (n=%.0f), a sync and what queues in front of it", 1000*wrote, n)})
	}
	f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "etcd_disk_wal_fsync_duration_seconds", Value: mean, Unit: "s", Text: fmt.Sprintf("%.1f ms a sync on average (n=%.0f); a good disk takes below 1 ms", 1000*mean, syncs)})
	return diagnose.Found(f)
}
