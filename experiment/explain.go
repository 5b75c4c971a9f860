package experiment

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Explain says in plain words what will happen, in order.
func (e *Experiment) Explain() string {
	x := explainer{e: e}
	x.line("%s: %s", e.Name, or(e.Description, "no description"))
	x.cluster()
	x.observe()
	x.actors()
	x.faults()
	steps := e.Plan()
	x.line("")
	x.line("What is done, in order:")
	least := time.Duration(0)
	pods := 0
	for i, s := range steps {
		x.step(fmt.Sprintf("%2d. ", i+1), s)
		least += s.Least()
	}
	for _, s := range flat(steps) {
		pods += s.Adds
	}
	x.line("")
	x.line("In all %s are asked for, at most %s at one time. It takes at least %s, and the time that the cluster needs.",
		count(pods, "pod"), count(e.PeakPods(), "pod"), formatDuration(least.Round(100*time.Millisecond)))
	x.judged()
	x.many()
	return x.b.String()
}

type explainer struct {
	e *Experiment
	b strings.Builder
}

func (x *explainer) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if text == "" {
		x.b.WriteByte('\n')
		return
	}
	x.b.WriteString(strings.TrimRight(text, " ") + "\n")
}

func (x *explainer) cluster() {
	c := x.e.Cluster
	switch {
	case c.Existing && c.Nodes.Hollow == 0:
		x.line("On an existing cluster, with its own nodes.")
	case c.Existing:
		x.line("On an existing cluster, with %s added for the run.", count(c.Nodes.Hollow, "hollow node"))
	case c.Nodes.Hollow == 0 && c.Nodes.Seeded > 0:
		x.line("On a lab of its own: a real control plane with the flags of the %s profile.", c.Profile)
		x.seeded(c)
	default:
		x.line("On a lab of its own: a real control plane with the flags of the %s profile and %s (%s cores, %s, %d pods each).",
			c.Profile, count(c.Nodes.Hollow, "hollow node"), c.Node.CPU, c.Node.Memory, c.Node.Pods)
		x.seeded(c)
		if c.Nodes.Real > 0 {
			x.line("  And %s: containerd and a kubelet, in namespaces of their own on this machine.", count(c.Nodes.Real, "real node"))
			if c.Proxy {
				x.line("  On each of them kube-proxy; %s of CoreDNS in pods.", count(c.DNS, "replica"))
			}
		}
	}
	x.storage()
	if words := c.Node.inWords(); len(words) > 0 && c.Nodes.Hollow > 0 {
		x.line("  On each hollow node %s.", strings.Join(words, "; "))
	}
	if c.CPU != 0 {
		x.line("  The control plane's components are held to %s cores together.", formatFloat(c.CPU))
	}
	for _, name := range sortedKeys(c.Components) {
		x.line("  %s %s", name, strings.Join(c.Components[name].inWords(), ", "))
	}
}

// inWords lists what a pod has to wait for besides its start delay.
func (n Node) inWords() []string {
	var words []string
	if n.Traffic == TrafficLeast {
		words = append(words, "only the least is said of a pod")
	}
	if n.Starts != 0 {
		words = append(words, fmt.Sprintf("%s at a time", count(n.Starts, "start")))
	}
	if d := n.Disk; d.Kind != "" {
		words = append(words, fmt.Sprintf("a start takes %s of the disk (median), one after the other", formatDuration(d.At(0.5))))
	}
	if d := n.Images.Pull; d.Kind != "" {
		words = append(words, fmt.Sprintf("an image is pulled in %s (median), %d at a time", formatDuration(d.At(0.5)), max(1, n.Images.Parallel)))
	}
	if d := n.Network.Delay; d.Kind != "" {
		turn := "each pod for itself"
		if n.Network.Serial {
			turn = "one pod after the other"
		}
		words = append(words, fmt.Sprintf("the network plugin takes %s (median), %s", formatDuration(d.At(0.5)), turn))
	}
	return words
}

