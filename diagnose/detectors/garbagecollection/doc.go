// Package garbagecollection finds components that spend their CPU on collecting garbage.
package garbagecollection
