// Command bench measures kubedyno's hollow nodes beside kwok: the same control
// plane, the same load, in turns, each on a fresh lab. Hollow nodes are
// measured twice: with the writes that kwok's fast stages make (least) and with
// all that a kubelet says (kubelet). It prints ratios with intervals; absolute
// numbers belong to one machine and one day.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type bench struct {
	kubedyno, kwok string
	module         string // kwok's source, where its stages are
	nodes, pods    int
	owned          int // pods of one Deployment
	work           string
	keep           string   // a folder for the recordings; empty: they are removed
	settings       []string // of the control plane, PATH=VALUE
	env            []string
}

// result is one repetition of one simulator.
type result struct {
	rate        float64 // pods that came to run, 1/s, over the time until the last one did
	bound       float64 // pods that were bound, 1/s: more where nodes lag behind and leave the CPU to the scheduler
	millis      float64 // CPU of the node simulation, ms per pod
	mebibytes   float64 // of the node simulation, resident at most
	planeMillis float64 // CPU of the control plane, ms per pod
	// oursMebibytes is the memory of all of kubedyno's processes, each at its
	// most: load, collectors, keeper and, where they simulate, nodes.
	oursMebibytes float64
}

func main() {
	n := flag.Int("n", 6, "rounds; 6 give a 97 % interval")
	nodes := flag.Int("nodes", 100, "simulated nodes")
	pods := flag.Int("pods", 3000, "pods")
	owned := flag.Int("per-deployment", 1000, "pods of one Deployment; what a control plane does for a pod grows with the pods of its owner (docs/scale.md)")
	only := flag.String("arms", "least,kwok,kubelet", "the simulators to measure; kwok is what the others are set beside")
	keep := flag.String("keep", "", "an existing folder in which the recordings are left")
	kubedyno := flag.String("kubedyno", "../bin/kubedyno", "kubedyno binary")
	lab := flag.String("lab", "../bin/kubedyno-lab", "kubedyno-lab binary")
	var settings []string
	flag.Func("set", "change the control plane of all arms, PATH=VALUE as lab up has it; repeatable", func(s string) error {
		settings = append(settings, s)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *n, *nodes, *pods, *owned, *kubedyno, *lab, *keep, *only, settings); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, n, nodes, pods, owned int, kubedyno, lab, keep, only string, settings []string) (err error) {
	if n < 1 {
		return errors.New("-n must be at least 1")
	}
	if owned < 1 || pods%min(owned, pods) != 0 {
		return fmt.Errorf("-per-deployment %d: %d pods cannot be parted into Deployments of as many", owned, pods)
	}
	var measured []arm
	for _, name := range strings.Split(only, ",") {
		if !slices.Contains(arms, arm(name)) {
			return fmt.Errorf("-arms %s: %q is none of %v", only, name, arms)
		}
		measured = append(measured, arm(name))
	}
	if keep != "" {
		if keep, err = filepath.Abs(keep); err != nil {
			return err
		}
	}
	work, err := os.MkdirTemp("", "kubedyno-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &bench{nodes: nodes, pods: pods, owned: min(owned, pods), work: work, keep: keep, settings: settings, kwok: filepath.Join(work, "kwok")}
	if b.kubedyno, err = filepath.Abs(kubedyno); err != nil {
		return err
	}
	if lab, err = filepath.Abs(lab); err != nil {
		return err
	}
	b.env = append(os.Environ(), "KUBEDYNO_LAB="+lab, "KUBEDYNO_STATE="+filepath.Join(work, "labs"))
	fmt.Fprintln(os.Stderr, "building kwok…")
	if err := try(b.command(ctx, "go", "build", "-o", b.kwok, "sigs.k8s.io/kwok/cmd/kwok")); err != nil {
		return fmt.Errorf("build kwok: %w", err)
	}
	module, err := b.output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	if err != nil {
		return fmt.Errorf("find kwok's stages: %w", err)
	}
	b.module = strings.TrimSpace(string(module))
	results := map[arm][]result{}
	for i := range n {
		// Who goes first changes, so that drift of the machine hits all.
		order := slices.Clone(measured)
		for range i % len(order) {
			order = append(order[1:], order[0])
		}
		for _, a := range order {
			r, err := b.once(ctx, fmt.Sprintf("%02d-%s", i, a), a)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", i+1, a, err)
			}
			fmt.Fprintf(os.Stderr, "%2d %-8s %6.1f pods running/s, %.1f bound/s, node simulation %.2f ms CPU per pod and %.0f MiB, control plane %.2f ms, kubedyno's processes together %.0f MiB\n",
				i+1, a, r.rate, r.bound, r.millis, r.mebibytes, r.planeMillis, r.oursMebibytes)
			results[a] = append(results[a], r)
		}
	}
	fmt.Printf("node simulators, %d pods of %d Deployments on %d nodes, tuned control plane%s, %d rounds in turns; ratios to kwok v0.8.0 with its fast stages\n", pods, pods/b.owned, nodes, changed(settings), n)
	for _, a := range measured {
		if a == kwok || len(results[kwok]) == 0 {
			continue
		}
		fmt.Printf("kubedyno, traffic %s\n", a)
		for _, of := range []struct {
			name string
			get  func(result) float64
		}{
			{"pods running/s", func(r result) float64 { return r.rate }},
			{"pods bound/s", func(r result) float64 { return r.bound }},
			{"node simulation, CPU per pod", func(r result) float64 { return r.millis }},
			{"node simulation, memory", func(r result) float64 { return r.mebibytes }},
			{"control plane, CPU per pod", func(r result) float64 { return r.planeMillis }},
		} {
			var ratios []float64
			for i, r := range results[a] {
				ratios = append(ratios, of.get(r)/of.get(results[kwok][i]))
			}
			slices.Sort(ratios)
			lo, hi, level := interval(ratios)
			fmt.Printf("  %-30s × %.2f  [%.2f, %.2f]  %.0f %% interval of the median, n=%d\n", of.name, median(ratios), lo, hi, level*100, n)
		}
	}
	return nil
}

// changed names settings beside the profile.
func changed(settings []string) string {
	if len(settings) == 0 {
		return ""
	}
	return " with " + strings.Join(settings, " and ")
}

// An arm is one way to simulate nodes.
type arm string

const (
	least   arm = "least"   // hollow nodes with the writes of kwok's fast stages
	kubelet arm = "kubelet" // hollow nodes with a kubelet's traffic
	kwok    arm = "kwok"
)

var arms = []arm{least, kwok, kubelet}

// once measures one simulator on a fresh lab.
func (b *bench) once(ctx context.Context, name string, a arm) (r result, err error) {
	dir := filepath.Join(cmp.Or(b.keep, b.work), name)
	file, err := b.experiment(a)
	if err != nil {
		return r, err
	}
	args := []string{"run", file, "--observe", "minimal", "--out", dir}
	process := "kubedyno-hollow"
	if a == kwok {
		process = b.kwok
		up := append([]string{"lab", "up", "--name", "bench", "--profile", "tuned"}, b.changes()...)
		if err := try(b.command(ctx, b.kubedyno, up...)); err != nil {
			return r, fmt.Errorf("lab up: %w", err)
		}
		defer func() {
			err = errors.Join(err, try(b.command(context.WithoutCancel(ctx), b.kubedyno, "lab", "down", "bench")))
		}()
		kubeconfig, err := b.kubeconfig(ctx)
		if err != nil {
			return r, err
		}
		stop, err := b.startKwok(ctx, kubeconfig)
		if err != nil {
			return r, err
		}
		defer stop()
		args = append(args, "--kubeconfig", kubeconfig)
	} else {
		args = append(args, b.changes()...)
	}
	if err := try(b.command(ctx, b.kubedyno, args...)); err != nil {
		return r, fmt.Errorf("run: %w", err)
	}
	out, err := b.output(ctx, b.kubedyno, "diagnose", dir, "-o", "json")
	if err != nil && len(out) == 0 {
		return r, fmt.Errorf("diagnose: %w", err)
	}
	var d struct {
		Valid          bool
		InvalidReasons []string
		Throughput     *struct{ Mean float64 }
		Latencies      struct{ Intent struct{ Max *float64 } }
		Pods           struct{ Running int }
	}
	if err := json.Unmarshal(out, &d); err != nil {
		return r, fmt.Errorf("diagnose: %w", err)
	}
	if last := d.Latencies.Intent.Max; !d.Valid || d.Throughput == nil || last == nil || *last <= 0 || d.Pods.Running != b.pods {
		return r, fmt.Errorf("the run does not count: %d of %d pods ran; %s", d.Pods.Running, b.pods, strings.Join(d.InvalidReasons, "; "))
	}
	r.rate, r.bound = float64(b.pods) / *d.Latencies.Intent.Max, d.Throughput.Mean
	out, err = b.output(ctx, b.kubedyno, "show", dir, "processes", "--phase", "load", "-o", "json", "--limit", "0")
	if err != nil {
		return r, fmt.Errorf("show processes: %w", err)
	}
	found := false
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var p struct {
			Command      string
			CPUSeconds   float64
			PeakRSSBytes float64
		}
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return r, fmt.Errorf("show processes: %w", err)
		}
		program := filepath.Base(strings.Fields(p.Command + " ?")[0])
		millis := p.CPUSeconds * 1000 / float64(b.pods)
		if strings.HasPrefix(program, "kubedyno") {
			r.oursMebibytes += p.PeakRSSBytes / (1 << 20)
		}
		switch program {
		case filepath.Base(process):
			r.millis += millis
			r.mebibytes += p.PeakRSSBytes / (1 << 20)
			found = true
		case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler":
			r.planeMillis += millis
		}
	}
	if !found {
		return r, fmt.Errorf("the recording has no process %s", process)
	}
	if b.keep != "" {
		return r, nil
	}
	return r, os.RemoveAll(dir)
}

