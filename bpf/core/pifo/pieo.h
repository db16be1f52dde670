/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pieo.h: FP_PIEO, push-in extract-out (Shrivastav, SIGCOMM 2019): an item has a rank and a time
 * from which it is eligible; pop takes the smallest rank of those that are. WF2Q+ needs it.
 *
 *   push --> wheel, by eligible time -- as time goes on --> ready, by rank --> pop
 *
 * Two PIFOs of the same pool, which the caller formats: two FP_HEAP for exact order (rank,
 * arrival) and any times, O(log n); two FP_CFFS for O(1), where what becomes eligible together
 * has its order of arrival from there, and times are met by a bucket's width at the latest. `ready`
 * never refuses for its rank (it clamps), and what it has no room for waits in `wheel`.
 *
 * Time does not go back: an earlier `now` is taken for the latest one. Items are removed with
 * fp_pifo_remove(); fp_pifo_move() gives one that waits another eligible time, and one that is
 * ready another rank. Each item goes over once, so that push and pop cost two pushes and two pops.
 * Memory beside the two: 8 bytes an item of the pool, for the rank that waits.
 */
#ifndef FP_PIEO_H
#define FP_PIEO_H

#include "pifo.h"

/* The rank of an item that may wait in the wheel. */
FP_INLINE u64 FP_MEM *fp_pieo_rank(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *e, u32 item)
{
	return fp_word_at(pool, e, fp_item_bound(pool, item));
}

/* Queues `item`, eligible from `eligible` on, by `rank`. 0, or enum fp_refusal. */
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

/* Lets one item that is eligible at `now` go over; 0 if there is none, or no room. */
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

/* Takes the smallest rank that is eligible at `now`, the earliest of those; 0 if there is none. */
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
 * When to ask again: the latest now if something is eligible already, the earliest eligible time
 * of what waits, or FP_NEVER.
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
