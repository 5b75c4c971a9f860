package actor

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
)

var kinds = []Kind{
	{"addon-hook", "keeps a folder of add-ons applied as addon-manager does, when a file in it changes and at no other time",
		Config{Rate: 1, Objects: 10}, addonHook},
	{"addon-manager", "runs kubectl apply --prune with a folder of add-ons by the clock, as kube-addon-manager did",
		Config{Rate: 0.2, Count: 1, Objects: 10}, addonManager},
	{"addon-user", "puts add-ons of one pod each into the folder of the run's add-on manager, and counts how long each takes until it runs",
		Config{Rate: 0.1, Objects: 3}, addonUser},
	{"apply-on-change", "runs kubectl apply once, watches what it made, and applies again when that is not what it was, as add-on managers can that work by events",
		Config{Rate: 1, Objects: 10}, applyOnChange},
	{"connections", "opens a connection for each request, as scripts do: TLS handshake, one small read, closed",
		Config{Rate: 5, Count: 10}, connections},
	{"controller", "an informer on all pods; each pod of the run that starts to run gets one patch from a worker, at 20 requests/s and a burst of 30",
		Config{Count: 2, QPS: 20, Burst: 30}, controller},
	{"converter", "makes a custom resource that is stored at v2, reads it at v1, and is the webhook that converts one into the other, whose answers take a delay",
		Config{Rate: 10, Count: 16, Objects: 20}, converter},
	{"disk-writer", "writes to the disk that a lab's etcd is on, a block at a time, and waits until the disk has it",
		Config{Count: 1}, diskWriter},
	{"electors", "clients that compete for leases by client-go's leader election: count candidates for each of the leases",
		Config{Count: 3, Objects: 1}, electors},
	{"events", "creates Events about objects, a new one each time",
		Config{Rate: 20, Count: 5, Objects: 100}, events},
	{"heartbeats", "clients that each renew a lease of their own, as kubelets do, every 10 s unless a rate is given",
		Config{Count: 100}, heartbeats},
	{"installer", "makes CustomResourceDefinitions, and changes them again and again",
		Config{Rate: 1, Count: 2, Objects: 20}, installer},
	{"kubectl-apply", "runs kubectl apply with the same manifests again and again, as add-on managers do",
		Config{Rate: 0.2, Count: 1, Objects: 10}, kubectlApply},
	{"lister", "lists a resource of all namespaces again and again, from etcd unless stale is set",
		Config{Rate: 1, Count: 4, Resource: "pods"}, lister},
	{"lockers", "for each claim that is not bound, count candidates compete for a lock by client-go's leader election until it is",
		Config{Count: 3}, lockers},
	{"owner", "puts its name on objects as soon as another's stands there; two of them never agree",
		Config{Count: 4, Objects: 4}, owner},
	{"relister", "watches a resource of all namespaces from the beginning, and begins again when it has seen everything",
		Config{Rate: 1, Count: 4, Resource: "pods"}, relister},
	{"scraper", "reads the API server's metrics, as monitoring does",
		Config{Rate: 0.1, Count: 2}, scraper},
	{"watchers", "watches of one resource in all namespaces, held and opened again",
		Config{Count: 100, Resource: "pods"}, watchers},
	{"webhook", "an admission webhook for the pods of the run, whose answers take a delay, and some of which are refusals",
		Config{}, webhook},
	{"writers", "clients that each read a shared object, change it and write it back, and begin again when another was faster",
		Config{Rate: 10, Count: 10, Objects: 1}, writers},
}

