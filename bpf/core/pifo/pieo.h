/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pieo.h: FP_PIEO, push-in extract-out (Shrivastav, SIGCOMM 2019): an item has a rank and an
 * eligible time. Pop takes the smallest rank of the eligible items. WF2Q+ needs it.
 *
 *   push --> wheel, by eligible time -- as time passes ---> ready, by rank --> pop
 *
 * It uses two PIFOs of the same pool, which the caller formats. Two FP_HEAP give exact order (rank,
 * arrival) and any times, O(log n). Two FP_CFFS give O(1): items that become eligible together keep
 * their order of arrival, and times are exact to the width of a bucket. `ready` never refuses a
 * rank (it clamps), and items above its capacity wait in `wheel`.
 *
 * Time never decreases: an earlier `now` is replaced by the latest one. Remove items with
 * fp_pifo_remove(). fp_pifo_move() sets another eligible time for a waiting item, and another rank
 * for a ready one. Each item moves over once, so push and pop cost two pushes and two pops. Memory
 * in addition to the two PIFOs: 8 bytes per item of the pool, for the rank of waiting items.
 */
#ifndef FP_PIEO_H
#define FP_PIEO_H

#include "pifo.h"

/* The rank of an item that may be in the wheel. */
FP_INLINE u64 FP_MEM *fp_pieo_rank(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *e, u32 item)
{
	return fp_word_at(pool, e, fp_item_bound(pool, item));
}

/* Queues `item` with rank `rank`, eligible from `eligible`. Returns 0, or enum fp_refusal. */
FP_FUNC int fp_pieo_push(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 item, u64 eligible,
			 u64 rank)
{
	struct fp_pifo FP_MEM *e = fp_pifo_at(pool, q);
	int refused;

	pool->pushed_out = 0;
	if (e->kind != FP_PIEO)
		return fp_refuse_pifo(pool);
	if (eligible <= e->base)
		refused = fp_pifo_push(pool, e->ready, item, rank);
	else
		refused = fp_pifo_push(pool, e->wheel, item, eligible);
	if (!refused) {
		*fp_pieo_rank(pool, e, item) = rank;
		e->pushed++;
	}
	return refused;
}

/*
 * Moves one item that is eligible at `now` to `ready`. Returns 0 if there is none, or no capacity.
 */
FP_FUNC int fp_pieo_release(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u64 now)
{
	struct fp_pifo FP_MEM *e = fp_pifo_at(pool, q);
	struct fp_pifo FP_MEM *ready = fp_pifo_at(pool, e->ready);
	u32 item = fp_pifo_peek(pool, e->wheel);
	struct fp_item FP_MEM *it = fp_item_at(pool, item);

	if (!item || it->rank > now || ready->count >= ready->capacity)
		return 0;
	fp_pifo_pop(pool, e->wheel);
	if (fp_pifo_put(pool, e->ready, item, *fp_pieo_rank(pool, e, item), it->seq))
		pool->broken++;
	return 1;
}

/*
 * Removes the smallest rank that is eligible at `now`, the earliest of those. Returns 0 if there is
 * none.
 */
FP_FUNC u32 fp_pieo_pop(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u64 now)
{
	struct fp_pifo FP_MEM *e = fp_pifo_at(pool, q);
	u32 i, item;

	if (e->kind != FP_PIEO)
		return 0;
	if (now > e->base)
		e->base = now;
	fp_loop(i, pool->items) {
		if (!fp_pieo_release(pool, q, e->base))
			break;
	}
	item = fp_pifo_pop(pool, e->ready);
	e->popped += item != 0;
	return item;
}

/*
 * The time of the next event: the latest now if an item is eligible, the earliest eligible time of
 * the waiting items, or FP_NEVER.
 */
FP_FUNC u64 fp_pieo_next_event(struct fp_pool FP_MEM *pool FP_ARG, u32 q)
{
	struct fp_pifo FP_MEM *e = fp_pifo_at(pool, q);
	u64 eligible;
	u32 item;

	if (e->kind != FP_PIEO)
		return FP_NEVER;
	if (fp_pifo_peek(pool, e->ready))
		return e->base;
	item = fp_pifo_peek(pool, e->wheel);
	if (!item)
		return FP_NEVER;
	eligible = fp_item_at(pool, item)->rank;
	return eligible > e->base ? eligible : e->base;
}

#endif /* FP_PIEO_H */
