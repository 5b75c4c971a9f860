package diskneighbour

import (
	"fmt"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/internal/diskwait"
	"github.com/kubedyno/kubedyno/record"
)

const (
	syncs = "etcd_disk_wal_fsync_duration_seconds"
	// noticed is the mean sync of etcd's log, in seconds, from which a neighbour can be
	// noticed; slow that from which it holds anybody up, where the log is synced for
	// so large a part of the time: writes queue in front of it then.
	noticed, slow, queued = 0.002, 0.005, 0.5
	// heavy is how much a neighbour must write: a million bytes a second, and
	// more than etcd itself.
	heavy = 1e6
	// flooding is a writer that is worth naming before anybody suffers: ten
	// million bytes a second.
	flooding = 10e6
	// several syncs while the other wrote nothing to speak of tell whether it is why they
	// are slow: it is not where those take half as long, or longer.
	several, asLong = 20, 0.5
	// atDisk is the part of a sync that a write and a flush of etcd must be at the disk
	// for: below that something before the disk makes it long, or waiting for a CPU where
	// that is full. Beside a neighbour it was half, and a sixth where syncs were delayed
	// before the block layer as well.
	atDisk = 0.25
)

// Detector finds the cause.
var Detector = diagnose.Detector{
	Name:  "disk-neighbour",
	Title: "Another process keeps etcd's disk busy",
	Doc: `etcd waits for its disk at each sync, and a disk serves what came first. A process that writes much, an audit log, container logs, image pulls, a backup, makes etcd's syncs wait behind its own.

**Evidence.** Syncs of etcd's log take at least 5 ms on average and half of the time, and some process other than etcd writes at least 1 MB/s to storage and more than etcd does.

**Risk.** Where syncs are quicker (2 ms) or fewer, or nobody suffered (yet), a neighbour that writes 10 MB/s or more is named as a risk.

**Where the CPU is full** syncs take long without a disk's doing, since who waits for one also waits for a CPU afterwards. There the block layer's own clock must have etcd's requests wait: a write and a flush of etcd's are at the disk, in its queue and in the device, for at least a quarter of a sync and 2 ms. Pods are charged that time for each write of theirs, and the CPU the rest.

**Contradicting.** etcd's requests are at the disk for less than a quarter of a sync, and less than 2 ms: what makes it long comes before the disk. (From 2 ms on pods are charged that time, and what comes before the disk the rest.) The other writes to another disk than etcd, as far as it is seen to submit its writes itself. Twenty syncs and more while the other wrote less than 1 MB/s, at rest before the load or during it, that took half as long as all or longer.

**Look-alikes.** etcd-sync: the same syncs without anybody else who writes, so that it is the disk itself. The API server's own audit log counts as a neighbour where it is the writer.

**Not known.** Without recorded block I/O, which device a process writes to; nor where the kernel writes for it later. Then the finding says who writes, and where has to be checked.`,
	Detect: detect,
}

