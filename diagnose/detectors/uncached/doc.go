// Package uncached finds reads that pass by the API server's cache.
package uncached
