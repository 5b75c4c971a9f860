package functions

import "strings"

// A rule says what class of work a function is. Patterns that begin with ^ are
// looked for at the start of the name, others anywhere in it.
type rule struct {
	class    string
	patterns []string
}

// rules are tried in turn; the first that fits names the class. Narrow ones
// come first. Names are those of Kubernetes v1.36, etcd v3.6 and Go 1.26.
var rules = []rule{
	{"garbage collection", []string{"^runtime.gc", "^runtime.scanobject", "^runtime.scanblock", "^runtime.scanSpan", "^runtime.scanObject", "^runtime.greyobject", "^runtime.markroot", "^runtime.wbBufFlush",
		"^runtime.sweep", "^runtime.bgsweep", "^runtime.bgscavenge", "^runtime.(*sweepLocked)", "^runtime.(*gcWork)", "^runtime.(*gcControllerState)", "^runtime.(*mspan).sweep", "^runtime.(*gcBits)",
		"^runtime.typePointers", "^runtime.(*mspan).typePointers", "^runtime.findObject", "^runtime.spanOf", "^runtime.markBits", "^runtime.(*spanQueue)", "^runtime.tryDeferToSpanScan", "^internal/runtime/gc", "^runtime.(*unwinder)", "^runtime.scanstack",
		"^runtime.scanframe", "^runtime.drainMarkWorkBuf", "^runtime.bulkBarrier"}},
	{"memory allocation", []string{"^runtime.malloc", "^runtime.newobject", "^runtime.growslice", "^runtime.makeslice", "^runtime.makemap", "^runtime.(*mcache)", "^runtime.(*mcentral)", "^runtime.(*mheap)",
		"^runtime.nextFree", "^runtime.(*mspan)", "^runtime.memclr", "^runtime.rawbyteslice", "^runtime.rawstring", "^runtime.profilealloc", "^runtime.deductAssist", "^runtime.heapSetType", "^runtime.(*pageAlloc)", "^runtime.publicationBarrier"}},
	{"memory copies and maps", []string{"^runtime.memmove", "^runtime.memequal", "^runtime.map", "^runtime.memhash", "^runtime.strhash", "^aeshashbody", "^memeqbody", "^cmpbody", "^internal/runtime/maps", "^runtime.typedmemmove", "^runtime.typehash", "^internal/bytealg", "^indexbytebody"}},
	{"Go scheduler and timers", []string{"^runtime.schedule", "^runtime.findRunnable", "^runtime.park_m", "^runtime.mcall", "^runtime.stealWork", "^runtime.runq", "^runtime.futex", "^runtime.note", "^runtime.stopm", "^runtime.startm",
		"^runtime.wakep", "^runtime.ready", "^runtime.goready", "^runtime.gopark", "^runtime.execute", "^runtime.mPark", "^runtime.resetspinning", "^runtime.netpoll", "^runtime.usleep", "^runtime.osyield", "^runtime.lock", "^runtime.unlock",
		"^runtime.sysmon", "^runtime.procyield", "^runtime.casgstatus", "^runtime.newproc", "^runtime.goschedImpl", "^runtime.selectgo", "^runtime.chan", "^runtime.send", "^runtime.recv", "^runtime.(*timer", "^runtime.sema", "^runtime.globrunq",
		"^runtime.exitsyscall", "^runtime.entersyscall", "^runtime.reentersyscall", "^runtime.goexit0", "^runtime.gosched", "^runtime.asyncPreempt", "^runtime.morestack", "^runtime.newstack", "^runtime.copystack", "^sync.", "^internal/sync."}},
	{"admission", []string{"^k8s.io/apiserver/pkg/admission", "/plugin/pkg/admission/", "/pkg/admission/"}},
	{"log of requests", []string{"kubedyno/lab/requestlog."}},
	{"audit", []string{"^k8s.io/apiserver/pkg/audit", "^k8s.io/apiserver/plugin/pkg/audit", "endpoints/filters.WithAudit", "^k8s.io/apiserver/pkg/endpoints/filters.(*auditResponseWriter)"}},
	{"authentication and authorization", []string{"/authentication/", "/authorization/", "/authorizer/", "/auth/authorizer", "filters.WithAuthorization", "filters.WithAuthentication", "/rbac"}},
	{"priority and fairness", []string{"/flowcontrol", "filters.WithPriorityAndFairness", "filters.(*priorityAndFairnessHandler)"}},
	{"field ownership", []string{"structured-merge-diff", "/managedfields"}},
	{"protobuf", []string{"/serializer/protobuf", "gogo/protobuf", "google.golang.org/protobuf", "golang/protobuf", ").MarshalToSizedBuffer", ").MarshalTo", ").Marshal", ").Unmarshal", ").SizeVT", ").Size",
		"generated.pb", "encodeVarintGenerated", "sovGenerated", "skipGenerated"}},
	{"JSON and YAML", []string{"^encoding/json", "/json.", "^sigs.k8s.io/json", "json-iterator", "/serializer/json", "^sigs.k8s.io/yaml", "go-json-experiment", ").MarshalJSON", ").UnmarshalJSON", "/yaml"}},
	{"CBOR", []string{"/cbor"}},
	{"deep copies and conversion", []string{"DeepCopy", "/conversion.", "Convert_", "SetDefaults_", "SetObjectDefaults", "runtime.(*Scheme).Convert", "runtime.(*Scheme).Default", "versioning.(*codec)"}},
	{"validation", []string{"/validation", "/validate"}},
	{"LIST", []string{"handlers.ListResource", "cacher.(*Cacher).GetList", "cacher.(*CacheDelegator).GetList", "etcd3.(*store).GetList", "cacher.(*watchCache).WaitUntilFreshAndGetList", "cacher.(*watchCache).waitAndList", "registry.(*Store).List", "/store.(*threadSafe"}},
	{"watch", []string{"handlers.serveWatch", "handlers.handleWatch", "handlers.(*WatchServer)", "handlers.(*watchEncoder)", "cacher.(*cacheWatcher)", "cacher.(*Cacher).dispatch", "cacher.(*Cacher).Watch", "cacher.(*watchCache)", "etcd3.(*watchChan)", "etcd3.(*watcher)", "mvcc.(*watchableStore)",
		"mvcc.(*watchStream)", "mvcc.(*watcherGroup)", "mvcc.newWatcherBatch", "v3rpc.(*serverWatchStream)", "v3rpc.(*watchServer)", "clientv3.(*watch", "/storage/cacher", "/pkg/watch"}},
	{"storage client", []string{"/storage/etcd3", "^go.etcd.io/etcd/client"}},
	{"write-ahead log", []string{"/storage/wal", "/wal."}},
	{"raft", []string{"^go.etcd.io/raft", "etcdserver.(*raftNode)", "/rafthttp"}},
	{"bbolt", []string{"^go.etcd.io/bbolt", "/storage/backend", "/mvcc/backend"}},
	{"key-value store", []string{"/storage/mvcc", "/mvcc.", "^go.etcd.io/etcd/server", "google/btree"}},
	{"scheduler plugin", []string{"/scheduler/framework/plugins"}},
	{"scheduler", []string{"^k8s.io/kubernetes/pkg/scheduler", "^k8s.io/kube-scheduler"}},
	{"controllers", []string{"^k8s.io/kubernetes/pkg/controller", "^k8s.io/kube-controller-manager", "^k8s.io/controller-manager"}},
	{"informers and caches", []string{"^k8s.io/client-go/tools/cache", "^k8s.io/client-go/informers", "^k8s.io/client-go/listers", "^k8s.io/client-go/util/workqueue"}},
	{"events", []string{"^k8s.io/client-go/tools/record", "^k8s.io/client-go/tools/events"}},
	{"metrics", []string{"github.com/prometheus", "kubedyno/lab/scrape.", "/component-base/metrics", "/endpoints/metrics", "expfmt"}},
	{"tracing", []string{"go.opentelemetry.io", "/tracing.", "^k8s.io/utils/trace"}},
	{"logging", []string{"^k8s.io/klog", "go.uber.org/zap", "^log.", "^log/", "/component-base/logs"}},
	{"TLS and cryptography", []string{"^crypto/", "^golang.org/x/crypto", "^encoding/asn1", "^encoding/pem", "gcmAes", "bignum", "p256"}},
	{"compression", []string{"^compress/", "klauspost/compress", "^hash/crc32", "^hash/adler32"}},
	{"HTTP and gRPC", []string{"^net/http", "^golang.org/x/net/http2", "^google.golang.org/grpc", "^net/textproto", "^mime", "^k8s.io/apiserver/pkg/server/filters", "^k8s.io/apiserver/pkg/endpoints", "^vendor/golang.org/x/net", "^bufio."}},
	{"client", []string{"^k8s.io/client-go"}},
	{"regular expressions and templates", []string{"^regexp", "^text/template", "cel-go", "/cel"}},
	{"reflection", []string{"^reflect.", "^internal/reflectlite"}},
	{"formatting and text", []string{"^fmt.", "^strconv.", "^strings.", "^unicode/", "^bytes."}},
	{"sorting", []string{"^sort.", "^slices."}},
	{"profiling", []string{"^runtime/pprof", "^runtime.sigprof", "^runtime.tracebackPCs", "^runtime.(*profBuf)", "^runtime/trace"}},
	{"system calls and network", []string{"^syscall.", "^internal/runtime/syscall", "^runtime/internal/syscall", "^internal/poll.", "^net.", "^os.", "^golang.org/x/sys", "^runtime.read", "^runtime.write", "^runtime.epoll", "^runtime.vdso", "^time.now", "^__vdso"}},
}

