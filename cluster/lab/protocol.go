package lab

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/kubedyno/kubedyno/cluster"
)

// KeeperName is the argv[0] under which a program that uses this package must
// call KeeperMain.
const KeeperName = "kubedyno-keeper"

// The keeper reads JSON lines on stdin, first a keeperConfig and then
// commands, and writes events to stdout. When its stdin closes, its owner is
// dead.
type keeperConfig struct {
	Mode         string              `json:"mode"`
	State        State               `json:"state"`
	Lab          string              `json:"lab"`
	Overrides    map[string]Override `json:"overrides,omitempty"`
	CPU          float64             `json:"cpu,omitempty"`
	Last         string              `json:"last,omitempty"`
	StartSeconds float64             `json:"startSeconds"`
}

const (
	modeRun = "run" // ends with its owner
	modeUp  = "up"  // stands by itself once detached
)

type command struct {
	Do     string          `json:"do"`
	ID     int             `json:"id,omitempty"`
	Config json.RawMessage `json:"config,omitempty"`
}

const (
	doStop        = "stop"
	doDetach      = "detach"
	doPause       = "pause"
	doUnpause     = "unpause"
	doStartHollow = "start-hollow"
)

// An Event is one line from the keeper.
type Event struct {
	Event     string    `json:"event"`
	Time      time.Time `json:"time"`
	Component string    `json:"component,omitempty"`
	PID       int       `json:"pid,omitempty"`
	// Seconds that the start or stop of the component took.
	Seconds float64 `json:"seconds,omitempty"`
	// Killed says that the component did not end in its grace.
	Killed bool `json:"killed,omitempty"`

	// APIReady is when /readyz said ok, and seconds since the keeper began.
	APIReady        time.Time             `json:"apiReady,omitzero"`
	APIReadySeconds float64               `json:"apiReadySeconds,omitempty"`
	ControlPlane    *cluster.ControlPlane `json:"controlPlane,omitempty"`
	// Cgroups of our own processes, by name.
	Cgroups map[string][]string `json:"cgroups,omitempty"`

	Error  string   `json:"error,omitempty"`
	Misuse bool     `json:"misuse,omitempty"`
	Log    []string `json:"log,omitempty"`

	ID   int             `json:"id,omitempty"` // of the command that is done
	Data json.RawMessage `json:"data,omitempty"`
}

// Kinds of events.
const (
	EventStarting = "starting" // a component
	EventServing  = "serving"  // a component answers
	EventAPIReady = "api-ready"
	EventReady    = "ready"  // the lab
	EventFailed   = "failed" // to start; everything is unwound
	EventExited   = "exited" // a component by itself
	EventStopping = "stopping"
	EventEnded    = "ended" // a component, as it was told
	EventStopped  = "stopped"
	EventHollow   = "hollow" // a line of the simulated nodes
	EventDone     = "done"   // the reply to a command
)

func (e Event) err() error {
	switch {
	case e.Error == "":
		return nil
	case e.Misuse:
		return &MisuseError{e.Error}
	}
	return errors.New(e.Error)
}
