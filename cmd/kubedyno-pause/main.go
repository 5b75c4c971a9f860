// Command kubedyno-pause is the only program in the image of a real node's
// containers. It waits, as Kubernetes' own pause does, reaping what is left to
// it; or it ends as it is told, for pods that fail or complete:
//
//	/pause
//	/pause exit CODE [AFTER]
//
// It is small because every container is one process of it.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 1 {
		pause()
		return
	}
	code, after, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubedyno-pause:", err)
		os.Exit(2)
	}
	time.Sleep(after)
	os.Exit(code)
}

func parse(args []string) (code int, after time.Duration, err error) {
	if len(args) < 2 || len(args) > 3 || args[0] != "exit" {
		return 0, 0, fmt.Errorf("%q: want nothing, or exit CODE [AFTER]", args)
	}
	if code, err = strconv.Atoi(args[1]); err != nil {
		return 0, 0, fmt.Errorf("exit code %q is not a number", args[1])
	}
	if len(args) == 3 {
		after, err = time.ParseDuration(args[2])
	}
	return code, after, err
}

// pause waits to be told to end. In a sandbox it is process 1 and inherits
// orphans.
func pause() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range told {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 {
				break
			}
		}
	}
}
