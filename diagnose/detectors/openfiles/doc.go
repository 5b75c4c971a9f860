// Package openfiles finds a component that has as many files and connections open as it may.
package openfiles
