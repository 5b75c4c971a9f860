package diagnose

import (
	"slices"
	"testing"
	"time"

	"github.com/kubedyno/kubedyno/record"
)

func TestPartings(t *testing.T) {
	const s = 1_000_000
	request := func(at int64, verb, agent, name, subresource string, code int32) record.Request {
		return record.Request{ReceivedMicros: at * s, DoneMicros: at*s + 1000, Verb: verb, Resource: "pods", Subresource: subresource, Namespace: "n", Name: name, UserAgent: agent, Code: code}
	}
	const kubelet, owner = "kubelet/v1.36.3 (linux/amd64) kubernetes/0123abc", "cleaner/1.0"
	pod := func(name string, created, gone int64) record.Pod {
		return record.Pod{Namespace: "n", Name: name, CreatedMicros: created * s, DeletedMicros: gone * s}
	}
	v := &View{Meta: record.Meta{Gaps: []record.Gap{
		{Collector: "objects", Subject: "pods", Reason: "the watch was interrupted", Start: time.Unix(40, 0), End: time.Unix(41, 0)},
		{Collector: "logs", Subject: "kube-apiserver", Reason: "not there"},
	}}, Pods: []record.Pod{
		pod("unseen", 1, 42), // nobody watched
		pod("unseen, too", 1, 0),
		pod("stays", 42, 0),
		pod("cleaned", 1, 20),
		pod("again", 1, 5), pod("again", 8, 12), // the node deleted the second
		pod("later", 30, 0), // the node deleted one from before
		pod("asked", 1, 0),  // by a user, and no node has done with it
		pod("refused", 1, 0),
	}}
	v.accountPartings([]record.Request{
		request(39, "delete", kubelet, "unseen", "", 200),
		request(39, "delete", kubelet, "unseen, too", "", 200),
		request(43, "delete", kubelet, "stays", "", 200),
		request(44, "delete", kubelet, "stays", "", 404),
		request(9, "patch", owner, "cleaned", "", 200), // before: no sign of who cleans up
		request(10, "delete", kubelet, "cleaned", "", 200),
		request(11, "patch", kubelet, "cleaned", "status", 200),
		request(19, "patch", owner, "cleaned", "", 200),
		request(21, "patch", "other", "cleaned", "", 404),
		request(11, "delete", kubelet, "again", "", 200),
		request(10, "delete", kubelet, "later", "", 200),
		request(10, "delete", owner, "asked", "", 200),
		request(10, "delete", kubelet, "refused", "", 403),
		request(10, "delete", kubelet, "of another phase", "", 200),
	})
	want := []Parting{
		{AtMicros: 43*s + 1000},
		{AtMicros: 10*s + 1000, GoneMicros: 20 * s, Agent: "cleaner"},
		{AtMicros: 11*s + 1000, GoneMicros: 12 * s},
	}
	if !slices.Equal(v.Partings, want) {
		t.Errorf("got %+v\nwant %+v", v.Partings, want)
	}
}
