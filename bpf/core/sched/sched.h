/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/sched.h: a tree of policies over queues, one packet in, one packet out.
 *
 *                       root: children ranked by its policy
 *                      /    \
 *                   site     site            one shaper: entries that must
 *                  /    \        \           wait for their time
 *               leaf    leaf     leaf
 *             flows     flows    packets
 *
 * Enqueue: the packet finds its leaf and is ranked there with its flow. Its leaf and the nodes
 * above enter the queues of their parents unless they waited already. Dequeue: from the root down
 * by the first entry of each queue to a packet that leaves. Then up again: each policy charges the
 * child that sent. A packet dropped at dequeue (CoDel) costs no turn: the next one is tried.
 *
 * A leaf may have an impairment (delay_queue.h), and the root a trace of its rate (service.h).
 *
 * PIFO trees: Sivaraman and others, SIGCOMM 2016. Ranking of flows at enqueue and dequeue, and one
 * shaper for all: Eiffel, NSDI 2019. Floors before shares: hClock, EuroSys 2013.
 *
 * Invariant: every handle comes back once, as sent or dropped. Deliberately absent: locks and
 * clocks. The back end has one caller at a time and passes `now`.
 */
#ifndef FP_SCHED_H
#define FP_SCHED_H

#include "leaf.h"
#include "service.h"

/* Maximum of entries that the shaper returns in one operation. The rest follow in the next. */
#define FP_WAKE_BATCH 4096

FP_INLINE int fp_is_full(struct fp_sched FP_MEM *s, u32 bytes)
{
	return s->packets >= s->config.limit_packets ||
	       (s->config.limit_bytes && s->bytes_waiting + bytes > s->config.limit_bytes);
}

/*
 * Drops from the head of the fattest flow of a full scheduler: half of its bytes, at most
 * FP_FAT_BATCH packets.
 */
FP_FUNC int fp_drop_from_fattest(struct fp_sched FP_MEM *s FP_ARG)
{
	u32 item = fp_pifo_peek(fp_pool_of(s), FP_FAT);
	u32 flow = item - fp_fat_item(s, 0);
	struct fp_fq FP_MEM *f = fp_fq_at(s, flow);
	u32 goal = f->bytes / 2;
	u32 leaf = f->leaf;
	u32 i;

	if (!item || flow > fp_flow_entries(&s->config))
		return -1;
	fp_loop(i, FP_FAT_BATCH) {
		if (!f->packets || fp_remove_packet(s, f->head, FP_DROP_FATTEST) ||
		    f->bytes <= goal)
			break;
	}
	fp_deactivate_if_empty(s, leaf);
	return 0;
}

