// Package use derives the USE checklist from a recording: for every resource
// of the machine and of the control plane its utilisation, saturation and
// errors (Brendan Gregg, The USE Method, https://www.brendangregg.com/usemethod.html).
//
// Utilisation is the share of time, or of a limit, that was in use. Saturation
// is work that waited. A check that cannot be computed is "not measurable" and
// says why: it is never ok. A check compares with a threshold that has a
// source; it says how a resource was, not what caused what: detectors judge.
//
// Start with Assess, then Thresholds.
package use
