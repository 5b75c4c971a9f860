// Package aggregated finds aggregated APIs that nobody serves.
package aggregated
