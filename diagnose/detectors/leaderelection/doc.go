// Package leaderelection finds what leader election costs, and where nobody needs it.
package leaderelection