// inWords lists what differs. Values of environment variables may be secrets.
func (c Component) inWords() []string {
	var words []string
	for _, flag := range sortedKeys(c.Args) {
		if v := c.Args[flag]; v != nil {
			words = append(words, fmt.Sprintf("with --%s=%s", flag, *v))
		} else {
			words = append(words, "without --"+flag)
		}
	}
	for _, name := range sortedKeys(c.Env) {
		words = append(words, "with $"+name+" set")
	}
	if c.Binary != "" {
		words = append(words, "from "+c.Binary)
	}
	if len(c.Config) > 0 {
		words = append(words, "with a configuration of its own ("+strings.Join(sortedKeys(c.Config), ", ")+")")
	}
	if c.Off {
		words = append(words, "is left out")
	}
	if c.CPU != 0 {
		words = append(words, fmt.Sprintf("held to %s cores", formatFloat(c.CPU)))
	}
	if c.SyncDelay != 0 {
		words = append(words, fmt.Sprintf("with each sync to disk %s longer", formatDuration(c.SyncDelay)))
	}
	if c.Latency != 0 {
		words = append(words, fmt.Sprintf("with %s more on the way of its requests", formatDuration(c.Latency)))
	}
	if c.Files != 0 {
		words = append(words, fmt.Sprintf("with at most %d open files", c.Files))
	}
	return words
}

func (x *explainer) observe() {
	o := x.e.Observe
	text := fmt.Sprintf("Watched at the level %s", o.Level)
	if o.Interval > 0 {
		text += ", metrics each " + formatDuration(o.Interval)
	}
	if o.Profile && o.Level != LevelMinimal {
		text += ", with CPU profiles of steady phases"
	}
	x.line("%s.", text)
}

// actors says who else is there.
func (x *explainer) actors() {
	if len(x.e.Actors) == 0 {
		return
	}
	x.line("Beside it, each in a process of its own:")
	for _, a := range x.e.Actors {
		text := fmt.Sprintf("  %s: %s", a.Name, a.Do)
		for _, n := range []struct {
			name  string
			value string
			given bool
		}{
			{"rate", a.Rate.String(), a.Rate.PerSecond != 0}, {"count", strconv.Itoa(a.Count), a.Count != 0},
			{"objects", strconv.Itoa(a.Objects), a.Objects != 0}, {"bytes", strconv.Itoa(a.Bytes), a.Bytes != 0}, {"resource", a.Resource, a.Resource != ""},
			{"qps", formatFloat(a.QPS), a.QPS != 0}, {"burst", strconv.Itoa(a.Burst), a.Burst != 0}, {"stale", "yes", a.Stale},
			{"delay", formatDuration(a.Delay), a.Delay != 0}, {"refuse", formatFloat(a.Refuse) + " %", a.Refuse != 0},
		} {
			if n.given {
				text += fmt.Sprintf(", %s %s", n.name, n.value)
			}
		}
		if len(a.During) > 0 {
			text += ", during " + strings.Join(a.During, " and ")
		}
		x.line("%s.", text)
	}
}

// faults says what is put wrong on purpose.
func (x *explainer) faults() {
	for _, f := range append(slices.Clone(x.e.made), x.e.Faults...) {
		x.line("Put wrong on purpose: %s, %s.", f.Name, f.Strength())
	}
}

func (x *explainer) step(number string, s Step) {
	indent := strings.Repeat(" ", len(number))
	if s.Parallel != nil {
		x.line("%s%s: %d phases begin together.", number, s.Name, len(s.Parallel))
		for i, inner := range s.Parallel {
			x.step(fmt.Sprintf("%s%c) ", indent, 'a'+rune(i%26)), inner)
		}
		return
	}
	does := x.does(s)
	if s.Beside {
		does += ", at most, until the others are over"
	}
	x.line("%s%s (%s): %s.", number, s.Name, s.Kind, does)
	if s.Until != nil && s.Wait == nil {
		x.line("%sThen wait until %s, for at most %s, or until nothing moves for %s.", indent, awaited(s), formatDuration(s.Until.Timeout), formatDuration(s.Until.Stall))
	}
}

// awaited is what a step waits for.
func awaited(s Step) string {
	n, what := s.Adds, string(s.Until.For)
	if s.Until.For == StateGone {
		n = s.Removes
	}
	switch {
	case s.Wait != nil && s.Until.For == StateBound:
		return "all claims that were asked for are bound"
	case s.Wait != nil:
		return "all pods that were asked for are " + what
	case s.Until.For == StateGone && s.ClaimsLess > 0:
		return fmt.Sprintf("%s are %s", count(s.ClaimsLess, "claim"), what)
	case s.Claims > 0:
		return fmt.Sprintf("%s are %s", count(s.Claims, "claim"), what)
	}
	return fmt.Sprintf("%s are %s", count(n, "pod"), what)
}

