/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/due.h: children whose floor is due (WANTS_DUE).
 *
 * A child is in the queue of due times of its parent, an exact heap, when its time has come. Before
 * that it is in the wheel, which is one for all nodes: FP_DUE_SLOTS slots of 1 ms.
 *
 *   due_slot + 1         + 2                           + 1,023
 *      |       | child | child, child | .. |     | .. | child, and all later ones |
 *
 * The due time of a child changes with each of its packets, nearly always to a later one. Its entry
 * in the wheel stays. When the slot comes, it moves to the slot of the time that is valid then, or
 * to the heap. So a packet of a child that is not due changes nothing here. A time that becomes
 * earlier than the slot goes to the heap at once, and the entry in the wheel ends with its slot.
 *
 * Invariants, for a child that waits in the queue of its parent with due time t: if the slot of t is
 * not after that of `now`, it is in the heap (n->due_queued, at rank t). Otherwise it is there, or in
 * the wheel in a slot that is not after that of t (n->due_slot), or both. The entry of a child that
 * left stays in the wheel until its slot comes. With s->due_rest, children of a slot that has come may
 * still be in the wheel.
 */
#ifndef FP_SCHED_DUE_H
#define FP_SCHED_DUE_H

#include "state.h"

/* Maximum of entries of the wheel that one operation moves. s->due_rest: the next one continues. */
#define FP_DUE_BATCH 4096
/* n->due_slot: the index of the slot, and this bit, because 0 is none. */
#define FP_IN_WHEEL 0x80000000u

FP_INLINE u64 fp_due_slot(u64 at)
{
	return at >> FP_DUE_SHIFT;
}

/* The next child in the slot of child `child`. */
FP_INLINE u32 FP_MEM *fp_wheel_next(struct fp_sched FP_MEM *s, u32 child)
{
	return FP_AT(u32, s, s->wheel_next_at + 4ull * (child <= s->config.nodes ? child : 0));
}

/* Adds child `n` in the slot of n->due, or in the last one. It is in no slot. */
FP_INLINE void fp_wheel_enter(struct fp_sched FP_MEM *s, u32 child, struct fp_node FP_MEM *n)
{
	struct fp_wheel FP_MEM *w = FP_AT(struct fp_wheel, s, s->wheel_at);
	u64 at = fp_due_slot(n->due);
	u32 slot;

	if (!s->due_words)
		s->due_slot = fp_due_slot(s->now);
	if (at - s->due_slot >= FP_DUE_SLOTS)
		at = s->due_slot + FP_DUE_SLOTS - 1;
	slot = (u32)at & (FP_DUE_SLOTS - 1);
	n->due_slot = slot | FP_IN_WHEEL;
	*fp_wheel_next(s, child) = w->first[slot];
	w->first[slot] = child;
	if (fp_index_set(&w->bits[slot >> 6], slot))
		s->due_words |= fp_bit(slot >> 6);
}

/* Adds child `n` to the queue of due times of its parent, or moves it there. */
FP_INLINE void fp_queue_due(struct fp_sched FP_MEM *s, u32 child, struct fp_node FP_MEM *n)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 q = fp_due_queue_of(s, n->config.parent);
	u32 item = fp_due_item(s, child);

	/* Of children with equal times, the one with the lowest number is first. */
	if (n->due_queued)
		fp_heap_move(pool, fp_pifo_at(pool, q), item, fp_item_at(pool, item), n->due,
			     child);
	else
		n->due_queued = !fp_heap_put(pool, q, item, n->due, child);
}

/* Child `n` leaves the queue of its parent, or has no due time now. */
FP_INLINE void fp_forget_due(struct fp_sched FP_MEM *s, u32 child, struct fp_node FP_MEM *n)
{
	if (!n->due_queued)
		return;
	fp_pifo_remove(fp_pool_of(s), fp_due_item(s, child));
	n->due_queued = 0;
}

/* True if the slot of child `n` in the wheel is not after that of its due time. */
FP_INLINE int fp_is_in_wheel(const struct fp_sched FP_MEM *s, const struct fp_node FP_MEM *n)
{
	u64 ahead = (n->due_slot - s->due_slot) & (FP_DUE_SLOTS - 1);

	return n->due_slot && fp_due_slot(n->due) >= s->due_slot + ahead;
}

