package realnode

// remaining is the whole list of differences between a hollow node and the real
// one. docs/fidelity.md tells it in words.
var remaining = []difference{
	{`.*: only hollow \.status\.(?:init)?[cC]ontainerStatuses\[.*\]\.user\.linux\..*`,
		"who a container runs as: containerd 2 reports it, the recorded 1.6 does not, and a hollow node claims to be the newer"},
	{`\w+ status: .*: only real \.status\.resources\.limits\.memory(?:=null)?`,
		"with cgroup v1 a kubelet reads back no limit as a very large one and reports it; with v2 it does not"},
	{`\w+ status: only real: patch pods/status \{resources\}`,
		"the same limit, taken back when the pod's cgroup is gone"},
	{`\w+ status: only (?:hollow|real): get pods`,
		"the kubelet's forced update and its last look at a pod come in one or in two, by chance"},
	{`node: only real: create events .*`,
		"events about the node itself are left out"},
	{`node: only real: (?:get nodes|deletecollection resourceslices)`,
		"one request each when a kubelet starts"},
	{`node: only hollow: get /version`,
		"a hollow node takes its kubelet's version from the server"},
}
