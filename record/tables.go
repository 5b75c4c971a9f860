package record

// Times in tables are microseconds since the Unix epoch, UTC, from the one
// clock of the machine that recorded. Zero means "not observed".
//
// A field tagged absent has that value where a recording of an older release
// lacks its column: zero would read as "none".

// Pod is one pod's life. Owner times repeat on each pod of the owner, so that
// a pod's stages can be read from its row alone.
type Pod struct {
	Namespace     string `parquet:"namespace,dict" json:"namespace"`
	Name          string `parquet:"name" json:"name"`
	UID           string `parquet:"uid" json:"uid"`
	Phase         string `parquet:"phase,dict" json:"phase"`           // the phase of the run that asked for it
	Owner         string `parquet:"owner,dict" json:"owner,omitempty"` // Deployment/name; empty for a bare pod
	Node          string `parquet:"node,dict" json:"node,omitempty"`
	DueMicros     int64  `parquet:"due_us" json:"due,omitempty"`         // when the pod, or its owner's spec, was due to be submitted
	SentMicros    int64  `parquet:"sent_us" json:"sent,omitempty"`       // when that request was sent
	AckedMicros   int64  `parquet:"acked_us" json:"acked,omitempty"`     // when its answer arrived
	CreatedMicros int64  `parquet:"created_us" json:"created,omitempty"` // the watch showed the pod
	BoundMicros   int64  `parquet:"bound_us" json:"bound,omitempty"`     // the watch showed its node
	RunningMicros int64  `parquet:"running_us" json:"running,omitempty"` // the watch showed phase Running
	ReadyMicros   int64  `parquet:"ready_us" json:"ready,omitempty"`     // the watch showed condition Ready
	DeletedMicros int64  `parquet:"deleted_us" json:"deleted,omitempty"` // the watch showed it gone
	FailedReason  string `parquet:"failed_reason,dict" json:"failedReason,omitempty"`
}

// Operation is one request that the load generator owed the cluster.
type Operation struct {
	Phase      string `parquet:"phase,dict" json:"phase"`
	Verb       string `parquet:"verb,dict" json:"verb"` // create, apply, scale, patch, update, delete; of a read its kind
	Resource   string `parquet:"resource,dict" json:"resource"`
	Namespace  string `parquet:"namespace,dict" json:"namespace,omitempty"`
	Name       string `parquet:"name" json:"name"`
	Pods       int32  `parquet:"pods" json:"pods,omitempty"` // pods the operation asks for
	DueMicros  int64  `parquet:"due_us" json:"due"`
	SentMicros int64  `parquet:"sent_us" json:"sent,omitempty"` // 0: missed, never sent
	DoneMicros int64  `parquet:"done_us" json:"done,omitempty"`
	Code       int32  `parquet:"code" json:"code,omitempty"` // HTTP status
	Error      string `parquet:"error,dict" json:"error,omitempty"`
}

// ProcessSample is one process at one second. Counters are since the
// process's start, so that a lost sample loses no time.
type ProcessSample struct {
	TimeMicros          int64   `parquet:"time_us" json:"time"`
	PID                 int32   `parquet:"pid" json:"pid"`
	PPID                int32   `parquet:"ppid" json:"ppid"`
	StartMicros         int64   `parquet:"start_us" json:"start"`                     // with the PID, the process's identity
	Component           string  `parquet:"component,dict" json:"component,omitempty"` // of the run, or empty
	Command             string  `parquet:"command,dict" json:"command"`               // command line, secrets redacted
	UserSeconds         float64 `parquet:"user_s" json:"user"`
	SystemSeconds       float64 `parquet:"system_s" json:"system"`
	RunDelaySeconds     float64 `parquet:"run_delay_s" json:"runDelay"` // runnable but waiting for a CPU; -1 unknown
	RSSBytes            int64   `parquet:"rss_bytes" json:"rss"`
	ReadBytes           int64   `parquet:"read_bytes" json:"read"`   // from storage; -1 unknown
	WriteBytes          int64   `parquet:"write_bytes" json:"write"` // to storage; -1 unknown
	VoluntarySwitches   int64   `parquet:"voluntary_switches" json:"vcsw"`
	InvoluntarySwitches int64   `parquet:"involuntary_switches" json:"ivcsw"`
	MajorFaults         int64   `parquet:"major_faults" json:"majflt"`
	MinorFaults         int64   `parquet:"minor_faults" json:"minflt" absent:"-1"`
	GuestSeconds        float64 `parquet:"guest_s" json:"guest" absent:"-1"` // running a virtual CPU; part of UserSeconds
	Threads             int32   `parquet:"threads" json:"threads"`
	FDs                 int32   `parquet:"fds" json:"fds"`                            // -1 unknown
	ThrottledSeconds    float64 `parquet:"throttled_s" json:"throttled"`              // by the CPU quota of a cgroup; 0 without one; -1 unknown
	ThrottledPeriods    int64   `parquet:"throttled_periods" json:"throttledPeriods"` // -1 unknown
	Periods             int64   `parquet:"periods" json:"periods"`                    // quota periods passed; -1 unknown
	Stopped             int32   `parquet:"stopped" json:"stopped" absent:"-1"`        // 1 by a signal or a debugger at this moment; -1 unknown
}

