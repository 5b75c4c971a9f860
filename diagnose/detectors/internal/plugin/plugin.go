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

// Advice is what is known to take away the work of a function; ok is false where
// nothing is.
func Advice(v *diagnose.View, function string) (a diagnose.Advice, ok bool) {
	if name, _ := Name(function); name != "podtopologyspread" {
		return a, false
	}
	a.Text = "The default spreading constraints of the scheduler count, for each pod to be placed, the pods of the same owner on every node. A KubeSchedulerConfiguration whose arguments for PodTopologySpread have defaultingType: List and no defaultConstraints takes that away; fewer pods for each owner do not. " +
		"The price: replicas that ask for no spreading themselves are no longer spread over nodes and zones."
	if _, own, _ := v.Flag(diagnose.Scheduler, "config"); !own { // it would be replaced
		a.Set = map[string]string{"kube-scheduler.config": withoutSpreading}
	}
	return a, true
}
