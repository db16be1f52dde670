// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * impair.bpf.c: loss without user space: an arriving frame is passed or dropped by its number.
 *
 * The fates are those of the scheduler (core/sched/loss.h): with one seed, the n-th packet that
 * arrives has the same one here as behind AF_XDP or a packet queue. Not counted and never lost,
 * unless all are asked for: frames that are no IP, to groups, and neighbour discovery.
 *
 * A model without memory takes the number by one atomic addition a frame; chains move under a lock,
 * in the order in which CPUs take it. XDP comes before GRO in the driver, so that a frame is what
 * was on the wire; in generic mode it does not, and what is longer than the MTU allows is counted.
 */
#include "kernel.h"
#include "../core/forward/link.h"

#define FP_LOSS_MEM
#include "../core/sched/loss.h"

/* Frames that are no IP, to groups, and of neighbour discovery are lost, too; set before loading.
 */
const volatile u32 impair_all = 0;
/* Whether there is anything to lose; set before loading. */
const volatile u32 impair_loses = 0;
/* Whether the model has a memory; set before loading. */
const volatile u32 impair_moves = 0;
/* Bytes of the longest frame that a wire carries; set before loading. */
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

/* Key: 0. The model is written by user space before attaching, the state here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct loss);
} loss SEC(".maps");

/* Mirrored in crates/edge/bpf/src/impair.rs. */
struct counts {
	u64 came;
	u64 lost;
	u64 supers; /* of those that came: longer than a frame of the wire */
	u64 exempt; /* passed without a number */
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
	c->came++;
	if (bpf_xdp_get_buff_len(ctx) > impair_longest)
		c->supers++;
	if (!impair_loses || !is_lost())
		return XDP_PASS;
	c->lost++;
	return XDP_DROP;
}
