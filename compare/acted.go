package compare

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/diagnose"
	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/stat"
)

// The effects of a setting, beside NotAssessed.
const (
	Acted     Outcome = "acted"
	DidNotAct Outcome = "did not act"
)

// KnobCheck is the answer to whether a setting arrived where it should, or did
// something there that shows elsewhere than in what is compared.
type KnobCheck struct {
	Path   string  `json:"path"`
	What   string  `json:"what"` // is looked at
	Effect Outcome `json:"effect"`
	Why    string  `json:"why"`
	// ByPoint is what was seen at each point, median and extremes over its runs.
	ByPoint []string `json:"byPoint,omitempty"`
}

// knob is something that can be seen of a setting in one run. wanted, with the
// value that was set, says whether it arrived; without it, the values that are
// seen must differ between points.
type knob struct {
	what   string
	of     func(s diagnose.Source) (seen string, ok bool, err error)
	wanted func(value, seen string) bool
}

func equal(value, seen string) bool {
	if a, err := strconv.ParseFloat(value, 64); err == nil {
		if b, err := strconv.ParseFloat(seen, 64); err == nil {
			return a == b
		}
	}
	return value == seen
}

// knobs are what can be looked at for the setting of a path: that it arrived,
// then what it did.
func knobs(path string) []knob {
	path = strings.TrimPrefix(path, "cluster.components.")
	component, rest, _ := strings.Cut(path, ".")
	part, name, _ := strings.Cut(rest, ".")
	meta := func(what string, of func(m record.Meta) (string, bool)) knob {
		return knob{what: what, wanted: equal, of: func(s diagnose.Source) (string, bool, error) {
			seen, ok := of(s.Meta())
			return seen, ok, nil
		}}
	}
	at := func(what string, of func(c record.Component) (string, bool)) knob {
		return meta(what, func(m record.Meta) (string, bool) {
			for _, c := range m.Cluster.Components {
				if c.Name == component {
					return of(c)
				}
			}
			return "", false
		})
	}
	number := func(x float64, ok bool) (string, bool) { return strconv.FormatFloat(x, 'g', -1, 64), ok }
	switch path {
	case "cluster.nodes", "cluster.nodes.hollow", "nodes":
		return []knob{meta("nodes that were there", func(m record.Meta) (string, bool) { return number(float64(m.Nodes.Count), m.Nodes.Count > 0) })}
	case "cluster.cpu":
		return []knob{meta("CPU quota of the control plane, cores", func(m record.Meta) (string, bool) { return number(m.Cluster.CPU, m.Cluster.CPU > 0) })}
	case "cluster.profile":
		return []knob{meta("profile of the lab", func(m record.Meta) (string, bool) { return m.Cluster.Profile, m.Cluster.Profile != "" })}
	case "rate":
		return []knob{{what: "pods, or claims, asked for each second", of: sentRate}}
	case "pods-per-node", "pods":
		return []knob{{what: "pods that were observed", of: podsSeen}}
	case "variant":
		return []knob{meta("settings of the variant", func(m record.Meta) (string, bool) { return strings.Join(m.Settings, " "), true }).with(nil)}
	}
	switch {
	case path == "etcd.args.snapshot-count":
		return []knob{arrived(at, component, name), {what: "snapshots that etcd took", of: snapshots}}
	case part == "args":
		return []knob{arrived(at, component, name)}
	case part == "cpu" && name == "":
		return []knob{at("CPU quota of "+component+", cores", func(c record.Component) (string, bool) { return number(c.CPU, c.CPU > 0) })}
	case part == "binary":
		return []knob{at("binary that "+component+" is", func(c record.Component) (string, bool) { return c.Binary, c.Binary != "" }).with(func(value, seen string) bool {
			return value[strings.LastIndexByte(value, '/')+1:] == seen
		})}
	case part == "env":
		return []knob{at("variable "+name+" in the environment of "+component, func(c record.Component) (string, bool) {
			return "set", slices.Contains(c.Env, name)
		}).with(func(string, string) bool { return true })}
	}
	if strings.HasPrefix(path, "phases.") && strings.HasSuffix(path, ".rate") {
		return []knob{{what: "operations sent each second, between the first and the last", of: sentRate}}
	}
	if strings.HasPrefix(path, "phases.") {
		return []knob{{what: "pods that were observed", of: podsSeen}}
	}
	return nil
}

func (k knob) with(wanted func(value, seen string) bool) knob {
	k.wanted = wanted
	return k
}

// arrived looks for a flag on the command line that the process was started with.
// Of a flag that is there twice the last one counts.
func arrived(at func(string, func(record.Component) (string, bool)) knob, component, flag string) knob {
	return at("--"+flag+" on the command line of "+component, func(c record.Component) (seen string, ok bool) {
		for _, a := range c.Args {
			name, value, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
			if name == flag {
				seen, ok = value, true
			}
		}
		return seen, ok
	})
}

// snapshots counts those that etcd took, from its start on.
func snapshots(s diagnose.Source) (string, bool, error) {
	m := s.Meta()
	n, ok, err := s.Increase("etcd_debugging_snap_save_total_duration_seconds_count", map[string]string{"component": diagnose.Etcd}, record.Window{Start: m.Started, End: m.Ended})
	if err != nil && !errors.Is(err, record.ErrMissing) {
		return "", false, err
	}
	if ok && err == nil {
		return strconv.FormatFloat(n, 'f', 0, 64), true, nil
	}
	if !slices.Contains(s.Logs(), diagnose.Etcd) {
		return "", false, nil
	}
	log, err := s.Log(diagnose.Etcd)
	if err != nil {
		return "", false, err
	}
	defer log.Close()
	count := 0
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "saved snapshot") {
			count++
		}
	}
	return strconv.Itoa(count), true, nil
}

