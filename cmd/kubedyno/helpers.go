package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/proc"
	"github.com/kubedyno/kubedyno/cluster/realnode"
	"github.com/kubedyno/kubedyno/hollow"
	"github.com/kubedyno/kubedyno/internal/slack"
	"github.com/kubedyno/kubedyno/load"
	"github.com/kubedyno/kubedyno/load/actor"
	"github.com/kubedyno/kubedyno/storage"
)

// helpers are the roles this program takes when it is executed under another
// name. One binary means one thing to install and to copy to a machine. Each
// says its last words itself.
var helpers = map[string]func(context.Context) error{
	"kubedyno-keeper": func(ctx context.Context) error {
		return say("kubedyno-keeper", lab.KeeperMain(ctx, os.Stdin, os.Stdout, os.Stderr))
	},
	"kubedyno-hollow": func(ctx context.Context) error {
		leaveCores()
		slack.Widen(time.Millisecond) // its delays are hundreds of them
		return hollow.ProcessMain(ctx, os.Stdin, os.Stdout, os.Stderr)
	},
	"kubedyno-load":   func(ctx context.Context) error { return load.ProcessMain(ctx, os.Stdin, os.Stdout, os.Stderr) },
	actor.ProcessName: func(ctx context.Context) error { return actor.ProcessMain(ctx, os.Stdin, os.Stdout, os.Stderr) },
	storage.ProcessName: func(ctx context.Context) error {
		return storage.ProcessMain(ctx, os.Stdin, os.Stdout, os.Stderr)
	},
	realnode.KeeperName: func(ctx context.Context) error {
		return say(realnode.KeeperName, realnode.KeeperMain(ctx, os.Stdin, os.Stdout, os.Stderr))
	},
	realnode.InsideName: func(ctx context.Context) error {
		return say(realnode.InsideName, realnode.InsideMain(ctx, os.Stdin, os.Stdout, os.Stderr))
	},
	"kubedyno-enter": func(context.Context) error { return say("kubedyno-enter", proc.EnterMain(os.Args[1:])) },
}

// leaveCores lets hollow nodes run on half of the cores unless $GOMAXPROCS says
// otherwise: they mostly wait, and threads that wake each other up for a lease
// renewal cost an eighth of it.
func leaveCores() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2))
	}
}

func say(role string, err error) error {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
	}
	return err
}
