/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/leaf.h: enqueue and dequeue at the leaves.
 *
 * A leaf over packets ranks each packet and uses flows only for their state. A leaf over flows
 * ranks flows, whose packets stay in order: a flow is ranked again when it gets or loses packets.
 */
#ifndef FP_SCHED_LEAF_H
#define FP_SCHED_LEAF_H

#include "delay_queue.h"
#include "tree.h"

/* The result of one attempt to dequeue from a leaf. */
enum fp_taken {
	FP_TAKEN_NOTHING = 0, /* an entry was ranked again, or was empty: try again */
	FP_TAKEN_SENT = 1,    /* s->handle */
	FP_TAKEN_DROPPED = 2,
	FP_TAKEN_TOO_OLD = 3,
};

/* The leaf of a packet: by its class, and by DSCP where a node is split; 0 none. */
FP_FUNC u32 fp_find_leaf(struct fp_sched FP_MEM *s FP_ARG, u32 class_id, u32 dscp)
{
	u32 entry = class_id < s->config.classes ? class_id : 0;
	u32 node = *FP_AT(u32, s, s->classes_at + 4ull * entry);
	u32 level;

	fp_loop(level, FP_SCHED_LEVELS) {
		struct fp_node FP_MEM *n = fp_node_at(s, node);
		u32 place;

		if (!n->config.split)
			break;
		place = n->config.split - 1 + (dscp & 63);
		node = place < s->config.splits ? *FP_AT(u32, s, s->splits_at + 4ull * place) : 0;
	}
	if (fp_node_at(s, node)->config.over > FP_OVER_FLOWS || node > s->config.nodes)
		return 0;
	return node;
}

/* True if `bytes` take longer than `ns` at the lowest ceiling of the leaf and the nodes above. */
FP_FUNC int fp_takes_longer_at(struct fp_sched FP_MEM *s FP_ARG, u32 leaf, u32 bytes, u64 ns)
{
	u64 slowest = 0;
	u32 node = leaf;
	u32 level;

	fp_loop(level, FP_SCHED_LEVELS) {
		struct fp_node FP_MEM *n = fp_node_at(s, node);

		if (!node)
			break;
		if (n->config.ceil > slowest)
			slowest = n->config.ceil;
		node = n->config.parent;
	}
	return slowest && bytes > (ns << FP_RATE_SHIFT) / slowest;
}

/*
 * True if the packet takes longer than `ns` at the lowest ceiling of its leaf and the nodes above.
 * A back end that can send a GSO packet in segments does so then: whole, it would hold up others.
 */
FP_FUNC int fp_takes_longer(struct fp_sched FP_MEM *s FP_ARG, const struct fp_meta FP_MEM *m FP_ARG,
			    u64 ns)
{
	return fp_takes_longer_at(s, fp_find_leaf(s, m->class_id, m->dscp), m->bytes, ns);
}

/* True if hosts count the waiting flows of a leaf. In a leaf over packets, no flow waits. */
FP_INLINE int fp_counts_hosts(struct fp_node FP_MEM *leaf)
{
	return (leaf->config.wants & WANTS_HOSTS) && leaf->config.over == FP_OVER_FLOWS;
}

/* A flow has no packets and no entry: its hosts have one waiting flow less. */
FP_INLINE void fp_flow_becomes_idle(struct fp_sched FP_MEM *s, u32 leaf, u32 flow)
{
	if (fp_counts_hosts(fp_node_at(s, leaf)))
		fp_uncount_hosts(s, flow);
}

/* Counts a packet of a leaf over packets in its flow, which has no queue there. */
FP_INLINE void fp_count_in_flow(struct fp_sched FP_MEM *s, struct fp_slot FP_MEM *p, int comes)
{
	struct fp_fq FP_MEM *f;

	if (!p->flow)
		return;
	f = fp_fq_at(s, p->flow);
	if (comes) {
		f->packets++;
		f->bytes += p->meta.bytes;
	} else {
		f->packets--;
		f->bytes -= p->meta.bytes;
	}
}

