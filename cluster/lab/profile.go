package lab

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Components of a lab, in the order of their start.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Our own processes, whose CPU an override may limit.
const (
	Hollow = "kubedyno-hollow"
	Load   = "kubedyno-load"
	CSI    = "kubedyno-csi"
)

var (
	components = []string{Etcd, APIServer, ControllerManager, Scheduler}
	harness    = []string{Hollow, Load, CSI}
)

// DefaultProfile is what a cluster set up with kubeadm runs. A lab that tunes
// silently hides the first finding.
const DefaultProfile = "stock"

// A Flag is one command-line flag of a component and where its value is from.
type Flag struct {
	Component, Name string
	// Value may hold ${variables} of the plan: paths and ports.
	Value  string
	Source Source
	// Why is a place in Kubernetes' source for SourceKubeadm, and for it
	// and all others the reason of a difference.
	Why string
}

// Source says where a flag's value comes from.
type Source string

const (
	// SourceKubeadm: as kubeadm sets it; paths and ports are the lab's own.
	SourceKubeadm Source = "kubeadm"
	// SourcePrivate: what a private control plane on loopback needs.
	SourcePrivate Source = "private"
	// SourceObservation: what it takes to see.
	SourceObservation Source = "observation"
	// SourceTuned: a change of the profile tuned.
	SourceTuned Source = "tuned"
)

//go:generate go test . -run TestProfilesDoc -update

// auditing is what an API server gets that writes no log of requests itself: a
// program of the user's own.
var auditing = []Flag{
	{APIServer, "audit-log-path", "${dir}/audit.log", SourceObservation, "when each request came and went, and who sent it"},
	{APIServer, "audit-policy-file", "${dir}/audit-policy.yaml", SourceObservation, "level Metadata, without the stage RequestReceived: no bodies are kept"},
	{APIServer, "audit-log-mode", "batch", SourceObservation, "requests do not wait for the log; events lost to a full buffer are counted in apiserver_audit_error_total"},
	{APIServer, "audit-log-maxsize", "0", SourceObservation, "never rotated: the log is read while it is written"},
}

