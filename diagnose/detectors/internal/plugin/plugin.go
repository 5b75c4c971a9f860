// Package plugin says what detectors know of the scheduler's plugins.
package plugin

import (
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// Name is the plugin that a function belongs to, as its package is called.
func Name(function string) (string, bool) {
	_, rest, ok := strings.Cut(function, diagnose.PluginFunctions)
	name, _, _ := strings.Cut(rest, ".")
	return name, ok
}

// Short is a function without the path of its package.
func Short(function string) string { return function[strings.LastIndexByte(function, '/')+1:] }

// withoutSpreading is a scheduler's configuration that has no default constraints.
const withoutSpreading = "{profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List}}]}]}"

// affinity is what is known of the other plugin whose work grows with the pods that are
// there.
const affinity = "For each pod to be placed InterPodAffinity goes over the pods on all nodes: those with preferred terms of their own, and where the pod has terms, those that these may match. Narrow the terms (a label that few pods have, a namespace), say it with topologySpreadConstraints, or leave it out. " +
	"Where the pods to be placed have no terms themselves, ignorePreferredTermsOfExistingPods in the plugin's arguments saves all of it. The price: pods come to lie less near to, or less far from, each other."

// Advice is what is known to take away the work of a plugin, by its name in any case;
// ok is false where nothing is.
func Advice(v *diagnose.View, name string) (a diagnose.Advice, ok bool) {
	switch strings.ToLower(name) {
	case "interpodaffinity":
		return diagnose.Advice{Text: affinity}, true
	case "podtopologyspread":
		a.Text = "The default spreading constraints of the scheduler count, for each pod to be placed, the pods of the same owner on every node. A KubeSchedulerConfiguration whose arguments for PodTopologySpread have defaultingType: List and no defaultConstraints takes that away; fewer pods for each owner do not. " +
			"The price: replicas that ask for no spreading themselves are no longer spread over nodes and zones."
		if _, own, _ := v.Flag(diagnose.Scheduler, "config"); !own { // it would be replaced
			a.Set = map[string]string{"kube-scheduler.config": withoutSpreading}
		}
		return a, true
	}
	return a, false
}