// changes are the settings, as flags.
func (b *bench) changes() (flags []string) {
	for _, s := range b.settings {
		flags = append(flags, "--set", s)
	}
	return flags
}

// experiment is the load that all meet: Deployments at once, with a start delay of
// none, since kwok's fast stages have none either.
func (b *bench) experiment(a arm) (string, error) {
	nodes := fmt.Sprintf("nodes: %d, node: {traffic: %s, startDelay: 0s}", b.nodes, a)
	if a == kwok {
		nodes = "nodes: 0" // they are there already
	}
	name := filepath.Join(b.work, string(a)+".yaml")
	text := fmt.Sprintf(`name: bench
cluster: {profile: tuned, %s}
phases:
  - {name: warm-up, kind: warm-up, create: {kind: Deployment, count: 1, replicas: 20, pod: {cpu: 10m, memory: 16Mi}, wait: running}}
  - {name: idle, settle: 3s}
  - {name: load, kind: steady, create: {kind: Deployment, count: %d, replicas: %d, rate: burst, pod: {cpu: 10m, memory: 16Mi}, wait: {for: running, timeout: 40m, stall: 2m}}}
`, nodes, b.pods/b.owned, b.owned)
	return name, os.WriteFile(name, []byte(text), 0o644)
}

func (b *bench) kubeconfig(ctx context.Context) (string, error) {
	out, err := b.output(ctx, b.kubedyno, "lab", "env", "bench")
	if err != nil {
		return "", fmt.Errorf("lab env: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if _, path, ok := strings.Cut(strings.TrimSpace(line), "KUBECONFIG="); ok {
			return strings.Trim(path, `'"`), nil
		}
	}
	return "", fmt.Errorf("lab env says no KUBECONFIG: %s", out)
}

