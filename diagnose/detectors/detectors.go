// Package detectors lists the causes that kubedyno knows. Each is a package
// of its own beside this file; docs/detectors.md is made from their Doc.
package detectors

import (
	"fmt"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/diagnose/detectors/aggregated"
	"github.com/kubedyno/kubedyno/diagnose/detectors/apfseats"
	"github.com/kubedyno/kubedyno/diagnose/detectors/asleep"
	"github.com/kubedyno/kubedyno/diagnose/detectors/auditsink"
	"github.com/kubedyno/kubedyno/diagnose/detectors/authentication"
	"github.com/kubedyno/kubedyno/diagnose/detectors/authorization"
	"github.com/kubedyno/kubedyno/diagnose/detectors/clientway"
	"github.com/kubedyno/kubedyno/diagnose/detectors/componentcpu"
	"github.com/kubedyno/kubedyno/diagnose/detectors/conflicts"
	"github.com/kubedyno/kubedyno/diagnose/detectors/connections"
	"github.com/kubedyno/kubedyno/diagnose/detectors/controllerlimit"
	"github.com/kubedyno/kubedyno/diagnose/detectors/controlleroff"
	"github.com/kubedyno/kubedyno/diagnose/detectors/controllerworkers"
	"github.com/kubedyno/kubedyno/diagnose/detectors/conversion"
	"github.com/kubedyno/kubedyno/diagnose/detectors/costlywork"
	"github.com/kubedyno/kubedyno/diagnose/detectors/crdchurn"
	"github.com/kubedyno/kubedyno/diagnose/detectors/createsrefused"
	"github.com/kubedyno/kubedyno/diagnose/detectors/diskneighbour"
	"github.com/kubedyno/kubedyno/diagnose/detectors/encryption"
	"github.com/kubedyno/kubedyno/diagnose/detectors/ended"
	"github.com/kubedyno/kubedyno/diagnose/detectors/etcdclients"
	"github.com/kubedyno/kubedyno/diagnose/detectors/etcdcommits"
	"github.com/kubedyno/kubedyno/diagnose/detectors/etcddefrag"
	"github.com/kubedyno/kubedyno/diagnose/detectors/etcdnetwork"
	"github.com/kubedyno/kubedyno/diagnose/detectors/etcdspace"
	"github.com/kubedyno/kubedyno/diagnose/detectors/etcdsync"
	"github.com/kubedyno/kubedyno/diagnose/detectors/eventflood"
	"github.com/kubedyno/kubedyno/diagnose/detectors/finalizers"
	"github.com/kubedyno/kubedyno/diagnose/detectors/garbagecollection"
	"github.com/kubedyno/kubedyno/diagnose/detectors/generatorlate"
	"github.com/kubedyno/kubedyno/diagnose/detectors/greedyclient"
	"github.com/kubedyno/kubedyno/diagnose/detectors/growingcost"
	"github.com/kubedyno/kubedyno/diagnose/detectors/heartbeats"
	"github.com/kubedyno/kubedyno/diagnose/detectors/idletwins"
	"github.com/kubedyno/kubedyno/diagnose/detectors/largeobjects"
	"github.com/kubedyno/kubedyno/diagnose/detectors/leaderelection"
	"github.com/kubedyno/kubedyno/diagnose/detectors/liststorm"
	"github.com/kubedyno/kubedyno/diagnose/detectors/loadrefused"
	"github.com/kubedyno/kubedyno/diagnose/detectors/lockherd"
	"github.com/kubedyno/kubedyno/diagnose/detectors/lostwatches"
	"github.com/kubedyno/kubedyno/diagnose/detectors/machinecpu"
	"github.com/kubedyno/kubedyno/diagnose/detectors/networkoutage"
	"github.com/kubedyno/kubedyno/diagnose/detectors/nodesgivenup"
	"github.com/kubedyno/kubedyno/diagnose/detectors/nodeslate"
	"github.com/kubedyno/kubedyno/diagnose/detectors/nodesrefused"
	"github.com/kubedyno/kubedyno/diagnose/detectors/openfiles"
	"github.com/kubedyno/kubedyno/diagnose/detectors/orderedpods"
	"github.com/kubedyno/kubedyno/diagnose/detectors/pacedclient"
	"github.com/kubedyno/kubedyno/diagnose/detectors/periodicjob"
	"github.com/kubedyno/kubedyno/diagnose/detectors/podsdeleted"
	"github.com/kubedyno/kubedyno/diagnose/detectors/podsfail"
	"github.com/kubedyno/kubedyno/diagnose/detectors/podsparked"
	"github.com/kubedyno/kubedyno/diagnose/detectors/policies"
	"github.com/kubedyno/kubedyno/diagnose/detectors/prebindwait"
	"github.com/kubedyno/kubedyno/diagnose/detectors/preemption"
	"github.com/kubedyno/kubedyno/diagnose/detectors/quotaadmission"
	"github.com/kubedyno/kubedyno/diagnose/detectors/relist"
	"github.com/kubedyno/kubedyno/diagnose/detectors/rollout"
	"github.com/kubedyno/kubedyno/diagnose/detectors/schedulerlimit"
	"github.com/kubedyno/kubedyno/diagnose/detectors/schedulingloop"
	"github.com/kubedyno/kubedyno/diagnose/detectors/sharedquota"
	"github.com/kubedyno/kubedyno/diagnose/detectors/slownodes"
	"github.com/kubedyno/kubedyno/diagnose/detectors/slowremoval"
	"github.com/kubedyno/kubedyno/diagnose/detectors/standstill"
	"github.com/kubedyno/kubedyno/diagnose/detectors/tiedcpus"
	"github.com/kubedyno/kubedyno/diagnose/detectors/timeouts"
	"github.com/kubedyno/kubedyno/diagnose/detectors/tugofwar"
	"github.com/kubedyno/kubedyno/diagnose/detectors/uncached"
	"github.com/kubedyno/kubedyno/diagnose/detectors/unexplained"
	"github.com/kubedyno/kubedyno/diagnose/detectors/unusualwork"
	"github.com/kubedyno/kubedyno/diagnose/detectors/verbosity"
	"github.com/kubedyno/kubedyno/diagnose/detectors/watchfanout"
	"github.com/kubedyno/kubedyno/diagnose/detectors/webhook"
)

