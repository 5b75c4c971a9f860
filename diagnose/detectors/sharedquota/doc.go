// Package sharedquota finds CPU quotas that stop components and are not their own.
package sharedquota
