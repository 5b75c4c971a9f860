// Package cli is kubedyno's command line: the outside world as one value, the
// commands, and the exit codes. Commands parse and print; the work is done in
// the packages they call.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/kubedyno/kubedyno/cluster/existing"
	"github.com/kubedyno/kubedyno/cluster/lab"
	"github.com/kubedyno/kubedyno/record"
)

// Env is everything a command may touch of the outside world.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Now            func() time.Time
	// Executable is the path of this very program, which re-executes itself
	// as keeper, hollow nodes and load generator.
	Executable string
	// StdoutTTY and StderrTTY say whether people or programs read the stream.
	StdoutTTY, StderrTTY bool
	// Width is the terminal's width in columns.
	Width func() int
	Log   *slog.Logger
}

// System is the Env of a real process.
func System() *Env {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return &Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv:     os.Getenv,
		Now:        time.Now,
		Executable: exe,
		StdoutTTY:  term.IsTerminal(int(os.Stdout.Fd())),
		StderrTTY:  term.IsTerminal(int(os.Stderr.Fd())),
		Width: func() int {
			if w, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && w > 0 {
				return w
			}
			return 80
		},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: logLevel(os.Getenv("KUBEDYNO_LOG"))})),
	}
}

// logLevel is what $KUBEDYNO_LOG asks for: debug, info, warn or error.
// Warnings are the default: what a user must know is printed as a result.
func logLevel(name string) slog.Level {
	level := slog.LevelWarn
	if name != "" {
		_ = level.UnmarshalText([]byte(name)) // an unknown name changes nothing
	}
	return level
}

// Exit codes, as documented in docs/exit-codes.md.
const (
	ExitOK      = 0
	ExitFailed  = 1 // the work failed or was interrupted
	ExitMisused = 2 // wrong flag, argument or file
	ExitBadNews = 3 // a bottleneck found, an objective missed, a regression
	ExitInvalid = 4 // the run's numbers must not be used
)

// exitError carries an exit code with its cause.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// Misuse marks err as the caller's mistake: exit code 2.
func Misuse(err error) error { return &exitError{ExitMisused, err} }

// Misusef is Misuse of a formatted error.
func Misusef(format string, args ...any) error { return Misuse(fmt.Errorf(format, args...)) }

// silently ends with a code; everything worth saying has been printed.
func silently(code int) error { return &exitError{code: code} }

// callersMistake recognises the errors of packages that say so.
func callersMistake(err error) bool {
	var (
		inLab      *lab.MisuseError
		kubeconfig *existing.ConfigError
		exists     *record.ExistsError
	)
	return errors.As(err, &inLab) || errors.As(err, &kubeconfig) || errors.As(err, &exists)
}

// Main runs the command line args and returns the exit code. It prints the
// error, once.
func Main(ctx context.Context, env *Env, args []string) int {
	root := newRootCommand(env)
	root.SetArgs(args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		// Whatever cobra refuses before a command runs is misuse; commands
		// mark their own misuse.
		exit = &exitError{ExitFailed, err}
		if !commandRan(root) || callersMistake(err) {
			exit.code = ExitMisused
		}
	}
	if exit.err != nil {
		fmt.Fprintln(env.Stderr, "kubedyno: "+err.Error())
	}
	return exit.code
}
