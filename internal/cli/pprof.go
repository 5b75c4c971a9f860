package cli

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/analysis/functions"
	"github.com/kubedyno/kubedyno/record"
)

func sortSamples(s []functions.Sample) {
	slices.SortStableFunc(s, func(a, b functions.Sample) int { return b.Count - a.Count })
}

func newPprofCommand(env *Env) *cobra.Command {
	var where stretchFlags
	var kind, source, address string
	cmd := &cobra.Command{
		Use:   "pprof RECORDING [-- PPROF-FLAGS]",
		Short: "Open a profile of a recording in the standard viewer",
		Long: `Pprof opens the profiles of a recording in the viewer of go tool pprof, which is
built in: as pages on a loopback port whose address it prints or, with flags of
pprof behind --, as what those ask for. Several components come as one profile
with the label component (-tagfocus, -tagroot).`,
		Example: `  kubedyno pprof r --component kube-apiserver --phase load
  kubedyno pprof r --component etcd -- -top -nodecount=20
  kubedyno pprof r --source stacks --from 10s --to 15s -- -top -tagroot=component
  kubedyno pprof r --component etcd --kind heap -- -proto -output heap.pb.gz`,
		Args: func(cmd *cobra.Command, args []string) error {
			n := cmd.ArgsLenAtDash()
			if n < 0 {
				n = len(args)
			}
			if n != 1 {
				return Misusef("%s needs one RECORDING; flags of pprof come behind --", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: completeFolders,
		RunE: func(cmd *cobra.Command, args []string) error {
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			q, err := where.query(rec, source, kind)
			if err != nil {
				return err
			}
			p, err := functions.Merged(rec, q)
			if err != nil {
				return notAssessed("pprof", err)
			}
			flags := args[1:]
			if len(flags) == 0 {
				flags = []string{"-http=" + address}
			} else if !picture(flags) {
				flags = append([]string{"-output=" + standardOutput}, flags...) // a later -output wins
			}
			v := &viewer{ctx: cmd.Context(), env: env, profile: p, flags: flags, name: nameOf(rec, where.component)}
			return v.run()
		},
	}
	where.register(cmd)
	cmd.Flags().StringVar(&kind, "kind", "", "cpu, heap, goroutine, mutex or block (default cpu)")
	cmd.Flags().StringVar(&source, "source", "", "pprof (profiles of phases) or stacks (any stretch, all processes, the kernel); default: profiles where they answer")
	cmd.Flags().StringVar(&address, "http", "127.0.0.1:0", "serve the pages here; port 0 takes a free one")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(functions.Kinds, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("source", cobra.FixedCompletions([]string{"pprof", "stacks"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func nameOf(rec *record.Recording, component string) string {
	if component == "" {
		return rec.Meta().ID
	}
	return component + " of " + rec.Meta().ID
}

// picture says that pprof itself opens a window, or serves pages.
func picture(flags []string) bool {
	return slices.ContainsFunc(flags, func(f string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
		return slices.Contains([]string{"http", "web", "weblist", "gv", "evince", "eog", "kcachegrind"}, name)
	})
}

// standardOutput is the name by which pprof is told to write to our stdout.
const standardOutput = "-"

// A viewer is one call of pprof's driver: its flags, its output and its pages.
type viewer struct {
	ctx     context.Context
	env     *Env
	profile *profile.Profile
	name    string
	flags   []string
	misuse  error // of the flags
	lines   *bufio.Reader
}

func (v *viewer) run() error {
	err := driver.PProf(&driver.Options{
		Flagset: newViewerFlags(v), Fetch: v, Sym: v, UI: v, Writer: v, HTTPServer: v.serve,
	})
	if v.misuse != nil {
		return Misuse(v.misuse)
	}
	if err != nil {
		return fmt.Errorf("pprof: %w", err)
	}
	return nil
}

// Fetch implements driver.Fetcher. An empty name of origin says that it is
// local, so that pprof keeps no copy.
func (v *viewer) Fetch(string, time.Duration, time.Duration) (*profile.Profile, string, error) {
	return v.profile, "", nil
}

// Symbolize implements driver.Symbolizer: the names are there, and the
// binaries of the machine that reads a recording are others.
func (v *viewer) Symbolize(string, driver.MappingSources, *profile.Profile) error { return nil }

// Open implements driver.Writer.
func (v *viewer) Open(name string) (io.WriteCloser, error) {
	if name == standardOutput {
		return keepOpen{v.env.Stdout}, nil
	}
	return os.Create(name)
}

type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// serve shows the pages until the context ends.
func (v *viewer) serve(args *driver.HTTPServerArgs) error {
	var listen net.ListenConfig
	ln, err := listen.Listen(v.ctx, "tcp", args.Hostport)
	if err != nil {
		return err
	}
	local := loopback(args.Host)
	mux := http.NewServeMux()
	mux.Handle("/ui/", http.StripPrefix("/ui", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := args.Handlers[r.URL.Path]
		if h == nil {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})))
	mux.Handle("/", http.RedirectHandler("/ui/flamegraph", http.StatusTemporaryRedirect))
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if local && !loopback(host) { // a web page elsewhere that gave our address a name of its own
			http.Error(w, "only for this machine", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})}
	fmt.Fprintf(v.env.Stdout, "http://%s/ui/flamegraph\n", ln.Addr())
	fmt.Fprintln(v.env.Stderr, "Ctrl-C ends it")
	stop := context.AfterFunc(v.ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

// ReadLine implements driver.UI, for the shell that pprof has.
func (v *viewer) ReadLine(prompt string) (string, error) {
	fmt.Fprint(v.env.Stdout, prompt)
	if v.lines == nil {
		v.lines = bufio.NewReader(v.env.Stdin)
	}
	return v.lines.ReadString('\n')
}

// Print implements driver.UI.
func (v *viewer) Print(args ...any) {
	text := strings.TrimSuffix(fmt.Sprint(args...), "\n")
	if strings.HasPrefix(text, "Serving web UI on") || text == "Generating report in "+standardOutput {
		return // we say so ourselves, with the real port
	}
	fmt.Fprintln(v.env.Stderr, text)
}

// PrintErr implements driver.UI.
func (v *viewer) PrintErr(args ...any) { v.Print(args...) }

// IsTerminal implements driver.UI.
func (v *viewer) IsTerminal() bool { return false }

// WantBrowser implements driver.UI: the address is printed.
func (v *viewer) WantBrowser() bool { return false }

// SetAutoComplete implements driver.UI.
func (v *viewer) SetAutoComplete(func(string) string) {}

// viewerFlags gives pprof its flags.
type viewerFlags struct {
	*flag.FlagSet
	v     *viewer
	usage []string
}

func newViewerFlags(v *viewer) *viewerFlags {
	fs := flag.NewFlagSet("pprof", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return &viewerFlags{FlagSet: fs, v: v}
}

// StringList implements driver.FlagSet.
func (f *viewerFlags) StringList(name, def, usage string) *[]*string {
	return &[]*string{f.String(name, def, usage)}
}

// ExtraUsage implements driver.FlagSet.
func (f *viewerFlags) ExtraUsage() string { return strings.Join(f.usage, "\n") }

// AddExtraUsage implements driver.FlagSet.
func (f *viewerFlags) AddExtraUsage(text string) { f.usage = append(f.usage, text) }

// Parse implements driver.FlagSet. It returns the one source there is.
func (f *viewerFlags) Parse(usage func()) []string {
	err := f.FlagSet.Parse(f.v.flags)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage()
		f.v.misuse = errors.New("flags of pprof are above; give them behind --")
	case err != nil:
		f.v.misuse = fmt.Errorf("flags of pprof: %w; see 'kubedyno pprof RECORDING -- -help'", err)
	case f.NArg() > 0:
		f.v.misuse = fmt.Errorf("pprof is given the recording's profile; %q is one too many", f.Arg(0))
	default:
		return []string{f.v.name}
	}
	return nil
}
