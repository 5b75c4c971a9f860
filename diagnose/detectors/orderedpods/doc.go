// Package orderedpods finds workloads whose pods come one after another by intent.
package orderedpods
