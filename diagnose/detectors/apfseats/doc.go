// Package apfseats finds an API server with too few seats for its requests.
package apfseats