/* Drops a packet whose entry went to another packet. */
FP_FUNC int fp_drop_pushed_out(struct fp_sched FP_MEM *s FP_ARG, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	struct fp_node FP_MEM *n = fp_node_at(s, p->leaf);
	u32 new = s->handle;

	fp_count_in_flow(s, p, 0);
	fp_end_waiting(s, n, p->meta.bytes);
	if (fp_policy_has(n, FP_ON_DROP)) {
		fp_prepare_call(s, p->leaf, n, handle);
		fp_prepare_flow_call(s, n, p->flow, fp_fq_at(s, p->flow));
		FP_PUT(s->call.reason, FP_DROP_PUSHED_OUT);
		fp_call_policy(s, n, FP_ON_DROP);
	}
	fp_drop_packet(s, handle, FP_DROP_PUSHED_OUT);
	s->handle = new;
	return 0;
}

/* Pushes a ranked packet into the queue of its leaf. Returns 0, or the reason of a refusal. */
FP_INLINE int fp_push_packet(struct fp_sched FP_MEM *s, u32 handle, struct fp_slot FP_MEM *p)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	int refused = fp_pifo_push(pool, fp_queue_of(p->leaf), handle, p->rank);

	if (!refused && pool->pushed_out)
		fp_drop_pushed_out(s, pool->pushed_out);
	return refused;
}

/* Enqueue at a leaf over packets, with s->call prepared. Returns 0, or the reason of a drop. */
FP_FUNC int fp_enqueue_packet(struct fp_sched FP_MEM *s FP_ARG, u32 handle,
			      struct fp_slot FP_MEM *p FP_ARG, struct fp_node FP_MEM *n FP_ARG)
{
	u64 at;
	int refused;

	p->rank = fp_call_policy_or(s, n, FP_RANK_ENQUEUE, 0);
	if (s->call.verdict & DROP)
		return FP_DROP_REFUSED;
	at = fp_send_time(s, n);
	if (at > s->now) {
		if (s->config.horizon && at - s->now > s->config.horizon)
			return FP_DROP_HORIZON;
		refused = fp_pifo_push(fp_pool_of(s), FP_SHAPER, handle, at);
	} else {
		refused = fp_push_packet(s, handle, p);
	}
	if (refused)
		return refused;
	fp_count_in_flow(s, p, 1);
	fp_begin_waiting(s, n, p->meta.bytes);
	s->at = at > s->now ? at : s->now;
	return 0;
}

/* Gives flow `f` of leaf `n` its first entry, or a new rank. */
FP_FUNC int fp_rank_flow(struct fp_sched FP_MEM *s FP_ARG, struct fp_node FP_MEM *n FP_ARG,
			 u32 flow, struct fp_fq FP_MEM *f FP_ARG, u64 rank)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 item = fp_flow_item(s, flow);
	u32 in = fp_item_at(pool, item)->pifo;
	u64 at;

	if (in == FP_SHAPER) {
		if (rank != KEEP)
			f->rank = rank;
		return 0;
	}
	if (in) {
		if (rank != KEEP && rank != fp_item_at(pool, item)->rank)
			fp_pifo_move(pool, item, rank);
		return 0;
	}
	f->rank = rank;
	at = fp_send_time(s, n);
	if (at > s->now)
		return fp_pifo_push(pool, FP_SHAPER, item, at);
	return fp_pifo_push(pool, fp_queue_of(f->leaf), item, rank);
}

/* Enqueue at a leaf over flows, with s->call prepared. Returns 0, or the reason of a drop. */
FP_FUNC int fp_enqueue_in_flow(struct fp_sched FP_MEM *s FP_ARG, u32 handle,
			       struct fp_slot FP_MEM *p FP_ARG, struct fp_node FP_MEM *n FP_ARG,
			       struct fp_fq FP_MEM *f FP_ARG)
{
	u32 flow = p->flow;
	u64 rank;
	int refused;

	rank = fp_call_policy_or(s, n, FP_RANK_ENQUEUE, 0);
	if (s->call.verdict & DROP)
		return FP_DROP_REFUSED;
	p->rank = rank;
	refused = fp_rank_flow(s, n, flow, f, rank);
	if (refused)
		return refused;
	fp_append(s, f, handle, p);
	if (s->config.overflow == FP_OVERFLOW_FATTEST)
		fp_update_fat_band(s, flow);
	fp_begin_waiting(s, n, p->meta.bytes);
	/* It waits for the time of its flow, which is not a time of the packet. */
	s->at = fp_item_at(fp_pool_of(s), fp_flow_item(s, flow))->pifo == FP_SHAPER ? FP_NEVER
										    : s->now;
	return 0;
}

