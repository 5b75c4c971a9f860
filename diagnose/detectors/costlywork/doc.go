// Package costlywork finds components whose work for a pod costs more than in healthy runs.
package costlywork
