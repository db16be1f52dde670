// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * redirect.bpf.c: redirects IP packets to the AF_XDP socket of their queue, and passes all other
 * frames to the stack.
 *
 * The stack gets the frames that core/forward/link.h excludes, and everything while a queue has no
 * socket. If a process ends, its sockets close and traffic continues. rtt_forward (rtt.bpf.c) does
 * the same and more for monitored interfaces.
 *
 * Never drops itself. The kernel counts redirected packets that the socket cannot take
 * (XDP_STATISTICS). Deliberately absent: header fragments after the first buffer, tunnels.
 */
#include "kernel.h"
#include "../core/forward/link.h"

#define MAX_SOCKETS 64

/* MAC addresses of this host, all zero where unused; set before loading. */
const volatile u8 redirect_own[FP_MAX_OWN][FP_MAC_BYTES] = {};
/* Nonzero to write the time of arrival (ns, monotonic) before the frame. Set before loading. */
const volatile u32 redirect_stamp = 0;

/* Key: receive queue; value: AF_XDP socket. Written by user space, read here. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_SOCKETS);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

/* Key: FP_GO_*; value: frames, for each CPU. Written here, read by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FP_GO_REDIRECT_OUTCOMES);
	__type(key, u32);
	__type(value, u64);
} outcomes SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

FP_INLINE void count(u32 outcome)
{
	u64 *frames = bpf_map_lookup_elem(&outcomes, &outcome);

	if (frames)
		(*frames)++;
}

/* Writes the time before the frame as AF_XDP metadata. All pointers are invalid afterwards. */
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
	u32 outcome = fp_redirect_outcome((const u8 *)(u64)ctx->data,
					  (const u8 *)(u64)ctx->data_end, redirect_own[0]);
	int verdict;

	if (outcome == FP_GO_TO_SOCKET && redirect_stamp && !stamp(ctx))
		outcome = FP_GO_NO_HEADROOM;
	if (outcome != FP_GO_TO_SOCKET) {
		count(outcome);
		return XDP_PASS;
	}
	verdict = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	count(verdict == XDP_PASS ? FP_GO_NO_SOCKET : FP_GO_TO_SOCKET);
	return verdict;
}
