package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/kubedyno/kubedyno/experiment"
)

// Config is the first line of kubedyno-csi's stdin.
type Config struct {
	Kubeconfig string `json:"kubeconfig"` // path
	Namespace  string `json:"namespace"`  // of the leases
	RunID      string `json:"run"`        // becomes a label of the volumes
	Identity   string `json:"identity"`   // of this replica, as leases have it
	Seed       int64  `json:"seed"`
	// Storage says how the driver behaves, with all that has a default filled in.
	Storage experiment.Storage `json:"storage"`
}

// Timeouts of one call to the backend, as the sidecars have them by default
// (--timeout). A call that takes longer has failed; the backend goes on, and a
// later call finds it done.
const (
	provisionTimeout = 10 * time.Second
	attachTimeout    = 15 * time.Second
)

func parseConfig(line []byte) (Config, error) {
	var c Config
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("csi config: %w", err)
	}
	switch {
	case c.Kubeconfig == "" || c.Namespace == "" || c.Identity == "":
		return c, errors.New("csi config: kubeconfig, namespace and identity are needed")
	case c.Storage.Driver == "" || c.Storage.Workers < 1 || c.Storage.AttachWorkers < 1 || c.Storage.QPS <= 0 || c.Storage.Burst < 1:
		return c, errors.New("csi config: storage needs driver, workers, attachWorkers, qps and burst")
	}
	return c, nil
}

// What the backend does in a drawn time.
const (
	drawCreate = "create"
	drawDelete = "delete"
	drawAttach = "attach"
	drawDetach = "detach"
)

// draw is how long an operation on an object takes: the same in each run of the
// same seed and UID, whatever order the operations come in.
func draw(seed int64, uid, operation string, d experiment.Distribution) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(uid + "/" + operation))
	return d.At(rand.New(rand.NewPCG(uint64(seed), h.Sum64())).Float64())
}
