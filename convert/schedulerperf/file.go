package schedulerperf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// File is one configuration of upstream's.
type File struct {
	Path  string
	Tests []Test
}

// Test is a list of operations, and what they are done with.
type Test struct {
	Name                           string
	FeatureGates                   map[string]bool
	MetricsCollectorConfig         json.RawMessage
	WorkloadTemplate               []json.RawMessage
	Workloads                      []Workload
	SchedulerConfigPath            string
	DefaultPodTemplatePath         *string
	Labels                         []string
	DefaultThresholdMetricSelector *thresholdSelector
}

// Workload is one set of parameters.
type Workload struct {
	Name                    string
	Params                  map[string]any
	Labels                  []string
	Threshold               json.RawMessage
	ThresholdMetricSelector *thresholdSelector
	FeatureGates            map[string]bool
}

type thresholdSelector struct {
	Name        string
	Labels      map[string]string
	DataBucket  string
	ExpectLower bool
}

// maxFile is far above any configuration.
const maxFile = 4 << 20

// Read reads a configuration. Its operations are not looked at yet: one that is
// not known is the matter of its workloads alone.
func Read(path string) (*File, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read scheduler_perf configuration: %w", err)
	}
	f := &File{Path: path}
	if err := decodeStrict(data, &f.Tests); err != nil {
		return nil, fmt.Errorf("%s is not a configuration of scheduler_perf: %w", path, err)
	}
	if len(f.Tests) == 0 {
		return nil, fmt.Errorf("%s holds no test", path)
	}
	for i, t := range f.Tests {
		if t.Name == "" {
			return nil, fmt.Errorf("%s: test %d has no name", path, i)
		}
	}
	return f, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return data, err
}

// decodeStrict reads YAML the way upstream does: as JSON, whose keys may have
// any case, and without a key that nobody knows.
func decodeStrict(data []byte, into any) error {
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		return err
	}
	if v == nil {
		return errors.New("it is empty")
	}
	asJSON, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return decodeJSON(asJSON, into)
}

func decodeJSON(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// Select says which workloads are meant; its zero value takes all.
type Select struct {
	Test, Workload string // names
	// Labels that a workload must have, and with a dash before them must not,
	// separated by commas: as upstream's -perf-scheduling-label-filter.
	Labels string
}

// takes reports whether a workload is meant.
func (s Select) takes(t Test, w Workload) bool {
	if s.Test != "" && s.Test != t.Name || s.Workload != "" && s.Workload != w.Name {
		return false
	}
	has := append(slices.Clone(t.Labels), w.Labels...)
	for label := range strings.SplitSeq(s.Labels, ",") {
		label = strings.TrimSpace(label)
		switch {
		case label == "":
		case strings.HasPrefix(label, "-"):
			if slices.Contains(has, label[1:]) {
				return false
			}
		case !slices.Contains(has, strings.TrimPrefix(label, "+")):
			return false
		}
	}
	return true
}

// The operations, as far as they are read. Fields that a conversion has no word
// for are read too: that they are there is the reason of a refusal.
type (
	createNodes struct {
		Opcode                   string
		Count                    int
		CountParam               string
		NodeTemplatePath         *string
		NodeAllocatableStrategy  json.RawMessage
		LabelNodePrepareStrategy *struct {
			LabelKey      string
			LabelValues   []string
			RoundRobinIdx int
		}
		UniqueNodeLabelStrategy *struct{ LabelKey string }
	}
	createNamespaces struct {
		Opcode, Prefix        string
		Count                 int
		CountParam            string
		NamespaceTemplatePath *string
	}
	createPods struct {
		Opcode                            string
		Count                             int
		CountParam                        string
		SteadyState                       bool
		SteadyStateParam                  string
		Duration                          duration
		DurationParam                     string
		CollectMetrics                    bool
		Namespace                         *string
		PodTemplatePath                   *string
		SkipWaitToCompletion              bool
		PersistentVolumeTemplatePath      *string
		PersistentVolumeClaimTemplatePath *string
	}
	createPodSets struct {
		Opcode          string
		Count           int
		CountParam      string
		NamespacePrefix string
		CreatePodsOp    createPods
	}
	deletePods struct {
		Opcode, Namespace    string
		LabelSelector        map[string]string
		SkipWaitToCompletion bool
		DeletePodsPerSecond  int
	}
	churn struct {
		Opcode, Mode         string
		Number               int
		IntervalMilliseconds int64
		Namespace            *string
		TemplatePaths        []string
	}
	barrier struct {
		Opcode           string
		Namespaces       []string
		LabelSelector    map[string]string
		StageRequirement string
	}
	sleep struct {
		Opcode        string
		Duration      duration
		DurationParam string
	}
	startCollecting struct {
		Opcode, Name  string
		Namespaces    []string
		LabelSelector map[string]string
	}
	createAny struct {
		Opcode, Namespace, TemplatePath string
		Count                           *int
		CountParam                      string
	}
)

// duration is written as Go has it: 10s.
type duration struct{ time.Duration }

func (d *duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	var err error
	d.Duration, err = time.ParseDuration(text)
	return err
}

// beside is a path of the configuration, which is relative to its folder. What
// it names gets into an experiment, so that other places of this machine are
// not for it to say.
func (f *File) beside(path string) (string, error) {
	if filepath.IsAbs(path) {
		return "", fmt.Errorf("template %s: want a path relative to the configuration", path)
	}
	return filepath.Join(filepath.Dir(f.Path), path), nil
}
