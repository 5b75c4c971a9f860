package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubedyno/kubedyno/record"
	"github.com/kubedyno/kubedyno/record/anonymise"
)

func newAnonymiseCommand(env *Env) *cobra.Command {
	var out, mapFile string
	var keep []string
	cmd := &cobra.Command{
		Use:     "anonymise RECORDING --out FOLDER",
		Aliases: []string{"anonymize"},
		Short:   "Copy a recording without the names in it, safe to send",
		Long: `Anonymise writes a copy of a recording in which the names of namespaces, nodes,
pods and other objects, users, clients, hosts, IP addresses, UUIDs, images and
paths are replaced by pseudonyms, the same ones all over: in tables, metrics,
logs, profiles and settings. Numbers, times and names of Kubernetes' own stay,
so that the copy has the same diagnosis. It is then scanned for each name that
was replaced and for what looks like a secret; where one is left, there is no
copy and the exit code is 1.

--keep leaves classes of names as they are: ` + strings.Join(anonymise.Classes(), ", ") + `.
--map writes which pseudonym stands for what, to a file that stays with you.`,
		Example: `  kubedyno anonymise r --out r-to-send
  kubedyno anonymise r --out r-to-send --keep images,ips --map names.json`,
		Args: exactlyOne("RECORDING", "a folder that 'kubedyno run' wrote"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return Misusef("name the folder to write with --out FOLDER")
			}
			for _, k := range keep {
				if !slices.Contains(anonymise.Classes(), k) {
					return Misusef("--keep: there are no names of class %q; there are %s", k, strings.Join(anonymise.Classes(), ", "))
				}
			}
			if mapFile != "" {
				if err := checkMapFile(mapFile, out); err != nil {
					return err
				}
			}
			rec, err := openRecording(args[0])
			if err != nil {
				return err
			}
			defer rec.Close()
			r, err := anonymise.Copy(cmd.Context(), rec, out, anonymise.Options{Keep: keep})
			var exists *record.ExistsError
			if errors.As(err, &exists) {
				return Misuse(err)
			}
			if err != nil {
				return err
			}
			if mapFile != "" {
				if err := r.WriteMap(mapFile); err != nil {
					return errors.Join(err, os.RemoveAll(out))
				}
			}
			fmt.Fprintf(env.Stderr, "%d names replaced; scanned %d files, %.1f MB and %d values for %d names and for secrets: none left\n",
				r.Count(), r.Files, float64(r.Bytes)/1e6, r.Strings, r.Needles)
			fmt.Fprintln(env.Stdout, out)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`folder` to write, empty or not there yet")
	cmd.Flags().StringVar(&mapFile, "map", "", "write the names and their pseudonyms to this `file`")
	cmd.Flags().StringSliceVar(&keep, "keep", nil, "`classes` of names to leave as they are")
	_ = cmd.MarkFlagDirname("out")
	_ = cmd.MarkFlagFilename("map", "json")
	_ = cmd.RegisterFlagCompletionFunc("keep", cobra.FixedCompletions(anonymise.Classes(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// checkMapFile refuses a map that would be sent along with the copy, or that
// is there already.
func checkMapFile(path, out string) error {
	file, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(folder, file); err == nil && !strings.HasPrefix(rel, "..") {
		return Misusef("--map %s lies inside the copy: it would be sent along and undo it", path)
	}
	if _, err := os.Lstat(file); err == nil {
		return Misusef("--map %s is there already: name another file, or remove it", path)
	}
	return nil
}
