//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
//
// The kernel's half of package blockio: it remembers each block request from
// its submission to its completion, and each system call that makes data
// durable from its entry to its return, and passes one event each to Go.
//
// No header is included, so that clang alone compiles it (`make bpf`). Structs
// of the kernel name only the fields that are read; their offsets are fixed up
// against the running kernel's BTF as the programs are loaded (CO-RE).

typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define CORE __attribute__((preserve_access_index))
#define INLINE static inline __attribute__((always_inline))

// Helpers by their number in include/uapi/linux/bpf.h.
static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*ktime_get_ns)(void) = (void *)5;
static u64 (*current_pid_tgid)(void) = (void *)14;
static long (*current_comm)(void *buf, u32 size) = (void *)16;
static void *(*ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*ringbuf_submit)(void *data, u64 flags) = (void *)132;
static u64 (*ringbuf_query)(void *ring, u64 flags) = (void *)134;

enum { MAP_HASH = 1, MAP_PERCPU_ARRAY = 6, MAP_RINGBUF = 27 };
enum { NOEXIST = 1 };
enum { NO_WAKEUP = 1, FORCE_WAKEUP = 2 };

struct gendisk {
	int major, first_minor;
} CORE;
struct request_queue {
	struct gendisk *disk; // since Linux 5.15
} CORE;
struct request {
	struct request_queue *q;
	struct gendisk *rq_disk; // until Linux 5.16
	u32 cmd_flags;
	u32 rq_flags;
	u32 __data_len;
	u64 __sector;
} CORE;

#define exists(field) __builtin_preserve_field_info(field, 2)

enum { OP_MASK = 0xff, OP_FLUSH = 2 };

// RQF_FLUSH_SEQ of this kernel, and the numbers of the system calls: set
// before loading.
const volatile u32 flush_sequence = 1 << 1;
const volatile s32 numbers[6] = {-1, -1, -1, -1, -1, -1};

enum { KIND_BLOCK, KIND_SYNC };

// An event as Go decodes it by hand: keep decode in ebpf_linux.go in step.
struct event {
	u64 start, issued, done; // CLOCK_MONOTONIC, ns; 0: not seen
	u64 sector;
	u32 pid, tid;
	u32 bytes, flags;
	u32 major, minor;
	s32 error;
	u8 kind, call, pad[2];
	char comm[16];
};

// A request is known by its address while it is in flight.
struct {
	int (*type)[MAP_HASH];
	int (*max_entries)[8192];
	u64 *key;
	struct event *value;
} inflight SEC(".maps");

struct call {
	u64 start;
	u32 call, pad;
};

// A thread is in one system call at a time.
struct {
	int (*type)[MAP_HASH];
	int (*max_entries)[8192];
	u64 *key;
	struct call *value;
} calling SEC(".maps");

#define RING (1 << 21)
struct {
	int (*type)[MAP_RINGBUF];
	int (*max_entries)[RING];
} events SEC(".maps");

// What could not be kept: the ring was full, or a map.
struct {
	int (*type)[MAP_PERCPU_ARRAY];
	int (*max_entries)[1];
	u32 *key;
	u64 *value;
} lost SEC(".maps");

// Calls in progress, so that sys_exit mostly returns at once.
u64 in_progress;

INLINE void lose(void)
{
	u32 zero = 0;
	u64 *n = map_lookup(&lost, &zero);
	if (n)
		*n += 1;
}

// send wakes the reader only when much waits for it: it looks by itself a few
// times a second, and a wake-up costs more than all else here.
INLINE void send(const struct event *from)
{
	struct event *e = ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		lose();
		return;
	}
	*e = *from;
	ringbuf_submit(e, ringbuf_query(&events, 0) > RING / 4 ? FORCE_WAKEUP : NO_WAKEUP);
}

INLINE void locate(struct event *e, struct request *rq)
{
	struct gendisk *disk = 0;

	e->sector = rq->__sector;
	e->bytes = rq->__data_len;
	if (exists(rq->q->disk))
		disk = rq->q->disk;
	else if (exists(rq->rq_disk))
		disk = rq->rq_disk;
	if (disk) {
		e->major = disk->major;
		e->minor = disk->first_minor;
	}
}

