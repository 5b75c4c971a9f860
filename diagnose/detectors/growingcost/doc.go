// Package growingcost finds work that gets dearer the more pods there are.
package growingcost