// connections makes a new connection for each request.
func connections(ctx context.Context, a *actor) error {
	conf, err := rest.TLSConfigFor(a.rest)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	a.each(ctx, func(ctx context.Context, _, _ int) {
		_ = a.act("connect", func() error {
			transport := &http.Transport{TLSClientConfig: conf.Clone(), ForceAttemptHTTP2: true, DisableKeepAlives: true}
			defer transport.CloseIdleConnections()
			trip, err := rest.HTTPWrappersForConfig(a.rest, transport)
			if err != nil {
				return err
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(a.rest.Host, "/")+"/version", nil)
			if err != nil {
				return err
			}
			resp, err := trip.RoundTrip(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		})
	})
	return nil
}

// controller works off a queue of pods, as one built on controller-runtime does.
// It sees all pods, and writes to those of the run only: others are not ours.
func controller(ctx context.Context, a *actor) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	factory := informers.NewSharedInformerFactory(a.client, 0)
	informer := factory.Core().V1().Pods()
	add := func(o any) {
		if p, ok := o.(*corev1.Pod); ok && p.Namespace == a.Namespace && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && p.Labels[Label] != a.Name {
			queue.Add(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}); err != nil {
		return err
	}
	lister := informer.Lister()
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return ctx.Err()
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, Label, a.Name)
	var workers sync.WaitGroup
	for range a.Count {
		workers.Go(func() {
			for {
				key, over := queue.Get()
				if over {
					return
				}
				var err error
				if p, gone := lister.Pods(key.Namespace).Get(key.Name); gone == nil && p.Labels[Label] != a.Name {
					err = a.act("patch", func() error {
						_, err := a.client.CoreV1().Pods(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
						return err
					})
				}
				if err == nil || permanent(err) {
					queue.Forget(key)
				} else {
					queue.AddRateLimited(key)
				}
				queue.Done(key)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
	return nil
}

// diskWriter is another program on the machine of etcd.
func diskWriter(ctx context.Context, a *actor) error {
	// size is that of a write: what stands in front of etcd in the disk's queue is
	// so much of each writer. most is that of a file, which is written over again.
	const size, most = 4 << 20, 16 << 20
	// Past the page cache, which would cost more CPU than the disk does: that
	// wants memory at a page's border.
	block, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("memory to write from: %w", err)
	}
	defer func() { _ = unix.Munmap(block) }()
	copy(block, bytes.Repeat([]byte("neighbour "), size/10))
	var all sync.WaitGroup
	errs := make([]error, a.Count)
	for i := range a.Count {
		all.Go(func() {
			// Each write returns when the disk has it.
			name, how := filepath.Join(a.Cache, fmt.Sprintf("file-%d", i)), os.O_CREATE|os.O_WRONLY|os.O_SYNC
			f, err := os.OpenFile(name, how|unix.O_DIRECT, 0o600)
			if errors.Is(err, unix.EINVAL) { // a file system that has no other way than its cache
				f, err = os.OpenFile(name, how, 0o600)
			}
			if err != nil {
				errs[i] = err
				return
			}
			defer os.Remove(f.Name())
			defer f.Close()
			for at := int64(0); ctx.Err() == nil; at = (at + size) % most {
				if errs[i] = a.act("write", func() error { _, err := f.WriteAt(block, at); return err }); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// electors lets Count candidates compete for each of Objects leases.
func electors(ctx context.Context, a *actor) error {
	var all sync.WaitGroup
	for lease := range a.Objects {
		for candidate := range a.Count {
			all.Go(func() { a.elect(ctx, a.object(lease).Name, candidate, func(ctx context.Context) { <-ctx.Done() }) })
		}
	}
	all.Wait()
	return nil
}

// elect competes for a lock until ctx ends, and then gives it up; who has it does lead.
// The durations are the defaults of Kubernetes' own components.
func (a *actor) elect(ctx context.Context, name string, candidate int, lead func(context.Context)) {
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Name: name,
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: a.Namespace},
				Client:     a.client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("%s-%d", a.Name, candidate)},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: lead,
				OnStoppedLeading: func() {},
			},
		})
	}
}

// events creates Events.
func events(ctx context.Context, a *actor) error {
	a.each(ctx, func(ctx context.Context, _, i int) {
		about := a.object(i % a.Objects)
		now := metav1.Now()
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: about.Name + ".", Namespace: a.Namespace, Labels: about.Labels},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: a.Namespace, Name: about.Name},
			Reason:         "Spoken", Message: fmt.Sprintf("said for the %dth time", i), Type: corev1.EventTypeNormal,
			Source: corev1.EventSource{Component: a.Name}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		}
		_ = a.act("create", func() error {
			_, err := a.client.CoreV1().Events(a.Namespace).Create(ctx, event, metav1.CreateOptions{})
			return err
		})
	})
	return nil
}

