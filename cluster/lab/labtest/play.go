package labtest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/cluster/proc"
)

// A Role is what a test binary does when it is executed under another name.
type Role = func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error

// Play makes a test binary the helper by whose name it was started: the keeper
// of a lab, the way into a cgroup, or one of more, which go before these. It
// returns when the helper has ended, with the exit code of the process. Where
// the name is none of these, ok is false, and tests are to run.
func Play(args []string, stdin io.Reader, stdout, stderr io.Writer, more map[string]Role) (code int, ok bool) {
	roles := map[string]Role{
		lab.KeeperName: lab.KeeperMain,
		proc.EnterName: func(context.Context, io.Reader, io.Writer, io.Writer) error { return proc.EnterMain(args[1:]) },
	}
	maps.Copy(roles, more)
	name := filepath.Base(args[0])
	role, ok := roles[name]
	if !ok {
		return 0, false
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := role(ctx, stdin, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1, true
	}
	return 0, true
}
