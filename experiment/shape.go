package experiment

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Shape stands for the load that the experiment puts on its nodes, as twelve
// hexadecimal digits. Experiments that differ in the components' flags and
// quotas, in faults and actors, in names and objectives or in what is recorded have the
// same shape: their runs may be compared.
func (e *Experiment) Shape() (string, error) {
	c := *e
	c.Name, c.Description, c.Variables = "shape", "", nil
	c.Cluster.Components, c.Actors, c.Objectives, c.Variants, c.Repetitions, c.Seed = nil, nil, nil, nil, 1, 0
	c.Cluster.CPU, c.Faults = 0, nil
	c.Observe = Observe{}
	c.Phases = withFiller(e.Phases) // no trace of Secrets
	data, err := c.YAML()
	if err != nil {
		return "", fmt.Errorf("shape of experiment %s: %w", e.Name, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6]), nil
}
