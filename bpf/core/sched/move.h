/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/move.h: a scheduler takes over what waits in another, so that a whole new plan begins to
 * hold without a packet lost.
 *
 *   old: [ trees, queues ] --fp_move_begin--> [ all packets in the shaper, by arrival ]
 *   new: fresh             <--fp_move_one---  the first of them, ranked as if it came now
 *
 * Packets keep handle, metadata, arrival and the time they waited; classes and nodes that changed
 * their numbers are translated by fp_changes. Sums and what nodes counted go on. So does what nodes
 * and flows owe, where the policy charges what leaves: there a packet that is ranked twice pays
 * once. Where it charges what comes (leaves over packets, over references, leaves with send times)
 * the new tree begins again.
 *
 * Invariant: every packet that waited is in the new scheduler, or told as dropped for a reason of
 * the new plan's. The old one is spent: it takes no packet any more.
 * Packets at the delay queue keep their times there, whatever the new plan's impairments are; these go on
 * where the same node had one, by their seeds. So does the trace that the root sends by, if it is
 * the same; another one begins again. In addition, fp_clear() empties one at once: of a port whose link
 * went down. Deliberately absent: moving a part now and the rest later; leaving would be out of
 * order.
 */
#ifndef FP_SCHED_MOVE_H
#define FP_SCHED_MOVE_H

#include "sched.h"

/* What became of numbers; two tables of u32 behind it, mirrored in Rust's sched/takeover.rs. */
struct fp_changes {
	u64 nodes_at;	/* offset from here: for each node of the new tree, the root first, which
			   one it was; 0 none */
	u64 classes_at; /* the same: for each class of the old plan, from 0, which one it is */
	u32 nodes;
	u32 classes; /* classes from here on keep their numbers */
};

/* Why nothing can be taken over; nothing was changed then. */
enum fp_move_refusal {
	FP_MOVE_NOT_FRESH = 1, /* the new scheduler has had packets */
	FP_MOVE_HANDLES = 2,   /* it knows fewer handles than the old one */
};

/* Which node of the old tree node `node` of the new one was; 0 none. */
FP_INLINE u32 fp_old_node(struct fp_sched FP_MEM *old, struct fp_changes FP_MEM *c, u32 node)
{
	u32 was;

	if (!node || node > c->nodes)
		return 0;
	was = *FP_AT(u32, c, c->nodes_at + 4ull * (node - 1));
	return was <= old->config.nodes ? was : 0;
}

FP_INLINE u32 fp_new_class(struct fp_changes FP_MEM *c, u32 class_id)
{
	return class_id < c->classes ? *FP_AT(u32, c, c->classes_at + 4ull * class_id) : class_id;
}

/* Whether a node's policy charges what leaves, so that its state may go on. */
FP_INLINE int fp_charges_on_dequeue(struct fp_node FP_MEM *n)
{
	return n->config.over == FP_OVER_CHILDREN ||
	       (n->config.over == FP_OVER_FLOWS && !(n->functions >> FP_SEND_TIME & 1));
}

/* Whether a node continues where the other stopped. */
FP_INLINE int fp_can_carry_over(struct fp_node FP_MEM *n, struct fp_node FP_MEM *was)
{
	return n->config.policy == was->config.policy && n->config.over == was->config.over &&
	       fp_charges_on_dequeue(n);
}

/* The account goes on, less the packets that wait: they come to it, or to another, once more. */
FP_FUNC int fp_carry_account(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG,
			     u32 node, u32 id)
{
	struct fp_account FP_MEM *a = fp_account_at(s, node);
	struct fp_node FP_MEM *was = fp_node_at(old, id);

	if (!s->config.accounts || !old->config.accounts)
		return 0;
	FP_COPY(a, fp_account_at(old, id));
	if (id) {
		a->came -= was->stats.packets;
		a->came_bytes -= was->stats.bytes;
	}
	return 0;
}

/*
 * An impairment continues where its predecessor stopped: the one with its seed, or else that of the
 * first node. Who joins one that others share must not change their fates. Order is kept by all.
 */
FP_FUNC int fp_carry_impair(struct fp_sched FP_MEM *s FP_ARG, u32 impair,
			    struct fp_sched FP_MEM *old FP_ARG, u32 id)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, impair);
	struct fp_impair FP_MEM *was = fp_impair_at(old, id);
	u64 last = im->state.last;

	if (im->config.loss.seed == was->config.loss.seed || !im->stats.packets) {
		FP_COPY(&im->state, &was->state);
		FP_COPY(&im->stats, &was->stats);
	}
	im->state.last = was->state.last > last ? was->state.last : last;
	return 0;
}

/* Node `node` of the new tree goes on with what its predecessor counted and owes. */
FP_FUNC int fp_carry_node(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG,
			  struct fp_changes FP_MEM *c FP_ARG, u32 node)
{
	struct fp_node FP_MEM *n = fp_node_at(s, node);
	u32 id = fp_old_node(old, c, node);
	struct fp_node FP_MEM *was = fp_node_at(old, id);
	struct fp_node FP_MEM *above = fp_node_at(s, n->config.parent);
	u32 i;

