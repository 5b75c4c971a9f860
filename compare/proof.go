package compare

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubedyno/kubedyno/diagnose"
)

// ProofFile is the name of a proof's own file in its folder.
const ProofFile = "proof.json"

// ProofSchema is the version of the JSON form of Proof.
const ProofSchema = 1

// Proof is the story of a recording whose findings were tried out: a round for
// each finding, in the order in which they came to light.
type Proof struct {
	Schema int `json:"schema"`
	// Baseline is the recording that the first round starts from, relative to
	// the proof's folder where it can be.
	Baseline string  `json:"baseline"`
	Rounds   []Round `json:"rounds"`
	// Ended says why there is no further round.
	Ended string `json:"ended"`
	// Proved is true when every round proved its finding and there was one.
	Proved bool `json:"proved"`
}

// Round is one finding, the change that it advises, and what the change did.
type Round struct {
	Finding diagnose.Finding `json:"finding"`
	// Before is the rate and latency of the recording that has the finding.
	Before Measured `json:"before"`
	// Dose is a smaller change whose effect can be predicted; nil where the
	// finding has none.
	Dose *Trial `json:"dose,omitempty"`
	Lift Trial  `json:"lift"`
	// Behind is the summary of the finding that came first, where that was a
	// resource that is used up, which nothing but more of it changes. Such a
	// round looks whether this finding matters all the same, and proves nothing
	// against the ones before if it does not.
	Behind string `json:"behind,omitempty"`
	// Proven, and in words why, or why not.
	Proven  bool   `json:"proven"`
	Verdict string `json:"verdict"`
}

// Trial is one run with a change.
type Trial struct {
	Recording string `json:"recording"` // folder, relative to the proof's
	// Pods is how many the trial asked for; 0 where it was as many as before.
	// Only a dose asks for fewer: all that counts of it is the rate.
	Pods int `json:"pods,omitempty"`
	// Set are the --set values of this trial on top of the round before.
	Set []string `json:"set"`
	// PredictedRate is in pods/s: of a dose what it should lead to, of a lift
	// the next bound; 0 is unknown.
	PredictedRate float64  `json:"predictedRate"`
	PredictedBy   string   `json:"predictedBy,omitempty"` // the resource that binds next
	Measured      Measured `json:"measured"`
	// SymptomGone says that the finding is not in this run's diagnosis.
	SymptomGone bool `json:"symptomGone"`
	Valid       bool `json:"valid"`
}

// Measured is what a run achieved.
type Measured struct {
	Rate             float64  `json:"rate"`             // pods/s, scheduling throughput
	IntentSeconds    *float64 `json:"intentSeconds"`    // until the last pod ran; null where one never did
	PodStartupP99    *float64 `json:"podStartupP99"`    // seconds
	LostPodSeconds   float64  `json:"lostPodSeconds"`   // waiting above a healthy stage's
	CPUSecondsPerPod *float64 `json:"cpuSecondsPerPod"` // of the control plane
}

// Tolerance is how far a dose's rate may be from its prediction and still count
// as answered: a limit doubled must come out as roughly twice the rate, and
// one run each on a shared machine moves by some percent.
const Tolerance = 0.2

// Answered says whether a dose did what was predicted.
func (t Trial) Answered() bool {
	if t.PredictedRate <= 0 {
		return false
	}
	r := t.Measured.Rate / t.PredictedRate
	return r >= 1-Tolerance && r <= 1+Tolerance
}

// Judge fills in Proven and Verdict from the trials.
func (r *Round) Judge() {
	gain := 0.0
	if r.Before.Rate > 0 {
		gain = r.Lift.Measured.Rate / r.Before.Rate
	}
	var why []string
	ok := true
	fail := func(format string, args ...any) { ok = false; why = append(why, fmt.Sprintf(format, args...)) }
	pass := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	switch {
	case r.Dose == nil:
		fail("no dose could be tried")
	case !r.Dose.Valid:
		fail("the dose's run is not valid")
	case r.Dose.Answered():
		pass("the dose answers (%.1f pods/s, %.1f were predicted)", r.Dose.Measured.Rate, r.Dose.PredictedRate)
	default:
		fail("the dose does not answer (%.1f pods/s, %.1f were predicted)", r.Dose.Measured.Rate, r.Dose.PredictedRate)
	}
	switch {
	case !r.Lift.Valid:
		fail("the run with the change is not valid")
	case !r.Lift.SymptomGone:
		fail("the finding is still there with the change")
	case gain < minGain:
		fail("the change moved the rate by a factor of %.2f only", gain)
	default:
		pass("with the change the finding is gone and the rate went from %.1f to %.1f pods/s, × %.1f", r.Before.Rate, r.Lift.Measured.Rate, gain)
	}
	r.Proven = ok
	r.Verdict = strings.Join(why, "; ")
	if ok {
		r.Finding.Grade = diagnose.Proven
	}
}

// minGain is the least improvement that counts as the symptom having moved. A
// run-to-run difference of some percent must not.
const minGain = 1.15

// ReadProof reads the proof in a folder that prove wrote.
func ReadProof(dir string) (*Proof, error) {
	data, err := os.ReadFile(filepath.Join(dir, ProofFile))
	if err != nil {
		return nil, fmt.Errorf("read proof: %w", err)
	}
	var p Proof
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("read proof %s: %w", filepath.Join(dir, ProofFile), err)
	}
	if p.Schema > ProofSchema {
		return nil, fmt.Errorf("proof %s has schema %d, written by a newer kubedyno; this one knows up to %d", dir, p.Schema, ProofSchema)
	}
	return &p, nil
}

// Write keeps the proof in its folder. It is written after each round, so that
// an interrupted proof tells what it had shown until then.
func (p *Proof) Write(dir string) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("write proof: %w", err)
	}
	name := filepath.Join(dir, ProofFile)
	if err := os.WriteFile(name+".tmp", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write proof: %w", err)
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return fmt.Errorf("write proof: %w", err)
	}
	return nil
}

// Recordings are the folders of the proof's runs in the order of the story:
// baseline, then each round's dose and change.
func (p *Proof) Recordings(dir string) []string {
	at := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	all := []string{at(p.Baseline)}
	for _, r := range p.Rounds {
		if r.Dose != nil {
			all = append(all, at(r.Dose.Recording))
		}
		all = append(all, at(r.Lift.Recording))
	}
	return all
}
