// Package largeobjects finds large objects that clients write often.
package largeobjects
