// Package crdchurn finds API documentation that is made again and again, as definitions change.
package crdchurn
