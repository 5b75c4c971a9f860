package run

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/realnode"
	"github.com/kubedyno/kubedyno/collect/logs"
	"github.com/kubedyno/kubedyno/collect/metrics"
	"github.com/kubedyno/kubedyno/collect/process"
	"github.com/kubedyno/kubedyno/collect/profile"
	"github.com/kubedyno/kubedyno/experiment"
	"github.com/kubedyno/kubedyno/hollow"
	"github.com/kubedyno/kubedyno/record"
)

// checkReal says what is missing here for real nodes and what is to run on them.
func checkReal(c experiment.Cluster) error {
	if c.Nodes.Real == 0 {
		return nil
	}
	if err := realnode.Check(c.Proxy); err != nil || c.DNS == 0 {
		return err
	}
	path, err := lab.FindLab()
	if err != nil {
		return err
	}
	_, err = realnode.FindDNS(path)
	return err
}

// startRealNodes starts n real nodes, one after another: each takes a machine's
// attention for a moment.
func (s *session) startRealNodes(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	path, err := lab.FindLab()
	if err != nil {
		return err
	}
	cluster := s.o.Experiment.Cluster
	var programs map[string]string
	if cluster.DNS > 0 {
		dns, err := realnode.FindDNS(path)
		if err != nil {
			return err
		}
		programs = map[string]string{dnsImage: dns}
	}
	for i := range n {
		began := s.o.Now()
		node, err := realnode.Start(ctx, realnode.Config{
			Name: fmt.Sprintf("real-%d", i), Number: i, Lab: path,
			Images: s.o.Experiment.Images(), Labels: map[string]string{hollow.RunLabel: s.id},
			Programs: programs, Proxy: cluster.Proxy,
		}.For(s.plane))
		if err != nil {
			return err
		}
		s.real = append(s.real, node)
		info := node.Info()
		s.w.Node(record.NodeSample{Name: info.Name, CreatedMicros: began.UnixMicro(), ReadyMicros: s.o.Now().UnixMicro()})
		if err := s.joinReal(node); err != nil {
			return err
		}
		s.note("real node %s: Ready after %.1f s", info.Name, info.ReadySeconds)
	}
	if err := s.w.Update(func(m *record.Meta) {
		m.Nodes.Count += n
		m.Nodes.Real = n
	}); err != nil {
		return err
	}
	return s.startDNS(ctx)
}

// joinReal makes a node's processes ones that are watched. Its keeper is ours.
func (s *session) joinReal(node *realnode.Node) error {
	info := node.Info()
	all := []record.Component{
		{Name: "kubelet", PID: info.KubeletPID, Version: s.plane.Version},
		{Name: "containerd", PID: info.ContainerdPID},
	}
	if info.ProxyPID != 0 {
		all = append(all, record.Component{Name: "kube-proxy", PID: info.ProxyPID, Version: s.plane.Version})
		s.note("kube-proxy on %s, by %s", info.Name, info.ProxyMode)
	}
	for _, c := range all {
		c.Instance = fmt.Sprintf("%s@%d", c.Name, c.PID)
		s.attach(process.Component{Name: c.Name, PID: c.PID})
		if err := s.w.Update(func(m *record.Meta) { m.Cluster.Components = append(m.Cluster.Components, c) }); err != nil {
			return err
		}
		if s.metrics == nil {
			continue
		}
		s.logs.Add(logs.File{Component: c.Name, Path: info.Logs[c.Name], FromStart: true})
		if err := s.askProgram(node, c); err != nil {
			return err
		}
	}
	s.attach(process.Component{Name: realnode.KeeperName, PID: node.KeeperPID()})
	return s.addHarness(record.Component{Name: realnode.KeeperName, PID: node.KeeperPID()})
}

// askProgram has one of a node's own programs asked for its metrics and profiles.
func (s *session) askProgram(node *realnode.Node, c record.Component) error {
	reach := nodeClient(node)
	switch c.Name {
	case "kubelet":
		cert, err := tls.LoadX509KeyPair(s.plane.ClientCert, s.plane.ClientKey)
		if err != nil {
			return fmt.Errorf("client for the kubelet's metrics: %w", err)
		}
		client, err := node.KubeletClient(cert)
		if err != nil {
			return err
		}
		at := node.Info().KubeletURL
		s.askOnNode(c.Name, c.Instance, endpoint{at, client}, endpoint{at, client})
	case "containerd":
		// Its metrics are not where its profiles are, nor named as others' are.
		profiles := &http.Client{Transport: &http.Transport{DialContext: node.DialContainerd}}
		s.askOnNode(c.Name, c.Instance, endpoint{node.ContainerdURL() + "/v1", reach}, endpoint{"http://containerd", profiles})
	case "kube-proxy":
		s.askOnNode(c.Name, c.Instance, endpoint{node.ProxyURL(), reach}, endpoint{node.ProxyURL(), reach})
	}
	return nil
}

// endpoint is where something is asked, and by whom.
type endpoint struct {
	url    string
	client *http.Client
}

// askOnNode has a process on a real node asked for its metrics and profiles.
func (s *session) askOnNode(component, instance string, metricsAt, pprofAt endpoint) {
	t := metrics.Target{Component: component, Instance: instance, URL: metricsAt.url + "/metrics", Client: metricsAt.client}
	s.metrics.Add(t)
	s.onNodes = append(s.onNodes, t)
	s.profile.Add(profile.Target{Component: component, Instance: instance, URL: pprofAt.url + "/debug/pprof", Client: pprofAt.client})
}

// stopRealNodes ends them before the control plane that they belong to.
func (s *session) stopRealNodes(ctx context.Context) error {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), realStopTimeout)
	defer cancel()
	if s.metrics != nil { // nobody will answer any more
		for _, t := range s.onNodes {
			s.metrics.Remove(t.Component, t.Instance)
		}
	}
	s.onNodes = nil
	var errs []error
	for _, n := range s.real {
		errs = append(errs, n.Stop(stop))
	}
	s.real = nil
	return errors.Join(errs...)
}

// realStopTimeout bounds the orderly end of real nodes.
const realStopTimeout = 20 * time.Second