// stock is the flags of kubeadm v1.36.3 for `kubeadm init` without a
// configuration file, and the short list of what is added to them. Places are
// below cmd/kubeadm/app/phases in k8s.io/kubernetes.
var stock = []Flag{
	{Etcd, "name", "kubedyno", SourceKubeadm, "etcd/local.go:249; there the node's name"},
	{Etcd, "listen-client-urls", "https://127.0.0.1:${etcd-client-port}", SourceKubeadm, "etcd/local.go:250"},
	{Etcd, "advertise-client-urls", "https://127.0.0.1:${etcd-client-port}", SourceKubeadm, "etcd/local.go:251"},
	{Etcd, "listen-peer-urls", "https://127.0.0.1:${etcd-peer-port}", SourceKubeadm, "etcd/local.go:252"},
	{Etcd, "initial-advertise-peer-urls", "https://127.0.0.1:${etcd-peer-port}", SourceKubeadm, "etcd/local.go:253"},
	{Etcd, "data-dir", "${dir}/etcd", SourceKubeadm, "etcd/local.go:254"},
	{Etcd, "cert-file", "${pki}/etcd-server.crt", SourceKubeadm, "etcd/local.go:255"},
	{Etcd, "key-file", "${pki}/etcd-server.key", SourceKubeadm, "etcd/local.go:256"},
	{Etcd, "trusted-ca-file", "${pki}/etcd-clients.crt", SourceKubeadm, "etcd/local.go:257; the collect identity's CA is trusted too, since etcd serves pprof on its client port"},
	{Etcd, "client-cert-auth", "true", SourceKubeadm, "etcd/local.go:258"},
	{Etcd, "peer-cert-file", "${pki}/etcd-peer.crt", SourceKubeadm, "etcd/local.go:259"},
	{Etcd, "peer-key-file", "${pki}/etcd-peer.key", SourceKubeadm, "etcd/local.go:260"},
	{Etcd, "peer-trusted-ca-file", "${pki}/etcd-ca.crt", SourceKubeadm, "etcd/local.go:261"},
	{Etcd, "peer-client-cert-auth", "true", SourceKubeadm, "etcd/local.go:262"},
	{Etcd, "snapshot-count", "10000", SourceKubeadm, "etcd/local.go:263"},
	{Etcd, "listen-metrics-urls", "https://127.0.0.1:${etcd-metrics-port}", SourceKubeadm, "etcd/local.go:264; there http, here nobody on this machine may read along"},
	{Etcd, "feature-gates", "InitialCorruptCheck=true", SourceKubeadm, "etcd/local.go:265"},
	{Etcd, "watch-progress-notify-interval", "5s", SourceKubeadm, "etcd/local.go:266"},
	{Etcd, "initial-cluster", "kubedyno=https://127.0.0.1:${etcd-peer-port}", SourceKubeadm, "etcd/local.go:270"},
	{Etcd, "enable-pprof", "true", SourceObservation, "CPU and heap profiles of etcd; costs nothing until one is taken"},

	{APIServer, "advertise-address", "203.0.113.1", SourceKubeadm, "controlplane/manifests.go:187; there the host's address. Loopback is refused as an endpoint of the service `kubernetes`, and no pod here dials it: an address of the documentation range (RFC 5737)"},
	{APIServer, "enable-admission-plugins", "NodeRestriction", SourceKubeadm, "controlplane/manifests.go:188"},
	{APIServer, "service-cluster-ip-range", "10.96.0.0/12", SourceKubeadm, "controlplane/manifests.go:189"},
	{APIServer, "service-account-key-file", "${pki}/sa.pub", SourceKubeadm, "controlplane/manifests.go:190; RSA 2048 as there, since signing tokens is work of the API server"},
	{APIServer, "service-account-signing-key-file", "${pki}/sa.key", SourceKubeadm, "controlplane/manifests.go:191"},
	{APIServer, "service-account-issuer", "https://kubernetes.default.svc.cluster.local", SourceKubeadm, "controlplane/manifests.go:192"},
	{APIServer, "client-ca-file", "${pki}/clients.crt", SourceKubeadm, "controlplane/manifests.go:193; the collect identity's CA is trusted too"},
	{APIServer, "tls-cert-file", "${pki}/apiserver.crt", SourceKubeadm, "controlplane/manifests.go:194; ECDSA P-256, there RSA 2048"},
	{APIServer, "tls-private-key-file", "${pki}/apiserver.key", SourceKubeadm, "controlplane/manifests.go:195"},
	{APIServer, "kubelet-client-certificate", "${pki}/apiserver-kubelet-client.crt", SourceKubeadm, "controlplane/manifests.go:196"},
	{APIServer, "kubelet-client-key", "${pki}/apiserver-kubelet-client.key", SourceKubeadm, "controlplane/manifests.go:197"},
	{APIServer, "enable-bootstrap-token-auth", "true", SourceKubeadm, "controlplane/manifests.go:198"},
	{APIServer, "secure-port", "${api-port}", SourceKubeadm, "controlplane/manifests.go:199"},
	{APIServer, "allow-privileged", "true", SourceKubeadm, "controlplane/manifests.go:200"},
	{APIServer, "kubelet-preferred-address-types", "InternalIP,ExternalIP,Hostname", SourceKubeadm, "controlplane/manifests.go:201"},
	{APIServer, "requestheader-username-headers", "X-Remote-User", SourceKubeadm, "controlplane/manifests.go:204"},
	{APIServer, "requestheader-group-headers", "X-Remote-Group", SourceKubeadm, "controlplane/manifests.go:205"},
	{APIServer, "requestheader-extra-headers-prefix", "X-Remote-Extra-", SourceKubeadm, "controlplane/manifests.go:206"},
	{APIServer, "requestheader-client-ca-file", "${pki}/front-proxy-ca.crt", SourceKubeadm, "controlplane/manifests.go:207"},
	{APIServer, "requestheader-allowed-names", "front-proxy-client", SourceKubeadm, "controlplane/manifests.go:208"},
	{APIServer, "proxy-client-cert-file", "${pki}/front-proxy-client.crt", SourceKubeadm, "controlplane/manifests.go:209"},
	{APIServer, "proxy-client-key-file", "${pki}/front-proxy-client.key", SourceKubeadm, "controlplane/manifests.go:210"},
	{APIServer, "etcd-servers", "https://127.0.0.1:${etcd-client-port}", SourceKubeadm, "controlplane/manifests.go:235"},
	{APIServer, "etcd-cafile", "${pki}/etcd-ca.crt", SourceKubeadm, "controlplane/manifests.go:236"},
	{APIServer, "etcd-certfile", "${pki}/apiserver-etcd-client.crt", SourceKubeadm, "controlplane/manifests.go:237"},
	{APIServer, "etcd-keyfile", "${pki}/apiserver-etcd-client.key", SourceKubeadm, "controlplane/manifests.go:238"},
	{APIServer, "authorization-mode", "Node,RBAC", SourceKubeadm, "controlplane/manifests.go:254"},
	{APIServer, "bind-address", "127.0.0.1", SourcePrivate, "nothing outside this machine reaches the lab"},
	{APIServer, "anonymous-auth", "false", SourcePrivate, "other users of this machine are not let in; kubeadm needs it for its probes"},

	{ControllerManager, "bind-address", "127.0.0.1", SourceKubeadm, "controlplane/manifests.go:327"},
	{ControllerManager, "leader-elect", "true", SourceKubeadm, "controlplane/manifests.go:328"},
	{ControllerManager, "kubeconfig", "${kubeconfigs}/kube-controller-manager", SourceKubeadm, "controlplane/manifests.go:329"},
	{ControllerManager, "authentication-kubeconfig", "${kubeconfigs}/kube-controller-manager", SourceKubeadm, "controlplane/manifests.go:330"},
	{ControllerManager, "authorization-kubeconfig", "${kubeconfigs}/kube-controller-manager", SourceKubeadm, "controlplane/manifests.go:331"},
	{ControllerManager, "client-ca-file", "${pki}/clients.crt", SourceKubeadm, "controlplane/manifests.go:332; the collect identity's CA is trusted too"},
	{ControllerManager, "requestheader-client-ca-file", "${pki}/front-proxy-ca.crt", SourceKubeadm, "controlplane/manifests.go:333"},
	{ControllerManager, "root-ca-file", "${pki}/ca.crt", SourceKubeadm, "controlplane/manifests.go:334"},
	{ControllerManager, "service-account-private-key-file", "${pki}/sa.key", SourceKubeadm, "controlplane/manifests.go:335"},
	{ControllerManager, "cluster-signing-cert-file", "${pki}/ca.crt", SourceKubeadm, "controlplane/manifests.go:336"},
	{ControllerManager, "cluster-signing-key-file", "${pki}/ca.key", SourceKubeadm, "controlplane/manifests.go:337"},
	{ControllerManager, "use-service-account-credentials", "true", SourceKubeadm, "controlplane/manifests.go:338"},
	{ControllerManager, "controllers", "*,bootstrapsigner,tokencleaner", SourceKubeadm, "controlplane/manifests.go:339"},
	{ControllerManager, "cluster-name", "kubernetes", SourceKubeadm, "controlplane/manifests.go:361"},
	{ControllerManager, "secure-port", "${kube-controller-manager-port}", SourcePrivate, "a free port, so that labs run side by side"},
	{ControllerManager, "tls-cert-file", "${pki}/kube-controller-manager.crt", SourcePrivate, "a certificate that we can verify; kubeadm leaves a self-signed one"},
	{ControllerManager, "tls-private-key-file", "${pki}/kube-controller-manager.key", SourcePrivate, "belongs to it"},

	{Scheduler, "bind-address", "127.0.0.1", SourceKubeadm, "controlplane/manifests.go:374"},
	{Scheduler, "leader-elect", "true", SourceKubeadm, "controlplane/manifests.go:375"},
	{Scheduler, "kubeconfig", "${kubeconfigs}/kube-scheduler", SourceKubeadm, "controlplane/manifests.go:376"},
	{Scheduler, "authentication-kubeconfig", "${kubeconfigs}/kube-scheduler", SourceKubeadm, "controlplane/manifests.go:377"},
	{Scheduler, "authorization-kubeconfig", "${kubeconfigs}/kube-scheduler", SourceKubeadm, "controlplane/manifests.go:378"},
	{Scheduler, "secure-port", "${kube-scheduler-port}", SourcePrivate, "a free port, so that labs run side by side"},
	{Scheduler, "tls-cert-file", "${pki}/kube-scheduler.crt", SourcePrivate, "a certificate that we can verify; kubeadm leaves a self-signed one"},
	{Scheduler, "tls-private-key-file", "${pki}/kube-scheduler.key", SourcePrivate, "belongs to it"},
}