func podsSeen(s diagnose.Source) (string, bool, error) {
	pods, err := s.Pods()
	if errors.Is(err, record.ErrMissing) {
		return "", false, nil
	}
	return strconv.Itoa(len(pods)), err == nil, err
}

// sentRate is how fast the operations of the steady phases were sent.
func sentRate(s diagnose.Source) (string, bool, error) {
	ops, err := s.Operations()
	if errors.Is(err, record.ErrMissing) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	steady, ok := s.Steady()
	if !ok {
		return "", false, nil
	}
	var sent []int64
	for _, o := range ops {
		if o.SentMicros > 0 && steady.Contains(time.UnixMicro(o.SentMicros)) {
			sent = append(sent, o.SentMicros)
		}
	}
	if len(sent) < 2 {
		return "", false, nil
	}
	seconds := float64(slices.Max(sent)-slices.Min(sent)) / 1e6
	if seconds <= 0 {
		return "", false, nil
	}
	return fmt.Sprintf("%.3g", float64(len(sent)-1)/seconds), true, nil
}

// checks look at the axes of a sweep in its runs: of[p] are those of a point.
func checks(axes []Axis, points []SweepPoint, of [][]diagnose.Source) ([]KnobCheck, error) {
	var all []KnobCheck
	for i, axis := range axes {
		ks := knobs(axis.Path)
		for _, k := range ks {
			c, err := k.check(i, axis, points, of)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		if len(ks) == 0 || !slices.ContainsFunc(ks, func(k knob) bool { return k.wanted == nil }) && strings.Contains(axis.Path, ".args.") {
			all = append(all, KnobCheck{Path: axis.Path, What: "what it does", Effect: NotAssessed, Why: "no check is known of what " + axis.Path + " does"})
		}
	}
	return all, nil
}

func (k knob) check(i int, axis Axis, points []SweepPoint, of [][]diagnose.Source) (KnobCheck, error) {
	c := KnobCheck{Path: axis.Path, What: k.what, Effect: Acted}
	byValue := map[string][]string{}
	runs, missing, wrong := 0, 0, ""
	for p, point := range points {
		var seen []string
		for _, s := range of[p] {
			if s == nil {
				continue
			}
			x, ok, err := k.of(s)
			if err != nil {
				return c, fmt.Errorf("recording %s: %s: %w", s.Meta().ID, k.what, err)
			}
			runs++
			if !ok {
				if point.Values[i] != Unset {
					missing++
				}
				continue
			}
			seen = append(seen, x)
			if k.wanted != nil && point.Values[i] != Unset && !k.wanted(point.Values[i], x) && wrong == "" {
				wrong = fmt.Sprintf("%s was set, and %s is there", point.Values[i], x)
			}
		}
		c.ByPoint = append(c.ByPoint, span(seen))
		byValue[point.Values[i]] = append(byValue[point.Values[i]], seen...)
	}
	switch {
	case missing > 0 && missing == runs, runs == 0:
		c.Effect, c.Why, c.ByPoint = NotAssessed, "no recording shows it", nil
	case missing > 0 && k.wanted == nil:
		c.Effect, c.Why, c.ByPoint = NotAssessed, fmt.Sprintf("%d of %d runs do not show it", missing, runs), nil
	case missing > 0:
		c.Effect, c.Why = DidNotAct, fmt.Sprintf("%d of %d runs do not show it", missing, runs)
	case wrong != "":
		c.Effect, c.Why = DidNotAct, wrong
	case k.wanted != nil:
		c.Why = fmt.Sprintf("in all of %d runs", runs)
	default:
		least, most := apart(byValue)
		if least == most {
			c.Effect, c.Why = DidNotAct, fmt.Sprintf("%s at every value", least)
		} else {
			c.Why = fmt.Sprintf("from %s to %s", least, most)
		}
	}
	return c, nil
}

// apart are the typical sights of the values that differ most.
func apart(byValue map[string][]string) (least, most string) {
	var middles []float64
	texts := map[string]bool{}
	for _, value := range sortedKeys(byValue) {
		var xs []float64
		for _, s := range byValue[value] {
			texts[s] = true
			if x, err := strconv.ParseFloat(s, 64); err == nil {
				xs = append(xs, x)
			}
		}
		if len(xs) > 0 {
			middles = append(middles, stat.Median(xs))
		}
	}
	if len(middles) == 0 {
		all := sortedKeys(texts)
		if len(all) == 0 {
			return "", ""
		}
		return all[0], all[len(all)-1]
	}
	return fmt.Sprintf("%g", slices.Min(middles)), fmt.Sprintf("%g", slices.Max(middles))
}

// span is what was seen over the runs of a point.
func span(seen []string) string {
	var xs []float64
	for _, s := range seen {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			xs = nil
			break
		}
		xs = append(xs, x)
	}
	if len(xs) == 0 {
		all := slices.Compact(slices.Sorted(slices.Values(seen)))
		return strings.Join(all, " | ")
	}
	least, most := slices.Min(xs), slices.Max(xs)
	if least == most {
		return fmt.Sprintf("%g", least)
	}
	return fmt.Sprintf("%g (%g…%g)", stat.Median(xs), least, most)
}
