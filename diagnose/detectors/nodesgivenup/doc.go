// Package nodesgivenup finds nodes that live and are taken for failed.
package nodesgivenup