/* Puts child `n`, which waits in the queue of its parent, where its due time belongs. */
FP_FUNC int fp_place_due(struct fp_sched FP_MEM *s FP_ARG, u32 child,
			 struct fp_node FP_MEM *n FP_ARG)
{
	int in_wheel = fp_is_in_wheel(s, n);

	if (n->due != FP_NEVER &&
	    (fp_due_slot(n->due) <= fp_due_slot(s->now) || (n->due_slot && !in_wheel))) {
		fp_queue_due(s, child, n);
		return 0;
	}
	fp_forget_due(s, child, n);
	if (n->due != FP_NEVER && !in_wheel)
		fp_wheel_enter(s, child, n);
	return 0;
}

/* n->due changed. */
FP_INLINE void fp_update_due(struct fp_sched FP_MEM *s, u32 child, struct fp_node FP_MEM *n)
{
	if (n->due_queued || !fp_is_in_wheel(s, n))
		fp_place_due(s, child, n);
}

/* The first slot with entries, from due_slot on; FP_NEVER if there is none. */
FP_INLINE u64 fp_wheel_first(struct fp_sched FP_MEM *s, struct fp_wheel FP_MEM *w)
{
	u64 from = s->due_slot & (FP_DUE_SLOTS - 1);
	u64 word = from >> 6;
	u64 bits = w->bits[word] >> (from & 63) << (from & 63);
	u64 words = s->due_words;

	if (!words)
		return FP_NEVER;
	if (!bits) {
		/* Words before the one of `from` have later slots. */
		if (words >> (word + 1))
			words = words >> (word + 1) << (word + 1);
		word = fp_lowest(words) & (FP_DUE_SLOTS / 64 - 1);
		bits = w->bits[word];
	}
	return s->due_slot + ((word * 64 + fp_lowest(bits) - from) & (FP_DUE_SLOTS - 1));
}

/* Moves the first entry of a slot that has come, if it is still needed. */
FP_INLINE void fp_take_due_of(struct fp_sched FP_MEM *s, struct fp_wheel FP_MEM *w, u32 slot)
{
	u32 child = w->first[slot];
	struct fp_node FP_MEM *n = fp_node_at(s, child);
	u32 next = *fp_wheel_next(s, child);

	/* Corrupted memory. */
	if (!child || child > s->config.nodes || n->due_slot != (slot | FP_IN_WHEEL)) {
		fp_pool_of(s)->broken++;
		next = 0;
	}
	FP_PUT(w->first[slot], next);
	if (!next && fp_index_clear(&w->bits[slot >> 6], slot))
		s->due_words &= ~fp_bit(slot >> 6);
	n->due_slot = 0;
	if (!n->due_queued && fp_item_at(fp_pool_of(s), fp_node_item(s, child))->pifo ==
				      fp_queue_of(n->config.parent))
		fp_place_due(s, child, n);
}

/* Moves the entries of all slots up to that of s->now. */
FP_FUNC int fp_take_due(struct fp_sched FP_MEM *s FP_ARG)
{
	struct fp_wheel FP_MEM *w = FP_AT(struct fp_wheel, s, s->wheel_at);
	u64 to = fp_due_slot(s->now);
	u32 i;

	if (to <= s->due_slot && !s->due_rest)
		return 0;
	s->due_rest = 1;
	/* After a long silence, all slots have come: no more than two turns are needed. */
	if (to - s->due_slot >= 2 * FP_DUE_SLOTS)
		s->due_slot += ((to - s->due_slot) & ~(u64)(FP_DUE_SLOTS - 1)) - FP_DUE_SLOTS;
	fp_loop(i, FP_DUE_BATCH) {
		u64 slot = fp_wheel_first(s, w);

		if (slot > to) {
			s->due_slot = to;
			s->due_rest = 0;
			break;
		}
		s->due_slot = slot;
		fp_take_due_of(s, w, (u32)slot & (FP_DUE_SLOTS - 1));
	}
	return 0;
}

#endif /* FP_SCHED_DUE_H */
