// Package policies finds expensive admission policies.
package policies
