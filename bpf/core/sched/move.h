/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/move.h: hands the waiting packets of one scheduler over to another, so that a new plan
 * becomes active without loss.
 *
 *   old: [ trees, queues ] --fp_move_begin--> [ all packets in the shaper, by arrival ]
 *   new: fresh             <--fp_move_one---  the first of them, ranked as if it came now
 *
 * Packets keep their handle, metadata, arrival and waiting time. fp_changes translates the numbers
 * of classes and nodes. Sums and counts of nodes continue. What nodes and flows owe also continues
 * if the policy charges at dequeue: there a packet that is ranked twice pays once. If it charges at
 * enqueue (leaves over packets, over references, leaves with send times), the new tree starts
 * without it.
 *
 * Invariant: every waiting packet is in the new scheduler, or reported as dropped for a reason of
 * the new plan. The old one takes no more packets. Delayed packets keep their times, whatever the
 * impairments of the new plan are. These continue by seed where the same node had one. The rate
 * trace of the root continues if it is the same, and restarts otherwise. fp_clear() empties a
 * scheduler at once, for a back end whose link went down. Deliberately absent: moving a part now
 * and the rest later, which would reorder packets.
 */
#ifndef FP_SCHED_MOVE_H
#define FP_SCHED_MOVE_H

#include "sched.h"

/* Translation of numbers, followed by two tables of u32. Mirrored in sched/takeover.rs. */
struct fp_changes {
	u64 nodes_at; /* offset from here: for each node of the new tree, the root first, its old number; 0 none */
	u64 classes_at; /* the same: for each class of the old plan, from 0, its new number */
	u32 nodes;
	u32 classes; /* classes from here on keep their numbers */
};

/* Reasons of a refusal, which changes nothing. */
enum fp_move_refusal {
	FP_MOVE_NOT_FRESH = 1, /* the new scheduler was used already */
	FP_MOVE_HANDLES = 2,   /* it has fewer handles than the old one */
};

/* The old number of node `node` of the new tree; 0 none. */
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

/* True if the policy of a node charges at dequeue, so that its state may continue. */
FP_INLINE int fp_charges_on_dequeue(struct fp_node FP_MEM *n)
{
	return n->config.over == FP_OVER_CHILDREN ||
	       (n->config.over == FP_OVER_FLOWS && !(n->functions >> FP_SEND_TIME & 1));
}

/* True if a node continues with the state of the other. */
FP_INLINE int fp_can_carry_over(struct fp_node FP_MEM *n, struct fp_node FP_MEM *was)
{
	return n->config.policy == was->config.policy && n->config.over == was->config.over &&
	       fp_charges_on_dequeue(n);
}

FP_INLINE int fp_keeps_accounts(struct fp_sched FP_MEM *s, struct fp_sched FP_MEM *old)
{
	return s->config.accounts && old->config.accounts;
}

/* Adds the counts of a node that ends to the node above it, or to number 0. */
FP_FUNC int fp_pass_account_up(struct fp_sched FP_MEM *old FP_ARG, u32 id)
{
	struct fp_node FP_MEM *was = fp_node_at(old, id);
	struct fp_account FP_MEM *from = fp_account_at(old, id);
	struct fp_account FP_MEM *to = fp_account_at(old, was->config.parent);
	u32 i;

	to->arrived += from->arrived;
	to->arrived_bytes += from->arrived_bytes;
	to->dropped_bytes += from->dropped_bytes;
	fp_loop(i, 32)
		to->dropped[i & 31] += from->dropped[i & 31];
	fp_loop(i, FP_SOJOURN_BINS)
		to->sojourn[i % FP_SOJOURN_BINS] += from->sojourn[i % FP_SOJOURN_BINS];
	fp_node_at(old, was->config.parent)->stats.marked += was->stats.marked;
	return 0;
}

/*
 * The counts of nodes that no node of the new tree continues are those of the next node above that
 * continues: its packets of the past. O(nodes).
 */
FP_FUNC int fp_gather_accounts(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG,
			       struct fp_changes FP_MEM *c FP_ARG)
{
	u32 i;

	if (!fp_keeps_accounts(s, old))
		return 0;
	fp_loop(i, s->config.nodes)
		FP_PUT(fp_node_at(old, fp_old_node(old, c, i + 1))->continues, (u8)1);
	/* Parents come before their children. */
	fp_loop(i, old->config.nodes) {
		if (!fp_node_at(old, old->config.nodes - i)->continues)
			fp_pass_account_up(old, old->config.nodes - i);
	}
	return 0;
}

/* An inner node becomes a leaf: it sent what its account has, not what nodes below it sent. */
FP_FUNC int fp_begin_leaf_stats(struct fp_sched FP_MEM *s FP_ARG, u32 node)
{
	struct fp_node FP_MEM *n = fp_node_at(s, node);
	struct fp_account FP_MEM *a = fp_account_at(s, node);
	u64 dropped = 0;
	u32 i;

	fp_loop(i, 32)
		dropped += a->dropped[i & 31];
	n->stats.dropped = dropped;
	n->stats.sent = a->arrived - dropped;
	n->stats.sent_bytes = a->arrived_bytes - a->dropped_bytes;
	return 0;
}