/*
 * True if the packet whose call is prepared waited too long: its policy learns of the drop, and does
 * not charge it. At a low rate, a packet may wait for a few of its length.
 */
FP_FUNC int fp_give_up(struct fp_sched FP_MEM *s FP_ARG, u32 leaf, u32 handle)
{
	u64 sojourn = s->call.sojourn;

	/* Encoded rates are shifted. */
	if (sojourn > 1ull << 40)
		sojourn = 1ull << 40;
	if (fp_takes_longer_at(s, leaf, fp_slot_at(s, handle)->meta.bytes,
			       sojourn / FP_OLD_PACKETS))
		return 0;
	FP_PUT(s->call.reason, FP_DROP_TOO_OLD);
	fp_call_policy_or(s, fp_node_at(s, leaf), FP_ON_DROP, 0);
	FP_PUT(s->call.verdict, DROP);
	return 1;
}

FP_INLINE int fp_give_up_if_old(struct fp_sched FP_MEM *s, u32 leaf, u32 handle)
{
	if (!s->config.max_sojourn || s->call.sojourn <= s->config.max_sojourn)
		return 0;
	return fp_give_up(s, leaf, handle);
}

/* Dequeue from a leaf over packets: the first packet leaves, or is dropped. */
FP_FUNC int fp_dequeue_packet(struct fp_sched FP_MEM *s FP_ARG, u32 leaf)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 handle = fp_pifo_peek(pool, fp_queue_of(leaf));
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	struct fp_node FP_MEM *n = fp_node_at(s, leaf);
	int old;

	/* Corrupted memory: the entry is not a packet of this leaf. */
	if (!handle || handle > s->config.packets || p->leaf != leaf) {
		fp_pifo_pop(pool, fp_queue_of(leaf));
		s->stats.dropped[FP_DROP_BROKEN]++;
		return FP_TAKEN_NOTHING;
	}
	fp_prepare_call(s, leaf, n, handle);
	fp_prepare_flow_call(s, n, p->flow, fp_fq_at(s, p->flow));
	FP_PUT(s->call.sojourn, s->now - p->enqueued);
	s->call.rank = fp_item_at(pool, handle)->rank;
	old = fp_give_up_if_old(s, leaf, handle);
	if (!old)
		fp_call_policy_or(s, n, FP_RANK_DEQUEUE, 0);
	fp_pifo_pop(pool, fp_queue_of(leaf));
	fp_count_in_flow(s, p, 0);
	fp_end_waiting(s, n, p->meta.bytes);
	if (old)
		return FP_TAKEN_TOO_OLD;
	return s->call.verdict & DROP ? FP_TAKEN_DROPPED : FP_TAKEN_SENT;
}

/*
 * After a packet of the flow left or was dropped: moves its entry, passes it to the shaper, or
 * removes it.
 */
FP_INLINE int fp_rerank_flow(struct fp_sched FP_MEM *s, u32 leaf, struct fp_node FP_MEM *n,
			     u32 flow, struct fp_fq FP_MEM *f, u64 rank)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 item = fp_flow_item(s, flow);
	u32 verdict = s->call.verdict;

	if (s->config.overflow == FP_OVERFLOW_FATTEST)
		fp_update_fat_band(s, flow);
	if (!f->packets) {
		if ((verdict & LINGER) && rank != KEEP)
			fp_pifo_move(pool, item, rank);
		if (!(verdict & LINGER) && !(n->config.wants & WANTS_EMPTY)) {
			fp_pifo_remove(pool, item);
			fp_flow_becomes_idle(s, leaf, flow);
		}
		return 0;
	}
	if (verdict & DROP)
		return 0;
	if (fp_policy_has(n, FP_SEND_TIME)) {
		u64 at;

		fp_prepare_call(s, leaf, n, f->head);
		fp_prepare_flow_call(s, n, flow, f);
		at = fp_call_policy(s, n, FP_SEND_TIME);
		s->call.verdict = verdict;
		if (at > s->now) {
			f->rank = rank == KEEP ? fp_item_at(pool, item)->rank : rank;
			fp_pifo_remove(pool, item);
			return fp_pifo_push(pool, FP_SHAPER, item, at);
		}
	}
	if (rank != KEEP)
		fp_pifo_move(pool, item, rank);
	return 0;
}

