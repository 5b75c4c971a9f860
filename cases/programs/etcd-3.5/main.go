// Command etcd-3.5 is etcd of the release line before the lab's, which still has
// flags that were investigated in their day, such as --proxy-refresh-interval.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
