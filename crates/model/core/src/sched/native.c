/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * native.c: the native runtime of bpf/core/sched, and the access of user space to a scheduler's memory
 * in any mapping. Every function here is declared in ffi.rs.
 */
#include <stddef.h>
#include <stdint.h>
#include "sched/layout.h"
#include "sched/audit.h"
#include "sched/move.h"

/* Numbers of one byte that no policy has. Calls find the custom policies by their lowest bits. */
#define FP_UNOWNED (0xe0u + FP_CUSTOM)

#define FP_POLICY_OF(number, name, e, d, t, p)                                                     \
	case number:                                                                               \
		return &name##_policy;

/* The description of a policy; null if there is none with this number. */
const struct fp_policy *fp_native_policy(u32 number)
{
	switch (number) {
		FP_POLICIES(FP_POLICY_OF)
	}
	return 0;
}

u32 fp_native_policy_functions(u32 number)
{
	return fp_policy_functions(number);
}

u64 fp_native_sched_bytes(const struct fp_plan *p, u32 *children)
{
	struct fp_sched s;
	u64 arrays;
	int invalid_field = 0;

	fp_count_children(p, children);
	fp_format_queues(0, p, children, &arrays, &invalid_field);
	return fp_sched_offsets(&s, p, arrays);
}

/*
 * Formats zeroed memory. Returns 0, or enum fp_invalid_field with the node of the queue in *node.
 */
int fp_native_sched_format(struct fp_sched *s, const struct fp_plan *p, u32 *children, u32 *node)
{
	struct fp_pool_config pool = { .items = fp_items(p->config),
				       .pifos = FP_DELAY_QUEUE + 2 * p->config->nodes };
	u64 arrays;
	int invalid_field = 0;

	fp_format_queues(0, p, children, &arrays, &invalid_field);
	s->bytes = fp_sched_offsets(s, p, arrays);
	pool.array_bytes = arrays;
	*node = 0;
	invalid_field = fp_pool_format(fp_pool_of(s), &pool);
	if (invalid_field)
		return invalid_field;
	*node = fp_format_queues(s, p, children, &arrays, &invalid_field);
	if (invalid_field)
		return invalid_field;
	fp_sched_fill(s, p);
	return 0;
}

/* Sets what runs custom policies. */
void fp_native_sched_custom(struct fp_sched *s, u64 custom)
{
	s->custom = custom;
}

/* The scheduler draws from limits at another address, as CPU `cpu` of them; null: from none. */
void fp_native_sched_limits(struct fp_sched *s, struct fp_limits *limits, u32 cpu)
{
	s->limits_at = limits ? (u64)((uintptr_t)limits - (uintptr_t)s) : 0;
	s->limit_cpu = cpu;
}

/* The limits of a node, from 1; 0: its own rates. The scheduler has config.limited. */
void fp_native_sched_limit_node(struct fp_sched *s, u32 node, u32 ceil, u32 floor)
{
	*fp_limited_at(s, node) = (struct fp_limited){ .ceil = ceil, .floor = floor };
}

/* Entries in the queue of a node: packets, flows or children that may leave. */
u32 fp_native_sched_waiting(struct fp_sched *s, u32 node)
{
	return node && node <= s->config.nodes ? fp_waiting(s, node) : 0;
}

/* Sets the cost of a byte of a node, as FP_SET_COST does, while another thread uses the scheduler. */
void fp_native_sched_cost(struct fp_sched *s, u32 node, u32 cost)
{
	if (node && node <= s->config.nodes && cost)
		*(volatile u32 *)&fp_node_at(s, node)->config.cost = cost;
}

/* Runs operations while outcomes fit. Returns how many ran. */
u32 fp_native_sched_run(struct fp_sched *s, const struct fp_op *ops, u32 count,
			struct fp_outcome *outcomes, u32 most, u32 *reported)
{
	s->outcomes_at = (u64)((u8 *)outcomes - (u8 *)s);
	s->outcomes = 0;
	s->outcomes_most = most;
	for (s->op = 0; s->op < count && fp_has_outcome_capacity(s); s->op++)
		fp_run_op(s, (struct fp_op *)(size_t)&ops[s->op]);
	*reported = s->outcomes;
	return s->op;
}

static void relabel(struct fp_sched *s, u32 from, u32 to)
{
	u32 i;

	for (i = 0; i < s->config.nodes; i++) {
		struct fp_node *n = fp_node_at(s, i + 1);

		if (n->config.policy == from)
			n->config.policy = to;
	}
}

/*
 * Starts to adopt the packets of `old`. Returns 0, or enum fp_move_refusal. The custom policies in
 * `others` (bit N: number FP_CUSTOM + N) have other code: the state of an old one has no meaning for
 * the new one, and is cleared.
 */
int fp_native_move_begin(struct fp_sched *s, struct fp_sched *old, struct fp_changes *changes,
			 u64 now, u32 others)
{
	int refused;
	u32 i;

	for (i = 0; i < FP_POLICIES_MAX - FP_CUSTOM; i++)
		if (others >> i & 1)
			relabel(old, FP_CUSTOM + i, FP_UNOWNED + i);
	refused = fp_move_begin(s, old, changes, now);
	for (i = 0; refused && i < FP_POLICIES_MAX - FP_CUSTOM; i++)
		relabel(old, FP_UNOWNED + i, FP_CUSTOM + i);
	return refused;
}

