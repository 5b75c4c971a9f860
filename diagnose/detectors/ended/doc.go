// Package ended finds components whose process ended during the load.
package ended