// kernelRules are for functions of the kernel.
var kernelRules = []rule{
	{"virtual machine guest", []string{"^kvm_", "^vmx_", "^svm_", "^__vmx", "^__svm", "vcpu_", "^vcpu"}},
	{"kernel: idle", []string{"^default_idle", "^cpuidle", "^do_idle", "^mwait", "^acpi_idle", "^intel_idle", "^pv_native_safe_halt", "^native_safe_halt", "^cpu_startup_entry"}},
	{"kernel: scheduling", []string{"^schedule", "^__schedule", "^finish_task_switch", "^try_to_wake_up", "^ttwu", "futex", "^pick_next", "^enqueue_", "^dequeue_", "^update_curr", "^sched_", "^wake_up", "^select_task_rq", "^load_balance", "^sched_balance", "^switch_", "^__switch", "rwsem", "mutex",
		"_spin_unlock_irq", "^native_queued_spin_lock", "^_raw_spin", "^hrtimer", "^nanosleep", "^do_nanosleep", "^complete_signal", "^psi_"}},
	{"kernel: disk and file systems", []string{"^ext4", "^jbd2", "^xfs", "^btrfs", "^blk_", "^__blk", "^submit_bio", "^bio_", "^nvme", "^virtio_blk", "^virtblk", "^filemap", "^vfs_fsync", "^do_fsync", "^__do_sys_fdatasync", "^writeback", "^wb_", "^iomap", "^generic_perform_write", "^fsync", "^overlay", "^ovl_", "^shmem"}},
	{"kernel: network", []string{"^tcp_", "^__tcp", "^ip_", "^__ip", "^ipv6", "^inet", "^sock_", "^__sock", "^skb_", "^__skb", "^net_", "^__net", "^dev_", "^__dev", "^napi", "^nf_", "^ipt_", "^loopback", "^process_backlog", "^unix_", "^virtnet", "sendmsg", "recvmsg", "^eth_", "^kmem_cache_free_bulk"}},
	{"kernel: waiting for events", []string{"epoll", "^ep_", "^do_poll", "^do_sys_poll", "select"}},
	{"kernel: memory", []string{"page_fault", "handle_mm_fault", "^do_anonymous_page", "^clear_page", "^__alloc_pages", "^alloc_pages", "^get_page_from_freelist", "^free_", "mmap", "munmap", "^unmap_", "^zap_", "^madvise", "^do_madvise", "^rmqueue", "^lru_", "folio", "^pte_", "^__pte", "^copy_page", "^mprotect",
		"^change_protection", "tlb", "^kmalloc", "^__kmalloc", "^kmem_cache", "^vma_", "^charge_", "mem_cgroup", "^exit_mmap", "^dup_mm"}},
	{"kernel: processes", []string{"exec", "^copy_process", "^kernel_clone", "^do_exit", "^release_task", "^wait_task", "^do_wait", "^begin_new_exec", "^load_elf"}},
	{"kernel: interrupts", []string{"irq", "^asm_sysvec", "^sysvec", "softirq", "^handle_", "apic"}},
	{"kernel: tracing and sampling", []string{"^perf_", "^__perf", "bpf", "^trace_", "^ftrace"}},
	{"kernel: entry and exit of calls", []string{"^entry_", "^do_syscall", "^syscall_", "^exit_to_user", "^x64_sys", "^__x64_sys", "^asm_", "^error_", "^fpregs", "^restore_"}},
	{"kernel: reads and writes", []string{"^vfs_", "^ksys_", "^__x64", "^copy_", "^_copy", "^rep_movs", "^rep_stos", "^fault_in", "^read_", "^write_", "^new_sync", "^file_", "^fdget", "^__fget", "^fput", "^eventfd", "^pipe_", "proc_", "^seq_", "^clear_user"}},
}

