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
// copy can run. The values of Secrets become filler of the same length, with
// which the copy is the same load.
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
	c.Phases = withFiller(e.Phases)
	return &c
}

// withFiller copies phases as far as they hold Secrets.
func withFiller(phases []Phase) []Phase {
	phases = slices.Clone(phases)
	for i := range phases {
		p := &phases[i]
		p.Parallel = withFiller(p.Parallel)
		switch o := p.Makes(); {
		case o == nil || o.KindName() != "Secret" || o.Object == nil:
		case p.Create != nil:
			made := *p.Create
			made.Object = withoutValues(o.Object)
			p.Create = &made
		default:
			made := *p.Apply
			made.Object = withoutValues(o.Object)
			p.Apply = &made
		}
	}
	return phases
}

// withoutValues is a Secret's manifest with filler in place of its values. A's are valid base64 too.
func withoutValues(m Manifest) Manifest {
	m = maps.Clone(m)
	for _, key := range []string{"data", "stringData"} {
		values, ok := m[key].(map[string]any)
		if !ok {
			continue
		}
		values = maps.Clone(values)
		for k, v := range values {
			if text, ok := v.(string); ok {
				values[k] = strings.Repeat("A", len(text))
			}
		}
		m[key] = values
	}
	return m
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