// ProcessExit is the end of a process, told by the kernel: also of one that
// lived between two samples. CPU is of all its threads.
type ProcessExit struct {
	TimeMicros    int64   `parquet:"time_us" json:"time"`
	StartMicros   int64   `parquet:"start_us" json:"start"`
	PID           int32   `parquet:"pid" json:"pid"`
	PPID          int32   `parquet:"ppid" json:"ppid"`
	Component     string  `parquet:"component,dict" json:"component,omitempty"` // of the run, inherited from the parent, or empty
	Command       string  `parquet:"command,dict" json:"command"`               // command line, secrets redacted; [comm] where it was gone too soon
	UserSeconds   float64 `parquet:"user_s" json:"user"`
	SystemSeconds float64 `parquet:"system_s" json:"system"`
	ExitCode      int32   `parquet:"exit_code" json:"exit"`     // as a shell has it: 128 + the signal that ended it; -1 unknown
	PeakRSSBytes  int64   `parquet:"peak_rss_bytes" json:"rss"` // -1 unknown
	ReadBytes     int64   `parquet:"read_bytes" json:"read"`    // from storage; -1 unknown
	WriteBytes    int64   `parquet:"write_bytes" json:"write"`  // to storage; -1 unknown
}

// Ends says whether it is the end of the process that a sample is of. Number and
// start alone tell: an end may have been told a moment before the last sample,
// which read a process that was ending.
func (e ProcessExit) Ends(s ProcessSample) bool {
	// /proc counts starts in steps of 10 ms since boot, the kernel in
	// nanoseconds, and the moment of boot is known to some.
	const apart = 100_000 // µs
	d := e.StartMicros - s.StartMicros
	return e.PID == s.PID && d <= apart && d >= -apart
}

