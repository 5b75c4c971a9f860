// Package podsfail finds pods that fail on their nodes instead of running.
package podsfail