// Other is the class of a function that no rule knows.
const Other = "other"

// Classify is the class of work that a function does, from its name; Other
// where that says nothing.
func Classify(function string) string {
	list := rules
	if name, ok := strings.CutSuffix(function, KernelMark); ok {
		list, function = kernelRules, name
		if c := classIn(list, function); c != Other {
			return c
		}
		return "kernel: other"
	}
	return classIn(list, function)
}

func classIn(list []rule, function string) string {
	for _, r := range list {
		for _, p := range r.patterns {
			if matches(function, p) {
				return r.class
			}
		}
	}
	return Other
}

// matches looks for a pattern: at the start where it begins with ^.
func matches(function, pattern string) bool {
	if p, ok := strings.CutPrefix(pattern, "^"); ok {
		return strings.HasPrefix(function, p)
	}
	return strings.Contains(function, pattern)
}

// explanations are of frames that everybody meets and many misread. Patterns
// as in rules; those for the kernel are looked for in kernel functions only.
var explanations = []struct {
	kernel  bool
	pattern string
	text    string
}{
	{true, "^kvm_arch_vcpu_ioctl_run", "a virtual machine's guest runs here: its work, not the host's kernel's"},
	{true, "^kvm_vcpu_ioctl", "a virtual machine's guest runs here: its work, not the host's kernel's"},
	{true, "^vcpu_enter_guest", "a virtual machine's guest runs here: its work, not the host's kernel's"},
	{true, "^vcpu_run", "a virtual machine's guest runs here: its work, not the host's kernel's"},
	{true, "^vmx_vcpu_run", "a virtual machine's guest runs here: its work, not the host's kernel's"},
	{true, "^svm_vcpu_run", "a virtual machine's guest runs here: its work, not the host's kernel's"},
	{true, "^default_idle", "the CPU has nothing to do"},
	{true, "^cpuidle", "the CPU has nothing to do"},
	{true, "^do_idle", "the CPU has nothing to do"},
	{true, "mwait", "the CPU has nothing to do"},
	{true, "safe_halt", "the CPU has nothing to do"},
	{true, "futex_wait", "a thread goes to sleep, for a lock or for work: its cost is the going, not the sleep"},
	{true, "futex_wake", "a thread wakes another: handing over, not work"},
	{true, "futex", "threads wait for each other or hand over: not work by itself"},
	{true, "^do_epoll_wait", "a thread waits for the network: its cost is the going to sleep, not the sleep"},
	{true, "^ep_poll", "a thread waits for the network: its cost is the going to sleep, not the sleep"},
	{true, "^ext4_sync_file", "fsync: the caller waits for the disk; CPU here is the journal's preparation"},
	{true, "^ext4_fsync", "fsync: the caller waits for the disk; CPU here is the journal's preparation"},
	{true, "^jbd2_", "the file system's journal, which an fsync waits for"},
	{true, "^finish_task_switch", "just switched to this thread; interrupts that were held back during the switch are counted here"},
	{true, "_raw_spin_unlock_irqrestore", "interrupts come on again here, so that the sampler counts here what ran with them off"},
	{true, "^_raw_spin_unlock_irq", "interrupts come on again here, so that the sampler counts here what ran with them off"},
	{true, "native_queued_spin_lock_slowpath", "CPUs fight for a lock of the kernel: this is lost"},
	{true, "^clear_page", "memory that is handed out new is cleared"},
	{true, "page_fault", "memory is touched for the first time, or read back from a file"},
	{true, "softirq", "packets and timers that arrived, worked off in whatever process was running"},
	{true, "^__schedule", "a switch from one thread to another"},
	{true, "^copy_user", "bytes go between a process and the kernel"},
	{true, "^_copy_", "bytes go between a process and the kernel"},
	{true, "^rep_movs", "bytes are copied"},
	{true, "^rep_stos", "memory is cleared"},
	{true, "^perf_", "the sampler's own cost"},
	{false, "runtime.findRunnable", "Go looks for a goroutine to run: an idle process that is woken often shows this, not a busy one"},
	{false, "runtime.stealWork", "Go looks for a goroutine to run on another thread's queue"},
	{false, "runtime.schedule", "Go chooses the next goroutine"},
	{false, "runtime.mcall", "switch to Go's scheduler; what it calls is waiting and choosing"},
	{false, "runtime.park_m", "a goroutine goes to sleep"},
	{false, "runtime.futex", "threads wait for each other or hand over: not work by itself"},
	{false, "runtime.epollwait", "waiting for the network: its cost is the going to sleep, not the sleep"},
	{false, "runtime.netpoll", "asks the kernel which connections have something"},
	{false, "runtime.usleep", "Go's monitor or a spinning thread waits a moment"},
	{false, "runtime.sysmon", "Go's monitor thread, which always runs a little"},
	{false, "runtime.gcBgMarkWorker", "garbage collection in the background: a quarter of the CPUs while it runs. Less allocation, or a higher GOGC, makes it rarer"},
	{false, "runtime.gcAssistAlloc", "a goroutine that allocates must help the garbage collector: it waits for that"},
	{false, "runtime.gcDrain", "the garbage collector's marking"},
	{false, "runtime.bgsweep", "the garbage collector gives memory back to be used again"},
	{false, "runtime.bgscavenge", "Go gives memory back to the system"},
	{false, "runtime.mallocgc", "memory is allocated; the collector's work that this causes is counted elsewhere"},
	{false, "runtime.systemstack", "a frame of the runtime: see what it calls"},
	{false, "runtime.goexit", "the end of every goroutine's stack: all of it"},
	{false, "runtime.mstart", "the start of every thread"},
	{false, "runtime.memmove", "bytes are copied"},
	{false, "runtime.morestack", "a goroutine's stack grows"},
	{false, "runtime.asyncPreempt", "a goroutine was interrupted here to let others run"},
	{false, "runtime.sigprof", "the CPU profiler's own cost"},
	{false, "net/http.(*conn).serve", "every request of HTTP/1 and, over it, of the API server: see what it calls"},
	{false, "syscall.Syscall", "a call of the kernel; profiles of Go do not see inside, stacks do"},
	{false, "syscall.Syscall6", "a call of the kernel; profiles of Go do not see inside, stacks do"},
	{false, "internal/runtime/syscall.Syscall6", "a call of the kernel; profiles of Go do not see inside, stacks do"},
	{false, "internal/runtime/syscall/linux.Syscall6", "a call of the kernel; profiles of Go do not see inside, stacks do"},
	{false, "[unknown]", "code without a name: of a process that ended too soon, or whose stack could not be followed"},
	{false, "[anon]", "code that a just-in-time compiler wrote"},
}

