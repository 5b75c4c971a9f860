package process

import (
	"errors"
	"fmt"
)

// kernelEvents is the best source of ends that this process may use.
func kernelEvents() (exitSource, error) {
	t, err := newTracer()
	if err == nil {
		return t, nil
	}
	l, err2 := newListener()
	if err2 == nil {
		return &degraded{l, err}, nil
	}
	if errors.Is(err, errPIDNamespace) {
		return nil, err
	}
	return nil, fmt.Errorf("%w; nor by taskstats: %w; run as root, or grant CAP_BPF and CAP_PERFMON (or CAP_NET_ADMIN for ends without command lines)", err, err2)
}

// degraded is a listener with the reason for which it is not a tracer.
type degraded struct {
	*listener
	why error
}

func (d *degraded) partial() string {
	return fmt.Sprintf("%s are not told: %v; run as root, or grant CAP_BPF and CAP_PERFMON", d.listener.partial(), d.why)
}
