// Package conversion finds slow conversion webhooks of custom resources.
package conversion
