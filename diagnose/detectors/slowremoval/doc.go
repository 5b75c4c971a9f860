// Package slowremoval finds what keeps the garbage collector of the controller
// manager from removing what deleted objects leave behind.
package slowremoval