// MachineSample is the machine at one second. Counters are since boot,
// CPU-seconds are over all CPUs.
type MachineSample struct {
	TimeMicros            int64   `parquet:"time_us" json:"time"`
	User                  float64 `parquet:"user_s" json:"user"`     // nice and guest included
	System                float64 `parquet:"system_s" json:"system"` // irq and softirq included
	Idle                  float64 `parquet:"idle_s" json:"idle"`
	IOWait                float64 `parquet:"iowait_s" json:"iowait"`
	Steal                 float64 `parquet:"steal_s" json:"steal"`
	Guest                 float64 `parquet:"guest_s" json:"guest" absent:"-1"` // running virtual CPUs; part of User
	MemoryAvailableBytes  int64   `parquet:"memory_available_bytes" json:"memAvailable"`
	MemoryDirtyBytes      int64   `parquet:"memory_dirty_bytes" json:"memDirty" absent:"-1"` // waiting to be written, being written included
	MemoryCachedBytes     int64   `parquet:"memory_cached_bytes" json:"memCached" absent:"-1"`
	SwapUsedBytes         int64   `parquet:"swap_used_bytes" json:"swap" absent:"-1"`
	MajorFaults           int64   `parquet:"major_faults" json:"majflt" absent:"-1"`
	OOMKills              int64   `parquet:"oom_kills" json:"oomKills" absent:"-1"`
	DiskReadBytes         int64   `parquet:"disk_read_bytes" json:"diskRead"`
	DiskWriteBytes        int64   `parquet:"disk_write_bytes" json:"diskWrite"`
	DiskBusySeconds       float64 `parquet:"disk_busy_s" json:"diskBusy"` // of the busiest disk
	FlushCount            int64   `parquet:"flush_count" json:"flushes"`
	FlushSeconds          float64 `parquet:"flush_s" json:"flush"`
	CPUPressureSeconds    float64 `parquet:"cpu_pressure_s" json:"cpuPressure"`                // PSI some; -1 unknown
	MemoryPressureSeconds float64 `parquet:"memory_pressure_s" json:"memPressure" absent:"-1"` // PSI some; -1 unknown
	IOPressureSeconds     float64 `parquet:"io_pressure_s" json:"ioPressure" absent:"-1"`      // PSI some; -1 unknown
	RunDelaySeconds       float64 `parquet:"run_delay_s" json:"runDelay" absent:"-1"`          // tasks runnable but waiting for a CPU; -1 unknown
	Runnable              int64   `parquet:"runnable" json:"runnable" absent:"-1"`             // tasks running or waiting for a CPU, now
	Blocked               int64   `parquet:"blocked" json:"blocked" absent:"-1"`               // tasks waiting for a disk, now
	ContextSwitches       int64   `parquet:"context_switches" json:"cswch" absent:"-1"`        // -1 unknown, like all below
	Forks                 int64   `parquet:"forks" json:"forks" absent:"-1"`                   // processes and threads made
	NetReceivedBytes      int64   `parquet:"net_received_bytes" json:"netRx" absent:"-1"`      // all interfaces but loopback
	NetSentBytes          int64   `parquet:"net_sent_bytes" json:"netTx" absent:"-1"`          // all interfaces but loopback
	LoopbackBytes         int64   `parquet:"loopback_bytes" json:"loopback" absent:"-1"`       // sent over loopback
	NetErrors             int64   `parquet:"net_errors" json:"netErrors" absent:"-1"`          // errors and drops, both ways, loopback included
	TCPOpensActive        int64   `parquet:"tcp_opens_active" json:"tcpActive" absent:"-1"`    // connections made from here
	TCPOpensPassive       int64   `parquet:"tcp_opens_passive" json:"tcpPassive" absent:"-1"`  // connections accepted here
	TCPSegmentsSent       int64   `parquet:"tcp_segments_sent" json:"tcpOut" absent:"-1"`
	TCPRetransmits        int64   `parquet:"tcp_retransmits" json:"tcpRetrans" absent:"-1"`
	TCPListenDrops        int64   `parquet:"tcp_listen_drops" json:"tcpDrops" absent:"-1"` // connections dropped at a full accept queue
	TCPEstablished        int64   `parquet:"tcp_established" json:"tcpEstab" absent:"-1"`  // now
	TCPTimeWait           int64   `parquet:"tcp_time_wait" json:"tcpTimeWait" absent:"-1"` // now
	Sockets               int64   `parquet:"sockets" json:"sockets" absent:"-1"`           // in use now
}

// CoreSample is one CPU of the machine at one second: seconds since boot. Its
// modes do not overlap.
type CoreSample struct {
	TimeMicros     int64   `parquet:"time_us" json:"time"`
	CPU            int32   `parquet:"cpu" json:"cpu"`
	UserSeconds    float64 `parquet:"user_s" json:"user"` // without guest and nice
	NiceSeconds    float64 `parquet:"nice_s" json:"nice"`
	GuestSeconds   float64 `parquet:"guest_s" json:"guest"` // running virtual CPUs, niced ones included
	SystemSeconds  float64 `parquet:"system_s" json:"system"`
	IRQSeconds     float64 `parquet:"irq_s" json:"irq"`
	SoftIRQSeconds float64 `parquet:"softirq_s" json:"softirq"`
	StealSeconds   float64 `parquet:"steal_s" json:"steal"`
	IOWaitSeconds  float64 `parquet:"iowait_s" json:"iowait"`
	IdleSeconds    float64 `parquet:"idle_s" json:"idle"`
}

