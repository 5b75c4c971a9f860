// Package verbosity finds components that log more than anybody reads.
package verbosity