// tuned is what the profile of that name changes. Bursts stay at their stock
// values (30 and 100): at 5,000/s a token comes every 0.2 ms, so a burst adds
// nothing, while a large one would hide any lower qps set on top of it until it
// is used up.
var tuned = []Flag{
	{ControllerManager, "kube-api-qps", "5000", SourceTuned, "the stock 20/s per controller cap a Deployment at 20 pods/s; API Priority and Fairness protects the server instead"},
	{Scheduler, "kube-api-qps", "5000", SourceTuned, "the stock 50/s cap binding at 50 pods/s; likewise"},
	{ControllerManager, "leader-elect-lease-duration", "60s", SourceTuned, leases},
	{ControllerManager, "leader-elect-renew-deadline", "45s", SourceTuned, leases},
	{Scheduler, "leader-elect-lease-duration", "60s", SourceTuned, leases},
	{Scheduler, "leader-elect-renew-deadline", "45s", SourceTuned, leases},
}

const leases = "on a machine that is full for minutes a leader that cannot renew within the stock 10 s ends itself; there is no other that waits for its lease"

// Profiles are the names of the profiles, the default first.
func Profiles() []string { return []string{DefaultProfile, "tuned"} }

// ProfileFlags returns the flags of a profile, in the order in which components
// get them.
func ProfileFlags(profile string) ([]Flag, error) {
	switch profile {
	case "", DefaultProfile:
		return slices.Clone(stock), nil
	case "tuned":
		flags := slices.Clone(stock)
		for _, f := range tuned {
			flags = setFlag(flags, f)
		}
		return flags, nil
	}
	return nil, misuse("no profile is named %q%s", profile, didYouMean(profile, Profiles()))
}

