// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * impair.bpf.c: loss without user space: an arriving frame is passed or dropped by its number.
 *
 * The outcomes are those of the scheduler (core/sched/loss.h): with the same seed, the n-th packet
 * has the same outcome here as with AF_XDP or NFQUEUE. Frames that are not IP, to groups, and of
 * neighbour discovery are not counted and never lost, unless requested.
 *
 * A model without memory takes the number by one atomic addition per frame. Chains change under a
 * lock, in the order in which CPUs take it. XDP in the driver precedes GRO, so a frame is as on the
 * wire. In generic mode it is not, and frames longer than the MTU permits are counted.
 */
#include "kernel.h"
#include "../core/forward/link.h"

#define FP_LOSS_MEM
#include "../core/sched/loss.h"

/* Also lose frames that are not IP, to groups, and of neighbour discovery. Set before loading. */
const volatile u32 impair_all = 0;
/* Nonzero if any loss is configured. Set before loading. */
const volatile u32 impair_loses = 0;
/* Nonzero if the model has memory. Set before loading. */
const volatile u32 impair_moves = 0;
/* Maximum frame length on the wire. Set before loading. */
const volatile u32 impair_longest = 0xffffffff;

struct bpf_spin_lock {
	u32 val;
};

struct loss {
	struct bpf_spin_lock lock;
	u32 zero;
	struct fp_loss_state state;
	struct fp_loss_config config;
};

/* Key: 0. User space writes the model before attaching, the program writes the state. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct loss);
} loss SEC(".maps");

/* Mirrored in crates/edge/bpf/src/impair.rs. */
struct counts {
	u64 arrived;
	u64 lost;
	u64 gso_packets; /* longer than a frame on the wire */
	u64 exempt;	 /* passed without a number */
};

/* Key: 0; for each CPU. Written here, read by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} counts SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

FP_INLINE int has_number(struct xdp_md *ctx)
{
	struct fp_link_info g;

	if (impair_all)
		return 1;
	return fp_check_link((const u8 *)(u64)ctx->data, (const u8 *)(u64)ctx->data_end, &g) ==
	       FP_GO_TO_SOCKET;
}

FP_INLINE int is_lost(void)
{
	u32 key = 0;
	struct loss *l = bpf_map_lookup_elem(&loss, &key);
	int lost;

	if (!l)
		return 0;
	if (!impair_moves)
		return fp_loss_decide(&l->config, &l->state,
				      __sync_fetch_and_add(&l->state.packets, 1));
	bpf_spin_lock(&l->lock);
	lost = fp_loss_decide(&l->config, &l->state, l->state.packets);
	l->state.packets++;
	bpf_spin_unlock(&l->lock);
	return lost;
}

SEC("xdp.frags")
int impair(struct xdp_md *ctx)
{
	u32 key = 0;
	struct counts *c = bpf_map_lookup_elem(&counts, &key);

	if (!c)
		return XDP_PASS;
	if (!has_number(ctx)) {
		c->exempt++;
		return XDP_PASS;
	}
	c->arrived++;
	if (bpf_xdp_get_buff_len(ctx) > impair_longest)
		c->gso_packets++;
	if (!impair_loses || !is_lost())
		return XDP_PASS;
	c->lost++;
	return XDP_DROP;
}
