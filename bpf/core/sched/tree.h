/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/tree.h: the effect of a change at a leaf on its ancestors, and the shaper.
 *
 * A node over children has one entry for each child that may send now. A child that must wait for
 * its time is in the shaper instead, and an empty child is in neither. A node over references has
 * one entry for each packet below. Loops go up the tree, which has at most FP_SCHED_LEVELS levels.
 *
 * queue of the leaf not empty <=> leaf is in the queue of its parent, or in the shaper
 */
#ifndef FP_SCHED_TREE_H
#define FP_SCHED_TREE_H

#include "call.h"
#include "due.h"
#include "flows.h"

/* Maximum of children that become eligible at once. The rest follow at the next call. */
#define FP_RELEASE_BATCH 4096

/* Prepares calls of policies for packet `handle` of leaf `l`: the fields that every function reads. */
FP_INLINE void fp_prepare_packet(struct fp_sched FP_MEM *s, struct fp_node FP_MEM *l, u32 handle)
{
	s->handle = handle;
	FP_PUT(s->call.now, s->now);
	FP_PUT(s->call.queue_packets, l->stats.packets);
	FP_PUT(s->call.queue_bytes, l->stats.bytes);
	FP_PUT(s->call.sojourn, 0ull);
	FP_PUT(s->call.next_hint, 0ull);
	FP_PUT(s->call.next_bytes, 0);
	FP_PUT(s->call.backlogged, 0);
	FP_PUT(s->call.by_floor, 0);
	FP_PUT(s->call.reason, 0);
	FP_PUT(s->call.rank, 0ull);
}

/* Those of the policy of node `n`. */
FP_INLINE void fp_prepare_node(struct fp_sched FP_MEM *s, u32 node, struct fp_node FP_MEM *n)
{
	FP_PUT(s->call.over, n->config.over);
	FP_PUT(s->call.waiting, fp_waiting_at(s, node, n));
}

/* Prepares a call of the policy of leaf `l`. */
FP_FUNC int fp_prepare_call(struct fp_sched FP_MEM *s FP_ARG, u32 leaf,
			    struct fp_node FP_MEM *l FP_ARG, u32 handle)
{
	fp_prepare_packet(s, l, handle);
	fp_prepare_node(s, leaf, l);
	return 0;
}

/* Prepares calls of the policies of nodes above leaf `l`: the fields that do not change on the way. */
FP_FUNC int fp_prepare_calls_above(struct fp_sched FP_MEM *s FP_ARG,
				   struct fp_node FP_MEM *l FP_ARG, u32 handle)
{
	fp_prepare_packet(s, l, handle);
	FP_PUT(s->call.packets, l->stats.packets);
	FP_PUT(s->call.bytes, l->stats.bytes);
	FP_PUT(s->call.hosts, 1);
	return 0;
}

/* The policy of a parent does not see rates of a child that are shared limits. */
FP_RARE int fp_hide_shared_rates(struct fp_sched FP_MEM *s FP_ARG, u32 child)
{
	struct fp_limited FP_MEM *limited = fp_limited_at(s, child);

	if (limited->floor)
		FP_PUT(s->call.floor, 0ull);
	if (limited->ceil)
		FP_PUT(s->call.ceil, 0ull);
	return 0;
}

/* The other fields, for child `n` of node `above`. */
FP_INLINE void fp_prepare_child_call(struct fp_sched FP_MEM *s, u32 child, u32 parent,
				     struct fp_node FP_MEM *above, struct fp_node FP_MEM *n)
{
	fp_prepare_node(s, parent, above);
	s->flow_at = (u64)((u8 FP_MEM *)n->child - (u8 FP_MEM *)s);
	FP_PUT(s->call.floor, n->config.floor);
	FP_PUT(s->call.ceil, n->config.ceil);
	FP_PUT(s->call.burst, n->config.burst);
	/* User space may write it during this time (fp_native_sched_cost()). */
	FP_PUT(s->call.cost, *(const volatile u32 FP_MEM *)&n->config.cost);
	if (fp_unlikely(s->limits_at))
		fp_hide_shared_rates(s, child);
}