// setFlag replaces a flag or appends it.
func setFlag(flags []Flag, f Flag) []Flag {
	for i := range flags {
		if flags[i].Component == f.Component && flags[i].Name == f.Name {
			flags[i] = f
			return flags
		}
	}
	return append(flags, f)
}

// ProfilesMarkdown is docs/profiles.md.
func ProfilesMarkdown() string {
	var b strings.Builder
	b.WriteString(`# Profiles

<!-- Generated from cluster/lab/profile.go: go test ./cluster/lab -run TestProfilesDoc -update -->

A lab's components run with exactly these flags; ` + "`--set <component>.args.<flag>=<value>`" + ` changes one, ` + "`null`" + ` as value removes it.
What is not listed has the component's own default: client limits, API Priority and Fairness (on), contention profiling, log level.
The API server also writes a log of the requests that it served (see collectors.md, requests).

` + "`kubeadm`" + ` is what ` + "`kubeadm init`" + ` of Kubernetes v1.36.3 sets without a configuration file; places are below ` + "`cmd/kubeadm/app/phases`" + `.
Paths and ports are the lab's own. ` + "`private`" + ` is what a control plane for one user on loopback needs, ` + "`observation`" + ` what it takes to see.
kubeadm also installs CoreDNS and kube-proxy, which a lab has not, and its certificates are RSA 2048 where the lab's are ECDSA P-256 (the service account key is RSA in both).

## stock, the default
`)
	for _, c := range components {
		fmt.Fprintf(&b, "\n### %s\n\n| flag | value | source | where, or why |\n|---|---|---|---|\n", c)
		for _, f := range stock {
			if f.Component == c {
				fmt.Fprintf(&b, "| `--%s` | `%s` | %s | %s |\n", f.Name, f.Value, f.Source, f.Why)
			}
		}
	}
	b.WriteString("\n## tuned\n\nEverything of stock, and:\n\n| component | flag | value | why |\n|---|---|---|---|\n")
	for _, f := range tuned {
		fmt.Fprintf(&b, "| %s | `--%s` | `%s` | %s |\n", f.Component, f.Name, f.Value, f.Why)
	}
	b.WriteString(`
Bursts stay at their stock values (30 and 100): at 5,000/s a token comes every 0.2 ms, so a larger burst adds nothing,
while it would hide any lower qps set on top of the profile until it is used up.
`)
	return b.String()
}

// expand fills a flag's ${variables}.
func expand(value string, vars map[string]string) (string, error) {
	var missing []string
	s := os.Expand(value, func(name string) string {
		v, ok := vars[name]
		if !ok {
			missing = append(missing, name)
		}
		return v
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("no variable %s for %q", strings.Join(missing, ", "), value)
	}
	return s, nil
}
