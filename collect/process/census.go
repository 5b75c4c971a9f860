package process

// A census counts all threads of the machine in one go. Without one each thread has two
// files to be opened, read and closed, some 5 µs each, of which a control plane has
// a hundred.
type census interface {
	// read is what each process's threads are by now, by the process's PID. It is good
	// until the next call.
	read() (map[int32][]threadStat, error)
	close() error
}

// A threadStat is a thread as the kernel counts it.
type threadStat struct {
	tid, ppid              int32 // of the thread; of its process's parent
	start                  int64 // ns since boot: a TID that is used again is another thread
	sched                  sched
	voluntary, involuntary int64
}