/* Finds the flow of a packet and calls its policy. Returns the reason of a drop, or 0. */
FP_INLINE int fp_admit(struct fp_sched FP_MEM *s, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	u32 leaf = p->leaf;
	struct fp_node FP_MEM *n = fp_node_at(s, leaf);
	struct fp_item FP_MEM *it;
	struct fp_fq FP_MEM *f;
	u32 flow = 0;
	int refused;

	if (n->config.supports_flows)
		flow = fp_find_flow(s, leaf, p->meta.flow_hash);
	FP_PUT(p->flow, flow);
	if (n->config.over == FP_OVER_FLOWS && !flow)
		return FP_DROP_NO_FLOW;
	if ((n->config.limit_packets && n->stats.packets >= n->config.limit_packets) ||
	    (n->config.limit_bytes && n->stats.bytes + p->meta.bytes > n->config.limit_bytes))
		return FP_DROP_NODE_LIMIT;
	f = fp_fq_at(s, flow);
	if (fp_counts_hosts(n) && fp_is_idle_flow(s, f, flow))
		fp_count_hosts(s, flow, handle);
	fp_prepare_call(s, leaf, n, handle);
	fp_prepare_flow_call(s, n, flow, f);
	FP_PUT(s->call.packets, s->call.packets + 1);
	FP_PUT(s->call.bytes, s->call.bytes + p->meta.bytes);
	if (flow) {
		it = fp_item_at(fp_pool_of(s), fp_flow_item(s, flow));
		FP_PUT(s->call.backlogged, it->pifo ? 1 : 0);
		s->call.rank = it->rank;
	}
	if (n->config.undo)
		fp_save_step(s, 0, leaf, n);
	refused = n->config.over == FP_OVER_PACKETS ? fp_enqueue_packet(s, handle, p, n)
						    : fp_enqueue_in_flow(s, handle, p, n, f);
	if (!refused && s->at <= s->now) {
		refused = fp_add_references(s, leaf, leaf, handle, 1);
		if (refused) {
			fp_pifo_remove(fp_pool_of(s), handle);
			fp_count_in_flow(s, p, 0);
			fp_end_waiting(s, n, p->meta.bytes);
		}
	}
	if (!refused && s->config.ack_filter && p->meta.ack_flags &&
	    n->config.over == FP_OVER_FLOWS)
		fp_filter_ack(s, handle);
	if (refused && refused != FP_DROP_REFUSED && n->config.undo)
		fp_undo_step(s, 0);
	if (refused && fp_counts_hosts(n) && fp_is_idle(s, flow))
		fp_flow_becomes_idle(s, leaf, flow);
	return refused;
}

/* Enqueues a packet whose meta, leaf, order and time are set. Returns 1, or 0 if it was dropped. */
FP_FUNC int fp_queue_packet(struct fp_sched FP_MEM *s FP_ARG, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	int refused;

	FP_PUT(p->rank, 0ull);
	FP_PUT(p->flow, 0);
	if (!p->leaf)
		return fp_drop_packet(s, handle, FP_DROP_NO_LEAF);
	if (fp_is_full(s, p->meta.bytes)) {
		if (s->config.overflow != FP_OVERFLOW_FATTEST || fp_drop_from_fattest(s) ||
		    fp_is_full(s, p->meta.bytes))
			return fp_drop_packet(s, handle, FP_DROP_LIMIT);
	}
	refused = fp_admit(s, handle);
	if (refused)
		return fp_drop_packet(s, handle, (u32)refused);
	return 1;
}

/*
 * Takes the packet of an operation. Returns its handle, 0 if it is invalid, and sets s->impair of
 * its leaf.
 */
FP_FUNC u32 fp_receive_packet(struct fp_sched FP_MEM *s FP_ARG, struct fp_op FP_MEM *op FP_ARG)
{
	u32 handle = op->handle;
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);

	s->stats.enqueued++;
	s->arrived++;
	if (!handle || handle > s->config.packets || p->leaf) {
		s->stats.dropped[FP_DROP_BAD_HANDLE]++;
		fp_account_enqueued(s, 0, op->meta.bytes);
		fp_account_dropped(s, 0, FP_DROP_BAD_HANDLE, op->meta.bytes);
		fp_report_outcome(s, FP_DROPPED, 0, FP_DROP_BAD_HANDLE, 0);
		return 0;
	}
	FP_COPY(&p->meta, &op->meta);
	FP_PUT(p->enqueued, s->now);
	FP_PUT(p->order, s->arrived);
	FP_PUT(p->rank, 0ull);
	FP_PUT(p->flow, 0);
	FP_PUT(p->bit, 0);
	FP_PUT(p->impaired, 0);
	FP_PUT(p->leaf, fp_find_leaf(s, p->meta.class_id, p->meta.dscp));
	s->impair = fp_node_at(s, p->leaf)->config.impair;
	if (!s->impair)
		fp_account_enqueued(s, p->leaf, p->meta.bytes);
	return handle;
}

FP_FUNC int fp_report_queued(struct fp_sched FP_MEM *s FP_ARG, u32 handle)
{
	s->stats.queued++;
	fp_report_outcome(s, FP_QUEUED, handle, 0, s->at);
	return 0;
}

