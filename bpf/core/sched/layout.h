/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/layout.h: size and format of a scheduler. Only for user space, which formats plain memory
 * and the mapping of an arena in the same way.
 */
#ifndef FP_SCHED_LAYOUT_H
#define FP_SCHED_LAYOUT_H

#include "../pifo/pool.h"
#include "sched.h"

/* A plan: `nodes`, then the tables. */
struct fp_plan {
	const struct fp_sched_config *config;
	const struct fp_node_config *nodes; /* config->nodes, the root first */
	const u32 *wants;		    /* of each node's policy */
	const u32 *functions;		    /* the same */
	const u32 *flow_bytes;		    /* the same: whether it keeps states of flows */
	const u32 *classes;
	const u32 *splits;
	const struct fp_impair_config *impairments;
	const u64 *words;
};

/*
 * Counts the children of each node, for the capacity of its queues. `children` has nodes + 1 zeros.
 */
static void fp_count_children(const struct fp_plan *p, u32 *children)
{
	u32 i;

	for (i = 0; i < p->config->nodes; i++)
		children[p->nodes[i].parent]++;
}

/* The queue of ranks of a node. `children` as counted. */
static struct fp_pifo_config fp_queue_config(const struct fp_plan *p, u32 node, u32 children)
{
	const struct fp_sched_config *c = p->config;
	const struct fp_node_config *n = &p->nodes[node - 1];
	u32 most = n->over == FP_OVER_PACKETS	   ? c->packets
		   : n->over == FP_OVER_FLOWS	   ? c->flows + 1
		   : n->over == FP_OVER_REFERENCES ? c->references
						   : children;
	struct fp_pifo_config q = {
		.kind = n->queue,
		.capacity =
			n->queue_capacity && n->queue_capacity < most ? n->queue_capacity : most,
		.buckets = n->queue_buckets,
		.shift = n->queue == FP_AIFO ? 0 : (u8)n->queue_shift,
		.headroom = n->queue == FP_AIFO ? n->queue_shift : 0,
		.full = (u8)n->queue_full,
		.below = (u8)n->queue_below,
		.beyond = (u8)n->queue_beyond,
	};

	/* The limit of a leaf is checked before its queue, so the queue never holds more. */
	if (n->over == FP_OVER_PACKETS && n->limit_packets && n->limit_packets < q.capacity)
		q.capacity = n->limit_packets;
	if (!q.capacity)
		q.capacity = 1;
	/* The capacity in the tree is divided among the lists, as in the paper. */
	if (n->queue == FP_SP_PIFO)
		q.each = n->queue_capacity && n->queue_buckets
				 ? (q.capacity + n->queue_buckets - 1) / n->queue_buckets
				 : q.capacity;
	return q;
}

static int fp_queue_may_refuse(const struct fp_plan *p, u32 node)
{
	const struct fp_node_config *n = &p->nodes[node - 1];

	return n->queue_capacity || n->queue_below || n->queue_beyond || n->queue == FP_AIFO ||
	       (n->parent && p->nodes[n->parent - 1].over == FP_OVER_REFERENCES) ||
	       (p->functions[node - 1] & 1 << FP_SEND_TIME && p->config->horizon);
}

/* Sets the offsets of `s` and returns the bytes of it all. */
static u64 fp_sched_offsets(struct fp_sched *s, const struct fp_plan *p, u64 array_bytes)
{
	const struct fp_sched_config *c = p->config;
	struct fp_pool_config pool = {
		.items = fp_items(c),
		.pifos = FP_DELAY_QUEUE + 2 * c->nodes,
		.array_bytes = array_bytes,
	};
	u64 at = fp_pool_align(sizeof(struct fp_sched));

#define FP_PLACE(field, type, count)                                                               \
	do {                                                                                       \
		s->field = at;                                                                     \
		at += fp_pool_align(sizeof(type) * ((u64)(count)));                                \
	} while (0)
	FP_PLACE(packets_at, struct fp_slot, c->packets + 1);
	FP_PLACE(flows_at, struct fp_fq, fp_flow_entries(c) + 1);
	FP_PLACE(hosts_at, struct fp_host, c->hosts + 1);
	FP_PLACE(nodes_at, struct fp_node, c->nodes + 1);
	FP_PLACE(references_at, struct fp_reference, c->references + 1);
	FP_PLACE(classes_at, u32, c->classes + 1);
	FP_PLACE(splits_at, u32, c->splits + 1);
	FP_PLACE(accounts_at, struct fp_account, c->accounts ? c->nodes + 1 : 0);
	FP_PLACE(limited_at, struct fp_limited, c->limited ? c->nodes + 1 : 0);
	FP_PLACE(impairments_at, struct fp_impair, c->impairments + 1);
	FP_PLACE(words_at, u64, c->words + 1);
	FP_PLACE(wheel_at, struct fp_wheel, 1);
	FP_PLACE(wheel_next_at, u32, c->nodes + 1);
#undef FP_PLACE
	s->pool_at = at;
	return at + fp_pool_bytes(&pool);
}