// does is what a step does.
func (x *explainer) does(s Step) string {
	how := func(p Pacing) string { return sending(p, s) }
	switch {
	case s.Create != nil:
		return fmt.Sprintf("create %s%s%s", x.making(&s.Create.Objects, s), s.Create.inNamespaces(), how(s.Create.Pacing))
	case s.Apply != nil && s.Apply.Phase == "":
		return fmt.Sprintf("apply %s%s%s", x.making(&s.Apply.Objects, s), s.Apply.inNamespaces(), how(s.Apply.Pacing))
	case s.Apply != nil:
		return fmt.Sprintf("apply the objects of %s again, %s%s", s.Apply.Phase, count(s.Operations, "time"), how(s.Apply.Pacing))
	case s.Scale != nil:
		return fmt.Sprintf("scale the %s of %s to %s each, %s%s", count(s.Operations, "object"), s.Scale.Phase, count(s.Scale.Replicas, "replica"), change(s), how(s.Scale.Pacing))
	case s.Patch != nil:
		return fmt.Sprintf("patch the objects of %s, %s%s", s.Patch.Phase, count(s.Operations, "time"), how(s.Patch.Pacing))
	case s.Update != nil:
		return fmt.Sprintf("update the %s of %s, so that their controllers replace %s%s%s", count(s.Operations, "object"), s.Update.Phase, count(s.Adds, "pod"), withClaims(s), how(s.Update.Pacing))
	case s.Churn != nil:
		text := fmt.Sprintf("delete %s of %s, the oldest first, and create as many new ones", count(s.Operations/2, "object"), s.Churn.Phase)
		if s.Churn.Percent > 0 {
			text += fmt.Sprintf(" (%s %% in a cycle)", formatFloat(s.Churn.Percent))
		}
		if s.Churn.Every > 0 {
			text += ", a cycle every " + formatDuration(s.Churn.Every)
		}
		return text + ", " + change(s) + how(s.Churn.Pacing)
	case s.Read != nil:
		return "read " + mixed(s.Read.Mix) + how(s.Read.Pacing)
	case s.Delete != nil:
		return fmt.Sprintf("delete the %s of %s, %s%s", count(s.Operations, "object"), s.Delete.Phase, change(s), how(s.Delete.Pacing))
	case s.Wait != nil:
		return fmt.Sprintf("wait until %s, for at most %s", awaited(s), formatDuration(s.Until.Timeout))
	}
	if s.Settle.Paused {
		return fmt.Sprintf("freeze the control plane for %s", formatDuration(s.Settle.For))
	}
	return fmt.Sprintf("do nothing for %s", formatDuration(s.Settle.For))
}

// making is what a phase makes, with its pods.
func (x *explainer) making(o *Objects, s Step) string {
	text := count(o.Count, o.KindName())
	each := o.PodsEach(x.e.Cluster.Nodes.All())
	switch {
	case o.known().template == nil:
		return text
	case o.KindName() == "Pod":
		return text + withClaims(s)
	case o.KindName() == "DaemonSet" && x.e.Cluster.Existing && x.e.Cluster.Nodes.All() == 0:
		return text + " with a pod on each node"
	}
	return fmt.Sprintf("%s of %s each, %s", text, count(each, "pod"), change(s))
}

// change is what a step does to the number of pods.
func change(s Step) string {
	switch {
	case s.Adds > 0 && s.Removes > 0:
		return fmt.Sprintf("%s%s in place of as many", count(s.Adds, "new pod"), withClaims(s))
	case s.Removes > 0:
		return count(s.Removes, "pod") + " less"
	}
	return count(s.Adds, "pod") + " more" + withClaims(s)
}

// withClaims tells of the claims that come with a step's pods.
func withClaims(s Step) string {
	if s.PodClaims == 0 {
		return ""
	}
	return " with " + count(s.PodClaims, "claim")
}