// All are the detectors in causal order: what can cause another's symptom
// comes before it, and what needs the others' answers comes last. Clients that
// ask for too much come before the CPU that they burn.
var All = []diagnose.Detector{
	generatorlate.Detector,
	nodeslate.Detector,
	standstill.Detector,
	ended.Detector,
	networkoutage.Detector,
	lostwatches.Detector,
	etcdspace.Detector,
	openfiles.Detector,
	garbagecollection.Detector,
	conflicts.Detector,
	liststorm.Detector,
	lockherd.Detector,
	tugofwar.Detector,
	eventflood.Detector,
	uncached.Detector,
	connections.Detector,
	watchfanout.Detector,
	relist.Detector,
	nodesgivenup.Detector,
	heartbeats.Detector,
	crdchurn.Detector,
	verbosity.Detector,
	largeobjects.Detector,
	greedyclient.Detector,
	policies.Detector,
	unusualwork.Detector,
	costlywork.Detector,
	controlleroff.Detector,
	asleep.Detector,
	loadrefused.Detector,
	createsrefused.Detector,
	nodesrefused.Detector,
	orderedpods.Detector,
	quotaadmission.Detector,
	podsdeleted.Detector,
	podsfail.Detector,
	preemption.Detector,
	machinecpu.Detector,
	componentcpu.Detector,
	sharedquota.Detector,
	tiedcpus.Detector,
	diskneighbour.Detector,
	etcdclients.Detector,
	etcddefrag.Detector,
	etcdcommits.Detector,
	etcdsync.Detector,
	etcdnetwork.Detector,
	auditsink.Detector,
	apfseats.Detector,
	authentication.Detector,
	authorization.Detector,
	webhook.Detector,
	conversion.Detector,
	encryption.Detector,
	timeouts.Detector,
	aggregated.Detector,
	controllerlimit.Detector,
	clientway.Detector,
	controllerworkers.Detector,
	rollout.Detector,
	slowremoval.Detector,
	finalizers.Detector,
	schedulerlimit.Detector,
	prebindwait.Detector,
	podsparked.Detector,
	pacedclient.Detector,
	schedulingloop.Detector,
	slownodes.Detector,
	periodicjob.Detector,
	leaderelection.Detector,
	idletwins.Detector,
	growingcost.Detector,
	unexplained.Detector,
}

// Markdown is docs/detectors.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Detectors

Made from the detectors' own words (` + "`go test ./diagnose/detectors -update`" + `); do not edit.

` + "`kubedyno diagnose`" + ` runs them in this order, which is causal: what can cause another's symptom comes before it. Each ends in one of three ways: found, ruled out (and why), or
not assessed (and what is missing). A pod-second is explained once. Waiting measured inside the cause itself (a limiter, a late generator) is settled first; the other causes follow in this order and get what is left. A finding that then explains less than
10 % of the lost pod-seconds is ruled out in favour of what took them.

**Lost** is what pods waited in a stage above what a healthy one takes: submit and accept 0.1 s, controller 0.5 s, queue + decide + bind 0.5 s together, start 1 s on simulated
nodes (their declared p99) and 5 s on real ones, observe 0.1 s. Nothing is a bottleneck unless pods lost at least 10 % of their way and 0.5 s each, or
requests on one object took longer than 50 ms (where at rest enough of them took long, three times that, to 100 ms at most), on average and in sum; the harness' own requests do not count.

**Waste and risk** hold nobody up, or not yet. They need no symptom, stand for their own cost (requests, the API server's CPU, the client's) and come after what holds the run back. A load of less than 3 s is too short to find waste in.

**Grades.** *proven*: a second run with the change moved the symptom as predicted (only ` + "`kubedyno prove`" + ` gives it). *confirmed*: two independent sources, at least 0.6 of the stage's loss, runner-up at most half, and the
stage accounting adds up. *likely*: one source, at least 0.4. *possible*: worth a look. How often each was right where it was known what was wrong is in [accuracy.md](accuracy.md), and stands with each finding.
`)
	for _, d := range All {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n%s\n", d.Name, d.Title, strings.TrimSpace(d.Doc))
	}
	return b.String()
}
