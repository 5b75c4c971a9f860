// Package auditsink finds audit logs that requests wait for.
package auditsink