// heartbeats lets each client renew its own lease.
func heartbeats(ctx context.Context, a *actor) error {
	const every = 10 * time.Second // a quarter of a node's nodeLeaseDurationSeconds
	if a.Rate == 0 {
		a.Rate = float64(a.Count) / every.Seconds()
	}
	clients := make([]struct {
		sync.Mutex
		lease *coordinationv1.Lease
	}, a.Count)
	api := a.client.CoordinationV1().Leases(a.Namespace)
	a.each(ctx, func(ctx context.Context, _, i int) {
		own := &clients[i%a.Count]
		if !own.TryLock() { // its last one is not answered yet
			a.missed.Inc()
			return
		}
		defer own.Unlock()
		lease := own.lease
		own.lease = nil // whoever fails reads it again
		action, send := "renew", func() (*coordinationv1.Lease, error) {
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			return api.Update(ctx, lease, metav1.UpdateOptions{})
		}
		if lease == nil {
			seconds := int32(40)
			lease = &coordinationv1.Lease{ObjectMeta: a.object(i % a.Count), Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds}}
			action, send = "create", func() (*coordinationv1.Lease, error) {
				made, err := api.Create(ctx, lease, metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return api.Get(ctx, lease.Name, metav1.GetOptions{})
				}
				return made, err
			}
		}
		_ = a.act(action, func() error {
			answer, err := send()
			if err == nil {
				own.lease = answer
			}
			return err
		})
	})
	return nil
}

// crds is where CustomResourceDefinitions are.
const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// installer makes kinds of objects that nobody uses, and adds a field to one at a
// time: the API server publishes each change in its documentation.
func installer(ctx context.Context, a *actor) error {
	api := a.client.CoreV1().RESTClient()
	send := func(ctx context.Context, req *rest.Request, kind string, body any) error {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		return req.SetHeader("Content-Type", kind).Body(data).Do(ctx).Error()
	}
	name := func(i int) (plural, full string) {
		plural = fmt.Sprintf("parts%d", i)
		return plural, plural + ".installer.kubedyno.io"
	}
	schema := func(n int) map[string]any {
		properties := map[string]any{}
		for i := range 20 {
			properties[fmt.Sprintf("field%d", i)] = map[string]any{"type": "string", "description": fmt.Sprintf("changed for the %dth time", n)}
		}
		return map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
			"spec": map[string]any{"type": "object", "properties": properties}}}}
	}
	versions := func(n int) []any {
		return []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": schema(n)}}
	}
	for i := range a.Objects {
		plural, full := name(i)
		err := until(ctx, func() error {
			return a.act("create", func() error {
				return made(send(ctx, api.Post().AbsPath(crds), "application/json", map[string]any{
					"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
					"metadata": map[string]any{"name": full, "labels": a.object(i).Labels},
					"spec": map[string]any{
						"group": "installer.kubedyno.io", "scope": "Namespaced",
						"names":    map[string]any{"plural": plural, "singular": fmt.Sprintf("part%d", i), "kind": fmt.Sprintf("Part%d", i)},
						"versions": versions(0),
					},
				}))
			})
		})
		if err != nil {
			return fmt.Errorf("make a CustomResourceDefinition: %w", err)
		}
	}
	a.each(ctx, func(ctx context.Context, _, i int) {
		_, full := name(i % a.Objects)
		_ = a.act("change", func() error {
			return send(ctx, api.Patch(types.MergePatchType).AbsPath(crds, full), "application/merge-patch+json",
				map[string]any{"spec": map[string]any{"versions": versions(i + 1)}})
		})
	})
	return nil
}

// kubectlApply runs the real kubectl.
func kubectlApply(ctx context.Context, a *actor) error {
	apply, err := a.applier()
	if err != nil {
		return err
	}
	a.each(ctx, func(ctx context.Context, _, _ int) { _ = apply(ctx) })
	return nil
}

// addon is the content of the i-th object that is applied.
func addon(i int) map[string]string {
	return map[string]string{"about": "an add-on's settings", "index": fmt.Sprint(i)}
}

// applier runs kubectl apply with the manifests of the actor's objects.
func (a *actor) applier() (func(context.Context) error, error) {
	var manifests bytes.Buffer
	for i := range a.Objects {
		object := corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: a.object(i),
			Data:       addon(i),
		}
		b, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&manifests, "---\n%s\n", b)
	}
	var once sync.Once
	return func(ctx context.Context) error {
		return a.act("apply", func() error {
			cmd := exec.CommandContext(ctx, a.Kubectl, "apply", "--kubeconfig", a.Kubeconfig, "--namespace", a.Namespace, "-f", "-")
			cmd.Args[0] = "kubectl"
			cmd.Env = append(os.Environ(), "KUBECACHEDIR="+a.Cache)
			cmd.Stdin = bytes.NewReader(manifests.Bytes())
			out, err := cmd.CombinedOutput()
			if err != nil && ctx.Err() == nil {
				once.Do(func() { fmt.Fprintf(a.stderr, "kubectl apply: %v: %s\n", err, bytes.TrimSpace(out)) })
			}
			return err
		})
	}, nil
}

