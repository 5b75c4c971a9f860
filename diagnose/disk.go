package diagnose

import (
	"cmp"
	"slices"

	"github.com/kubedyno/kubedyno/analysis/blockio"
	"github.com/kubedyno/kubedyno/record"
)

// A DiskTime is what a component's requests to the block device that it writes most
// to took, in seconds, as the kernel saw them. Waiting for a CPU is next to no part of it:
// on full machines a write and a flush took 0.1 to 0.7 ms with a disk that is quick.
type DiskTime struct {
	Writes        int     // that were done
	QueueSeconds  float64 // mean of a write, until the driver took it
	DeviceSeconds float64 // mean of a write, from there to its completion
	FlushSeconds  float64 // mean of a flush; 0 where the component sends none itself
	device        string
}

// SyncSeconds is how long a sync waits for the disk at least: for a write, and for
// the flush behind it.
func (d DiskTime) SyncSeconds() float64 { return d.QueueSeconds + d.DeviceSeconds + d.FlushSeconds }

// DiskTime is what the requests of a component took that it sent in the window. ok is
// false where block I/O was not recorded, or the component wrote nothing itself.
func (v *View) DiskTime(component string, w record.Window) (d DiskTime, ok bool) {
	rows := v.blockIO()
	mine := blockio.Filter{Component: component, Operation: "write", Window: w}.Select(rows)
	d.device = busiest(mine)
	var queue, device float64
	for _, r := range mine {
		if r.Device == d.device && r.IssuedMicros > 0 && r.DoneMicros > 0 {
			d.Writes++
			queue += float64(r.IssuedMicros - r.TimeMicros)
			device += float64(r.DoneMicros - r.IssuedMicros)
		}
	}
	if d.Writes == 0 {
		return d, false
	}
	d.QueueSeconds, d.DeviceSeconds = queue/float64(d.Writes)/1e6, device/float64(d.Writes)/1e6
	var flush float64
	flushes := 0
	for _, r := range (blockio.Filter{Component: component, Operation: "flush", Device: d.device, Window: w}).Select(rows) {
		if r.DoneMicros > 0 {
			flushes++
			flush += float64(r.DoneMicros - r.TimeMicros)
		}
	}
	d.FlushSeconds = flush / float64(max(1, flushes)) / 1e6
	return d, true
}

// busiest is the device that requests wrote most bytes to.
func busiest(rows []record.BlockIO) (device string) {
	bytes := map[string]int64{}
	for _, r := range rows {
		bytes[r.Device] += r.Bytes
	}
	for _, name := range sortedKeys(bytes) {
		if device == "" || bytes[name] > bytes[device] {
			device = name
		}
	}
	return device
}

// WritesThere is the part of what a process writes to block devices that goes to the
// device of d, in the whole recording: a component, or a command line as Writers says
// it. known is false where block I/O was not recorded, or the kernel's own threads write
// for it, or d is of no device.
func (v *View) WritesThere(writer string, d DiskTime) (share float64, known bool) {
	if d.device == "" {
		return 0, false
	}
	pids := map[int32]bool{}
	for _, p := range v.others[writer] {
		pids[p.samples[0].PID] = true
	}
	var there, all int64
	for _, r := range v.blockIO() {
		if r.Operation != "write" || r.Component != writer && (r.Component != "" || !pids[r.PID]) {
			continue
		}
		all += r.Bytes
		if r.Device == d.device {
			there += r.Bytes
		}
	}
	if all == 0 {
		return 0, false
	}
	return float64(there) / float64(all), true
}

// blockIO are all requests to block devices; none where they were not recorded.
func (v *View) blockIO() []record.BlockIO {
	if v.blocks == nil {
		rows, err := v.src.BlockIO()
		rows, _, err = optional("block I/O", rows, err)
		if err != nil && v.err == nil {
			v.err = err
		}
		v.blocks = &rows
	}
	return *v.blocks
}

// ThinBlockIO is what of requests to block devices a diagnosis needs: the writes and
// flushes of etcd, with times to a tenth of a millisecond, and of others one row for
// each process, device and kind of request, of all their bytes. Where etcd's own come
// back at once nobody reckons with their times, and a few tell that.
func ThinBlockIO(rows []record.BlockIO) (thin []record.BlockIO) {
	const (
		grain = 100   // µs
		quick = 0.001 // seconds
		few   = 200
	)
	mine := func(r *record.BlockIO) bool {
		return r.Component == Etcd && (r.Operation == "write" || r.Operation == "flush")
	}
	step, seen := 1, map[string]int{} // of each operation, for the two may come in turns
	if d, _ := (&View{blocks: &rows}).DiskTime(Etcd, record.Window{}); d.SyncSeconds() < quick {
		n := 0
		for i := range rows {
			if mine(&rows[i]) {
				n++
			}
		}
		step = max(1, n/few)
	}
	round := func(micros int64) int64 { return (micros + grain/2) / grain * grain }
	type kind struct {
		pid                          int32
		component, device, operation string
	}
	at := map[kind]int{}
	for _, r := range rows {
		r.Sector, r.Flags = 0, ""
		if r.Component != "" {
			r.Command = r.Component
		} else if r.PID != 0 {
			r.Command = "other"
		}
		if mine(&r) {
			if seen[r.Operation]++; (seen[r.Operation]-1)%step != 0 {
				continue
			}
			from := round(r.TimeMicros)
			for _, t := range []*int64{&r.IssuedMicros, &r.DoneMicros} {
				if *t > 0 {
					*t = from + round(*t-r.TimeMicros)
				}
			}
			r.TimeMicros = from
			thin = append(thin, r)
			continue
		}
		k := kind{r.PID, r.Component, r.Device, r.Operation}
		if i, has := at[k]; has {
			thin[i].Bytes += r.Bytes
			continue
		}
		at[k] = len(thin)
		thin = append(thin, r)
	}
	slices.SortStableFunc(thin, func(a, b record.BlockIO) int { return cmp.Compare(a.TimeMicros, b.TimeMicros) })
	return thin
}
