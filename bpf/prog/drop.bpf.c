// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * drop.bpf.c: configured loss for the lab and the tests: drops incoming frames of at least
 * drop_bytes with a given probability, and counts both. Never attached by the monitor.
 */
#include "kernel.h"

/* Of 2^32; set before loading. */
const volatile u32 drop_chance = 0;
/* Smaller frames (bare ACKs) always pass and are not counted; set before loading. */
const volatile u32 drop_bytes = 0;

/* Frames large enough, and those of them that were dropped. Written here, read by user space. */
u64 frames_eligible = 0;
u64 frames_dropped = 0;

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("xdp.frags")
int drop(struct xdp_md *ctx)
{
	if (bpf_xdp_get_buff_len(ctx) < drop_bytes)
		return XDP_PASS;
	__sync_fetch_and_add(&frames_eligible, 1);
	if (bpf_get_prandom_u32() >= drop_chance)
		return XDP_PASS;
	__sync_fetch_and_add(&frames_dropped, 1);
	return XDP_DROP;
}
