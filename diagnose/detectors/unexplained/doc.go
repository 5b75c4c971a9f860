// Package unexplained says where to look when nothing on the list explains the
// lost time.
package unexplained
