// Package authentication finds slow authentication.
package authentication
