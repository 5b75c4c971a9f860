// Package nodesrefused finds nodes whose requests for their pods the API server refuses.
package nodesrefused
