package functions

import (
	"bytes"
	"os"
	"testing"

	"github.com/kubedyno/kubedyno/cluster/lab/labtest"
)

func TestPath(t *testing.T) {
	for _, c := range []struct {
		want  string
		stack []string // innermost first
	}{
		{PathList, []string{"encoding/json.Marshal", "k8s.io/apiserver/pkg/endpoints/handlers.ListResource.func1", "k8s.io/apiserver/pkg/endpoints.restfulListResource.func1",
			"k8s.io/apiserver/pkg/endpoints/filters.withAuthorization.func1", "k8s.io/apiserver/pkg/endpoints/filters.WithAudit.func1"}},
		{PathWatch, []string{"internal/runtime/syscall/linux.Syscall6", "k8s.io/apiserver/pkg/endpoints/handlers.(*WatchServer).HandleHTTP", "k8s.io/apiserver/pkg/endpoints/handlers.handleWatch.func4.1",
			"k8s.io/apiserver/pkg/endpoints/handlers.ListResource.func1", "k8s.io/apiserver/pkg/endpoints.(*APIInstaller).registerResourceHandlers.restfulListResource.func6"}},
		{"CREATE", []string{"runtime.mallocgc", "k8s.io/apiserver/pkg/endpoints/handlers.createHandler.func1"}},
		{"CREATE", []string{"runtime.mallocgc", "k8s.io/apiserver/pkg/endpoints/handlers.CreateResource.createHandler.func1.2"}}, // as inlining names it, on a goroutine of its own
		{"PATCH", []string{"encoding/json.Marshal", "k8s.io/apiserver/pkg/endpoints/handlers.(*patcher).patchResource.func2"}},
		{"HTTP/2 connections", []string{"internal/runtime/syscall/linux.Syscall6", "golang.org/x/net/http2.(*serverConn).writeFrameAsync"}},
		{PathPolicy, []string{"github.com/google/cel-go/interpreter.(*evalAnd).Eval", "k8s.io/apiserver/pkg/endpoints/handlers.createHandler.func1"}},
		{PathGC, []string{"runtime.scanobject", "runtime.gcAssistAlloc", "k8s.io/apiserver/pkg/endpoints/handlers.ListResource.func1"}},
		{PathHandshake, []string{"crypto/internal/fips140/nistec.p256Mul", "crypto/tls.(*Conn).serverHandshake"}},
		{PathLogging, []string{"fmt.Fprintf", "k8s.io/klog/v2.(*loggingT).printS", "k8s.io/apiserver/pkg/endpoints/handlers.ListResource.func1"}},
		{"etcd apply", []string{"runtime.memmove", "go.etcd.io/etcd/server/v3/etcdserver.(*EtcdServer).applyEntries"}},
		{"scheduler topology spread", []string{"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread.countPodsMatchSelector", "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).schedulePod"}},
		{PathSpin, []string{"runtime.stealWork", "runtime.findRunnable", "runtime.mcall"}},
		{Other, []string{"main.main"}},
	} {
		if got := Path(c.stack); got != c.want {
			t.Errorf("%v is %q, want %q", c.stack, got, c.want)
		}
	}
}

// A pattern that no function of the components has any more finds nothing, and
// nobody would notice: names change with versions.
func TestPathsNameFunctions(t *testing.T) {
	components, err := os.ReadFile(labtest.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pathRules {
		for _, pattern := range p.patterns {
			if !bytes.Contains(components, []byte(pattern)) {
				t.Errorf("path %s: no function's name has %q in it", p.name, pattern)
			}
		}
	}
}
