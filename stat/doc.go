// Package stat holds the statistics that kubedyno's statements rest on:
// percentiles, intervals, rates, slopes and tests over plain numbers.
//
// It is pure: it knows nothing of Kubernetes or of recordings, keeps no state
// and uses no clock; what is drawn at random comes from a seed that is given, so
// equal input gives equal output. Where
// a number would mislead, a function says so instead of returning it: a second
// result of false means "too few samples to say".
//
// Start with Quantile and MedianCI for values, Throughput and Plateau for
// events in time, Compare for two sets of values, TestFamily for two sets of runs
// in many indicators, Changes for a series.
package stat
