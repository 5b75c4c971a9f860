// Package watchfanout finds changes that are sent to very many watches.
package watchfanout
