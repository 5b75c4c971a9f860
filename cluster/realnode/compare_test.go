package realnode

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubedyno/kubedyno/hollow"
)

// A difference is one that we know of, and why it is let be.
type difference struct {
	pattern string // of the differences' names
	reason  string
}

// TestHollowSpeaksKubelet holds what hollow nodes ask for against what the real
// node asked for about the same pods: verbs, resources, order within each lane,
// and the fields of each body. Every difference is one of remaining, and each of
// those must still occur.
func TestHollowSpeaksKubelet(t *testing.T) {
	b, err := os.ReadFile(recordingFile)
	if err != nil {
		t.Fatal(err)
	}
	var real recording
	if err := json.Unmarshal(b, &real); err != nil {
		t.Fatal(err)
	}
	cp, client, audit := startListeningLab(t)
	startHollow(t, cp, func(c *hollow.Config) {
		// So slow that no status is overtaken by the next on a busy machine.
		c.StartDelay = hollow.Delay{Distribution: "constant", Median: 1.5}
	})

	used := make([]bool, len(remaining))
	// What is new must show again: a machine that stands still for a moment
	// makes a kubelet leave out a status, and a hollow node too.
	const passes = 3
	var unknown []string
	for pass := range passes {
		lives := liveAll(t, client, audit, "hollow-0")
		now := differences(t, &real, &recording{Lives: lives, Node: nodeRequests(asked(t, audit, "hollow-0"))})
		now = slices.DeleteFunc(now, func(name string) bool {
			for i, d := range remaining {
				if regexp.MustCompile("^(?:" + d.pattern + ")$").MatchString(name) {
					used[i] = true
					return true
				}
			}
			return false
		})
		if pass > 0 {
			now = slices.DeleteFunc(now, func(name string) bool { return !slices.Contains(unknown, name) })
		}
		if unknown = now; len(unknown) == 0 {
			break
		}
	}
	for _, name := range unknown {
		t.Errorf("not known: %s", name)
	}
	for i, d := range remaining {
		if !used[i] {
			t.Errorf("no longer so, take it off the list: %s (%s)", d.pattern, d.reason)
		}
	}
}

// differences names all that differs.
func differences(t *testing.T, real, ours *recording) (all []string) {
	t.Helper()
	for _, d := range compareKinds(real.Node, ours.Node) {
		all = append(all, "node: "+d)
	}
	for _, k := range kinds() {
		was, ok := real.Lives[k.name]
		if !ok {
			t.Fatalf("%s has no pod of kind %s: record it with -update", recordingFile, k.name)
		}
		is := ours.Lives[k.name]
		for _, lane := range []struct {
			name     string
			was, now []request
		}{{"status", was.Status, is.Status}, {"events", was.Events, is.Events}, {"volumes", was.Volumes, is.Volumes}} {
			for _, d := range compareLane(lane.was, lane.now) {
				all = append(all, k.name+" "+lane.name+": "+d)
			}
		}
	}
	return all
}

// compareKinds compares which kinds of requests there are.
func compareKinds(was, now []request) (all []string) {
	has := func(list []request, r request) bool {
		return slices.ContainsFunc(list, func(o request) bool { return o.String() == r.String() })
	}
	for _, r := range was {
		if !has(now, r) {
			all = append(all, "only real: "+r.String())
		}
	}
	for _, r := range now {
		if !has(was, r) {
			all = append(all, "only hollow: "+r.String())
		}
	}
	return all
}

// compareLane aligns two sequences by what their requests tell and names what
// only one of them has, and for those that both have the fields that differ.
func compareLane(was, now []request) (all []string) {
	a, b := names(was), names(now)
	// The longest common subsequence, from the end.
	length := make([][]int, len(a)+1)
	for i := range length {
		length[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			for _, f := range was[i].Body {
				if !slices.Contains(now[j].Body, f) {
					all = append(all, a[i]+": only real "+f)
				}
			}
			for _, f := range now[j].Body {
				if !slices.Contains(was[i].Body, f) {
					all = append(all, a[i]+": only hollow "+f)
				}
			}
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			all, i = append(all, "only real: "+a[i]), i+1
		default:
			all, j = append(all, "only hollow: "+b[j]), j+1
		}
	}
	return all
}

var containerState = regexp.MustCompile(`^\.status\.(?:init)?[cC]ontainerStatuses\[(.*?)\]\.state\.(waiting|running|terminated)\.(?:(reason=.*)|.*)$`)

// names names requests by what they tell: a status patch by the phase and the
// states of containers in it, or else by its fields.
func names(list []request) []string {
	out := make([]string, len(list))
	for i, r := range list {
		out[i] = r.String()
		if r.Verb != "patch" || !strings.HasPrefix(r.Resource, "pods") {
			continue
		}
		states := map[string]string{}
		var order []string
		for _, f := range r.Body {
			if phase, ok := strings.CutPrefix(f, ".status.phase="); ok {
				out[i] += " " + phase
			}
			if m := containerState.FindStringSubmatch(f); m != nil {
				if states[m[1]] == "" {
					order = append(order, m[1])
				}
				if s := strings.TrimPrefix(m[3], "reason="); s != "" {
					states[m[1]] = s
				} else if states[m[1]] == "" {
					states[m[1]] = m[2]
				}
			}
		}
		if out[i] == r.String() && len(order) == 0 {
			out[i] += " {" + strings.Join(topFields(r.Body), ", ") + "}"
		}
		slices.Sort(order)
		for _, name := range order {
			out[i] += fmt.Sprintf(" %s:%s", name, states[name])
		}
	}
	return out
}

var topField = regexp.MustCompile(`^\.status\.([a-zA-Z]+)`)

func topFields(body []string) (all []string) {
	for _, f := range body {
		if m := topField.FindStringSubmatch(f); m != nil && m[1] != "resources" && !slices.Contains(all, m[1]) {
			all = append(all, m[1])
		}
	}
	if len(all) == 0 {
		all = []string{"resources"}
	}
	return all
}