// stages are those that kwok itself measures with: a pod is running as soon as
// it is seen, a node ready, with leases.
var stages = []string{
	"node/fast/node-initialize.yaml",
	"node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
	"pod/fast/pod-ready.yaml",
	"pod/fast/pod-complete.yaml",
	"pod/fast/pod-delete.yaml",
}

// startKwok creates the nodes and starts kwok with its own fast stages.
func (b *bench) startKwok(ctx context.Context, kubeconfig string) (stop func(), err error) {
	args := []string{"--kubeconfig", kubeconfig, "--manage-all-nodes=true",
		"--node-ip=10.0.0.1", "--cidr=10.64.0.0/10", "--node-lease-duration-seconds=40"}
	for _, stage := range stages {
		args = append(args, "--config", filepath.Join(b.module, "kustomize", "stage", stage))
	}
	cmd := exec.Command(b.kwok, args...)
	cmd.Env = append(b.env, "HOME="+b.work) // no configuration of the user's
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(b.work, "kwok.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start kwok: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		done := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		done.Stop()
	}
	var nodes strings.Builder
	for i := range b.nodes {
		fmt.Fprintf(&nodes, `---
apiVersion: v1
kind: Node
metadata: {name: kwok-%d, labels: {kubernetes.io/hostname: kwok-%d, kubernetes.io/os: linux, kubernetes.io/arch: amd64}, annotations: {kwok.x-k8s.io/node: fake}}
status: {allocatable: {cpu: "16", memory: 64Gi, pods: "110"}, capacity: {cpu: "16", memory: 64Gi, pods: "110"}}
`, i, i)
	}
	apply := b.command(ctx, b.kubedyno, "lab", "kubectl", "--name", "bench", "--", "apply", "-f", "-")
	apply.Stdin = strings.NewReader(nodes.String())
	if err := try(apply); err != nil {
		stop()
		return nil, fmt.Errorf("create nodes: %w", err)
	}
	wait := b.command(ctx, b.kubedyno, "lab", "kubectl", "--name", "bench", "--", "wait", "node", "--all", "--for=condition=Ready", "--timeout=5m")
	if err := try(wait); err != nil {
		stop()
		text, _ := os.ReadFile(filepath.Join(b.work, "kwok.log"))
		return nil, fmt.Errorf("kwok's nodes: %w; kwok said: %s", err, tail(text))
	}
	time.Sleep(3 * time.Second) // the node controller takes the not-ready taints off
	return stop, nil
}

func tail(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// command is a command whose stdout nobody reads.
func (b *bench) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Env = b.env
	cmd.Stdout = io.Discard
	return cmd
}

// try runs a command; its error has the command's last words.
func try(cmd *exec.Cmd) error {
	var words bytes.Buffer
	cmd.Stderr = &words
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, tail(words.Bytes()))
	}
	return nil
}

func (b *bench) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := b.command(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	return out.Bytes(), err
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// interval is the confidence interval of a median by order statistics: the
// median lies outside [x1, xn] only if all n fall on one side of it, which has
// probability 2/2^n. (Hahn & Meeker, Statistical Intervals, 5.2.)
func interval(sorted []float64) (lo, hi, level float64) {
	n := len(sorted)
	level = 1
	for range n {
		level /= 2
	}
	return sorted[0], sorted[n-1], 1 - 2*level
}
