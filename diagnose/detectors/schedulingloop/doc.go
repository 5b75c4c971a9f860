// Package schedulingloop finds a scheduler whose serial loop is busy all the time.
package schedulingloop
