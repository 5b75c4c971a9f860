// Package preemption finds pods that get their places by the eviction of others.
package preemption
