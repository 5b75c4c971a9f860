// Command kubedyno puts a Kubernetes control plane on the dyno. Under other
// names it is its own helpers: the keeper of the children, the simulated
// nodes, the load generator.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kubedyno/kubedyno/internal/cli"
	"github.com/kubedyno/kubedyno/internal/slack"
)

func main() {
	role := filepath.Base(os.Args[0])
	if helper, ok := helpers[role]; ok {
		slack.Reset()
		// A helper ends when its owner says so or dies, which it sees on its
		// stdin: a terminal's Ctrl-C is for the owner alone.
		signal.Ignore(os.Interrupt)
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := helper(ctx); err != nil {
			os.Exit(cli.ExitFailed)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us at once
	os.Exit(cli.Main(ctx, cli.System(), os.Args[1:]))
}
