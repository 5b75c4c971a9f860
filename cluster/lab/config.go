package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
)

// unread are the scheduler's flags that it ignores beside --config, by where a
// KubeSchedulerConfiguration has what they say.
var unread = []struct {
	flag, section, key string
}{
	{"kubeconfig", "clientConnection", "kubeconfig"},
	{"kube-api-qps", "clientConnection", "qps"},
	{"kube-api-burst", "clientConnection", "burst"},
	{"kube-api-content-type", "clientConnection", "contentType"},
	{"profiling", "", "enableProfiling"},
	{"contention-profiling", "", "enableContentionProfiling"},
}

// configured writes a scheduler's configuration to a file and returns the
// scheduler's arguments with it. What the arguments say and the scheduler would
// no longer read goes into the file, unless the configuration says it itself: its
// client's limit stays that of the profile.
func configured(config map[string]any, args []string, file string) ([]string, error) {
	config = maps.Clone(config)
	config["apiVersion"], config["kind"] = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
	for _, u := range unread {
		text, given := argument(args, u.flag)
		if !given {
			continue
		}
		section := config
		if u.section != "" {
			own, _ := config[u.section].(map[string]any)
			if section = maps.Clone(own); section == nil {
				section = map[string]any{}
			}
			config[u.section] = section
		}
		if _, own := section[u.key]; own {
			continue
		}
		section[u.key] = text
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			section[u.key] = x
		} else if b, err := strconv.ParseBool(text); err == nil {
			section[u.key] = b
		}
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("write the configuration of %s: %w", Scheduler, err)
	}
	return append(args, "--config="+file), nil
}

// argument is the value of a flag among arguments.
func argument(args []string, flag string) (value string, ok bool) {
	for _, a := range args {
		if v, is := strings.CutPrefix(a, "--"+flag+"="); is {
			value, ok = v, true
		}
	}
	return value, ok
}
