// Package connections finds clients that open a connection for each request.
package connections
