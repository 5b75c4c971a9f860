// Package clientway finds clients whose requests take long to get to the API server.
package clientway