// applyOnChange applies once, and again when what it applied is not what it was.
// Its own writes are what it wants, and wake nobody. Rate is how often at most.
func applyOnChange(ctx context.Context, a *actor) error {
	apply, err := a.applier()
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	again := func() {
		select {
		case changed <- struct{}{}:
		default: // it will be seen to anyway
		}
	}
	prefix := a.Name + "-"
	factory := informers.NewSharedInformerFactoryWithOptions(a.client, 0, informers.WithNamespace(a.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = Label + "=" + a.Name }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	look := func(o any) {
		m, ok := o.(*corev1.ConfigMap)
		if !ok {
			return
		}
		var i int
		if _, err := fmt.Sscan(strings.TrimPrefix(m.Name, prefix), &i); err == nil && !maps.Equal(m.Data, addon(i)) {
			again()
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, o any) { look(o) }, DeleteFunc: func(any) { again() },
	}); err != nil {
		return err
	}
	if err := until(ctx, func() error { return apply(ctx) }); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			// What changes in between is one more time together.
			if err := apply(ctx); sleep(ctx, time.Duration(float64(time.Second)/a.Rate)) && err != nil {
				again()
			}
		}
	}
}

// lister lists.
func lister(ctx context.Context, a *actor) error {
	path, err := a.path()
	if err != nil {
		return err
	}
	a.each(ctx, func(ctx context.Context, _, _ int) {
		_ = a.act("list", func() error {
			req := a.client.CoreV1().RESTClient().Get().AbsPath(path...)
			if a.Stale {
				req = req.Param("resourceVersion", "0")
			}
			return drain(ctx, req)
		})
	})
	return nil
}

