// Package timeouts finds time limits of the API server that are too short.
package timeouts
