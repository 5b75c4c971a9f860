// Package unusualwork finds work that has an unusual share of a component's CPU.
package unusualwork
