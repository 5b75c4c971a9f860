// Package podsdeleted finds clients that delete the pods that others wait for.
package podsdeleted