/*
 * Prepares a call for flow `f` of leaf `l`, or a packet of it. Flow 0 has neither state nor weight.
 */
FP_FUNC int fp_prepare_flow_call(struct fp_sched FP_MEM *s FP_ARG, struct fp_node FP_MEM *l FP_ARG,
				 u32 flow, struct fp_fq FP_MEM *f FP_ARG)
{
	s->flow_at = flow ? (u64)((u8 FP_MEM *)f->state - (u8 FP_MEM *)s)
			  : (u64)((u8 FP_MEM *)s->nobody - (u8 FP_MEM *)s);
	FP_PUT(s->call.floor, l->config.floor);
	FP_PUT(s->call.ceil, l->config.ceil);
	FP_PUT(s->call.burst, l->config.burst);
	FP_PUT(s->call.cost, flow ? f->cost : FP_COST_ONE);
	FP_PUT(s->call.packets, f->packets);
	FP_PUT(s->call.bytes, f->bytes);
	FP_PUT(s->call.hosts, l->config.wants & WANTS_HOSTS ? fp_busier_host(s, f) : 1);
	return 0;
}

/* The send time of the entry of s->call. Keeps its verdict and due time. */
FP_INLINE u64 fp_send_time(struct fp_sched FP_MEM *s, struct fp_node FP_MEM *n)
{
	if (!fp_policy_has(n, FP_SEND_TIME))
		return 0;
	return fp_call_policy(s, n, FP_SEND_TIME);
}

/* The limits of this scheduler, which may be at a lower address. */
FP_INLINE struct fp_limits FP_MEM *fp_shared_limits(struct fp_sched FP_MEM *s)
{
	return FP_AT(struct fp_limits, s, (s64)s->limits_at);
}

/* Charges `bytes` to limit `limit` of this scheduler, from 1, and requests `next` bytes: see fp_limit_pay(). */
FP_INLINE u64 fp_pay_limit(struct fp_sched FP_MEM *s, u32 limit, u32 bytes, u32 next)
{
	struct fp_limits FP_MEM *l = fp_shared_limits(s);

	return fp_limit_pay(fp_limit_at(l, limit - 1), fp_limit_pool_at(l, limit - 1, s->limit_cpu),
			    bytes, next, s->now);
}

/*
 * Child `child` sent `bytes`, and `next` wait: charges its shared limits, if it has any. Returns the time
 * from which it may send by its ceiling, and sets the due time of its floor. Bytes that it did not send by
 * its floor count for that, but not as a debt.
 */
FP_RARE u64 fp_pay_limits(struct fp_sched FP_MEM *s FP_ARG, u32 child, u32 bytes, u32 next,
			  u32 by_floor)
{
	struct fp_limits FP_MEM *l = fp_shared_limits(s);
	struct fp_limited FP_MEM *limited = fp_limited_at(s, child);
	u32 ceil = limited->ceil, floor = limited->floor;
	u64 at = 0;

	if (ceil && ceil <= l->count)
		at = fp_pay_limit(s, ceil, bytes, next);
	if (floor && floor <= l->count) {
		if (!by_floor &&
		    !fp_limit_has(fp_limit_pool_at(l, floor - 1, s->limit_cpu)->tokens))
			bytes = 0;
		FP_PUT(s->call.due, max(fp_pay_limit(s, floor, bytes, next), s->now));
	}
	return at;
}

/* Nothing waits below `child` any more: others may have what its shared limits granted. */
FP_RARE int fp_return_grants(struct fp_sched FP_MEM *s FP_ARG, u32 child)
{
	struct fp_limits FP_MEM *l = fp_shared_limits(s);
	struct fp_limited FP_MEM *limited = fp_limited_at(s, child);
	u32 ceil = limited->ceil, floor = limited->floor;

	if (ceil && ceil <= l->count)
		fp_pay_limit(s, ceil, 0, 0);
	if (floor && floor <= l->count)
		fp_pay_limit(s, floor, 0, 0);
	return 0;
}