/* Enqueues the packet of an operation: it is lost, delayed, or queued. */
FP_FUNC int fp_enqueue(struct fp_sched FP_MEM *s FP_ARG, struct fp_op FP_MEM *op FP_ARG)
{
	u32 handle = fp_receive_packet(s, op);

	if (!handle || (s->impair && fp_impair_packet(s, s->impair, handle)))
		return 0;
	if ((s->impair && fp_enter_delay_queue(s, s->impair, handle)) || fp_queue_packet(s, handle))
		fp_report_queued(s, handle);
	return 0;
}

/* Applies the time that passed: the root may send more, and due packets are released. */
FP_FUNC int fp_release_delayed(struct fp_sched FP_MEM *s FP_ARG)
{
	u32 i;

	if (s->config.service)
		fp_update_service(s);
	fp_loop(i, FP_DELAY_BATCH) {
		if (!fp_pop_delayed(s))
			break;
		fp_queue_packet(s, s->handle);
	}
	return 0;
}

/* Returns a due entry of the shaper to its queue. */
FP_FUNC int fp_wake_item(struct fp_sched FP_MEM *s FP_ARG, u32 item)
{
	u32 flow = item - fp_flow_item(s, 0);
	u32 node = item - fp_node_item(s, 0);
	u32 reference = item - fp_reference_item(s, 0);
	struct fp_reference FP_MEM *ref = fp_reference_at(s, reference);
	struct fp_fq FP_MEM *f = fp_fq_at(s, flow);
	int refused;

	s->stats.woken++;
	if (item <= s->config.packets) {
		struct fp_slot FP_MEM *p = fp_slot_at(s, item);

		refused = fp_push_packet(s, item, p);
		if (!refused)
			refused = fp_add_references(s, p->leaf, p->leaf, item, 1);
		if (refused) {
			fp_pifo_remove(fp_pool_of(s), item);
			fp_count_in_flow(s, p, 0);
			fp_end_waiting(s, fp_node_at(s, p->leaf), p->meta.bytes);
			fp_drop_packet(s, item, (u32)refused);
		}
	} else if (flow <= fp_flow_entries(&s->config)) {
		if (!f->packets) {
			fp_flow_becomes_idle(s, f->leaf, flow);
			return 0;
		}
		fp_pifo_push(fp_pool_of(s), fp_queue_of(f->leaf), item, f->rank);
		fp_activate(s, f->leaf, f->leaf, f->head);
	} else if (node <= s->config.nodes) {
		struct fp_node FP_MEM *n = fp_node_at(s, node);

		if (!fp_waiting_at(s, node, n)) {
			if (fp_unlikely(s->limits_at))
				fp_return_grants(s, node);
			return 0;
		}
		fp_push_child(s, node, n, fp_node_at(s, n->config.parent));
		/*
		 * The leaf of the entry is unknown here, so its ancestors are called for packet 0.
		 */
		fp_activate(s, n->config.parent, 0, 0);
	} else if (reference <= s->config.references) {
		u32 parent = fp_node_at(s, ref->child)->config.parent;

		if (fp_pifo_push(fp_pool_of(s), fp_queue_of(parent), item, ref->rank))
			s->stats.dropped[FP_DROP_BROKEN]++;
		else
			fp_add_references(s, parent, ref->leaf,
					  fp_pifo_peek(fp_pool_of(s), fp_queue_of(ref->leaf)), 1);
	}
	return 0;
}

/* Returns the first due entry of the shaper to its queue. Returns 0 if there is none. */
FP_INLINE int fp_wake_one(struct fp_sched FP_MEM *s)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 item = fp_pifo_peek_as(pool, FP_SHAPER, FP_HEAP);

	/* Reserves capacity for the outcomes of the operation itself. */
	if (!item || fp_item_at(pool, item)->rank > s->now ||
	    s->outcomes + FP_OUTCOMES_PER_OP + 2 > s->outcomes_most)
		return 0;
	if (fp_pifo_pop(pool, FP_SHAPER) != item)
		return 0;
	fp_wake_item(s, item);
	return 1;
}

