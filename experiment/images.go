package experiment

import (
	"maps"
	"slices"
	"strings"
)

// Images lists the images that pods of the experiment name, sorted. A name that
// differs from object to object is left out.
func (e *Experiment) Images() []string {
	names := map[string]bool{}
	e.each(func(p *Phase) {
		if o := p.Makes(); o != nil {
			if o.Pod != nil {
				names[o.Pod.Image] = true
			}
			imagesOf(map[string]any(o.Object), names)
		}
		if p.Update != nil {
			imagesOf(map[string]any(p.Update.Pods), names)
		}
	})
	if slices.ContainsFunc(e.Actors, func(a Actor) bool { return a.Do == ActAddonUser }) {
		names[AddonImage] = true
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// AddonImage is what the pods of add-ons run that an addon-user enables.
const AddonImage = "registry.k8s.io/pause:3.10"

// imagesOf finds the images of containers, wherever in a manifest pods are.
func imagesOf(v any, names map[string]bool) {
	switch x := v.(type) {
	case map[string]any:
		for key, item := range x {
			list, ok := item.([]any)
			if !ok || key != "containers" && key != "initContainers" {
				imagesOf(item, names)
				continue
			}
			for _, c := range list {
				container, _ := c.(map[string]any)
				if name, _ := container["image"].(string); !strings.Contains(name, "{") {
					names[name] = true
				}
			}
		}
	case []any:
		for _, item := range x {
			imagesOf(item, names)
		}
	}
}
