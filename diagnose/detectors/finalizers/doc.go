// Package finalizers finds pods that finalizers keep after their nodes have done
// with them.
package finalizers