/* Returns all due entries of the shaper to their queues. */
FP_FUNC int fp_wake(struct fp_sched FP_MEM *s FP_ARG)
{
	u32 i;

	fp_loop(i, FP_WAKE_BATCH) {
		if (!fp_wake_one(s))
			break;
	}
	return 0;
}

/* The most overdue child of node `node`, 0 if none is due. */
FP_INLINE u32 fp_first_due(struct fp_sched FP_MEM *s, struct fp_pool FP_MEM *pool, u32 node)
{
	u32 q = fp_due_queue_of(s, node);
	u32 due = fp_pifo_first(pool, fp_pifo_at(pool, q), q);

	if (!due || fp_item_at(pool, due)->rank > s->now)
		return 0;
	/* Corrupted memory: its child is not in the queue of the node. */
	if (fp_item_at(pool, due - fp_due_item(s, 0) + fp_node_item(s, 0))->pifo !=
	    fp_queue_of(node)) {
		fp_pifo_remove(pool, due);
		s->stats.dropped[FP_DROP_BROKEN]++;
		return 0;
	}
	return due - fp_due_item(s, 0);
}

/* Follows the first entries from the root to a leaf. Returns 0 if a queue on the path is empty. */
FP_FUNC u32 fp_choose_leaf(struct fp_sched FP_MEM *s FP_ARG)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 node = 1;
	u32 level;

	s->depth = 0;
	fp_loop(level, FP_SCHED_LEVELS) {
		struct fp_node FP_MEM *n = fp_node_at(s, node);
		struct fp_pifo FP_MEM *p = fp_pifo_at(pool, fp_queue_of(node));
		u32 place = level & (FP_SCHED_LEVELS - 1);
		u32 parent = node;
		u32 due = 0;
		u32 item;

		FP_PUT(s->path[place], node);
		s->depth = level;
		if (n->config.over <= FP_OVER_FLOWS)
			return node;
		if (n->config.wants & WANTS_ELIGIBLE)
			fp_make_eligible(s, node);
		if (n->config.wants & WANTS_DUE)
			due = fp_first_due(s, pool, node);
		item = due ? fp_node_item(s, due) : fp_pifo_first(pool, p, fp_queue_of(node));
		FP_PUT(s->entry[place], item);
		FP_PUT(s->by_floor[place], due ? 1 : 0);
		if (!item)
			return 0;
		fp_pifo_turn(pool, p);
		node = item - fp_node_item(s, 0);
		if (n->config.over == FP_OVER_REFERENCES)
			node = fp_reference_at(s, item - fp_reference_item(s, 0))->child;
		/* Corrupted memory: not a child of this node. */
		if (fp_node_at(s, node)->config.parent != parent || node > s->config.nodes) {
			fp_pifo_remove(pool, item);
			s->stats.dropped[FP_DROP_BROKEN]++;
			return 0;
		}
	}
	return 0;
}

/* True if no child of node `parent` is queued there but `child`. */
FP_INLINE int fp_is_alone(struct fp_sched FP_MEM *s, u32 child, u32 parent,
			  struct fp_node FP_MEM *above)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 count = fp_pifo_at(pool, fp_queue_of(parent))->count;

	if (above->config.wants & WANTS_ELIGIBLE)
		count += fp_pifo_at(pool, fp_due_queue_of(s, parent))->count;
	return count == (u32)fp_is_child_queued(s, child, parent);
}

/*
 * s->has_packets: 0 if nothing waits below the child on the path but flows whose packets have left. Goes
 * up to the node at `place` of the path.
 */
