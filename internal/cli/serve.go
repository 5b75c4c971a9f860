package cli

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/diagnose/detectors"
	"github.com/kubedyno/kubedyno/serve"
)

func newServeCommand(env *Env) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Browse a folder of recordings in a browser",
		Long: `Serve lists the recordings below a folder, by default this one, and shows their
reports, any two or several of them beside each other, their history, PromQL over
many of them, and how far a run is that is still being recorded. It changes
nothing, but for finishing a recording whose writer died when that is opened.

It listens on loopback, and answers only who opens the address that it prints:
the token in it is random, and becomes a cookie. Ctrl-C ends it.`,
		Example: `  kubedyno serve runs/
  kubedyno serve --listen 127.0.0.1:8080`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return Misusef("%s takes one folder", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return Misusef("no folder at %s", dir)
			}
			host, port, err := net.SplitHostPort(listen)
			if err == nil {
				_, err = strconv.ParseUint(port, 10, 16)
			}
			if err != nil || host != "localhost" && net.ParseIP(host) == nil {
				return Misusef("--listen %q: want an IP address and a port, such as 127.0.0.1:8080", listen)
			}
			s, err := serve.New(serve.Options{Dir: dir, Tool: Version(), Detectors: detectors.All, Now: env.Now, Log: env.Log})
			if err != nil {
				return err
			}
			var l net.ListenConfig
			ln, err := l.Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("serve: %w", err)
			}
			fmt.Fprintln(env.Stdout, s.Address(ln.Addr()))
			if !loopback(host) {
				fmt.Fprintln(env.Stderr, "Not only this machine can reach it, and what passes is not encrypted: whoever sees the address sees the recordings.")
			}
			fmt.Fprintln(env.Stderr, "Ctrl-C ends it")
			return s.Serve(cmd.Context(), ln)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "IP `address` and port; port 0 takes a free one")
	return cmd
}
