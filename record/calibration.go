package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubedyno/kubedyno/stat"
)

// CalibrationSchema is the version of the form of a Calibration.
const CalibrationSchema = 1

// calibrationFile is its name inside a recording.
const calibrationFile = "calibration.json"

// Calibration is what healthy runs of one workload looked like on one machine.
// A recording carries the one that fits it, so that its diagnosis is the same
// everywhere.
type Calibration struct {
	Schema int            `json:"schema"`
	Of     CalibrationKey `json:"of"`
	Runs   []string       `json:"runs"` // IDs of the recordings, oldest first
	Ended  time.Time      `json:"ended"`
	// Features are the numbers by which runs are compared, by name.
	Features map[string]Healthy `json:"features"`
	// Verdicts are the findings of these runs and in how many each stood: what
	// is expected of a run in which nothing is wrong. Stock flags hold a healthy
	// run back by their limits, say.
	Verdicts map[string]int `json:"verdicts"`
}

// CalibrationKey says which runs may be compared: the same load, on the same
// kind of machine, with the same version and profile.
type CalibrationKey struct {
	CPUs        int    `json:"cpus"`
	Model       string `json:"model"`
	MemoryGiB   int    `json:"memoryGiB"`
	Virtual     string `json:"virtual,omitempty"`
	Disk        string `json:"disk"` // file system of etcd's data
	Version     string `json:"version"`
	Profile     string `json:"profile"`
	Experiment  string `json:"experiment"`
	Shape       string `json:"shape"` // of the workload: Workload.Shape
	CollectedBy string `json:"collectedBy"`
}

// CalibrationKey is the key of the healthy runs that this one may be compared
// with; ok is false for what is no lab's run of an experiment.
func (m *Meta) CalibrationKey() (k CalibrationKey, ok bool) {
	if m.Cluster.Kind != "lab" || m.Workload.Shape == "" {
		return k, false
	}
	var collectors []string
	for _, c := range m.Collectors {
		collectors = append(collectors, c.Name)
	}
	slices.Sort(collectors)
	return CalibrationKey{
		CPUs: m.Machine.CPUs, Model: m.Machine.Model, MemoryGiB: int(math.Round(float64(m.Machine.MemoryBytes) / (1 << 30))),
		Virtual: m.Machine.Virtual, Disk: m.Machine.Disk, Version: m.Cluster.Version, Profile: m.Cluster.Profile,
		Experiment: m.Name, Shape: m.Workload.Shape, CollectedBy: strings.Join(slices.Compact(collectors), " "),
	}, true
}

// File is the name under which a calibration with this key is kept.
func (k CalibrationKey) File() string {
	data, _ := json.Marshal(k) // strings and numbers: it cannot fail
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%s-%s-%s.json", k.Experiment, cmp.Or(k.Profile, "none"), hex.EncodeToString(sum[:6]))
}

// Healthy is one feature over the healthy runs.
type Healthy struct {
	N      int     `json:"n"` // runs in which it could be measured
	Median float64 `json:"median"`
	MAD    float64 `json:"mad"` // stat.MAD: it estimates a standard deviation
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// HealthyOf sums up the values that healthy runs had; there must be one.
func HealthyOf(values []float64) Healthy {
	return Healthy{N: len(values), Median: stat.Median(values), MAD: stat.MAD(values), Min: slices.Min(values), Max: slices.Max(values)}
}

// Enough is the number of healthy runs from which a calibration counts: with 5
// the largest of them lies above the median of all healthy runs in 31 of 32
// cases.
const Enough = 5

const (
	beyond = 1.25 // times the largest healthy value
	robust = 6    // times the robust standard deviation away from the median
	// least is the standard deviation as a share of the median that is granted
	// even where a few healthy runs lay closer together.
	least = 0.03
)

// Above reports whether a value lies beyond what healthy runs vary by: more
// than 1.25 times the largest of them, and more than 6 robust standard
// deviations above their median (research/faults.md, 3.5).
func (h Healthy) Above(x float64) bool {
	sd := max(h.MAD, least*math.Abs(h.Median))
	return h.N >= Enough && x > beyond*h.Max && x-h.Median >= robust*sd
}

// ReadCalibration reads one from a file.
func ReadCalibration(file string) (*Calibration, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read calibration: %w", err)
	}
	return parseCalibration(file, data)
}

func parseCalibration(file string, data []byte) (*Calibration, error) {
	var c Calibration
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("calibration %s is damaged: %w", file, err)
	}
	if c.Schema > CalibrationSchema || c.Schema < 1 {
		return nil, fmt.Errorf("calibration %s has schema %d; this kubedyno reads 1 to %d", file, c.Schema, CalibrationSchema)
	}
	return &c, nil
}

// Write puts the calibration into a folder, under its key's name, and returns
// the file.
func (c *Calibration) Write(folder string) (file string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("write calibration: %w", err)
	}
	file = filepath.Join(folder, c.Of.File())
	return file, c.write(file)
}

func (c *Calibration) write(file string) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("write calibration: %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write calibration: %w", err)
	}
	return nil
}

// Calibrate gives a finished recording the calibration of the folder that fits
// it, and reports whether there is one.
func Calibrate(recording, folder string) (bool, error) {
	r, err := Open(recording)
	if err != nil {
		return false, err
	}
	defer r.Close()
	key, ok := r.meta.CalibrationKey()
	if !ok {
		return false, nil
	}
	c, err := ReadCalibration(filepath.Join(folder, key.File()))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case c.Of != key:
		return false, fmt.Errorf("calibration %s is of something else than its name says", key.File())
	}
	return true, c.write(filepath.Join(r.home, calibrationFile))
}

// Calibration is what healthy runs looked like; the error wraps ErrMissing where
// the recording carries none.
func (r *Recording) Calibration() (*Calibration, error) {
	data, err := r.root.ReadFile(calibrationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, r.missing("calibration")
	}
	if err != nil {
		return nil, fmt.Errorf("read calibration: %w", err)
	}
	return parseCalibration(filepath.Join(r.dir, calibrationFile), data)
}