	if (!id)
		return 0;
	fp_carry_account(s, old, node, id);
	if (n->config.impair && was->config.impair)
		fp_carry_impair(s, n->config.impair, old, was->config.impair);
	FP_COPY(&n->stats, &was->stats);
	FP_PUT(n->stats.packets, 0);
	FP_PUT(n->stats.bytes, 0);
	if (fp_can_carry_over(n, was)) {
		for (i = FP_PARAMS; i < FP_PARAMS + FP_STATE_WORDS; i++)
			FP_PUT(n->class[i], was->class[i]);
	}
	/* A child's clocks are its parent's: they mean nothing to another one. */
	if (n->config.parent && fp_old_node(old, c, n->config.parent) == was->config.parent &&
	    fp_can_carry_over(above, fp_node_at(old, was->config.parent))) {
		for (i = 0; i < FP_STATE_WORDS; i++)
			FP_PUT(n->child[i], was->child[i]);
	}
	return 0;
}

/* Whether both send by the same trace, wherever its words are. O(opportunities). */
FP_FUNC int fp_is_same_trace(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG)
{
	struct fp_impair_config FP_MEM *a = &fp_impair_at(s, s->config.service)->config;
	struct fp_impair_config FP_MEM *b = &fp_impair_at(old, old->config.service)->config;
	u32 i;

	/* What is beyond the words is no trace, and long. */
	if (a->chances != b->chances || a->chances_period != b->chances_period ||
	    a->chances > s->config.words)
		return 0;
	fp_loop(i, a->chances) {
		if (fp_impair_word(s, a->chances_at, i) != fp_impair_word(old, b->chances_at, i))
			return 0;
	}
	return 1;
}

/* The line continues where it was in its trace, whichever node the impairment was found by. */
FP_FUNC int fp_carry_service(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, s->config.service);
	struct fp_impair FP_MEM *was = fp_impair_at(old, old->config.service);

	if (!s->config.service)
		return 0;
	/* Impairment 0 is nobody's, and has sent nothing. */
	FP_PUT(im->state.lap, was->state.lap);
	FP_PUT(im->state.chances, was->state.chances);
	FP_PUT(im->state.credit, was->state.credit);
	FP_PUT(im->state.has_lap, was->state.has_lap);
	if (!old->config.service || !fp_is_same_trace(s, old))
		fp_restart_service(im);
	return 0;
}

/* All packets that wait enter the old shaper by arrival; whatever else was in it is gone. */
FP_FUNC int fp_sort_by_arrival(struct fp_sched FP_MEM *old FP_ARG)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(old);
	u32 i;

	fp_loop(i, fp_items(&old->config)) {
		if (!fp_pifo_pop_as(pool, FP_SHAPER, FP_HEAP))
			break;
	}
	fp_loop(i, old->config.packets) {
		u32 handle = i + 1;
		struct fp_slot FP_MEM *p = fp_slot_at(old, handle);

		if (!p->leaf)
			continue;
		if (fp_is_item_queued(old, handle))
			fp_pifo_remove(pool, handle);
		fp_pifo_push_as(pool, FP_SHAPER, handle, p->order, FP_HEAP);
	}
	return 0;
}

FP_FUNC int fp_carry_nodes(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG,
			   struct fp_changes FP_MEM *c FP_ARG)
{
	u32 i;

	fp_carry_account(s, old, 0, 0);
	fp_loop(i, s->config.nodes)
		fp_carry_node(s, old, c, i + 1);
	return fp_carry_service(s, old);
}

/*
 * Begins to take over; 0, or enum fp_move_refusal. Some 200 ns a node; each packet then takes one
 * to two us, for all that it meets is cold.
 */
FP_FUNC int fp_move_begin(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG,
			  struct fp_changes FP_MEM *c FP_ARG, u64 now)
{
	if (s->came || s->packets)
		return FP_MOVE_NOT_FRESH;
	if (s->config.packets < old->config.packets)
		return FP_MOVE_HANDLES;
	fp_sort_by_arrival(old);
	fp_carry_nodes(s, old, c);
	FP_COPY(&s->stats, &old->stats);
	s->came = old->came;
	s->now = now > old->now ? now : old->now;
	return 0;
}

/* The packet's flow continues where it stopped, if it begins in the new tree with this packet. */
FP_FUNC int fp_carry_flow(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG,
			  struct fp_changes FP_MEM *c FP_ARG, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	u32 leaf = p->leaf;
	u32 was = fp_old_node(old, c, leaf);
	struct fp_fq FP_MEM *from = fp_fq_at(old, fp_slot_at(old, handle)->flow);
	struct fp_fq FP_MEM *f;
	u32 flow, i;

	if (!was || from->leaf != was || from->hash != p->meta.flow_hash ||
	    !fp_can_carry_over(fp_node_at(s, leaf), fp_node_at(old, was)))
		return 0;
	flow = fp_find_flow(s, leaf, p->meta.flow_hash);
	f = fp_fq_at(s, flow);
	if (!flow || f->hash != from->hash || f->leaf != leaf || !fp_is_idle(s, flow))
		return 0;
	FP_PUT(f->cost, from->cost);
	for (i = 0; i < FP_STATE_WORDS; i++)
		FP_PUT(f->state[i], from->state[i]);
	return 0;
}

