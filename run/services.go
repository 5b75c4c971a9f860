package run

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedyno/kubedyno/cluster/realnode"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/record"
)

// What kubeadm gives a cluster besides its control plane: a name service in pods,
// reached through a Service.
const (
	dnsImage     = "registry.k8s.io/coredns/coredns:v1.14.2"
	dnsVersion   = "v1.14.2"
	dnsProgram   = "coredns"
	dnsAddress   = "10.96.0.10"
	dnsSystem    = "kube-system"
	dnsQuestion  = "kubernetes.default.svc.cluster.local."
	dnsPprofPort = "6053"
	// dnsTimeout bounds the time until it answers: its pods start in seconds, on a
	// busy machine later.
	dnsTimeout = 2 * time.Minute
)

// corefile is kubeadm's without forward, and without loop, which looks for one
// there: nothing leads out of a real node, so that there is nobody to forward to.
// pprof is for the collector of profiles.
const corefile = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    pprof :` + dnsPprofPort + `
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    reload
    loadbalance
}
`

// nodeClient speaks HTTP to what listens in a node's network.
func nodeClient(node *realnode.Node) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: node.Dial}}
}

// startDNS runs CoreDNS on the first real node, and waits until it answers
// through its Service, and all of it is ready. How soon it answers is up to the
// first replica: another one that misses its first probe is ready ten seconds later,
// which tells chance and nothing of the cluster.
func (s *session) startDNS(ctx context.Context) error {
	replicas := s.o.Experiment.Cluster.DNS
	if replicas == 0 {
		return nil
	}
	rc, err := s.plane.RESTConfig("admin")
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("start CoreDNS: %w", err)
	}
	if err := deployDNS(ctx, client, replicas); err != nil {
		return fmt.Errorf("deploy CoreDNS: %w", err)
	}
	wait, cancel := context.WithTimeoutCause(ctx, dnsTimeout, fmt.Errorf("it took longer than %v", dnsTimeout))
	defer cancel()
	node := s.real[0]
	if err := dnsAnswers(wait, node); err != nil {
		return fmt.Errorf("CoreDNS does not answer through its Service: %w", err)
	}
	took := s.o.Now().Sub(s.began)
	s.note("CoreDNS answers through its Service %.1f s after the control plane began to start", took.Seconds())
	if err := dnsReady(wait, client, replicas); err != nil {
		return fmt.Errorf("CoreDNS is not ready: %w", err)
	}
	if err := s.w.Update(func(m *record.Meta) { m.Nodes.ServiceSeconds = took.Seconds() }); err != nil {
		return err
	}
	return s.joinDNS(ctx, client, node)
}

// deployDNS makes what kubeadm does for CoreDNS.
func deployDNS(ctx context.Context, client kubernetes.Interface, replicas int) error {
	labels := map[string]string{"k8s-app": "kube-dns"}
	meta := metav1.ObjectMeta{Name: dnsProgram, Namespace: dnsSystem}
	role := metav1.ObjectMeta{Name: "system:coredns"}
	if _, err := client.CoreV1().ServiceAccounts(dnsSystem).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: role, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"endpoints", "services", "pods", "namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: role, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: meta.Namespace}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.CoreV1().ConfigMaps(dnsSystem).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Corefile": corefile}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	service := metav1.ObjectMeta{Name: "kube-dns", Namespace: dnsSystem, Labels: labels}
	if _, err := client.CoreV1().Services(dnsSystem).Create(ctx, &corev1.Service{ObjectMeta: service, Spec: corev1.ServiceSpec{
		ClusterIP: dnsAddress, Selector: labels,
		Ports: []corev1.ServicePort{
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(53)},
			{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(53)},
			{Name: "metrics", Port: 9153, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(9153)},
		},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	n, no, yes := int32(replicas), false, true
	one := intstr.FromInt32(1)
	probe := func(path string, port int32) corev1.Probe {
		return corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}}}
	}
	live, ready := probe("/health", 8080), probe("/ready", 8181)
	live.InitialDelaySeconds, live.TimeoutSeconds, live.FailureThreshold = 60, 5, 5
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name, Namespace: meta.Namespace, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &one}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					PriorityClassName: "system-cluster-critical", ServiceAccountName: meta.Name, DNSPolicy: corev1.DNSDefault,
					Tolerations: []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name: dnsProgram, Image: dnsImage, ImagePullPolicy: corev1.PullIfNotPresent,
						Args: []string{"-conf", "/etc/coredns/Corefile"},
						Resources: corev1.ResourceRequirements{
							Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("170Mi")},
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("70Mi")},
						},
						LivenessProbe: &live, ReadinessProbe: &ready,
						VolumeMounts: []corev1.VolumeMount{{Name: "config-volume", MountPath: "/etc/coredns", ReadOnly: true}},
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
							Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}, Drop: []corev1.Capability{"ALL"}},
						},
					}},
					Volumes: []corev1.Volume{{Name: "config-volume", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: meta.Name},
						Items:                []corev1.KeyToPath{{Key: "Corefile", Path: "Corefile"}},
					}}}},
				},
			},
		},
	}
	_, err := client.AppsV1().Deployments(dnsSystem).Create(ctx, deployment, metav1.CreateOptions{})
	return err
}

// dnsResolver asks CoreDNS through its Service, from a node.
func dnsResolver(node *realnode.Node) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return node.Dial(ctx, "udp", net.JoinHostPort(dnsAddress, "53"))
	}}
}

// dnsAnswers waits until the Service leads to somebody who answers.
func dnsAnswers(ctx context.Context, node *realnode.Node) error {
	resolver := dnsResolver(node)
	return again(ctx, func() error {
		// A question that was on its way before there was anybody to answer is lost.
		ask, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := resolver.LookupHost(ask, dnsQuestion)
		return err
	})
}

// dnsReady waits until all replicas are ready.
func dnsReady(ctx context.Context, client kubernetes.Interface, replicas int) error {
	return again(ctx, func() error {
		d, err := client.AppsV1().Deployments(dnsSystem).Get(ctx, dnsProgram, metav1.GetOptions{})
		if err == nil && int(d.Status.ReadyReplicas) < replicas {
			err = fmt.Errorf("%d of %d replicas are ready", d.Status.ReadyReplicas, replicas)
		}
		return err
	})
}

// again looks until there is no error, or until the context ends.
func again(ctx context.Context, look func() error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// joinDNS makes CoreDNS one of the processes that are watched.
func (s *session) joinDNS(ctx context.Context, client kubernetes.Interface, node *realnode.Node) error {
	// What starts containers is the runtime's, and no part of our keeper.
	for _, pid := range node.PIDs("containerd-shim-runc-v2") {
		s.attach(process.Component{Name: "containerd", PID: pid})
	}
	pids := node.PIDs(dnsProgram)
	for _, pid := range pids {
		c := record.Component{Name: dnsProgram, PID: pid, Version: dnsVersion, Instance: fmt.Sprintf("%s@%d", dnsProgram, pid)}
		s.attach(process.Component{Name: c.Name, PID: c.PID})
		if err := s.w.Update(func(m *record.Meta) { m.Cluster.Components = append(m.Cluster.Components, c) }); err != nil {
			return err
		}
	}
	pods, err := client.CoreV1().Pods(dnsSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if err != nil {
		return fmt.Errorf("pods of CoreDNS: %w", err)
	}
	var addresses []string
	for _, p := range pods.Items {
		addresses = append(addresses, p.Status.PodIP)
	}
	slices.Sort(addresses)
	if s.metrics == nil {
		return nil
	}
	reach := nodeClient(node)
	for _, address := range addresses {
		s.askOnNode(dnsProgram, dnsProgram+"@"+address, endpoint{"http://" + net.JoinHostPort(address, "9153"), reach}, endpoint{"http://" + net.JoinHostPort(address, dnsPprofPort), reach})
	}
	s.w.Gap(record.Gap{Collector: "logs", Subject: dnsProgram, Reason: "logs of pods are not collected"})
	return nil
}