// Explain is what a well-known function means, or nothing.
func Explain(function string) string {
	name, kernel := strings.CutSuffix(function, KernelMark)
	for _, e := range explanations {
		if e.kernel != kernel {
			continue
		}
		if kernel && matches(name, e.pattern) || !kernel && name == e.pattern {
			return e.text
		}
	}
	return ""
}

// A ClassRow is how much of a component was one class of work.
type ClassRow struct {
	Component string  `json:"component,omitempty"`
	Class     string  `json:"class"`
	Value     float64 `json:"value"` // in the table's unit
	Share     float64 `json:"share"` // of the table's total
	PerPod    float64 `json:"perPod"`
	// PerRequest is of the API server; -1 where it cannot be said, as PerPod.
	PerRequest float64 `json:"perRequest"`
}

// lent are classes of functions that work for whoever calls them.
var lent = map[string]bool{
	Other: true, "memory copies and maps": true, "formatting and text": true, "sorting": true, "reflection": true,
	"regular expressions and templates": true, "kernel: other": true, "kernel: reads and writes": true,
	"kernel: entry and exit of calls": true, "kernel: interrupts": true, "system calls and network": true,
}

// classes remembers what Classify said.
type classes map[string]string

func (c classes) of(function string) string {
	class, ok := c[function]
	if !ok {
		class = Classify(function)
		c[function] = class
	}
	return class
}

// work is the class of a whole stack, innermost frame first: that of the
// innermost frame that does not merely work for its caller.
func (c classes) work(frames []frame) string {
	fallback := Other
	for _, f := range frames {
		class := c.of(f.function)
		if !lent[class] {
			return class
		}
		if fallback == Other {
			fallback = class
		}
	}
	return fallback
}
