// Package prebindwait finds pods that wait for what must happen before they are bound.
package prebindwait
