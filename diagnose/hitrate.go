package diagnose

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// HitRates are how often findings that stood first were right where it was
// known what was wrong: faults injected on purpose, and healthy runs.
type HitRates struct {
	CPUs      int                       `json:"cpus"`    // of the machine
	Version   string                    `json:"version"` // of Kubernetes
	Detectors map[string]map[Grade]Hits `json:"detectors"`
}

// Hits is how often something was right.
type Hits struct {
	Right int `json:"right"`
	Of    int `json:"of"`
}

//go:embed hitrates.json
var hitRatesFile []byte

// hitRates is what was measured with this version, written by
// kubedyno fault accuracy FOLDER -o hitrates.
var hitRates = mustHitRates(hitRatesFile)

func mustHitRates(data []byte) (h HitRates) {
	if err := json.Unmarshal(data, &h); err != nil {
		panic(fmt.Sprintf("hitrates.json, which is built in: %v", err))
	}
	return h
}

// of says how often such findings were right; empty where that was not measured.
func (h HitRates) of(f Finding) string {
	hits := h.Detectors[f.ID][f.Grade]
	if hits.Of == 0 {
		return ""
	}
	runs := "runs"
	if hits.Of == 1 {
		runs = "run"
	}
	return fmt.Sprintf("right in %d of %d %s in which it was known what was wrong (our lab, %d CPUs, Kubernetes %s)", hits.Right, hits.Of, runs, h.CPUs, h.Version)
}