/* The shaper holds entries with a send time. */
static u32 fp_shaper_capacity(const struct fp_plan *p)
{
	return p->config->packets + fp_flow_entries(p->config) + p->config->nodes +
	       p->config->references;
}

/*
 * Formats all queues, or only adds up their arrays if s is 0. Returns the node of an invalid queue,
 * or 0.
 */
static u32 fp_format_queues(struct fp_sched *s, const struct fp_plan *p, const u32 *children,
			    u64 *bytes, int *invalid_field)
{
	struct fp_pool *pool = s ? fp_pool_of(s) : 0;
	u64 at = s ? pool->arrays : 0;
	struct fp_pifo_config q;
	u32 node;

	*bytes = 0;
#define FP_QUEUE(number, who)                                                                      \
	do {                                                                                       \
		u64 size_ = fp_pifo_bytes(q.kind, q.capacity, q.buckets);                          \
		if (s && (*invalid_field = fp_pifo_format(pool, number, &q, at + *bytes)) != 0)    \
			return who;                                                                \
		*bytes += size_;                                                                   \
	} while (0)
	q = (struct fp_pifo_config){ .kind = FP_HEAP, .capacity = fp_shaper_capacity(p) };
	FP_QUEUE(FP_SHAPER, 0);
	q = (struct fp_pifo_config){ .kind = FP_BANDS,
				     .capacity = fp_flow_entries(p->config),
				     .buckets = FP_FAT_BANDS };
	FP_QUEUE(FP_FAT, 0);
	q = (struct fp_pifo_config){ .kind = FP_HEAP,
				     .capacity = p->config->impairments ? p->config->packets : 1 };
	FP_QUEUE(FP_DELAY_QUEUE, 0);
	for (node = 1; node <= p->config->nodes; node++) {
		q = fp_queue_config(p, node, children[node]);
		FP_QUEUE(fp_queue_of(node), node);
		if (!(p->wants[node - 1] & (WANTS_DUE | WANTS_ELIGIBLE)))
			continue;
		q = (struct fp_pifo_config){ .kind = FP_HEAP,
					     .capacity = children[node] ? children[node] : 1 };
		FP_QUEUE(FP_DELAY_QUEUE + p->config->nodes + node, node);
	}
#undef FP_QUEUE
	return 0;
}

static void fp_format_node(struct fp_sched *s, const struct fp_plan *p, u32 node)
{
	const struct fp_node_config *c = &p->nodes[node - 1];
	struct fp_node *n = fp_node_at(s, node);
	u32 i;

	n->config = (struct fp_node_settings){
		.parent = c->parent,
		.policy = (u8)c->policy,
		.over = (u8)c->over,
		.impair = c->impair,
		.split = c->split,
		.limit_packets = c->limit_packets,
		.limit_bytes = c->limit_bytes,
		.cost = c->cost,
		.floor = c->floor,
		.ceil = c->ceil,
		.burst = c->burst,
		.wants = p->wants[node - 1],
	};
	for (i = 0; i < FP_PARAMS; i++)
		n->class[i] = c->params[i];
	n->functions = (u8)p->functions[node - 1];
	n->config.supports_flows = n->config.over == FP_OVER_FLOWS ||
				   (n->config.over == FP_OVER_PACKETS && p->flow_bytes[node - 1]);
	n->config.undo = (u8)fp_queue_may_refuse(p, node);
	n->due = FP_NEVER;
}

/* Formats zeroed memory whose offsets and pool are in place. */
static void fp_sched_fill(struct fp_sched *s, const struct fp_plan *p)
{
	const struct fp_sched_config *c = p->config;
	u32 i;

	s->magic = FP_SCHED_MAGIC;
	s->version = FP_SCHED_VERSION;
	s->config = *c;
	fp_hash_fill(&s->hash, c->seed);
	for (i = 1; i <= c->nodes; i++)
		fp_format_node(s, p, i);
	for (i = 0; i < c->classes; i++)
		FP_AT(u32, s, s->classes_at)[i] = p->classes[i];
	for (i = 0; i < c->splits; i++)
		FP_AT(u32, s, s->splits_at)[i] = p->splits[i];
	for (i = 0; i < c->impairments; i++)
		fp_impair_at(s, i + 1)->config = p->impairments[i];
	for (i = 0; i < c->words; i++)
		FP_AT(u64, s, s->words_at)[i] = p->words[i];
	for (i = c->references; i > 0; i--)
		fp_free_reference(s, i);
	for (i = 1; i <= fp_flow_entries(c); i++)
		fp_fq_at(s, i)->cost = FP_COST_ONE;
}

#endif /* FP_SCHED_LAYOUT_H */
