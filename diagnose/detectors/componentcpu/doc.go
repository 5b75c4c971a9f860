// Package componentcpu finds components that use up their own CPU quota.
package componentcpu
