// Package encryption finds slow encryption at rest.
package encryption
