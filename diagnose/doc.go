// Package diagnose says what held a recorded run back.
//
// It reads a recording and never touches a cluster: same recording, same
// answer, on any machine. The way from one to the other:
//
//  1. NewView digests the recording once: the pods' stages (where they waited,
//     and for how long), what each resource was busy with and could do at
//     most, which limits were in force.
//  2. Detectors, one cause each, look at the View. Each ends in one of three
//     ways: found, clear (and why), not assessed (and what is missing). Missing
//     data is never zero and never "healthy".
//  3. Run resolves their claims: a pod-second is explained once, by the cause
//     furthest upstream that can have caused it, and findings are ranked by
//     the share of the lost pod-seconds that they explain.
//
// Start with Diagnosis, then View, then Detector. To add a cause, copy a
// package of diagnose/detectors and add it to detectors.All; describe its
// look-alikes as cases of diagnose/diagnosetest.
package diagnose
