// Package nodeslate finds runs that our own simulated nodes held back.
package nodeslate
