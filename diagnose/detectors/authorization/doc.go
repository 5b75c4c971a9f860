// Package authorization finds slow authorization.
package authorization