/* The next packet of the old scheduler; 0 if there is none. It waits there no longer. */
FP_FUNC u32 fp_move_out(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG,
			struct fp_changes FP_MEM *c FP_ARG)
{
	u32 handle = fp_pifo_pop_as(fp_pool_of(old), FP_SHAPER, FP_HEAP);
	struct fp_slot FP_MEM *from = fp_slot_at(old, handle);
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);

	if (!handle || handle > old->config.packets || handle > s->config.packets)
		return 0;
	FP_COPY(&p->meta, &from->meta);
	FP_PUT(p->meta.class_id, fp_new_class(c, p->meta.class_id));
	FP_PUT(p->enqueued, from->enqueued);
	FP_PUT(p->order, from->order);
	FP_PUT(p->leaf, fp_find_leaf(s, p->meta.class_id, p->meta.dscp));
	FP_PUT(p->bit, from->bit);
	FP_PUT(p->impaired, from->impaired);
	if (p->leaf)
		fp_carry_flow(s, old, c, handle);
	if (fp_is_delayed(old, handle))
		old->delayed--;
	else
		fp_end_waiting(old, handle);
	fp_free_handle(old, handle);
	return handle;
}

/* Whether the packet waits at the delay queue on; else it is to be placed. */
FP_FUNC int fp_move_in(struct fp_sched FP_MEM *s FP_ARG, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	u32 delayed = p->impaired & FP_IMPAIRED_DELAYED;

	FP_PUT(p->rank, 0ull);
	FP_PUT(p->flow, 0);
	FP_PUT(p->impaired, p->impaired & ~FP_IMPAIRED_DELAYED);
	fp_account_enqueued(s, p->leaf, p->meta.bytes);
	s->at = p->enqueued;
	return delayed && p->leaf && s->at > s->now && !fp_push_delayed(s, handle);
}

/* What was taken over takes no packet any more. */
FP_INLINE void fp_close_emptied(struct fp_sched FP_MEM *old)
{
	old->config.packets = 0;
}

/*
 * Moves one packet, told only if it is dropped; there must be room for FP_OUTCOMES_PER_OP. 0 when
 * none is left, and the old scheduler is spent.
 */
FP_INLINE int fp_move_one(struct fp_sched FP_MEM *s, struct fp_sched FP_MEM *old,
			  struct fp_changes FP_MEM *c)
{
	u32 handle = fp_move_out(s, old, c);

	if (!handle) {
		fp_close_emptied(old);
		return 0;
	}
	if (!fp_move_in(s, handle))
		fp_queue_packet(s, handle);
	return 1;
}

/* Everything in PIFO `q` goes; references back to their pool. */
FP_FUNC int fp_clear_queue(struct fp_sched FP_MEM *s FP_ARG, u32 q)
{
	u32 i;

	fp_loop(i, fp_items(&s->config)) {
		u32 item = fp_pifo_pop(fp_pool_of(s), q);
		u32 reference = item - fp_reference_item(s, 0);

		if (!item)
			break;
		if (reference && reference <= s->config.references)
			fp_free_reference(s, reference);
	}
	return 0;
}

/*
 * Empties a scheduler, whatever its tree: all handles are the port's again, untold, and counted as
 * FP_DROP_REMOVED. Returns how many waited. What nodes and flows owe stays.
 */
FP_FUNC u32 fp_clear(struct fp_sched FP_MEM *s FP_ARG)
{
	u32 waited = s->packets + s->delayed;
	u32 i;

	fp_loop(i, FP_DELAY_QUEUE + 2 * s->config.nodes)
		fp_clear_queue(s, i + 1);
	fp_loop(i, s->config.packets) {
		struct fp_slot FP_MEM *p = fp_slot_at(s, i + 1);

		if (!p->leaf)
			continue;
		fp_node_at(s, p->leaf)->stats.dropped++;
		fp_account_dropped(s, p->leaf, FP_DROP_REMOVED, p->meta.bytes);
		fp_free_handle(s, i + 1);
	}
	fp_loop(i, s->config.flows) {
		struct fp_fq FP_MEM *f = fp_fq_at(s, i + 1);

		FP_PUT(f->packets, 0);
		FP_PUT(f->bytes, 0);
		FP_PUT(f->source, 0);
		FP_PUT(f->destination, 0);
	}
	fp_loop(i, s->config.hosts)
		FP_PUT(fp_host_at(s, i + 1)->flows, 0);
	fp_loop(i, s->config.nodes) {
		FP_PUT(fp_node_at(s, i + 1)->stats.packets, 0);
		FP_PUT(fp_node_at(s, i + 1)->stats.bytes, 0);
	}
	s->stats.dropped[FP_DROP_REMOVED] += waited;
	s->packets = 0;
	s->delayed = 0;
	s->bytes_waiting = 0;
	return waited;
}

#endif /* FP_SCHED_MOVE_H */
