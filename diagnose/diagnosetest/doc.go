// Package diagnosetest is a little language for testing detectors: a run in
// words, the diagnosis below.
//
//	about controller-client-limit scheduler-client-limit
//
//	# Stock flags, one Deployment: the controller's own limit.
//	pods 1500 deployment
//	----
//	bottleneck kube-controller-manager controller client-limit confirmed: …
//
// A file holds several cases, parted by blank lines after the diagnosis. Its first line, or
// a line of a case, says which detectors it is about; of others it is not said why they
// found nothing. With the line "in full", the sentences that users read of each finding
// and of its advice are expected, too.
// Nobody writes what stands below the dashes by hand: run the test with -update
// and review the difference like code.
//
// The words, one or more on a line, parted by semicolons:
//
//	pods 1500 deployment            one Deployment, submitted at once
//	pods 1500 deployments 50        the same in 50 Deployments
//	pods 300 bare 5/s               bare pods, each due at its time
//	watched 60s                     no load: a cluster at its own work
//	cores 2                         CPUs of the machine
//	controller 20/s burst 30        its client limit, by flag (default: stock flags)
//	controller free                 no limit to speak of
//	controller works 8/s            creates at most that many, irregularly, limit or not
//	scheduler 50/s burst 100        likewise
//	scheduler free
//	scheduler config                has a --config file, so that flags say nothing
//	scheduler decides 20ms          a cycle takes that long
//	scheduler decides 2ms growing 5ms
//	                                likewise, and 5 ms more with each 1,000 pods
//	scheduler decides 90ms outside  likewise, of its plugins: in an extender
//	parked 10s                      pods are set aside that long before they are decided
//	bind takes 2s                   the binding request
//	bind takes 2s at PreBind        likewise, a plugin before it
//	accept takes 1s                 creating a pod, a slow webhook say
//	capacity 110/s                  the whole system does that many, irregularly
//	machine cpu 0.95                busy share under load (default: 12 ms a pod)
//	machine cpu 0.95 others 0.6     of that, the share of processes outside the run
//	machine full 0s to 8s           all of its CPUs are busy then
//	cpus 0.99 0.10                  busy share of each CPU under load (default: of the machine)
//	kube-apiserver quota 0.4 used 0.98 stopped 0.9
//	kube-scheduler quota 0.1 used 0.98 stopped 0.9 by others
//	                                one that the experiment did not set
//	generator 10/s                  sends at most that many
//	generator late 300ms            sends each request that late
//	generator missed 20             never sends that many
//	nodes late 500ms                simulated nodes report that late, by their own fault
//	nodes wait 500ms                likewise, waiting for the API server's answers
//	etcd syncs 0.9 each 20ms        busy share of the log's writer, and its mean sync
//	still kube-scheduler 10s to 15s
//	                                no thread of it ran then
//	stopped kube-apiserver 0.8      in that share of the moments at which it was looked at
//	ended kube-scheduler 137 at 5s  its exit status, and the run ended with it
//	stuck 3; lost 2                 pods never running; never seen
//	lost 40 refused 403             for the load, of bare pods, was told so
//	stuck 3 deleted                 the former, since somebody deleted them
//	refused 500 for 20s             each pod that a controller creates, so that none comes
//	paused for 20s                  each Deployment, so that no pod comes
//	warm-up                         the run failed in its warm-up, and the pods are of that
//	status interrupted              how the recording ended, here while pods were still coming
//	no audit|metrics|processes|machine
//	no flags                        an existing cluster: only the harness is known
//	no metrics of kube-scheduler
//	no events of audit              the audit policy leaves Events out
//	seed 7                          another draw of the random delays
//
// Whatever a recording can hold besides, so that no cause needs words of its own:
//
//	metric kube-apiserver NAME{label=value,…} +12.5 rest 0.2/s
//	                                what a counter grew by over the load, and a second before it;
//	                                counters without a word are there and never counted
//	gauge kube-apiserver NAME{label=value,…} 3..40 rest 2
//	                                what a gauge showed, from the load's start to its end
//	requests kubectl LIST pods 20/s each 5ms
//	                                "-" for paths that are no resource, such as discovery
//	         code 409 30%           of them answered so; more than one is possible
//	         names 5; users 3       how many objects, how many users (default: 1 user, no name)
//	         in team-a              the namespace
//	         rest 1/s each 2ms      before the load
//	         metronome              at a constant rate, instead of by chance
//	         from 5s to 9s          only then
//	         query watch=1&…        what a LIST or WATCH asks for
//	         group apps             the API group
//	         bodies 80000           bytes of each one's body (default: not known)
//	         queued 40%; webhooks 30%  so much of each one's time for a seat, in admission webhooks
//	         authenticated 20%; authorized 5%  and until it is known who asks, and whether they may
//	                                an agent with a role is written kube-controller-manager/job-controller
//	log kube-apiserver 40 TEXT      so many lines, spread over the load (a line of its own)
//	profile kube-apiserver 12s OUTER … INNER
//	                                CPU-seconds of a stack
//	stack kube-apiserver 12s OUTER … INNER
//	                                likewise, as samples with their times, evenly over the load
//	stack kube-apiserver 12s growing OUTER … INNER
//	                                more and more often
//	flag kube-apiserver NAME=VALUE
//	writes kube-apiserver 20MB/s    to storage
//	blocks etcd 4ms 1ms flush 2ms   writes that it sends to the disk vda, in its queue and in
//	                                the device, and flushes
//	blocks kube-apiserver 4ms 1ms on vdb
//	                                likewise, to another disk
//	delay etcd 0.4                  seconds a second that its threads waited for a CPU
//	connections 50/s                accepted on the machine
//	healthy 4ms demand/cpu of kube-apiserver
//	                                what a feature was in five healthy runs, ± 5 %
//
// What is written is what the run looked like, not why: the detectors must
// find the why.
package diagnosetest