FP_RARE int fp_note_packets(struct fp_sched FP_MEM *s FP_ARG, u32 place)
{
	u32 parent = s->path[place & (FP_SCHED_LEVELS - 1)];
	u32 child = s->path[(place + 1) & (FP_SCHED_LEVELS - 1)];
	struct fp_node FP_MEM *above = fp_node_at(s, parent);

	if (above->config.over != FP_OVER_CHILDREN || !fp_is_alone(s, child, parent, above))
		FP_PUT(s->has_packets, 1);
	return 0;
}

/* Charges the shared limits of the child on the path below `place`: see fp_pay_limits(). */
FP_RARE u64 fp_pay_for_child(struct fp_sched FP_MEM *s FP_ARG, u32 place, u32 waits)
{
	u32 child = s->path[(place + 1) & (FP_SCHED_LEVELS - 1)];

	/* A grant for a flow without packets would end unused. */
	return fp_pay_limits(s, child, fp_slot_at(s, s->handle)->meta.bytes,
			     waits && s->has_packets ? FP_LIMIT_SOME : 0,
			     s->by_floor[place & (FP_SCHED_LEVELS - 1)]);
}

/*
 * Charges node `n`, the child on the path below node `above`, for s->handle by the policy of that
 * node, and ranks it again. fp_prepare_calls_above() precedes. Returns 0 if the child is empty.
 */
FP_FUNC int fp_charge_child(struct fp_sched FP_MEM *s FP_ARG, u32 level,
			    struct fp_node FP_MEM *n FP_ARG, struct fp_node FP_MEM *above FP_ARG)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 place = level & (FP_SCHED_LEVELS - 1);
	u32 parent = s->path[place];
	u32 child = s->path[(level + 1) & (FP_SCHED_LEVELS - 1)];
	u32 item = s->entry[place];
	u64 was_due = n->due;
	u32 waits;
	u64 rank;
	u64 at = 0;

	fp_prepare_child_call(s, child, parent, above, n);
	s->call.by_floor = s->by_floor[place];
	s->call.rank = fp_item_at(pool, item)->rank;
	rank = fp_call_policy_or(s, above, FP_RANK_DEQUEUE, s->call.rank);
	if (s->by_floor[place])
		n->stats.by_floor++;
	if (above->config.over == FP_OVER_REFERENCES)
		return 1;
	waits = fp_waiting_at(s, child, n);
	if (fp_unlikely(s->limits_at))
		at = fp_pay_for_child(s, place, waits);
	if (!waits)
		return 0;
	n->rank = rank == KEEP ? s->call.rank : rank;
	n->due = s->call.due;
	at = max(at, fp_send_time(s, above));
	if (at > s->now) {
		fp_remove_child(s, child, n);
		fp_pifo_push(pool, FP_SHAPER, item, at);
		return 1;
	}
	if (above->config.wants & WANTS_ELIGIBLE) {
		fp_pifo_remove(pool, item);
		fp_push_child(s, child, n, above);
		return 1;
	}
	if (rank != KEEP)
		fp_pifo_move(pool, item, rank);
	/* Most children have no floor, and so no entry there. */
	if ((above->config.wants & WANTS_DUE) && (was_due & n->due) != FP_NEVER)
		fp_update_due(s, child, n);
	return 1;
}

/*
 * Updates the ancestors of leaf `n`: frees references, charges and ranks children, removes empty
 * ones.
 */