// sending is how operations are sent.
func sending(p Pacing, s Step) string {
	if p.Clients > 0 {
		text := fmt.Sprintf(", sent by %s in a closed loop", count(p.Clients, "client"))
		if p.Think > 0 {
			text += fmt.Sprintf(" that rest %s after each answer", formatDuration(p.Think))
		}
		if s.Read != nil && s.Read.For > 0 {
			text += " for " + formatDuration(s.Read.For)
		}
		return text + " (which hides stalls: while the cluster does not answer, nothing is sent)"
	}
	if s.Operations <= 1 {
		return ""
	}
	r := p.Rate
	text := ", all at once"
	switch {
	case r.Over > 0:
		text = fmt.Sprintf(", at a rate that goes from %s to %s within %s", perSecond(r.From), perSecond(r.PerSecond), formatDuration(r.Over))
	case r.Poisson:
		text = fmt.Sprintf(", at random times, %s on average", perSecond(r.PerSecond))
	case len(r.Steps) > 0:
		parts := make([]string, len(r.Steps))
		for i, step := range r.Steps {
			parts[i] = fmt.Sprintf("%s for %s", perSecond(step.PerSecond), formatDuration(step.For))
		}
		text = ", at " + strings.Join(parts, ", then ")
	case r.PerSecond > 0:
		text = ", at " + perSecond(r.PerSecond)
	}
	took := s.Least().Round(100 * time.Millisecond)
	if took > 0 {
		text += fmt.Sprintf(": %s in %s", count(s.Operations, "operation"), formatDuration(took))
	}
	return text
}

// mixed is a mix of requests with their shares.
func mixed(mix []Request) string {
	total := 0
	for _, q := range mix {
		total += q.Shares
	}
	parts := make([]string, len(mix))
	for i, q := range mix {
		what := q.Resource
		if q.Phase != "" {
			what = "the objects of " + q.Phase
		}
		if q.Namespace == ReachAll {
			what += " of all namespaces"
		}
		parts[i] = fmt.Sprintf("%s of %s", q.Kind, what)
		if len(mix) > 1 {
			parts[i] = fmt.Sprintf("%.0f %% %s", math.Round(100*float64(q.Shares)/float64(max(total, 1))), parts[i])
		}
	}
	return strings.Join(parts, ", ")
}

func (x *explainer) judged() {
	if len(x.e.Objectives) == 0 {
		x.line("Nothing is judged: the experiment declares no objective.")
		return
	}
	x.line("Judged, over the steady phases:")
	for _, o := range x.e.Objectives {
		switch o.Indicator {
		case Throughput:
			x.line("  %s: at least %s pods bound", o.Name, o.Limit)
		case ClaimBound:
			which := fmt.Sprintf("%s %% of the claims are bound", formatFloat(o.Quantile*100))
			if o.Quantile == 1 {
				which = "the last claim is bound"
			}
			since := "of when it is due"
			switch own, controllers := x.e.claimsBySource(); {
			case own == 0 && controllers > 0:
				since = "of its creation"
			case controllers > 0:
				since += ", or of its creation where a controller makes it"
			}
			x.line("  %s: %s within %s %s", o.Name, which, o.Limit, since)
		case ClaimFailures:
			x.line("  %s: at most %s failed operations and warnings about claims", o.Name, o.Limit)
		case IntentLatency:
			which := fmt.Sprintf("%s %% of the pods run", formatFloat(o.Quantile*100))
			if o.Quantile == 1 {
				which = "the last pod runs"
			}
			x.line("  %s: %s within %s of the write that asked for it", o.Name, which, o.Limit)
		default:
			x.line("  %s: %s %% of the pods start within %s", o.Name, formatFloat(o.Quantile*100), o.Limit)
		}
	}
}

// many is what the experiment says about more than one run of it.
func (x *explainer) many() {
	e := x.e
	if len(e.Variables) > 0 {
		parts := make([]string, 0, len(e.Variables))
		for _, name := range sortedKeys(e.Variables) {
			parts = append(parts, name+"="+e.Variables[name])
		}
		x.line("Variables: %s (change one with --set variables.NAME=VALUE).", strings.Join(parts, ", "))
	}
	if len(e.Variants) > 0 {
		x.line("Variants, each run with --variant NAME:")
		for _, v := range e.Variants {
			x.line("  %s: %s", v.Name, strings.Join(v.settings(), ", "))
		}
	}
	if e.Repetitions > 1 {
		x.line("Declared repetitions: %d. A run is one of them.", e.Repetitions)
	}
}

// count is a number with its noun.
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