func detect(v *diagnose.View, _ []diagnose.Finding) diagnose.Outcome {
	sync, n, ok := v.Mean(diagnose.Etcd, syncs, nil)
	switch {
	case !ok:
		return diagnose.NotAssessed("etcd_disk_wal_fsync_duration_seconds of etcd")
	case sync < noticed:
		return diagnose.NotThere("a sync of etcd's log takes %.1f ms", 1000*sync)
	case !v.StagesOK:
		return diagnose.NotAssessed("stages: %s", v.StagesWhy)
	}
	up := v.Upstream()
	disk, seen := v.DiskTime(diagnose.Etcd, v.Load)
	held, rest := sync, "" // by the disk, and what the rest of a sync is
	switch {
	case up != "" && (!seen || disk.SyncSeconds() < max(noticed, atDisk*sync)):
		return diagnose.NotThere("syncs of etcd's log are slow, but %s", up)
	case up != "":
		held, rest = min(sync, disk.SyncSeconds()), "The rest may be waiting for a CPU, for "+up
	case seen && disk.SyncSeconds() < min(noticed, atDisk*sync):
		return diagnose.NotThere("a sync of etcd's log takes %.1f ms, but a write and a flush of it only %.2f ms from the block layer to the disk and back", 1000*sync, 1000*disk.SyncSeconds())
	case seen && disk.SyncSeconds() < atDisk*sync:
		held, rest = disk.SyncSeconds(), "What makes the rest of a sync long comes before the disk"
	}
	own, ok := v.Written(diagnose.Etcd, v.Load)
	if !ok || v.Span() <= 0 {
		return diagnose.NotAssessed("what processes write")
	}
	writers, ok := v.Writers(v.Load)
	if !ok {
		return diagnose.NotAssessed("what processes outside of the run write")
	}
	w, there, sure := heaviest(v, writers, disk)
	switch {
	case w.Value >= max(heavy*v.Span(), own):
	case len(writers) > 0 && writers[0].Value >= max(heavy*v.Span(), own):
		return diagnose.NotThere("%s writes %s/s, but to another disk than etcd", writers[0].Label, diagnose.Bytes(writers[0].Value/v.Span()))
	default:
		return diagnose.NotThere("nobody wrote more than etcd itself (%s/s)", diagnose.Bytes(own/v.Span()))
	}
	rate := diagnose.Bytes(w.Value/v.Span()) + "/s"
	if quiet, n := alone(v, w.Label); n >= several && quiet >= asLong*sync {
		return diagnose.NotThere("%s writes %s, but %.0f syncs of etcd's log that came while it did not took %.1f ms each, of %.1f ms on average", w.Label, rate, n, 1000*quiet, 1000*sync)
	}
	f := diagnose.Finding{
		Class: diagnose.Bottleneck, Component: diagnose.Etcd, Resource: "disk", Sources: 2,
		Cause:   fmt.Sprintf("%s writes to the disks at the same time, %s", w.Label, rate),
		Summary: fmt.Sprintf("etcd's syncs take %.1f ms while %s writes %s, %s times what etcd does: it waits behind it for the disk.", 1000*sync, w.Label, rate, diagnose.Digits(w.Value/max(own, 1), 3)),
		Claims:  map[string]float64{},
		Evidence: []diagnose.Evidence{
			{Kind: "wait", Ref: `etcd_disk_wal_fsync_duration_seconds{component="etcd"}`, Value: sync, Unit: "s", Text: fmt.Sprintf("%.1f ms a sync on average (n=%.0f)", 1000*sync, n)},
			{Kind: "rate", Ref: "processes: write_bytes", Value: w.Value / v.Span(), Unit: "bytes/s", Text: fmt.Sprintf("%s wrote %s, etcd %s", w.Label, diagnose.Bytes(w.Value), diagnose.Bytes(own))},
		},
		Advice:    diagnose.Advice{Text: "Give etcd a disk of its own, at least for --wal-dir, or move the other writer (audit and container logs, backups) away; ionice and cgroup weights help where the disk's scheduler knows them. Then etcd waits for its own writes only. The price: a disk more, or another place for what the other writes."},
		RefutedBy: "syncs that stay as slow while the other process is stopped",
	}
	if seen {
		f.Sources++
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "wait", Ref: "blockio: etcd, write and flush", Value: disk.SyncSeconds(), Unit: "s", Text: fmt.Sprintf("a write of etcd waits %.1f ms in the disk's queue and %.1f ms in the device (n=%d), a flush %.1f ms", 1000*disk.QueueSeconds, 1000*disk.DeviceSeconds, disk.Writes, 1000*disk.FlushSeconds)})
	}
	if sure {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "rate", Ref: "blockio: " + w.Label, Value: there, Unit: "1", Text: fmt.Sprintf("%.0f %% of what %s wrote went to the disk that etcd writes to", 100*there, w.Label)})
	} else {
		f.Advice.Text += " Check first that both write to the same device."
	}
	if rest != "" {
		f.Summary = fmt.Sprintf("etcd's syncs take %.1f ms, of which its requests wait %.1f ms at the disk while %s writes %s, %s times what etcd does. %s.", 1000*sync, 1000*held, w.Label, rate, diagnose.Digits(w.Value/max(own, 1), 3), rest)
	}
	r, known := v.Resource(diagnose.Etcd, "disk")
	if known {
		f.Evidence = append(f.Evidence, diagnose.Evidence{Kind: "busy", Ref: `etcd_disk_wal_fsync_duration_seconds_sum{component="etcd"}`, Value: r.Utilisation, Unit: "1", Text: fmt.Sprintf("etcd's log was being synced %.0f %% of the time", 100*r.Utilisation)})
	}
	_, suffers := v.Suffers()
	if waits := held >= slow && (!known || r.Utilisation >= queued); !suffers || !waits {
		switch {
		case w.Value >= flooding*v.Span():
			f.Class = diagnose.Risk
			return diagnose.Found(f)
		case !suffers:
			return diagnose.NotThere("%s writes %s, but nothing suffered", w.Label, rate)
		}
		return diagnose.NotThere("%s writes %s, but a sync of etcd's log takes %.1f ms, and they take %.0f %% of the time", w.Label, rate, 1000*sync, 100*r.Utilisation)
	}
	for i, s := range v.LostStages() {
		if i == 0 {
			f.Stage = s.Name
		}
		f.Claims[s.Name] = *s.ExcessSeconds
	}
	if v.API.Slow() {
		f.RequestSeconds = v.API.LostSeconds
	}
	if rest != "" {
		diskwait.Charge(v, &f, held)
	}
	return diagnose.Found(f)
}

// heaviest is who writes most to etcd's disk, as far as is known where its writes go,
// and which part of them.
func heaviest(v *diagnose.View, writers []diagnose.Part, disk diagnose.DiskTime) (most diagnose.Part, there float64, sure bool) {
	for _, w := range writers {
		if w.Value <= most.Value {
			break // the largest come first, and none of them writes there more than in all
		}
		share, known := v.WritesThere(w.Label, disk)
		if known {
			w.Value *= share
		}
		if w.Value > most.Value {
			most, there, sure = w, share, known
		}
	}
	return most, there, sure
}

// alone is the mean sync of etcd's log, in seconds, while a writer wrote next to nothing,
// of how many: at rest before the load, and from scrape to scrape of it.
func alone(v *diagnose.View, writer string) (mean, n float64) {
	// Where no process was looked at, nobody knows that it wrote nothing.
	rested := func(w record.Window) bool {
		writers, known := v.Writers(w)
		for _, p := range writers {
			if p.Label == writer {
				return p.Value < heavy*w.Seconds()
			}
		}
		return known
	}
	seconds := 0.0
	if mean, count, ok := v.RestMean(diagnose.Etcd, syncs, nil); ok && rested(v.Rest) {
		seconds, n = mean*count, count
	}
	sums, okS := v.Steps(diagnose.Etcd, syncs+"_sum", nil)
	counts, okC := v.Steps(diagnose.Etcd, syncs+"_count", nil)
	for i := 0; okS && okC && i < min(len(sums), len(counts)); i++ {
		at := func(s float64) time.Time { return v.Load.Start.Add(time.Duration(s * 1e9)) }
		if rested(record.Window{Start: at(sums[i].From), End: at(sums[i].To)}) {
			seconds, n = seconds+sums[i].Growth, n+counts[i].Growth
		}
	}
	return seconds / max(1, n), n
}
