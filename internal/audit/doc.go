// Package audit decodes what an API server writes about the requests it
// served: events of its audit log, or of a lab's log of requests, which has the
// same form, and the HTTP lines that it logs at -v=3 and above. Collectors follow such files while they grow, analyses read them
// whole; both get rows of a recording's requests table.
//
// Start with Events, then HTTPLine.
package audit

// Where a row comes from: values of record.Request.Source.
const (
	SourceRequests = "request-log"
	SourceAudit    = "audit"
	SourceLog      = "log"
	SourceDump     = "apf-dump"
)
