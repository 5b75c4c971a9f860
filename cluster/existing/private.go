package existing

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubedyno/kubedyno/internal/flock"
)

// privatePrefix begins the names of folders with private copies.
const privatePrefix = "kubedyno-existing-"

// A private is a folder with a copy of somebody's credentials. It is locked while
// its process lives, so that what a killed one left can be told and removed.
type private struct {
	dir, path string
	lock      *os.File
}

// privateCopy writes the one context, self-contained, so that our child
// processes meet the same cluster whatever happens to the user's file.
func privateCopy(raw *clientcmdapi.Config, contextName string) (*private, error) {
	if err := clientcmdapi.MinifyConfig(raw); err != nil {
		return nil, fmt.Errorf("context %s: %w", contextName, err)
	}
	if err := clientcmdapi.FlattenConfig(raw); err != nil {
		return nil, fmt.Errorf("context %s: %w", contextName, err)
	}
	dir, err := os.MkdirTemp("", privatePrefix)
	if err != nil {
		return nil, fmt.Errorf("keep a private copy of the kubeconfig: %w", err)
	}
	p := &private{dir: dir, path: filepath.Join(dir, "kubeconfig")}
	// Locked before it holds anything. Where the file system has no locks nobody
	// can sweep it either.
	if p.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err == nil {
		_ = flock.Try(p.lock)
		err = clientcmd.WriteToFile(*raw, p.path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keep a private copy of the kubeconfig: %w", err), p.remove())
	}
	return p, nil
}

func (p *private) remove() error {
	err := os.RemoveAll(p.dir)
	if p.lock != nil {
		err = errors.Join(err, p.lock.Close())
	}
	return err
}

// Sweep removes private copies of credentials whose process was killed, and
// returns their folders.
func Sweep() (removed []string, err error) {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), privatePrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("look for private copies of kubeconfigs: %w", err)
	}
	slices.Sort(dirs)
	var bad []error
	for _, dir := range dirs {
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue // another user's, or not locked yet
		}
		if flock.Try(lock) == nil {
			// One that has no copy yet is of a process between two steps.
			if _, err := os.Stat(filepath.Join(dir, "kubeconfig")); err == nil {
				if err := os.RemoveAll(dir); err != nil {
					bad = append(bad, fmt.Errorf("remove a private copy of a kubeconfig: %w", err))
				} else {
					removed = append(removed, dir)
				}
			}
		}
		lock.Close()
	}
	return removed, errors.Join(bad...)
}
