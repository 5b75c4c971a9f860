package requests

import "strings"

// Agent leaves out of a user agent what is the same for all: version, platform
// and commit. "kube-controller-manager/v1.36.3 (linux/amd64)
// kubernetes/0123abc/shared-informers" is "kube-controller-manager …
// shared-informers"; of a service account's name the last part stays.
func Agent(agent string) string {
	program, rest, found := strings.Cut(agent, "/")
	if !found {
		return agent
	}
	_, after, ok := strings.Cut(rest, "kubernetes/")
	if !ok {
		return program
	}
	_, role, ok := strings.Cut(after, "/") // behind the commit
	if !ok || role == "" {
		return program
	}
	if i := strings.LastIndexByte(role, ':'); i >= 0 { // system:serviceaccount:kube-system:NAME
		role = role[i+1:]
	}
	if role == "" || role == program {
		return program
	}
	return program + " … " + role
}
