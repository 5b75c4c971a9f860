package cli

import "runtime/debug"

// Version is kubedyno's own version, as the module system knows it.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