/*
 * Puts child `n` into the queue of node `above`, its parent, at n->rank, and into the queue of due
 * times.
 */
FP_INLINE int fp_push_child(struct fp_sched FP_MEM *s, u32 child, struct fp_node FP_MEM *n,
			    struct fp_node FP_MEM *above)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 parent = n->config.parent;

	if (above->config.wants & WANTS_ELIGIBLE) {
		if (n->due != FP_NEVER && n->due > above->class[FP_PARAMS])
			return fp_pifo_push(pool, fp_due_queue_of(s, parent),
					    fp_node_item(s, child), n->due);
		return fp_pifo_push(pool, fp_queue_of(parent), fp_node_item(s, child), n->rank);
	}
	fp_pifo_push(pool, fp_queue_of(parent), fp_node_item(s, child), n->rank);
	if ((above->config.wants & WANTS_DUE) && n->due != FP_NEVER)
		fp_update_due(s, child, n);
	return 0;
}

/* Removes child `n` from the queue of its parent, or from the shaper. */
FP_INLINE int fp_remove_child(struct fp_sched FP_MEM *s, u32 child, struct fp_node FP_MEM *n)
{
	fp_pifo_remove(fp_pool_of(s), fp_node_item(s, child));
	fp_forget_due(s, child, n);
	return 0;
}

/* True if the child is in the queue of node `parent`, eligible or not, and not in the shaper. */
FP_INLINE int fp_is_child_queued(struct fp_sched FP_MEM *s, u32 child, u32 parent)
{
	u32 in = fp_item_at(fp_pool_of(s), fp_node_item(s, child))->pifo;

	return in == fp_queue_of(parent) || in == fp_due_queue_of(s, parent);
}

/* WANTS_ELIGIBLE: makes children eligible whose virtual time has come. */
FP_FUNC int fp_make_eligible(struct fp_sched FP_MEM *s FP_ARG, u32 node)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	struct fp_node FP_MEM *n = fp_node_at(s, node);
	u32 i;

	fp_loop(i, FP_RELEASE_BATCH) {
		u32 item = fp_pifo_peek(pool, fp_due_queue_of(s, node));
		u64 eligible = fp_item_at(pool, item)->rank;

		if (!item)
			break;
		if (eligible > n->class[FP_PARAMS]) {
			if (fp_pifo_at(pool, fp_queue_of(node))->count)
				break;
			FP_PUT(n->class[FP_PARAMS], eligible);
		}
		fp_pifo_pop(pool, fp_due_queue_of(s, node));
		fp_pifo_push(pool, fp_queue_of(node), item,
			     fp_node_at(s, item - fp_node_item(s, 0))->rank);
	}
	return 0;
}

FP_INLINE int fp_is_item_queued(struct fp_sched FP_MEM *s, u32 item)
{
	return fp_item_at(fp_pool_of(s), item)->pifo != 0;
}

/*
 * Node `child` may send, because of packet `handle` of `leaf`: puts it into the queue of its
 * parent, and so on up to the first node that waited already or must wait for its time.
 */