/* The first flow of a leaf is empty: removes it, or its policy keeps it at a new rank. */
FP_FUNC int fp_handle_empty_flow(struct fp_sched FP_MEM *s FP_ARG, u32 leaf, u32 flow)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	struct fp_node FP_MEM *n = fp_node_at(s, leaf);
	u32 item = fp_flow_item(s, flow);
	u64 rank;

	if (n->config.wants & WANTS_EMPTY) {
		fp_prepare_call(s, leaf, n, 0);
		fp_prepare_flow_call(s, n, flow, fp_fq_at(s, flow));
		s->call.rank = fp_item_at(pool, item)->rank;
		rank = fp_call_policy_or(s, n, FP_RANK_DEQUEUE, KEEP);
		if ((s->call.verdict & LINGER) && rank != KEEP) {
			s->stats.put_off++;
			return fp_pifo_move(pool, item, rank);
		}
	}
	fp_pifo_remove(pool, item);
	fp_flow_becomes_idle(s, leaf, flow);
	return 0;
}

/*
 * Dequeue from a leaf over flows: the first packet of the first flow leaves, is dropped, or waits.
 */
FP_FUNC int fp_dequeue_from_flow(struct fp_sched FP_MEM *s FP_ARG, u32 leaf)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	struct fp_pifo FP_MEM *queue = fp_pifo_at(pool, fp_queue_of(leaf));
	u32 item = fp_pifo_first(pool, queue, fp_queue_of(leaf));
	u32 flow = item - s->config.packets;
	struct fp_fq FP_MEM *f = fp_fq_at(s, flow);
	struct fp_node FP_MEM *n = fp_node_at(s, leaf);
	u32 handle = f->head;
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	/* Not in corrupted memory. */
	int is_flow =
		item > s->config.packets && flow <= fp_flow_entries(&s->config) && f->leaf == leaf;
	u64 rank;
	int old;

	if (is_flow && !f->packets) {
		fp_handle_empty_flow(s, leaf, flow);
		return FP_TAKEN_NOTHING;
	}
	if (!is_flow || p->flow != flow) {
		fp_pifo_pop(pool, fp_queue_of(leaf));
		s->stats.dropped[FP_DROP_BROKEN]++;
		return FP_TAKEN_NOTHING;
	}
	fp_pifo_turn(pool, queue);
	fp_prepare_call(s, leaf, n, handle);
	fp_prepare_flow_call(s, n, flow, f);
	FP_PUT(s->call.sojourn, s->now - p->enqueued);
	s->call.rank = fp_item_at(pool, item)->rank;
	if (p->next) {
		struct fp_slot FP_MEM *next = fp_slot_at(s, p->next);

		FP_PUT(s->call.next_hint, next->meta.hint);
		FP_PUT(s->call.next_bytes, next->meta.bytes);
	}
	old = fp_give_up_if_old(s, leaf, handle);
	rank = old ? KEEP : fp_call_policy_or(s, n, FP_RANK_DEQUEUE, KEEP);
	if ((s->call.verdict & LATER) && !(s->call.verdict & DROP)) {
		fp_pifo_move(pool, item, rank);
		s->stats.put_off++;
		return FP_TAKEN_NOTHING;
	}
	fp_unlink(s, f, p);
	fp_end_waiting(s, n, p->meta.bytes);
	fp_rerank_flow(s, leaf, n, flow, f, rank);
	s->handle = handle;
	if (old)
		return FP_TAKEN_TOO_OLD;
	return s->call.verdict & DROP ? FP_TAKEN_DROPPED : FP_TAKEN_SENT;
}

/*
 * Removes a waiting packet from any queue, but not below references. Returns 0 or -1. Call
 * fp_deactivate_if_empty() next.
 */
