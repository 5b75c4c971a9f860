// Package machinecpu finds runs in which the machine's CPUs were full.
package machinecpu
