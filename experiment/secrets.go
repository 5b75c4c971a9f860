package experiment

import (
	"maps"
	"slices"
	"strings"
)

// withheld stands where a value was that must not be kept.
const withheld = "REDACTED"

// WithoutSecrets returns a copy that may be kept and sent: values of
// environment variables are withheld, and of flags what redact takes out of
// --name=value arguments. Whole tells what has to be given again before the
// copy can run.
func (e *Experiment) WithoutSecrets(redact func(args []string) []string) *Experiment {
	c := *e
	c.Cluster.Components = maps.Clone(e.Cluster.Components)
	for name, comp := range c.Cluster.Components {
		comp.Env = maps.Clone(comp.Env)
		for k := range comp.Env {
			comp.Env[k] = withheld
		}
		comp.Args = maps.Clone(comp.Args)
		for flag, value := range comp.Args {
			if value == nil {
				continue
			}
			_, kept, _ := strings.Cut(redact([]string{"--" + flag + "=" + *value})[0], "=")
			comp.Args[flag] = &kept
		}
		c.Cluster.Components[name] = comp
	}
	return &c
}

// A WithheldError says which settings an experiment lacks because it comes
// from a recording, which keeps no secrets.
type WithheldError struct{ Paths []string }

func (e *WithheldError) Error() string {
	return "a recording keeps no values of environment variables and no secrets: give again --set " +
		strings.Join(e.Paths, "=VALUE --set ") + "=VALUE"
}

// Whole is nil, or a *WithheldError that lists what WithoutSecrets took out.
func (e *Experiment) Whole() error {
	var paths []string
	for name, comp := range e.Cluster.Components {
		for k, v := range comp.Env {
			if v == withheld {
				paths = append(paths, name+".env."+k)
			}
		}
		for flag, v := range comp.Args {
			if v != nil && strings.Contains(*v, withheld) {
				paths = append(paths, name+".args."+flag)
			}
		}
	}
	if len(paths) == 0 {
		return nil
	}
	slices.Sort(paths)
	return &WithheldError{paths}
}