FP_INLINE int fp_remove_packet(struct fp_sched FP_MEM *s, u32 handle, u32 reason)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	u32 leaf = p->leaf;
	struct fp_node FP_MEM *n = fp_node_at(s, leaf);
	u32 flow = p->flow;
	struct fp_fq FP_MEM *f = fp_fq_at(s, flow);

	if (!leaf || fp_node_at(s, n->config.parent)->config.over == FP_OVER_REFERENCES)
		return -1;
	fp_prepare_call(s, leaf, n, handle);
	fp_prepare_flow_call(s, n, flow, f);
	FP_PUT(s->call.reason, reason);
	fp_call_policy_or(s, n, FP_ON_DROP, 0);
	if (n->config.over == FP_OVER_PACKETS) {
		fp_pifo_remove(pool, handle);
		fp_count_in_flow(s, p, 0);
	} else {
		fp_unlink(s, f, p);
		if (s->config.overflow == FP_OVERFLOW_FATTEST)
			fp_update_fat_band(s, flow);
		if (!f->packets && !(n->config.wants & WANTS_EMPTY)) {
			fp_pifo_remove(pool, fp_flow_item(s, flow));
			fp_flow_becomes_idle(s, leaf, flow);
		}
	}
	fp_end_waiting(s, n, p->meta.bytes);
	fp_drop_packet(s, handle, reason);
	return 0;
}

/* True if ACK `m` reports all SACK blocks of ACK `of` as received: by its number, or by a block. */
FP_FUNC int fp_covers_sacks(const struct fp_meta FP_MEM *m FP_ARG,
			    const struct fp_meta FP_MEM *of FP_ARG)
{
	u32 i, j;

	fp_loop(i, FP_SACK_BLOCKS) {
		u64 block = of->sack[i & (FP_SACK_BLOCKS - 1)];
		int covered = !block || fp_serial(m->ack, (u32)block) >= 0;

		fp_loop(j, FP_SACK_BLOCKS) {
			u64 in = m->sack[j & (FP_SACK_BLOCKS - 1)];

			covered |= in && fp_serial((u32)(block >> 32), (u32)(in >> 32)) >= 0 &&
				   fp_serial((u32)block, (u32)in) <= 0;
		}
		if (!covered)
			return 0;
	}
	return 1;
}

/*
 * True if two ACKs are of the same connection and direction, with the same flags, and the later one
 * acknowledges at least as much.
 */
FP_INLINE int fp_follows_ack(const struct fp_meta FP_MEM *later,
			     const struct fp_meta FP_MEM *earlier)
{
	return later->ack_flags == earlier->ack_flags && fp_serial(later->ack, earlier->ack) >= 0 &&
	       later->flow_hash == earlier->flow_hash &&
	       later->source_port == earlier->source_port &&
	       later->destination_port == earlier->destination_port &&
	       fp_load64_raw(later->source) == fp_load64_raw(earlier->source) &&
	       fp_load64_raw(later->source + 8) == fp_load64_raw(earlier->source + 8) &&
	       fp_load64_raw(later->destination) == fp_load64_raw(earlier->destination) &&
	       fp_load64_raw(later->destination + 8) == fp_load64_raw(earlier->destination + 8);
}

/*
 * True if an ACK has all that an earlier one has, and more: its number is higher, or it has SACK blocks
 * that the earlier one lacks. Its timestamp is not older then. A duplicate replaces none: without SACK,
 * three of them mean a loss.
 */
FP_INLINE int fp_replaces_ack(const struct fp_meta FP_MEM *later,
			      const struct fp_meta FP_MEM *earlier)
{
	return fp_follows_ack(later, earlier) && fp_covers_sacks(later, earlier) &&
	       (later->ack != earlier->ack || !fp_covers_sacks(earlier, later));
}

/*
 * Drops the packet ahead of an ACK in the queue of its flow, if the ACK replaces it. The flow has a packet
 * all the time, so it keeps its turn.
 */
FP_FUNC int fp_filter_ack(struct fp_sched FP_MEM *s FP_ARG, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	u32 ahead = p->prev;
	u64 at = s->at;

	if (!ahead || !fp_replaces_ack(&p->meta, &fp_slot_at(s, ahead)->meta))
		return 0;
	fp_remove_packet(s, ahead, FP_DROP_ACK_FILTERED);
	s->at = at;
	return 0;
}

#endif /* FP_SCHED_LEAF_H */
