// Package controlleroff finds workloads whose controller is switched off.
package controlleroff
