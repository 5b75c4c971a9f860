// Package controllerworkers finds controllers with too few workers.
package controllerworkers
