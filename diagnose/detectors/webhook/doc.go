// Package webhook finds slow admission webhooks.
package webhook