/* Moves packets while outcomes fit. Returns whether some are left. */
int fp_native_move(struct fp_sched *s, struct fp_sched *old, struct fp_changes *changes,
		   struct fp_outcome *outcomes, u32 most, u32 *reported)
{
	int left = 1;

	s->outcomes_at = (u64)((u8 *)outcomes - (u8 *)s);
	s->outcomes = 0;
	s->outcomes_most = most;
	s->op = 0;
	while (left && fp_has_outcome_capacity(s))
		left = fp_move_one(s, old, changes);
	*reported = s->outcomes;
	return left;
}

u32 fp_native_clear(struct fp_sched *s)
{
	return fp_clear(s);
}

/* Prepares a test run: operations and outcomes are at the given addresses. */
void fp_native_sched_begin(struct fp_sched *s, const struct fp_op *ops, u32 count,
			   struct fp_outcome *outcomes, u32 most)
{
	s->ops_at = (u64)((u8 *)ops - (u8 *)s);
	s->ops = count;
	s->op = 0;
	s->outcomes_at = (u64)((u8 *)outcomes - (u8 *)s);
	s->outcomes = 0;
	s->outcomes_most = most;
}

/* Returns the progress, and clears the outcomes so far. */
u32 fp_native_sched_progress(struct fp_sched *s, u32 *reported)
{
	*reported = s->outcomes;
	s->outcomes = 0;
	return s->op;
}

void fp_native_sched_stats(const struct fp_sched *s, struct fp_sched_stats *stats)
{
	*stats = s->stats;
}

void fp_native_node_stats(struct fp_sched *s, u32 node, struct fp_node_stats *stats)
{
	*stats = fp_node_at(s, node)->stats;
}

/* Zeros without accounts. */
void fp_native_account(struct fp_sched *s, u32 node, struct fp_account *account)
{
	memset(account, 0, sizeof(*account));
	if (s->config.accounts)
		*account = *fp_account_at(s, node);
}

/* Zeros if there is no such impairment. */
void fp_native_impair_stats(struct fp_sched *s, u32 impair, struct fp_impair_stats *stats)
{
	*stats = fp_impair_at(s, impair)->stats;
}

int fp_native_takes_longer(struct fp_sched *s, const struct fp_meta *m, u64 ns)
{
	return fp_takes_longer(s, m, ns);
}

u32 fp_native_link_bytes(const struct fp_framing *f, u32 bytes, u32 segments)
{
	return fp_link_bytes(f, bytes, segments);
}

u64 fp_native_mix64(u64 x)
{
	return fp_mix64(x);
}

/* The first contradiction: enum fp_fault, 0 none. */
u32 fp_native_sched_audit(struct fp_sched *s, u64 *where)
{
	return fp_sched_audit(s, where);
}

/* Sizes and offsets that Rust mirrors, in the order of ffi.rs's test. */
#define AT(type, member) (u32) offsetof(struct type, member)
const u32 fp_native_sched_layout[] = {
	sizeof(struct fp_meta),
	sizeof(struct fp_op),
	sizeof(struct fp_outcome),
	sizeof(struct fp_node_config),
	sizeof(struct fp_sched_config),
	sizeof(struct fp_sched_stats),
	sizeof(struct fp_node_stats),
	sizeof(struct fp_policy),
	sizeof(struct fp_param),
	sizeof(struct fp_plan),
	sizeof(struct fp_call),
	sizeof(struct fp_account),
	AT(fp_meta, source),
	AT(fp_meta, dscp),
	AT(fp_op, node),
	AT(fp_op, meta),
	AT(fp_outcome, reason),
	AT(fp_node_config, cost),
	AT(fp_node_config, floor),
	AT(fp_node_config, params),
	AT(fp_sched_config, overflow),
	AT(fp_sched_config, horizon),
	AT(fp_sched_config, max_sojourn),
	AT(fp_sched_stats, put_off),
	AT(fp_node_stats, bytes),
	AT(fp_policy, queue),
	AT(fp_account, sojourn),
	AT(fp_param, standard),
	FP_DROP_ACK_FILTERED,
	AT(fp_sched_config, ack_filter),
	AT(fp_meta, ack),
	FP_CUSTOM,
	FP_POLICIES_MAX - FP_CUSTOM,
	sizeof(struct fp_changes),
	AT(fp_changes, nodes),
	sizeof(struct fp_impair_config),
	sizeof(struct fp_impair_stats),
	AT(fp_impair_config, delay),
	AT(fp_impair_config, delays_period),
	AT(fp_impair_config, release),
	AT(fp_impair_config, chances_period),
	AT(fp_outcome, bit),
	AT(fp_node_config, impair),
	AT(fp_sched_config, framing),
	AT(fp_impair_config, framing),
	sizeof(struct fp_framing),
	AT(fp_framing, cell_bytes),
	FP_SCHED_MAGIC,
	FP_SCHED_VERSION,
};
const u32 fp_native_sched_layout_len =
	sizeof(fp_native_sched_layout) / sizeof(fp_native_sched_layout[0]);