FP_FUNC int fp_activate(struct fp_sched FP_MEM *s FP_ARG, u32 child, u32 leaf, u32 handle)
{
	u32 prepared = 0;
	u32 level;

	fp_loop(level, FP_SCHED_LEVELS) {
		struct fp_node FP_MEM *n = fp_node_at(s, child);
		u32 parent = n->config.parent;
		struct fp_node FP_MEM *above;
		u32 bytes;
		u64 at;

		if (!parent || fp_is_item_queued(s, fp_node_item(s, child)))
			return 0;
		above = fp_node_at(s, parent);
		if (above->config.over != FP_OVER_CHILDREN)
			return 0;
		if (!prepared)
			fp_prepare_calls_above(s, fp_node_at(s, leaf), handle);
		prepared = 1;
		fp_prepare_child_call(s, child, parent, above, n);
		n->rank = fp_call_policy_or(s, above, FP_RANK_ENQUEUE, 0);
		at = fp_send_time(s, above);
		if (fp_unlikely(s->limits_at)) {
			bytes = handle ? fp_slot_at(s, handle)->meta.bytes : FP_LIMIT_SOME;
			at = max(at, fp_pay_limits(s, child, 0, bytes, 0));
		}
		n->due = s->call.due;
		if (at > s->now) {
			fp_pifo_push(fp_pool_of(s), FP_SHAPER, fp_node_item(s, child), at);
			return 0;
		}
		fp_push_child(s, child, n, above);
		child = parent;
	}
	return 0;
}

/* Removes node `child` from its parent if it is empty, and then its ancestors that are empty. */
FP_FUNC int fp_deactivate_if_empty(struct fp_sched FP_MEM *s FP_ARG, u32 child)
{
	u32 level;

	fp_loop(level, FP_SCHED_LEVELS) {
		struct fp_node FP_MEM *n = fp_node_at(s, child);
		u32 parent = n->config.parent;

		if (!parent || fp_waiting_at(s, child, n))
			return 0;
		if (fp_node_at(s, parent)->config.over == FP_OVER_CHILDREN &&
		    fp_is_child_queued(s, child, parent)) {
			fp_remove_child(s, child, n);
			if (fp_unlikely(s->limits_at))
				fp_return_grants(s, child);
		}
		child = parent;
	}
	return 0;
}

FP_INLINE u32 fp_take_reference(struct fp_sched FP_MEM *s)
{
	u32 reference = s->free_reference;

	if (!reference)
		return 0;
	s->free_reference = fp_reference_at(s, reference)->next;
	s->free_references--;
	return reference;
}

FP_FUNC int fp_free_reference(struct fp_sched FP_MEM *s FP_ARG, u32 reference)
{
	FP_PUT(fp_reference_at(s, reference)->next, s->free_reference);
	s->free_reference = reference;
	s->free_references++;
	return 0;
}

/* Saves what the policy of `node` may change, to restore it if a push fails. */
FP_INLINE void fp_save_step(struct fp_sched FP_MEM *s, u32 step, u32 node, struct fp_node FP_MEM *n)
{
	struct fp_undo FP_MEM *u = &s->undo[step & (FP_SCHED_LEVELS - 1)];
	u64 FP_MEM *state = FP_AT(u64, s, s->flow_at);
	u32 policy = n->config.policy & (FP_POLICIES_MAX - 1);
	u32 i;

	FP_PUT(u->node, node);
	FP_PUT(u->reference, 0);
	FP_PUT(u->flow_at, s->flow_at);
	for (i = 0; i < FP_STATE_WORDS; i++) {
		FP_PUT(u->flow[i], state[i]);
		FP_PUT(u->class[i], n->class[FP_PARAMS + i]);
		FP_PUT(u->global[i], s->global[policy][i]);
	}
}

/* Restores one saved step: its reference, if any, and all states. */
FP_INLINE int fp_undo_step(struct fp_sched FP_MEM *s, u32 step)
{
	struct fp_undo FP_MEM *u = &s->undo[step & (FP_SCHED_LEVELS - 1)];
	struct fp_node FP_MEM *n = fp_node_at(s, u->node);
	u64 FP_MEM *state = FP_AT(u64, s, u->flow_at);
	u32 policy = n->config.policy & (FP_POLICIES_MAX - 1);
	u32 i;

	if (u->reference) {
		fp_pifo_remove(fp_pool_of(s), fp_reference_item(s, u->reference));
		fp_free_reference(s, u->reference);
	}
	for (i = 0; i < FP_STATE_WORDS; i++) {
		FP_PUT(state[i], u->flow[i]);
		FP_PUT(n->class[FP_PARAMS + i], u->class[i]);
		FP_PUT(s->global[policy][i], u->global[i]);
	}
	return 0;
}

