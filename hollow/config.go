package hollow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Identity says as whom the nodes talk.
type Identity string

const (
	// Own gives each node a client certificate system:node:<name> and a
	// connection, as a kubelet has. It needs Config.NodeCA.
	Own Identity = "own"
	// Impersonated uses the kubeconfig's credentials and asks the API server
	// to treat each request as the node's. Connections are shared.
	Impersonated Identity = "impersonated"
	// Pooled sends everything as the kubeconfig's user. Connections are shared,
	// and neither the node authorizer nor NodeRestriction sees the nodes.
	Pooled Identity = "pooled"
)

// Traffic says how much the nodes say.
type Traffic string

const (
	// Kubelet is what a kubelet says, in its order.
	Kubelet Traffic = "kubelet"
	// Least is what it takes for pods to run and to go: one patch and one
	// DELETE for each, one watch on all pods and one on all nodes, besides
	// registration and leases.
	Least Traffic = "least"
)

// Traffics lists them.
func Traffics() []string { return []string{string(Kubelet), string(Least)} }

// Config is the first line of kubedyno-hollow's stdin. The zero value of every
// optional field means its default.
type Config struct {
	Kubeconfig string    `json:"kubeconfig,omitempty"` // used when there is no NodeCA, and to clean up
	Server     string    `json:"server,omitempty"`     // overrides the kubeconfig's
	CAFile     string    `json:"caFile,omitempty"`     // overrides the kubeconfig's
	NodeCA     *KeyPair  `json:"nodeCA,omitempty"`     // signs the nodes' client certificates
	Identity   Identity  `json:"identity,omitempty"`   // own with a NodeCA, otherwise impersonated
	Traffic    Traffic   `json:"traffic,omitempty"`    // default kubelet; least needs identity pooled, its default
	NamePrefix string    `json:"namePrefix,omitempty"` // node names are prefix + number
	First      int       `json:"first,omitempty"`      // number of the first node
	Nodes      int       `json:"nodes"`
	RunID      string    `json:"runID,omitempty"` // becomes the label kubedyno.io/run
	CPU        string    `json:"cpu,omitempty"`
	Memory     string    `json:"memory,omitempty"`
	Pods       int       `json:"pods,omitempty"`
	Labels     StringMap `json:"labels,omitempty"`
	Zones      []string  `json:"zones,omitempty"` // given to the nodes in turn
	Taints     []Taint   `json:"taints,omitempty"`
	Seed       int64     `json:"seed,omitempty"`
	StartDelay Delay     `json:"startDelay,omitzero"`
	StopDelay  Delay     `json:"stopDelay,omitzero"`
	Starts     int       `json:"starts,omitempty"` // pods that a node starts at one time; 0: any number
	Disk       Delay     `json:"disk,omitzero"`    // what a start takes of a node's disk, which serves one at a time
	Images     Images    `json:"images,omitzero"`
	Network    Network   `json:"network,omitzero"`
	Lease      int       `json:"leaseSeconds,omitempty"`  // duration; renewed every quarter of it
	Status     int       `json:"statusSeconds,omitempty"` // between node status reports without a change
	Events     *bool     `json:"events,omitempty"`        // default true; with least traffic false, as the next two
	Volumes    *bool     `json:"volumes,omitempty"`       // tokens, watches on ConfigMaps and Secrets; default true
	Informers  *bool     `json:"informers,omitempty"`     // watches on Services, RuntimeClasses, CSIDrivers; default true
	Storage    *Storage  `json:"storage,omitempty"`       // nil: pods do not wait for their claims
	Cleanup    bool      `json:"cleanup,omitempty"`       // delete our nodes and leases at the end
	Pprof      bool      `json:"pprof,omitempty"`
}

// StringMap is a set of labels.
type StringMap map[string]string

// A KeyPair names the files of a certificate and its key.
type KeyPair struct {
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
}

// A Taint is set on each node when it registers.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// A Delay is a distribution of waiting times.
type Delay struct {
	Distribution string  `json:"distribution,omitempty"`  // lognormal, uniform, constant, none
	Median       float64 `json:"medianSeconds,omitempty"` // lognormal; constant: the value
	P99          float64 `json:"p99Seconds,omitempty"`    // lognormal
	Min          float64 `json:"minSeconds,omitempty"`    // uniform
	Max          float64 `json:"maxSeconds,omitempty"`    // uniform
}

// Defaults, where the number is not kubeadm's or the kubelet's own.
const (
	defaultCPU    = "16" // large enough that pod count, not CPU, fills a node
	defaultMemory = "64Gi"
	defaultPods   = 110 // kubelet --max-pods
	defaultLease  = 40  // kubelet nodeLeaseDurationSeconds
	defaultStatus = 300 // kubelet nodeStatusReportFrequency
)

// defaultStartDelay is a pod whose image is present, on a disk that is not busy.
var defaultStartDelay = Delay{Distribution: "lognormal", Median: 0.3, P99: 1.0}

// defaultStopDelay is a process that ends at once when told to, and CRI's answer.
var defaultStopDelay = Delay{Distribution: "lognormal", Median: 0.1, P99: 0.4}

// ParseConfig decodes strictly, fills in defaults and checks.
func ParseConfig(line []byte) (Config, error) {
	var c Config
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("hollow config: %w", err)
	}
	c.setDefaults()
	if err := c.check(); err != nil {
		return c, fmt.Errorf("hollow config: %w", err)
	}
	return c, nil
}

