// Package slownodes finds nodes that take long to start pods.
package slownodes
