package fault

import (
	"fmt"
	"slices"
	"strings"
)

// A Group are faults that look alike from outside, and what tells them apart.
type Group struct {
	Name    string
	Apart   string
	Members []string // names of faults
}

// LookAlikes are the groups by which it is checked that no fault is called by
// another one's name.
var LookAlikes = []Group{
	{"etcd answers late", "the disk's time for a sync, who writes to the disk, how long etcd's threads wait for a CPU, and the fastest reads",
		[]string{"slow-fsync", "disk-neighbour", "starved-etcd", "far-etcd"}},
	{"few pods are created", "time in the client's limiter, how busy the workers are, both clocks of the same requests, refusals of pods or of any request, and the CPU quota",
		[]string{"controller-limit", "few-workers", "far-controllers", "refused-creates", "starved-controllers", "operator-limit", "no-queues"}},
	{"few pods are bound", "time in the client's limiter, how busy the loop is, the plugin's time, and the CPU quota",
		[]string{"scheduler-limit", "starved-scheduler", "crowded-terms", "slow-volumes"}},
	{"every request is slow", "waiting for a seat with idle CPUs beside long execution on full ones, and the time in webhooks, policies and etcd",
		[]string{"few-seats", "no-queues", "starved-apiserver", "small-master", "slow-webhook", "slow-conversion", "heavy-policy", "far-etcd"}},
	{"many lists", "whether a watch follows, and whether the list reaches etcd",
		[]string{"list-storm", "relist-storm", "uncached-lists"}},
	{"many conflicts", "which objects, how many writers, and who asks for locks",
		[]string{"conflict-storm", "fighting-controllers", "quota-conflicts", "locks-per-object"}},
	{"many writes", "of what kind, to how many objects, and whether one client or two write the same",
		[]string{"hot-loop", "event-flood", "heartbeat-storm", "fighting-controllers", "conflict-storm", "large-objects"}},
	{"many watch events", "what the events are of, and who holds the watches",
		[]string{"watch-fanout", "endpoint-fanout", "event-flood", "heartbeat-storm"}},
	{"pods start late on their nodes", "which step of the node takes the time, and whether its reports wait at the API server",
		[]string{"slow-node-disk", "slow-images", "slow-network-plugin", "slow-volumes", "small-master", "slow-fsync"}},
	{"load comes late", "who waits: a component in its limiter, or the generator behind its own schedule",
		[]string{"slow-generator", "controller-limit", "operator-limit"}},
}

// lookAlikes tells of each group how often its members were named right, and
// how often a member was called by another one's name.
func (a Accuracy) lookAlikes(b *strings.Builder) {
	b.WriteString("\n## Look-alikes\n\nFaults that look alike from outside. Named right: first finding, over runs with that fault alone that acted. Taken for another: the first finding is one that only another member of the group has.\n\n" +
		"| what is seen | what tells them apart | named right | taken for another |\n|---|---|---|---|\n")
	for _, g := range LookAlikes {
		var cells, taken []string
		for _, name := range g.Members {
			var s Share
			for _, t := range a.Trials {
				if len(t.Faults) != 1 || t.Faults[0].Name != name || !t.Acted {
					continue
				}
				s.add(t.Right())
				if twin := g.twin(t); twin != "" {
					taken = append(taken, t.Recording+" for "+twin)
				}
			}
			if s.Of == 0 {
				cells = append(cells, name+" not run")
			} else {
				cells = append(cells, fmt.Sprintf("%s %d of %d", name, s.Right, s.Of))
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", g.Name, g.Apart, strings.Join(cells, ", "), named(taken))
	}
}

// twin is the member of the group whose name a trial's first finding wrongly
// gives to its fault, or "".
func (g Group) twin(t Trial) string {
	if t.Right() || t.First == "" {
		return ""
	}
	for _, name := range g.Members {
		f, err := Find(name)
		if err == nil && name != t.Faults[0].Name && slices.ContainsFunc(f.Right, t.Named.within) {
			return name
		}
	}
	return ""
}

// within says whether p is what right asks for.
func (p Place) within(right Place) bool {
	return p.Component == right.Component && (right.Stage == "" || p.Stage == right.Stage) && p.Resource == right.Resource
}