func (c *Config) setDefaults() {
	if c.Traffic == "" {
		c.Traffic = Kubelet
	}
	if c.Identity == "" {
		switch {
		case c.Traffic == Least:
			c.Identity = Pooled
		case c.NodeCA != nil:
			c.Identity = Own
		default:
			c.Identity = Impersonated
		}
	}
	if c.NamePrefix == "" {
		c.NamePrefix = "hollow-"
	}
	if c.CPU == "" {
		c.CPU = defaultCPU
	}
	if c.Memory == "" {
		c.Memory = defaultMemory
	}
	if c.Pods == 0 {
		c.Pods = defaultPods
	}
	if c.Lease == 0 {
		c.Lease = defaultLease
	}
	if c.Status == 0 {
		c.Status = defaultStatus
	}
	if c.StartDelay.Distribution == "" && c.StartDelay.Median == 0 {
		c.StartDelay = defaultStartDelay
	}
	if c.StopDelay.Distribution == "" && c.StopDelay.Median == 0 {
		c.StopDelay = defaultStopDelay
	}
	for _, part := range []**bool{&c.Events, &c.Volumes, &c.Informers} {
		if *part == nil {
			on := c.Traffic == Kubelet
			*part = &on
		}
	}
}

func (c *Config) check() error {
	switch {
	case c.Nodes < 1:
		return fmt.Errorf("nodes is %d: at least 1 is needed", c.Nodes)
	case c.First < 0:
		return fmt.Errorf("first is %d: it must not be negative", c.First)
	case c.Pods < 1:
		return fmt.Errorf("pods is %d: at least 1 is needed", c.Pods)
	case int64(c.First+c.Nodes)*int64(addressesPerNode(c.Pods)) > 1<<24:
		return fmt.Errorf("%d nodes of %d pods need more pod addresses than 10.0.0.0/8 has", c.First+c.Nodes, c.Pods)
	case c.Starts < 0 || c.Images.Parallel < 0:
		return errors.New("starts and images.parallel must not be negative")
	case c.Lease < 4 || c.Status < 1:
		return errors.New("leaseSeconds must be at least 4 and statusSeconds at least 1")
	}
	switch c.Identity {
	case Own:
		if c.NodeCA == nil {
			return errors.New(`identity "own" needs nodeCA: a certificate authority that the API server trusts for clients`)
		}
		if c.Server == "" && c.Kubeconfig == "" {
			return errors.New("server or kubeconfig is needed")
		}
	case Impersonated, Pooled:
		if c.Kubeconfig == "" {
			return fmt.Errorf("identity %q needs a kubeconfig", c.Identity)
		}
	default:
		return fmt.Errorf("identity %q: want own, impersonated or pooled", c.Identity)
	}
	switch c.Traffic {
	case Kubelet:
	case Least:
		if c.Storage != nil {
			return fmt.Errorf("traffic %q leaves out what a node says about volumes: storage needs %q", Least, Kubelet)
		}
		if c.Identity != Pooled {
			return fmt.Errorf("traffic %q needs identity %q: no node may watch the pods of all", Least, Pooled)
		}
	default:
		return fmt.Errorf("traffic %q: want %s or %s", c.Traffic, Kubelet, Least)
	}
	last := fmt.Sprintf("%s%d", c.NamePrefix, c.First+c.Nodes-1)
	if bad := validation.IsDNS1123Subdomain(last); len(bad) > 0 {
		return fmt.Errorf("namePrefix %q: %s", c.NamePrefix, strings.Join(bad, "; "))
	}
	if bad := validation.IsValidLabelValue(c.RunID); len(bad) > 0 {
		return fmt.Errorf("runID %q: %s", c.RunID, strings.Join(bad, "; "))
	}
	for k, v := range c.Labels {
		if bad := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(bad) > 0 {
			return fmt.Errorf("label %s=%s: %s", k, v, strings.Join(bad, "; "))
		}
	}
	for _, zone := range c.Zones {
		if bad := validation.IsValidLabelValue(zone); len(bad) > 0 {
			return fmt.Errorf("zone %q: %s", zone, strings.Join(bad, "; "))
		}
	}
	for name, v := range map[string]string{"cpu": c.CPU, "memory": c.Memory} {
		if q, err := resource.ParseQuantity(v); err != nil || q.Sign() <= 0 {
			return fmt.Errorf("%s %q is not a positive quantity", name, v)
		}
	}
	errs := []error{c.StartDelay.check("startDelay"), c.StopDelay.check("stopDelay"), c.Storage.check()}
	for name, d := range map[string]Delay{"disk": c.Disk, "images.pull": c.Images.Pull, "network.delay": c.Network.Delay} {
		if d.Distribution != "" {
			errs = append(errs, d.check(name))
		}
	}
	return errors.Join(errs...)
}

func (d Delay) check(name string) error {
	switch d.Distribution {
	case "none":
		return nil
	case "constant":
		if d.Median < 0 || math.IsNaN(d.Median) {
			return fmt.Errorf("%s: medianSeconds is %v", name, d.Median)
		}
		return nil
	case "uniform":
		if !(d.Min >= 0) || !(d.Max >= d.Min) || math.IsInf(d.Max, 0) {
			return fmt.Errorf("%s: uniform needs 0 ≤ minSeconds ≤ maxSeconds, not %v and %v", name, d.Min, d.Max)
		}
		return nil
	case "lognormal":
		if !(d.Median > 0) || !(d.P99 >= d.Median) || math.IsInf(d.P99, 0) {
			return fmt.Errorf("%s: lognormal needs 0 < medianSeconds ≤ p99Seconds, not %v and %v", name, d.Median, d.P99)
		}
		return nil
	}
	return fmt.Errorf("%s: distribution %q: want lognormal, uniform, constant or none", name, d.Distribution)
}

func (c *Config) leaseInterval() time.Duration {
	// As kubelet's nodeLeaseRenewIntervalFraction.
	return time.Duration(c.Lease) * time.Second / 4
}

func (c *Config) nodeName(i int) string { return fmt.Sprintf("%s%d", c.NamePrefix, c.First+i) }
