// Package lockherd finds clients with a lock for each object.
package lockherd