// DiskSample is one whole disk at one second: counters since boot.
type DiskSample struct {
	TimeMicros   int64   `parquet:"time_us" json:"time"`
	Device       string  `parquet:"device,dict" json:"device"`
	Reads        int64   `parquet:"reads" json:"reads"`
	ReadBytes    int64   `parquet:"read_bytes" json:"readBytes"`
	ReadSeconds  float64 `parquet:"read_s" json:"read"` // summed over requests, queueing included
	Writes       int64   `parquet:"writes" json:"writes"`
	WriteBytes   int64   `parquet:"write_bytes" json:"writeBytes"`
	WriteSeconds float64 `parquet:"write_s" json:"write"`      // summed over requests, queueing included
	Flushes      int64   `parquet:"flushes" json:"flushes"`    // -1 unknown
	FlushSeconds float64 `parquet:"flush_s" json:"flush"`      // -1 unknown
	InFlight     int64   `parquet:"in_flight" json:"inFlight"` // requests now
	BusySeconds  float64 `parquet:"busy_s" json:"busy"`        // with at least one request
	QueueSeconds float64 `parquet:"queue_s" json:"queue"`      // requests x seconds; its growth per second is the mean queue
}

// StackSample says what one CPU was doing at one moment, some 99 times a second
// (see docs/collectors.md). Idle CPUs leave none.
type StackSample struct {
	TimeMicros int64  `parquet:"time_us" json:"time"`
	CPU        int32  `parquet:"cpu" json:"cpu"`
	PID        int32  `parquet:"pid" json:"pid"`
	TID        int32  `parquet:"tid" json:"tid"`
	Component  string `parquet:"component,dict" json:"component,omitempty"`
	Command    string `parquet:"command,dict" json:"command"` // the thread's comm
	Stack      int64  `parquet:"stack" json:"stack"`          // id of a Stack
}

// Stack is one call stack that samples share.
type Stack struct {
	ID int64 `parquet:"stack" json:"stack"`
	// Frames are function names, outermost first, joined with ";". A kernel
	// function ends in _[k]; one without a name is [module+0xoffset], or
	// [unknown].
	Frames string `parquet:"frames" json:"frames"`
}

// BlockIO is one request to a block device.
type BlockIO struct {
	TimeMicros   int64  `parquet:"time_us" json:"time"`         // a process submitted it
	IssuedMicros int64  `parquet:"issued_us" json:"issued"`     // the driver got it; 0: never queued, as empty flushes
	DoneMicros   int64  `parquet:"done_us" json:"done"`         // the device completed it; 0: not before the recording ended
	PID          int32  `parquet:"pid" json:"pid"`              // who submitted it
	Command      string `parquet:"command,dict" json:"command"` // comm of that process
	Component    string `parquet:"component,dict" json:"component,omitempty"`
	Device       string `parquet:"device,dict" json:"device"`
	Operation    string `parquet:"operation,dict" json:"operation"`   // read, write, flush, discard, other
	Flags        string `parquet:"flags,dict" json:"flags,omitempty"` // sync, meta, fua, preflush, ahead, …, joined with ","
	Sector       int64  `parquet:"sector" json:"sector"`              // of 512 bytes
	Bytes        int64  `parquet:"bytes" json:"bytes"`
	Error        int32  `parquet:"error" json:"error,omitempty"` // errno
}

// Sync is one fsync(2), fdatasync(2) or like call.
type Sync struct {
	TimeMicros int64  `parquet:"time_us" json:"time"`
	DoneMicros int64  `parquet:"done_us" json:"done"`
	PID        int32  `parquet:"pid" json:"pid"`
	TID        int32  `parquet:"tid" json:"tid"`
	Command    string `parquet:"command,dict" json:"command"`
	Component  string `parquet:"component,dict" json:"component,omitempty"`
	Call       string `parquet:"call,dict" json:"call"` // fsync, fdatasync, sync_file_range, msync, syncfs, sync
	Error      int32  `parquet:"error" json:"error,omitempty"`
}

// ObjectChange is one change of an API object's state as the watch showed it.
// Changes that leave all columns as they were are not rows: see Changes.
type ObjectChange struct {
	TimeMicros int64  `parquet:"time_us" json:"time"`
	Kind       string `parquet:"kind,dict" json:"kind"`
	Namespace  string `parquet:"namespace,dict" json:"namespace,omitempty"`
	Name       string `parquet:"name" json:"name"`
	UID        string `parquet:"uid" json:"uid"`
	Owner      string `parquet:"owner,dict" json:"owner,omitempty"` // Kind/name of its controller
	Change     string `parquet:"change,dict" json:"change"`         // existing, added, modified, deleted
	State      string `parquet:"state,dict" json:"state,omitempty"` // by kind: Pending, Bound, attached, ready, holder …
	Node       string `parquet:"node,dict" json:"node,omitempty"`
	Ref        string `parquet:"ref" json:"ref,omitempty"`          // what it is tied to: a claim's volume, an attachment's volume; a node's taints
	Class      string `parquet:"class,dict" json:"class,omitempty"` // storage class of a claim or volume
	Desired    int32  `parquet:"desired" json:"desired,omitempty"`
	Ready      int32  `parquet:"ready" json:"ready,omitempty"`
	Changes    int32  `parquet:"changes" json:"changes"`     // writes seen since the row before, this one included
	Late       bool   `parquet:"late" json:"late,omitempty"` // seen after a broken watch: the time is that of sight
}

