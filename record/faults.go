package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Fault is what was put wrong on purpose in a run, and what it did. It is the
// answer to the question that a diagnosis is asked, so it is kept in a file of
// its own that no detector reads.
type Fault struct {
	Name      string  `json:"name"`
	Intensity string  `json:"intensity,omitempty"` // low, middle, high; empty where a value was given
	Parameter string  `json:"parameter"`           // of what Value is
	Value     string  `json:"value"`
	Acted     string  `json:"acted,omitempty"` // yes, no, not assessed; empty before the run is over
	Number    float64 `json:"number"`
	Unit      string  `json:"unit,omitempty"`
	Text      string  `json:"text,omitempty"`
}

// faultsFile is in a recording's folder, and no part of what Open reads.
const faultsFile = "faults.json"

// WriteFaults keeps the faults of a run beside its recording.
func WriteFaults(dir string, faults []Fault) error {
	data, err := json.MarshalIndent(faults, "", "  ")
	if err != nil {
		return fmt.Errorf("write faults: %w", err)
	}
	return writeFile(filepath.Join(dir, faultsFile), append(data, '\n'))
}

// ReadFaults returns the faults that a run was made with; none where it had none.
func ReadFaults(dir string) ([]Fault, error) {
	data, err := os.ReadFile(filepath.Join(dir, faultsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var faults []Fault
	if err == nil {
		err = json.Unmarshal(data, &faults)
	}
	if err != nil {
		return nil, fmt.Errorf("faults of recording %s: %w", dir, err)
	}
	return faults, nil
}