/*
 * Continues an impairment from its predecessor: the one with its seed, or that of the first node. A
 * leaf that joins a shared impairment must not change the outcomes of the others. Order is kept for
 * all.
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

/* Continues node `node` of the new tree with the counts and debts of its predecessor. */
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
	if (fp_keeps_accounts(s, old))
		FP_COPY(fp_account_at(s, node), fp_account_at(old, id));
	if (n->config.impair && was->config.impair)
		fp_carry_impair(s, n->config.impair, old, was->config.impair);
	FP_COPY(&n->stats, &was->stats);
	FP_PUT(n->stats.packets, 0);
	FP_PUT(n->stats.bytes, 0);
	if (fp_keeps_accounts(s, old) && n->config.over <= FP_OVER_FLOWS &&
	    was->config.over > FP_OVER_FLOWS)
		fp_begin_leaf_stats(s, node);
	if (fp_can_carry_over(n, was)) {
		for (i = FP_PARAMS; i < FP_PARAMS + FP_STATE_WORDS; i++)
			FP_PUT(n->class[i], was->class[i]);
	}
	/* The clocks of a child belong to its parent and have no meaning under another one. */
	if (n->config.parent && fp_old_node(old, c, n->config.parent) == was->config.parent &&
	    fp_can_carry_over(above, fp_node_at(old, was->config.parent))) {
		for (i = 0; i < FP_STATE_WORDS; i++)
			FP_PUT(n->child[i], was->child[i]);
	}
	return 0;
}

/* True if both use the same rate trace. O(opportunities). */
FP_FUNC int fp_is_same_trace(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG)
{
	struct fp_impair_config FP_MEM *a = &fp_impair_at(s, s->config.service)->config;
	struct fp_impair_config FP_MEM *b = &fp_impair_at(old, old->config.service)->config;
	u32 i;

	/* A trace outside the words is invalid. */
	if (a->chances != b->chances || a->chances_period != b->chances_period ||
	    a->chances > s->config.words)
		return 0;
	fp_loop(i, a->chances) {
		if (fp_impair_word(s, a->chances_at, i) != fp_impair_word(old, b->chances_at, i))
			return 0;
	}
	return 1;
}

/* Continues the rate trace at its position, for any node that has the impairment. */
FP_FUNC int fp_carry_service(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, s->config.service);
	struct fp_impair FP_MEM *was = fp_impair_at(old, old->config.service);

	if (!s->config.service)
		return 0;
	/* Impairment 0 is unused and has sent nothing. */
	FP_PUT(im->state.lap, was->state.lap);
	FP_PUT(im->state.chances, was->state.chances);
	FP_PUT(im->state.credit, was->state.credit);
	FP_PUT(im->state.has_lap, was->state.has_lap);
	if (!old->config.service || !fp_is_same_trace(s, old))
		fp_restart_service(im);
	return 0;
}

/* A waiting packet leaves the account of its leaf. It is counted again when it is enqueued. */
FP_FUNC int fp_uncount_waiting(struct fp_sched FP_MEM *old FP_ARG, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(old, handle);
	struct fp_account FP_MEM *a = fp_account_at(old, p->leaf);

	if (old->config.accounts) {
		a->arrived--;
		a->arrived_bytes -= p->meta.bytes;
	}
	return 0;
}

/* Puts all waiting packets into the old shaper by arrival, and removes everything else from it. */
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
		fp_uncount_waiting(old, handle);
		fp_pifo_push_as(pool, FP_SHAPER, handle, p->order, FP_HEAP);
	}
	return 0;
}

FP_FUNC int fp_carry_nodes(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG,
			   struct fp_changes FP_MEM *c FP_ARG)
{
	u32 i;

	fp_gather_accounts(s, old, c);
	if (fp_keeps_accounts(s, old))
		FP_COPY(fp_account_at(s, 0), fp_account_at(old, 0));
	fp_loop(i, s->config.nodes)
		fp_carry_node(s, old, c, i + 1);
	return fp_carry_service(s, old);
}

/*
 * Starts the handover. Returns 0, or enum fp_move_refusal. Takes about 200 ns per node. Each packet
 * then takes 1 to 2 us, because all of its memory is cold.
 */
FP_FUNC int fp_move_begin(struct fp_sched FP_MEM *s FP_ARG, struct fp_sched FP_MEM *old FP_ARG,
			  struct fp_changes FP_MEM *c FP_ARG, u64 now)
{
	if (s->arrived || s->packets)
		return FP_MOVE_NOT_FRESH;
	if (s->config.packets < old->config.packets)
		return FP_MOVE_HANDLES;
	fp_sort_by_arrival(old);
	fp_carry_nodes(s, old, c);
	FP_COPY(&s->stats, &old->stats);
	s->arrived = old->arrived;
	s->now = now > old->now ? now : old->now;
	return 0;
}

/* Continues the flow of the packet, if the flow starts in the new tree with this packet. */
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

/* Removes the next packet from the old scheduler. Returns 0 if there is none. */
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
		fp_end_waiting(old, fp_node_at(old, from->leaf), from->meta.bytes);
	fp_free_handle(from);
	return handle;
}

/* True if the packet stays delayed. Otherwise it is to be queued. */
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

/* The old scheduler takes no more packets. */
FP_INLINE void fp_close_emptied(struct fp_sched FP_MEM *old)
{
	old->config.packets = 0;
}

/*
 * Moves one packet, which is reported only if it is dropped. Needs capacity for FP_OUTCOMES_PER_OP
 * outcomes. Returns 0 if none is left, and closes the old scheduler.
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

/* Empties PIFO `q` and frees its references. */
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
 * Empties a scheduler: all handles return to the back end without outcomes, counted as
 * FP_DROP_REMOVED. Returns the number of packets that waited. Debts of nodes and flows remain.
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
		fp_free_handle(p);
	}
	fp_loop(i, fp_flow_entries(&s->config)) {
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
		FP_PUT(fp_node_at(s, i + 1)->due_queued, (u8)0);
	}
	s->stats.dropped[FP_DROP_REMOVED] += waited;
	s->packets = 0;
	s->delayed = 0;
	s->bytes_waiting = 0;
	return waited;
}

#endif /* FP_SCHED_MOVE_H */