FP_FUNC int fp_update_ancestors(struct fp_sched FP_MEM *s FP_ARG, struct fp_node FP_MEM *n FP_ARG,
				u32 sent)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, s->handle);
	u32 bytes = p->meta.bytes;
	u32 level = s->depth;
	u32 i;

	if (fp_unlikely(s->limits_at))
		FP_PUT(s->has_packets, n->stats.packets != 0);
	if (sent && level) {
		fp_prepare_calls_above(s, n, s->handle);
		s->call.sojourn = s->now - p->enqueued;
	}
	fp_loop(i, FP_SCHED_LEVELS) {
		u32 node = s->path[level & (FP_SCHED_LEVELS - 1)];
		struct fp_node FP_MEM *above;
		int waits;
		u32 place;

		if (sent) {
			n->stats.sent++;
			n->stats.sent_bytes += bytes;
		}
		if (!level)
			return 0;
		level--;
		place = level & (FP_SCHED_LEVELS - 1);
		above = fp_node_at(s, s->path[place]);
		waits = sent ? fp_charge_child(s, level, n, above) : fp_waiting_at(s, node, n) != 0;
		if (above->config.over == FP_OVER_REFERENCES) {
			fp_pifo_remove(fp_pool_of(s), s->entry[place]);
			fp_free_reference(s, s->entry[place] - fp_reference_item(s, 0));
		} else if (!waits && fp_is_child_queued(s, node, s->path[place])) {
			fp_remove_child(s, node, n);
			if (fp_unlikely(s->limits_at) && !sent)
				fp_return_grants(s, node);
		}
		if (fp_unlikely(s->limits_at))
			fp_note_packets(s, place);
		n = above;
	}
	return 0;
}

/*
 * One attempt: from the root to a packet that leaves or is dropped, or to an entry that is ranked
 * again.
 */
FP_INLINE int fp_dequeue_try(struct fp_sched FP_MEM *s)
{
	u32 leaf = fp_choose_leaf(s);
	struct fp_node FP_MEM *n = fp_node_at(s, leaf);
	int taken;
	u32 marked;

	if (!leaf) {
		fp_deactivate_if_empty(s, s->path[s->depth & (FP_SCHED_LEVELS - 1)]);
		return FP_TAKEN_NOTHING;
	}
	taken = n->config.over == FP_OVER_PACKETS ? fp_dequeue_packet(s, leaf)
						  : fp_dequeue_from_flow(s, leaf);
	if (taken == FP_TAKEN_NOTHING) {
		fp_deactivate_if_empty(s, leaf);
		return taken;
	}
	marked = taken == FP_TAKEN_SENT && (s->call.verdict & MARK);
	if (marked) {
		n->stats.marked++;
		s->stats.marked++;
	}
	s->marked = marked;
	fp_update_ancestors(s, n, taken == FP_TAKEN_SENT);
	return taken;
}

/* Reports how the back end changes the packet that was just reported as sent. */
FP_INLINE void fp_report_flags(struct fp_sched FP_MEM *s, struct fp_slot FP_MEM *p)
{
	struct fp_outcome FP_MEM *o = fp_outcome_at(s, s->outcomes - 1);
	u32 flags = p->impaired & (FP_OUTCOME_COPY | FP_OUTCOME_CORRUPT);

	FP_PUT(o->flags, (u8)(s->marked ? flags | FP_OUTCOME_MARK : flags));
	FP_PUT(o->bit, p->bit);
}

FP_INLINE void fp_send_packet(struct fp_sched FP_MEM *s)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, s->handle);

	s->stats.sent++;
	s->stats.sent_bytes += p->meta.bytes - (p->impaired >> 8);
	if (s->config.service)
		fp_charge_service(s, p->meta.bytes);
	fp_account_sent(s, p->leaf, s->now - p->enqueued);
	fp_report_packet(s, FP_SENT, s->handle, p, 0, s->now - p->enqueued);
	if ((s->marked || p->impaired) && s->outcomes)
		fp_report_flags(s, p);
	fp_free_handle(p);
}

/* The next time at which a packet may leave; now if one may leave already. */
FP_FUNC u64 fp_next_time(struct fp_sched FP_MEM *s FP_ARG)
{
	u32 item = fp_pifo_peek(fp_pool_of(s), FP_SHAPER);
	u64 at = item ? fp_item_at(fp_pool_of(s), item)->rank : FP_NEVER;
	u64 other = FP_NEVER;

	if (fp_waiting(s, 1))
		other = s->config.service && !fp_service_permits(s) ? fp_next_opportunity(s)
								    : s->now;
	if (other < at)
		at = other;
	if (s->delayed)
		other = fp_next_release(s);
	return other < at ? other : at;
}