// Event is a Kubernetes Event. It is kept for its text: its own times are not
// good enough to measure with, and it may be dropped or merged.
type Event struct {
	TimeMicros  int64  `parquet:"time_us" json:"time"`             // the watch showed it
	FirstMicros int64  `parquet:"first_us" json:"first,omitempty"` // as the reporter says, to the second for most
	LastMicros  int64  `parquet:"last_us" json:"last,omitempty"`
	Type        string `parquet:"type,dict" json:"type"`
	Reason      string `parquet:"reason,dict" json:"reason"`
	Reporter    string `parquet:"reporter,dict" json:"reporter,omitempty"`
	Kind        string `parquet:"kind,dict" json:"kind"` // of the object that it is about
	Namespace   string `parquet:"namespace,dict" json:"namespace,omitempty"`
	Name        string `parquet:"name" json:"name"`
	Message     string `parquet:"message" json:"message"`
	Count       int32  `parquet:"count" json:"count"` // occurrences since the row before of the same Event
}

// Request is one request as the API server's audit log tells it.
type Request struct {
	ReceivedMicros int64  `parquet:"received_us,delta" json:"received"`
	DoneMicros     int64  `parquet:"done_us,delta" json:"done"` // ResponseComplete; of a watch, its end
	Verb           string `parquet:"verb,dict" json:"verb"`
	Group          string `parquet:"group,dict" json:"group,omitempty"`
	Resource       string `parquet:"resource,dict" json:"resource,omitempty"`
	Subresource    string `parquet:"subresource,dict" json:"subresource,omitempty"`
	Namespace      string `parquet:"namespace,dict" json:"namespace,omitempty"`
	Name           string `parquet:"name" json:"name,omitempty"` // empty where the server chose it
	User           string `parquet:"user,dict" json:"user"`
	UserAgent      string `parquet:"user_agent,dict" json:"userAgent"`
	Code           int32  `parquet:"code" json:"code"`
	URI            string `parquet:"uri,dict" json:"uri,omitempty"`                   // query of LIST and WATCH only
	ServerMicros   int64  `parquet:"server_us" json:"server,omitempty" absent:"-1"`   // total time as the server itself says; an audit log has it, and the next five, for slow requests only; -1 unknown
	EtcdMicros     int64  `parquet:"etcd_us" json:"etcd,omitempty" absent:"-1"`       // of it, waiting for etcd; -1 unknown
	QueueMicros    int64  `parquet:"queue_us" json:"queue,omitempty" absent:"-1"`     // of it, in priority and fairness' queues; -1 unknown
	WebhookMicros  int64  `parquet:"webhook_us" json:"webhook,omitempty" absent:"-1"` // of it, in admission webhooks; -1 unknown
	// AuthenticationMicros and AuthorizationMicros are of it, until the API server
	// knew who asks and whether they may; -1 unknown.
	AuthenticationMicros int64  `parquet:"authentication_us" json:"authentication,omitempty" absent:"-1"`
	AuthorizationMicros  int64  `parquet:"authorization_us" json:"authorization,omitempty" absent:"-1"`
	RequestBytes         int64  `parquet:"request_bytes" json:"body,omitempty" absent:"-1"`   // of its body; -1 unknown
	ResponseBytes        int64  `parquet:"response_bytes" json:"bytes,omitempty" absent:"-1"` // -1 unknown
	Source               string `parquet:"source,dict" json:"source,omitempty"`               // request-log, audit, log, apf-dump, trace; empty is audit
}

// NodeSample is one simulated node's way up.
type NodeSample struct {
	Name              string `parquet:"name" json:"name"`
	CreatedMicros     int64  `parquet:"created_us" json:"created"`
	ReadyMicros       int64  `parquet:"ready_us" json:"ready"`
	SchedulableMicros int64  `parquet:"schedulable_us" json:"schedulable"`
}