/* Restores the steps from s->undone to `first`. */
FP_FUNC int fp_undo_steps(struct fp_sched FP_MEM *s FP_ARG, u32 first)
{
	u32 i;

	fp_loop(i, FP_SCHED_LEVELS) {
		if (s->undone < first)
			break;
		fp_undo_step(s, s->undone);
		if (!s->undone--)
			break;
	}
	return 0;
}

/*
 * Gives packet `handle` of `leaf` a reference in each node above `child` that is over references,
 * up to the first that must wait for its time. Returns the reason of a refusal, with s->undone the
 * last step to restore. Otherwise s->upwards is a child to activate, 0 none. `step` is the first
 * free step of undo.
 */
FP_FUNC int fp_add_references_upwards(struct fp_sched FP_MEM *s FP_ARG, u32 child, u32 leaf,
				      u32 handle, u32 step)
{
	u32 level;

	s->upwards = 0;
	fp_loop(level, FP_SCHED_LEVELS) {
		struct fp_node FP_MEM *n = fp_node_at(s, child);
		u32 parent = n->config.parent;
		struct fp_node FP_MEM *above = fp_node_at(s, parent);
		struct fp_reference FP_MEM *ref;
		u32 reference;
		int refused;
		u64 at;

		if (!parent)
			return 0;
		if (above->config.over != FP_OVER_REFERENCES) {
			s->upwards = child;
			return 0;
		}
		fp_prepare_calls_above(s, fp_node_at(s, leaf), handle);
		fp_prepare_child_call(s, child, parent, above, n);
		fp_save_step(s, step, parent, above);
		reference = fp_take_reference(s);
		refused = FP_DROP_NO_REFERENCE;
		if (reference) {
			ref = fp_reference_at(s, reference);
			FP_PUT(s->undo[step & (FP_SCHED_LEVELS - 1)].reference, reference);
			FP_PUT(ref->child, child);
			FP_PUT(ref->leaf, leaf);
			ref->rank = fp_call_policy_or(s, above, FP_RANK_ENQUEUE, 0);
			at = fp_send_time(s, above);
			if (at > s->now) {
				fp_pifo_push(fp_pool_of(s), FP_SHAPER,
					     fp_reference_item(s, reference), at);
				return 0;
			}
			refused = fp_pifo_push(fp_pool_of(s), fp_queue_of(parent),
					       fp_reference_item(s, reference), ref->rank);
		}
		if (refused) {
			s->undone = step;
			return refused;
		}
		step++;
		child = parent;
	}
	return 0;
}

/*
 * Adds packet `handle` of `leaf` to the nodes above `child`: as references, or as entries of its
 * ancestors. Returns the reason of a refusal, which leaves nothing changed. `step` is the first
 * free step of undo.
 */
FP_INLINE int fp_add_references(struct fp_sched FP_MEM *s, u32 child, u32 leaf, u32 handle,
				u32 step)
{
	u32 parent = fp_node_at(s, child)->config.parent;
	int refused;

	/* Nothing is above, or the child waits already. */
	if (!parent || fp_is_item_queued(s, fp_node_item(s, child)))
		return 0;
	if (fp_node_at(s, parent)->config.over != FP_OVER_REFERENCES) {
		fp_activate(s, child, leaf, handle);
		return 0;
	}
	refused = fp_add_references_upwards(s, child, leaf, handle, step);
	if (refused)
		fp_undo_steps(s, step);
	else if (s->upwards)
		fp_activate(s, s->upwards, leaf, handle);
	return refused;
}

#endif /* FP_SCHED_TREE_H */