/* Sends up to `count` packets, or until `bytes` are sent (0: no limit). */
FP_FUNC int fp_dequeue(struct fp_sched FP_MEM *s FP_ARG, u32 count, u64 bytes)
{
	u64 before = s->stats.sent_bytes;
	u32 i;

	s->wanted = count;
	fp_loop(i, FP_DEQUEUE_TRIES) {
		int taken;

		if (!s->wanted || (bytes && s->stats.sent_bytes - before >= bytes))
			return 0;
		if (!fp_waiting(s, 1) || (s->config.service && !fp_service_permits(s)))
			break;
		taken = fp_dequeue_try(s);
		if (taken == FP_TAKEN_SENT) {
			fp_send_packet(s);
			s->wanted--;
		} else if (taken != FP_TAKEN_NOTHING) {
			fp_drop_packet(s, s->handle,
				       taken == FP_TAKEN_TOO_OLD ? FP_DROP_TOO_OLD
								 : FP_DROP_POLICY);
		}
	}
	if (i >= FP_DEQUEUE_TRIES)
		s->stats.tries_spent++;
	fp_report_outcome(s, FP_NOTHING, 0, 0, fp_next_time(s));
	return 0;
}

/*
 * Ranks a waiting child again, because a rate of it was changed. In the shaper it may wait for hours
 * at the old one: it gets the time of the new one, and a due one leaves with the next operation.
 */
FP_FUNC int fp_rank_child_again(struct fp_sched FP_MEM *s FP_ARG, u32 child)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	struct fp_node FP_MEM *n = fp_node_at(s, child);
	u32 parent = n->config.parent;
	struct fp_node FP_MEM *above = fp_node_at(s, parent);
	u32 item = fp_node_item(s, child);
	u64 rank;
	u64 at = 0;

	if (above->config.over != FP_OVER_CHILDREN || !fp_is_item_queued(s, item))
		return 0;
	/* As for a woken child, its packet is unknown. */
	fp_prepare_calls_above(s, fp_node_at(s, 0), 0);
	fp_prepare_child_call(s, child, parent, above, n);
	FP_PUT(s->call.backlogged, 1);
	s->call.rank = n->rank;
	rank = fp_call_policy_or(s, above, FP_RANK_ENQUEUE, KEEP);
	if (s->limits_at)
		at = fp_pay_limits(s, child, 0, FP_LIMIT_SOME, 0);
	if (rank != KEEP) {
		n->rank = rank;
		n->due = s->call.due;
	}
	if (fp_item_at(pool, item)->pifo == FP_SHAPER)
		return fp_pifo_move(pool, item, max(max(fp_send_time(s, above), at), s->now));
	if (rank == KEEP)
		return 0;
	fp_remove_child(s, child, n);
	return fp_push_child(s, child, n, above);
}

FP_INLINE int fp_changes_rate(struct fp_node FP_MEM *n, u32 setting, u64 value)
{
	return (setting == FP_SET_FLOOR && n->config.floor != value) ||
	       (setting == FP_SET_CEIL && n->config.ceil != value);
}

/* Changes what the parent of a node uses of it. */
FP_INLINE int fp_set_node(struct fp_node FP_MEM *n, u32 setting, u64 value)
{
	if (setting == FP_SET_COST && value && value <= 0xffffffff)
		FP_PUT(n->config.cost, (u32)value);
	else if (setting == FP_SET_FLOOR)
		FP_PUT(n->config.floor, value);
	else if (setting == FP_SET_CEIL)
		FP_PUT(n->config.ceil, value);
	else if (setting == FP_SET_BURST)
		FP_PUT(n->config.burst, value);
	else
		return 0;
	return 1;
}

/*
 * Changes an impairment while packets pass. Delayed packets keep their times, and a changed trace
 * restarts.
 */
