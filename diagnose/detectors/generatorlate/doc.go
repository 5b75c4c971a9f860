// Package generatorlate finds runs that our own load generator held back.
package generatorlate
