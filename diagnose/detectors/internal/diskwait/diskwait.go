// Package diskwait charges pods for etcd's slow syncs on a machine whose CPU is full,
// where not all of their waiting is for them: the part that the detectors of etcd's disk
// share.
package diskwait

import "github.com/kubedyno/kubedyno/diagnose"

// writes are those to etcd that a pod waits for in each stage, one after the other: its
// object, after its owner's, the binding, and its node's reports.
var writes = map[string]float64{diagnose.Accept: 1, diagnose.Controller: 2, diagnose.Bind: 1, diagnose.Scheduling: 1, diagnose.Start: 2}

// little is the part of the lost time below which a charge is a risk.
const little = 0.05

// Charge leaves of what a finding claims what pods waited for the disk, each seconds for
// every write of theirs. Where that is next to nothing the finding is a risk.
func Charge(v *diagnose.View, f *diagnose.Finding, each float64) {
	charged := 0.0
	f.Direct, f.Claims = true, map[string]float64{}
	for _, s := range v.LostStages() {
		f.Claims[s.Name] = min(*s.ExcessSeconds, writes[s.Name]*each*float64(v.Counts.Running))
		charged += f.Claims[s.Name]
	}
	if _, n, ok := v.Mean(diagnose.APIServer, "etcd_request_duration_seconds", diagnose.Labels{"operation": "~create|update|delete"}); ok {
		f.RequestSeconds = min(f.RequestSeconds, n*each)
	}
	if charged < little*v.Lost.PodSeconds && (f.RequestSeconds <= 0 || f.RequestSeconds < little*v.API.LostSeconds) {
		f.Direct, f.Class, f.Stage, f.Claims, f.RequestSeconds = false, diagnose.Risk, "", nil, 0
	}
}
