// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * wake_bench.bpf.c: the lateness of a timer in the kernel, and of a thread that it wakes.
 *
 *   set_wake  a test run sets the timer
 *   is_due    the timer's callback: notes its lateness, and writes to a ring, which wakes its reader
 *
 * For the bench of waits: packets that XDP or netfilter took cannot be sent from such a callback.
 */
#include "kernel.h"

enum {
	BPF_MAP_TYPE_RINGBUF = 27,
};

#define CLOCK_MONOTONIC	    1
#define BPF_F_TIMER_ABS	    1
#define BPF_RB_FORCE_WAKEUP 2
#define EBUSY		    16
#define EINVAL		    22

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct wake {
	struct bpf_timer timer;
	u64 due;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct wake);
} wakes SEC(".maps");

/* Lateness in ns, u64 each. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

static int is_due(void *map, u32 *key, struct wake *wake)
{
	u64 late = bpf_ktime_get_ns() - wake->due;

	bpf_ringbuf_output(&ring, &late, sizeof(late), BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* Context: the time, of the monotonic clock in ns. Returns 0, or an error of the kernel. */
SEC("syscall")
int set_wake(u64 *due)
{
	u32 key = 0;
	struct wake *wake = bpf_map_lookup_elem(&wakes, &key);
	long error;

	if (!wake)
		return -EINVAL;
	error = bpf_timer_init(&wake->timer, &wakes, CLOCK_MONOTONIC);
	if (error && error != -EBUSY)
		return error;
	wake->due = *due;
	error = bpf_timer_set_callback(&wake->timer, is_due);
	return error ? error : bpf_timer_start(&wake->timer, *due, BPF_F_TIMER_ABS);
}
