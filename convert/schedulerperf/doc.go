// Package schedulerperf turns the workloads of Kubernetes' own benchmark of its
// scheduler, test/integration/scheduler_perf, into experiments.
//
// A file of upstream's (performance-config.yaml) holds tests, each a list of
// operations, and workloads, each a set of parameters for them. Convert makes an
// experiment of every pair, or refuses it and says which operation, and why: a
// workload that is only half converted would give wrong numbers without a word.
//
// What the operations mean was read in v1.36.3: operations.go, executor.go,
// util.go, update.go and dra.go of that folder.
//
// Start with Read, then File.Convert.
package schedulerperf
