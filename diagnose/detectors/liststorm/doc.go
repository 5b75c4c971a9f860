// Package liststorm finds clients that read whole lists again and again.
package liststorm
