package record

// Times in tables are microseconds since the Unix epoch, UTC, from the one
// clock of the machine that recorded. Zero means "not observed".

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
	Verb       string `parquet:"verb,dict" json:"verb"` // create, patch, scale, delete
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
	Threads             int32   `parquet:"threads" json:"threads"`
	FDs                 int32   `parquet:"fds" json:"fds"`                            // -1 unknown
	ThrottledSeconds    float64 `parquet:"throttled_s" json:"throttled"`              // by its cgroup's CPU quota; -1 unknown
	ThrottledPeriods    int64   `parquet:"throttled_periods" json:"throttledPeriods"` // -1 unknown
	Periods             int64   `parquet:"periods" json:"periods"`                    // quota periods passed; -1 unknown
}

// MachineSample is the machine at one second: counters since boot, in
// CPU-seconds over all CPUs.
type MachineSample struct {
	TimeMicros           int64   `parquet:"time_us" json:"time"`
	User                 float64 `parquet:"user_s" json:"user"`     // nice and guest included
	System               float64 `parquet:"system_s" json:"system"` // irq and softirq included
	Idle                 float64 `parquet:"idle_s" json:"idle"`
	IOWait               float64 `parquet:"iowait_s" json:"iowait"`
	Steal                float64 `parquet:"steal_s" json:"steal"`
	MemoryAvailableBytes int64   `parquet:"memory_available_bytes" json:"memAvailable"`
	DiskReadBytes        int64   `parquet:"disk_read_bytes" json:"diskRead"`
	DiskWriteBytes       int64   `parquet:"disk_write_bytes" json:"diskWrite"`
	DiskBusySeconds      float64 `parquet:"disk_busy_s" json:"diskBusy"` // of the busiest disk
	FlushCount           int64   `parquet:"flush_count" json:"flushes"`
	FlushSeconds         float64 `parquet:"flush_s" json:"flush"`
	CPUPressureSeconds   float64 `parquet:"cpu_pressure_s" json:"cpuPressure"` // PSI some; -1 unknown
}

// Request is one request as the API server's audit log tells it.
type Request struct {
	ReceivedMicros int64  `parquet:"received_us" json:"received"`
	DoneMicros     int64  `parquet:"done_us" json:"done"` // ResponseComplete; of a watch, its end
	Verb           string `parquet:"verb,dict" json:"verb"`
	Group          string `parquet:"group,dict" json:"group,omitempty"`
	Resource       string `parquet:"resource,dict" json:"resource,omitempty"`
	Subresource    string `parquet:"subresource,dict" json:"subresource,omitempty"`
	Namespace      string `parquet:"namespace,dict" json:"namespace,omitempty"`
	Name           string `parquet:"name" json:"name,omitempty"` // empty where the server chose it
	User           string `parquet:"user,dict" json:"user"`
	UserAgent      string `parquet:"user_agent,dict" json:"userAgent"`
	Code           int32  `parquet:"code" json:"code"`
	URI            string `parquet:"uri,dict" json:"uri,omitempty"` // query of LIST and WATCH only
}

// NodeSample is one simulated node's way up.
type NodeSample struct {
	Name              string `parquet:"name" json:"name"`
	CreatedMicros     int64  `parquet:"created_us" json:"created"`
	ReadyMicros       int64  `parquet:"ready_us" json:"ready"`
	SchedulableMicros int64  `parquet:"schedulable_us" json:"schedulable"`
}