FP_INLINE int fp_set_impair(struct fp_sched FP_MEM *s, u32 impair, u32 word, u64 value)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, impair);
	u64 FP_MEM *words = (u64 FP_MEM *)&im->config;

	if (!impair || impair > s->config.impairments || word >= FP_IMPAIR_WORDS)
		return 0;
	if (word >= FP_TRACE_WORD && words[word] != value)
		fp_restart_service(im);
	FP_PUT(words[word], value);
	return 1;
}

/* Removes a packet from any queue. Returns 0 or -1. */
FP_FUNC int fp_remove(struct fp_sched FP_MEM *s FP_ARG, u32 handle)
{
	u32 leaf = fp_slot_at(s, handle)->leaf;

	/* Entry 0 has no packet, except in corrupted memory. */
	if (!handle || handle > s->config.packets)
		return -1;
	if (leaf && fp_is_delayed(s, handle)) {
		fp_pifo_remove(fp_pool_of(s), handle);
		fp_unmark_delayed(s, handle);
		return fp_drop_packet(s, handle, FP_DROP_REMOVED);
	}
	if (fp_remove_packet(s, handle, FP_DROP_REMOVED))
		return -1;
	fp_deactivate_if_empty(s, leaf);
	return 0;
}

FP_FUNC int fp_run_set_op(struct fp_sched FP_MEM *s FP_ARG, struct fp_op FP_MEM *op FP_ARG)
{
	struct fp_node FP_MEM *n = fp_node_at(s, op->node);
	int known = op->node && op->node <= s->config.nodes;
	int changed = fp_changes_rate(n, op->count, op->value);
	u32 flow;

	if (op->kind == FP_OP_PARAM && known && op->count < FP_PARAMS) {
		FP_PUT(n->class[op->count & (FP_PARAMS - 1)], op->value);
		fp_report_outcome(s, FP_DONE, 0, 0, s->now);
	} else if (op->kind == FP_OP_WEIGHT && known && n->config.supports_flows && op->value) {
		flow = fp_find_flow(s, op->node, op->handle);
		if (flow)
			FP_PUT(fp_fq_at(s, flow)->cost, (u32)op->value);
		fp_report_outcome(s, flow ? FP_DONE : FP_FAILED, 0, 0, s->now);
	} else if (op->kind == FP_OP_NODE && known && fp_set_node(n, op->count, op->value)) {
		if (changed)
			fp_rank_child_again(s, op->node);
		fp_report_outcome(s, FP_DONE, 0, 0, s->now);
	} else if (op->kind == FP_OP_IMPAIR && fp_set_impair(s, op->node, op->count, op->value)) {
		fp_report_outcome(s, FP_DONE, 0, 0, s->now);
	} else if (op->kind != FP_OP_REMOVE || fp_remove(s, op->handle)) {
		fp_report_outcome(s, FP_FAILED, 0, 0, s->now);
	}
	return 0;
}

/* Starts every operation. Time never decreases, even if the back end passes an earlier one. */
FP_INLINE void fp_begin_op(struct fp_sched FP_MEM *s, u64 now)
{
	if (now > s->now)
		s->now = now;
	if (s->delayed | s->config.service)
		fp_release_delayed(s);
	if (fp_due_slot(s->now) != s->due_slot || s->due_rest)
		fp_take_due(s);
	fp_wake(s);
}

/* Runs one operation. The caller ensures capacity for its outcomes. */
FP_INLINE int fp_run_op(struct fp_sched FP_MEM *s, struct fp_op FP_MEM *op)
{
	fp_begin_op(s, op->now);
	if (op->kind == FP_OP_ENQUEUE)
		return fp_enqueue(s, op);
	if (op->kind == FP_OP_DEQUEUE)
		return fp_dequeue(s, op->count, op->value);
	return fp_run_set_op(s, op);
}

FP_INLINE int fp_has_outcome_capacity(struct fp_sched FP_MEM *s)
{
	return s->outcomes + 2 * FP_OUTCOMES_PER_OP <= s->outcomes_most;
}

#endif /* FP_SCHED_H */