INLINE void begin(struct request *rq, u64 now, int issued, int who)
{
	u64 key = (u64)rq;
	struct event e = {.start = now, .flags = rq->cmd_flags, .kind = KIND_BLOCK};

	if (issued)
		e.issued = now;
	if (who) {
		u64 id = current_pid_tgid();
		e.pid = id >> 32;
		e.tid = id;
		current_comm(e.comm, sizeof(e.comm));
	}
	locate(&e, rq);
	// One that is there already has ended without our being called, which was
	// seen on virtual machines: its row has no end.
	if (map_update(&inflight, &key, &e, NOEXIST)) {
		struct event *old = map_lookup(&inflight, &key);
		if (old)
			send(old);
		if (map_update(&inflight, &key, &e, 0))
			lose();
	}
}

SEC("tp_btf/block_io_start") int io_start(u64 *ctx)
{
	begin((struct request *)ctx[0], ktime_get_ns(), 0, 1);
	return 0;
}

SEC("tp_btf/block_rq_issue") int rq_issue(u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	u64 key = (u64)rq, now = ktime_get_ns();
	struct event *e = map_lookup(&inflight, &key);

	if (!e) {
		// The block layer's own flush, which stands for all that wait for
		// one, is never submitted by anybody. Of what else is not known,
		// because the kernel is older or it was submitted before we looked,
		// who issues it is the best guess.
		begin(rq, now, 1, (rq->cmd_flags & OP_MASK) != OP_FLUSH);
		return 0;
	}
	e->issued = now; // again after a requeue: then the device was not busy with it before
	if (!e->pid && (rq->cmd_flags & OP_MASK) == OP_FLUSH)
		e->start = now;
	e->sector = rq->__sector; // what was merged in front moved it
	e->bytes = rq->__data_len;
	return 0;
}

// The request becomes part of another one, which completes for both.
SEC("tp_btf/block_rq_merge") int rq_merge(u64 *ctx)
{
	u64 key = ctx[0];
	map_delete(&inflight, &key);
	return 0;
}

SEC("tp_btf/block_rq_complete") int rq_complete(u64 *ctx)
{
	struct request *rq = (struct request *)ctx[0];
	u64 key = (u64)rq;
	u32 bytes = ctx[2], left;
	struct event *e = map_lookup(&inflight, &key);

	if (!e)
		return 0;
	if (!e->error)
		e->error = ctx[1];
	// Data that is flushed before and after completes once on its way, and
	// once more, with nothing left, at the end of its sequence. A device may
	// also complete a part.
	left = rq->__data_len;
	if (bytes < left || ((rq->rq_flags & flush_sequence) && (rq->cmd_flags & OP_MASK) != OP_FLUSH))
		return 0;
	e->done = ktime_get_ns();
	send(e);
	map_delete(&inflight, &key);
	return 0;
}

INLINE int enter(u32 call)
{
	u64 id = current_pid_tgid();
	struct call c = {.start = ktime_get_ns(), .call = call};

	if (map_update(&calling, &id, &c, 0)) {
		lose();
		return 0;
	}
	__sync_fetch_and_add(&in_progress, 1);
	return 0;
}

// Every system call of the machine passes here, so these two decide quickly.
SEC("tp_btf/sys_enter") int sys_enter(u64 *ctx)
{
	s32 number = ctx[1];

#pragma unroll
	for (u32 i = 0; i < 6; i++)
		if (number == numbers[i])
			return enter(i);
	return 0;
}

SEC("tp_btf/sys_exit") int sys_exit(u64 *ctx)
{
	if (!in_progress)
		return 0;
	u64 id = current_pid_tgid();
	struct call *c = map_lookup(&calling, &id);
	struct event e = {.kind = KIND_SYNC};
	s64 ret = ctx[1];

	if (!c)
		return 0;
	e.start = c->start;
	e.call = c->call;
	e.done = ktime_get_ns();
	e.pid = id >> 32;
	e.tid = id;
	e.error = ret < 0 ? ret : 0;
	current_comm(e.comm, sizeof(e.comm));
	map_delete(&calling, &id);
	__sync_fetch_and_add(&in_progress, -1);
	send(&e);
	return 0;
}

char terms[] SEC("license") = "GPL";
