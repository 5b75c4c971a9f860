package requests

import (
	"fmt"

	"github.com/kubedyno/kubedyno/record"
)

// Losses are audit events that the API server made, and those of them that
// never reached the log: in batch mode it drops what does not fit its buffer.
type Losses struct {
	Events float64 // apiserver_audit_event_total
	Lost   float64 // apiserver_audit_error_total, of all plugins
}

// AuditLosses counts the audit events of a window, by the API servers'
// metrics. It fails with record.ErrMissing where they were not recorded.
func AuditLosses(rec metricsSource, w record.Window) (Losses, error) {
	var l Losses
	var ok bool
	var err error
	if l.Events, ok, err = rec.Increase("apiserver_audit_event_total", nil, w); err != nil {
		return Losses{}, err
	}
	if !ok {
		return Losses{}, fmt.Errorf("apiserver_audit_event_total: %w", record.ErrMissing)
	}
	// The counter has no series until an event is lost.
	if l.Lost, _, err = rec.Increase("apiserver_audit_error_total", nil, w); err != nil {
		return Losses{}, err
	}
	return l, nil
}