// scraper reads metrics.
func scraper(ctx context.Context, a *actor) error {
	a.each(ctx, func(ctx context.Context, _, _ int) {
		_ = a.act("scrape", func() error {
			return drain(ctx, a.client.CoreV1().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain"))
		})
	})
	return nil
}

// drain lets an answer go by: to decode it would be this process's work only.
func drain(ctx context.Context, req *rest.Request) error {
	body, err := req.Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

// disputed marks the objects that owners put their names on.
const disputed = "kubedyno.io/disputed"

// owner is a controller that wants its name on objects. It is right by itself;
// another one that wants the same is what makes it a loop.
func owner(ctx context.Context, a *actor) error {
	api := a.client.CoreV1().ConfigMaps(a.Namespace)
	for i := range a.Objects {
		meta := a.object(i)
		meta.Name, meta.Labels[disputed] = fmt.Sprintf("disputed-%d", i), "true"
		err := until(ctx, func() error {
			_, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"owner": "nobody"}}, metav1.CreateOptions{})
			return made(err)
		})
		if err != nil {
			return fmt.Errorf("make what is owned: %w", err)
		}
	}
	queue := workqueue.NewTyped[string]()
	factory := informers.NewSharedInformerFactoryWithOptions(a.client, 0, informers.WithNamespace(a.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = disputed + "=true" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	add := func(o any) {
		if c, ok := o.(*corev1.ConfigMap); ok && c.Data["owner"] != a.Name {
			queue.Add(c.Name)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}); err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	patch := fmt.Appendf(nil, `{"data":{"owner":%q}}`, a.Name)
	var workers sync.WaitGroup
	for range a.Count {
		workers.Go(func() {
			for {
				name, over := queue.Get()
				if over {
					return
				}
				_ = a.act("patch", func() error {
					_, err := api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
					return err
				})
				queue.Done(name)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
	return nil
}

// relister asks for everything again and again, as an informer does that has
// lost its watch.
func relister(ctx context.Context, a *actor) error {
	path, err := a.path()
	if err != nil {
		return err
	}
	a.each(ctx, func(ctx context.Context, _, _ int) {
		_ = a.act("watch", func() error {
			body, err := a.client.CoreV1().RESTClient().Get().AbsPath(path...).
				Param("watch", "true").Param("sendInitialEvents", "true").Param("allowWatchBookmarks", "true").
				Param("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan)).SetHeader("Accept", "application/json").Stream(ctx)
			if err != nil {
				return err
			}
			defer body.Close()
			return upTo(body, []byte(metav1.InitialEventsAnnotationKey))
		})
	})
	return nil
}

// upTo reads until it has seen a mark.
func upTo(r io.Reader, mark []byte) error {
	buf := make([]byte, 64<<10)
	kept := 0
	for {
		n, err := r.Read(buf[kept:])
		if bytes.Contains(buf[:kept+n], mark) {
			return nil
		}
		if err != nil {
			return err
		}
		kept += n
		if more := kept - len(mark); more > 0 { // the mark may have begun
			copy(buf, buf[more:kept])
			kept = len(mark)
		}
	}
}

// path is where the API server serves the actor's resource, of all namespaces.
func (a *actor) path() ([]string, error) {
	resource, version, _ := strings.Cut(a.Resource, "/")
	name, group, _ := strings.Cut(resource, ".")
	_, lists, err := a.client.Discovery().ServerGroupsAndResources()
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil || gv.Group != group || version != "" && gv.Version != version {
			continue
		}
		for _, r := range list.APIResources {
			switch {
			case r.Name != name:
			case group == "":
				return []string{"/api", gv.Version, name}, nil
			default:
				return []string{"/apis", group, gv.Version, name}, nil
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("find resource %s: %w", a.Resource, err)
	}
	return nil, fmt.Errorf("the API server has no resource %s; pods and deployments.apps are written so", a.Resource)
}

// lockers is what provisioners did before they had one lock for all claims.
func lockers(ctx context.Context, a *actor) error {
	api := a.client.CoreV1().PersistentVolumeClaims(a.Namespace)
	known := map[types.UID]bool{}
	var all sync.WaitGroup
	defer all.Wait()
	for {
		var claims *corev1.PersistentVolumeClaimList
		err := a.act("list", func() (err error) {
			claims, err = api.List(ctx, metav1.ListOptions{})
			return err
		})
		if err == nil {
			for i := range claims.Items {
				c := &claims.Items[i]
				if c.Status.Phase != corev1.ClaimBound && !known[c.UID] {
					known[c.UID] = true
					all.Go(func() { a.lock(ctx, c.Name) })
				}
			}
		}
		if !sleep(ctx, time.Second) {
			return nil
		}
	}
}

// lock lets candidates compete for a claim's lock until the claim is bound.
func (a *actor) lock(ctx context.Context, claim string) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	watch := func(ctx context.Context) {
		for sleep(ctx, time.Second) {
			var now *corev1.PersistentVolumeClaim
			err := a.act("get", func() (err error) {
				now, err = a.client.CoreV1().PersistentVolumeClaims(a.Namespace).Get(ctx, claim, metav1.GetOptions{})
				return err
			})
			if err != nil && permanent(err) || err == nil && now.Status.Phase == corev1.ClaimBound {
				end()
			}
		}
	}
	var candidates sync.WaitGroup
	for i := range a.Count {
		candidates.Go(func() { a.elect(ctx, "lock-"+claim, i, watch) })
	}
	candidates.Wait()
}

// watchers holds watches.
func watchers(ctx context.Context, a *actor) error {
	path, err := a.path()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for range a.Count {
		all.Go(func() {
			for wait := time.Duration(0); sleep(ctx, wait); wait = time.Second {
				_ = a.act("watch", func() error {
					// As a reflector: between 5 and 10 minutes.
					return drain(ctx, a.client.CoreV1().RESTClient().Get().AbsPath(path...).
						Param("watch", "true").Param("timeoutSeconds", fmt.Sprint(300+rand.IntN(300))))
				})
			}
		})
	}
	all.Wait()
	return nil
}

// writers compete for the same objects.
func writers(ctx context.Context, a *actor) error {
	api := a.client.CoreV1().ConfigMaps(a.Namespace)
	var data map[string]string
	if a.Bytes > 0 {
		data = map[string]string{"report": strings.Repeat("x", a.Bytes)}
	}
	for i := range a.Objects {
		err := until(ctx, func() error {
			_, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: a.object(i), Data: data}, metav1.CreateOptions{})
			return made(err)
		})
		if err != nil {
			return fmt.Errorf("make what is written to: %w", err)
		}
	}
	a.each(ctx, func(ctx context.Context, client, i int) {
		name := a.object(i % a.Objects).Name
		_ = a.act("intent", func() error {
			for {
				var object *corev1.ConfigMap
				err := a.act("get", func() (err error) {
					object, err = api.Get(ctx, name, metav1.GetOptions{})
					return err
				})
				if err != nil {
					return err
				}
				if object.Data == nil {
					object.Data = map[string]string{}
				}
				object.Data[fmt.Sprintf("writer-%d", client)] = fmt.Sprint(i)
				err = a.act("update", func() error {
					_, err := api.Update(ctx, object, metav1.UpdateOptions{})
					return err
				})
				if !conflicts(err) {
					return err
				}
			}
		})
	})
	return nil
}
