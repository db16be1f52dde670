// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * redirect.bpf.c: the way into AF_XDP: an IP packet to the socket of the queue it came by, all else
 * to the stack.
 *
 * The stack gets what core/forward/link.h says, and everything as long as a queue has no socket: a process
 * that dies takes its sockets along, and traffic flows on. rtt_forward (rtt.bpf.c) does the same
 * and more for interfaces that are monitored, too.
 *
 * Never drops by itself. Redirected packets that the socket does not take are counted by the kernel
 * (XDP_STATISTICS). Deliberately absent: fragments of headers beyond the first buffer, tunnels.
 */
#include "kernel.h"
#include "../core/forward/link.h"

#define MAX_SOCKETS 64

/* MAC addresses of this host, all zero where unused; set before loading. */
const volatile u8 redirect_own[MAX_OWN][6] = {};
/* Whether the time of arrival (ns, monotonic) is to stand before the frame; set before loading. */
const volatile u32 redirect_stamp = 0;

/* Key: receive queue; value: AF_XDP socket. Written by user space, read here. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_SOCKETS);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

/* Key: enum way; value: frames, for each CPU. Written here, read by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REDIRECT_WAYS);
	__type(key, u32);
	__type(value, u64);
} ways SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

FP_INLINE void count(u32 way)
{
	u64 *frames = bpf_map_lookup_elem(&ways, &way);

	if (frames)
		(*frames)++;
}

FP_INLINE int is_own(const u8 *mac)
{
	u32 i;

#pragma unroll
	for (i = 0; i < MAX_OWN; i++) {
		if (same_mac(mac, redirect_own[i]))
			return 1;
	}
	return 0;
}

FP_INLINE u32 way_of(const u8 *frame, const u8 *end)
{
	struct glance g;
	u32 way = look_at_link(frame, end, &g);

	return way != SHORT && way != GROUP && frame + MAC_BYTES <= end && is_own(frame) ? OWN
											 : way;
}

/* Writes the time before the frame, where AF_XDP carries it along; all pointers are void then. */
FP_INLINE int stamp(struct xdp_md *ctx)
{
	u64 *before;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(u64)))
		return 0;
	before = (u64 *)(u64)ctx->data_meta;
	if ((u8 *)(before + 1) > (u8 *)(u64)ctx->data)
		return 0;
	*before = bpf_ktime_get_ns();
	return 1;
}

SEC("xdp.frags")
int redirect(struct xdp_md *ctx)
{
	u32 way = way_of((const u8 *)(u64)ctx->data, (const u8 *)(u64)ctx->data_end);
	int verdict;

	if (way == TO_SOCKET && redirect_stamp && !stamp(ctx))
		way = NO_ROOM;
	if (way != TO_SOCKET) {
		count(way);
		return XDP_PASS;
	}
	verdict = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	count(verdict == XDP_PASS ? NO_SOCKET : TO_SOCKET);
	return verdict;
}
