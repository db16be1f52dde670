/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pifo.h: push-in first-out queues over numbers (Sivaraman et al., SIGCOMM 2016): push by rank, pop
 * the smallest. Equal ranks leave in order of arrival. The caller defines the numbers: handles of
 * packets, flows, children, other PIFOs.
 *
 * Items 1 to fp_pool.items that are in no PIFO can be pushed. Ranks are 64-bit numbers, compared as
 * such. The caller widens ranks that wrap at 2^32 or count down.
 *
 *   kind          order           push   pop    move,   last   memory plus 32 bytes an item
 *                                               remove         and 192 a PIFO
 *   FP_HEAP       exact           log n* log n* log n*  n      112 bytes, and 16 an item
 *   FP_BANDS      exact           1      1      1       1      8 bytes a band
 *   FP_CFFS       exact by g      1      1      1       1      16.25 bytes a bucket
 *   FP_GRADIENT   approximate     1      1      1       N      16 bytes a bucket
 *   FP_SP_PIFO    approximate     lists  1      lists   1      24 bytes a list
 *   FP_AIFO       of arrival      W      1      1       1      8 bytes a remembered rank
 *
 * *: 1 where ranks come in order. Exact by g: by buckets of g ranks, by arrival within a bucket.
 * Formats and sizes: pool.h. Eligible times: pieo.h. Errors: enum fp_refusal, counted in struct
 * fp_pifo and struct fp_pool. A refused call changes nothing else (an FP_AIFO stores the rank).
 *
 * Every function takes the pool and numbers, so that a BPF program verifies each once. They nest at
 * most four deep (pieo.h: six). Functions that end in _as are the same code with the kind known at
 * compile time, without a call: for hot paths.
 */
#ifndef FP_PIFO_H
#define FP_PIFO_H

#include "aifo.h"
#include "bands.h"
#include "cffs.h"
#include "gradient.h"
#include "heap.h"
#include "sp_pifo.h"

FP_INLINE int fp_refuse_item(struct fp_pool FP_MEM *pool)
{
	pool->bad_items++;
	return FP_REFUSED_ITEM;
}

FP_INLINE int fp_refuse_pifo(struct fp_pool FP_MEM *pool)
{
	pool->bad_pifos++;
	return FP_REFUSED_PIFO;
}

/* Marks the list at `place` as not empty. */
FP_INLINE void fp_mark(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 place,
		       u32 kind)
{
	if (kind == FP_CFFS)
		fp_cffs_set(pool, p, q, fp_half_of(p, place), fp_bucket_of(p, place));
	else if (kind == FP_GRADIENT)
		fp_gradient_add(pool, p, fp_half_of(p, place), fp_bucket_of(p, place), 1);
	else
		p->top[0] |= fp_bit(place);
}

/* Marks it as empty. */
FP_INLINE void fp_unmark(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 place,
			 u32 kind)
{
	if (kind == FP_CFFS)
		fp_cffs_clear(pool, p, q, fp_half_of(p, place), fp_bucket_of(p, place));
	else if (kind == FP_GRADIENT)
		fp_gradient_add(pool, p, fp_half_of(p, place), fp_bucket_of(p, place), -1);
	else
		p->top[0] &= ~fp_bit(place);
}

/*
 * The position for a rank in lists with `others` other items, or FP_NOWHERE with the reason.
 * `from`: the position that it leaves, or FP_NOWHERE.
 */
FP_INLINE u32 fp_place_as(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u64 rank,
			  u32 others, u32 from, u32 kind)
{
	if (kind == FP_CFFS)
		return fp_cffs_place(p, rank, others);
	if (kind == FP_GRADIENT)
		return fp_window_place(p, rank, others);
	if (kind == FP_BANDS)
		return fp_bands_place(p, rank);
	if (kind == FP_SP_PIFO)
		return fp_sp_place(pool, q, rank, from);
	return 0;
}

/* Adds the item to this PIFO at `place`; to a heap by its rank. */
FP_INLINE void fp_enter_as(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 item,
			   struct fp_item FP_MEM *it, u32 place, u32 kind)
{
	it->pifo = q;
	p->count++;
	if (kind == FP_HEAP) {
		fp_heap_add(pool, p, item, it);
		return;
	}
	it->place = place;
	if (kind == FP_SP_PIFO)
		(*fp_sp_held(pool, p, place))++;
	if (fp_list_append(pool, fp_list_at(pool, p, place, kind), item, it))
		fp_mark(pool, p, q, place, kind);
}

/* Removes the item from this PIFO. Returns 0, or 1 if its record is wrong. */
FP_INLINE int fp_leave_as(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 item,
			  struct fp_item FP_MEM *it, u32 kind)
{
	u32 place = it->place;

	if (!p->count) {
		pool->broken++;
		return 1;
	}
	if (kind == FP_HEAP) {
		if (fp_heap_take(pool, p, item, it, 0))
			return 1;
		p->count--;
	} else {
		p->count--;
		if (kind == FP_SP_PIFO)
			(*fp_sp_held(pool, p, place))--;
		if (fp_list_unlink(pool, fp_list_at(pool, p, place, kind), item, it))
			fp_unmark(pool, p, q, place, kind);
	}
	it->pifo = 0;
	return 0;
}

/* The list that is served first, FP_NOWHERE if there is none. Does not move the window. */
FP_INLINE u32 fp_front_as(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 kind)
{
	u32 half = !p->top[0], first;

	if (!fp_is_window(kind))
		return p->top[0] ? fp_lowest(p->top[0]) : FP_NOWHERE;
	if (!p->top[half])
		return FP_NOWHERE;
	first = kind == FP_CFFS ? fp_cffs_first(pool, p, q, half)
				: fp_gradient_first(pool, q, half);
	return first < p->buckets ? fp_window_at(p, half, first) : FP_NOWHERE;
}

/* The list that is served last, FP_NOWHERE if there is none. */
FP_INLINE u32 fp_back_as(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 kind)
{
	u32 half = p->top[1] != 0, last;

	if (!fp_is_window(kind))
		return p->top[0] ? fp_highest(p->top[0]) : FP_NOWHERE;
	if (!p->top[half])
		return FP_NOWHERE;
	last = kind == FP_CFFS ? fp_cffs_find_deep(pool, q, half, 1)
			       : fp_gradient_last(pool, q, half);
	return last < p->buckets ? fp_window_at(p, half, last) : FP_NOWHERE;
}

/* fp_pifo_peek() for a known kind. */
FP_INLINE u32 fp_pifo_peek_as(struct fp_pool FP_MEM *pool, u32 q, u32 kind)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u32 place;

	if (!p->count || p->kind != kind)
		return 0;
	if (kind == FP_HEAP)
		return fp_heap_first(pool, p);
	place = fp_front_as(pool, p, q, kind);
	if (place == FP_NOWHERE)
		return 0;
	return fp_item_bound(pool, fp_list_at(pool, p, place, kind)->head);
}

/* fp_pifo_last() for a known kind. */
FP_INLINE u32 fp_pifo_last_as(struct fp_pool FP_MEM *pool, u32 q, u32 kind)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u32 place;

	if (!p->count || p->kind != kind)
		return 0;
	if (kind == FP_HEAP)
		return fp_heap_last(pool, q);
	place = fp_back_as(pool, p, q, kind);
	if (place == FP_NOWHERE)
		return 0;
	return fp_item_bound(pool, fp_list_at(pool, p, place, kind)->tail);
}

/* Pops in any case. */
FP_INLINE u32 fp_take_as(struct fp_pool FP_MEM *pool, u32 q, u32 kind)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	struct fp_list FP_MEM *list;
	u32 item, place, next;

	if (!p->count || p->kind != kind)
		return 0;
	if (kind == FP_HEAP) {
		item = fp_heap_first(pool, p);
		if (!item) {
			pool->broken++;
			return 0;
		}
		if (fp_heap_take_first(pool, p, item, fp_item_at(pool, item)))
			return 0;
		p->count--;
	} else {
		place = fp_front_as(pool, p, q, kind);
		if (place == FP_NOWHERE) {
			pool->broken++;
			return 0;
		}
		if (fp_is_window(kind) && fp_half_of(p, place))
			fp_window_rotate(pool, p);
		list = fp_list_at(pool, p, place, kind);
		item = fp_item_bound(pool, list->head);
		next = fp_item_at(pool, item)->next;
		list->head = next;
		p->count--;
		if (kind == FP_SP_PIFO)
			(*fp_sp_held(pool, p, place))--;
		if (!next)
			fp_unmark(pool, p, q, place, kind);
	}
	fp_item_at(pool, item)->pifo = 0;
	p->popped++;
	return item;
}

/* The position of items of lists in the order of service, after swaps of the halves. */
FP_INLINE u32 fp_turn_of(struct fp_pifo FP_MEM *p, u32 place, u32 kind)
{
	if (!fp_is_window(kind))
		return place;
	return fp_bucket_of(p, place) + (fp_half_of(p, place) ? p->buckets : 0);
}

/* Item `last` makes room, unless it `stays`. Returns 0 if there is capacity now. */
FP_INLINE int fp_count_pushed_out(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 last,
				  int stays)
{
	if (stays) {
		p->was_full++;
		return FP_REFUSED_FULL;
	}
	p->pushed_out++;
	pool->pushed_out = last;
	return 0;
}

/*
 * Pushes out the last item of a heap for an item of `rank`, unless that one would be the last. It
 * has no child, so that the stack for moving items down is not needed below long chains of calls.
 */
FP_FUNC int fp_push_out_of_heap(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u64 rank)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u32 last = p->full == FP_FULL_PUSH_OUT ? fp_heap_last(pool, q) : 0;
	struct fp_item FP_MEM *it = fp_item_at(pool, last);
	int stays = !last || rank >= it->rank || fp_heap_take(pool, p, last, it, 1);

	if (!stays) {
		it->pifo = 0;
		p->count--;
	}
	return fp_count_pushed_out(pool, p, last, stays);
}

/* The same for an item at `place` of another kind. */
FP_INLINE int fp_push_out_last_as(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q,
				  u32 place, u32 kind)
{
	u32 last = p->full == FP_FULL_PUSH_OUT ? fp_pifo_last_as(pool, q, kind) : 0;
	struct fp_item FP_MEM *it = fp_item_at(pool, last);

	return fp_count_pushed_out(
		pool, p, last,
		!last || fp_turn_of(p, place, kind) >= fp_turn_of(p, it->place, kind) ||
			fp_leave_as(pool, p, q, last, it, kind));
}

FP_FUNC int fp_push_out_of_list(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 place)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);

	switch (p->kind) {
	case FP_BANDS:
		return fp_push_out_last_as(pool, p, q, place, FP_BANDS);
	case FP_CFFS:
		return fp_push_out_last_as(pool, p, q, place, FP_CFFS);
	case FP_GRADIENT:
		return fp_push_out_last_as(pool, p, q, place, FP_GRADIENT);
	}
	p->was_full++;
	return FP_REFUSED_FULL;
}

/* Pushes in any case. */
FP_INLINE int fp_give_as(struct fp_pool FP_MEM *pool, u32 q, u32 item, u64 rank, u64 seq, u32 kind)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	struct fp_item FP_MEM *it = fp_item_at(pool, item);
	u32 place = 0;
	int refused;

	pool->pushed_out = 0;
	if (p->kind != kind)
		return fp_refuse_pifo(pool);
	if (!item || item > pool->items || it->pifo)
		return fp_refuse_item(pool);
	/* Approximate kinds do not push out, and a refusal must not move bounds. */
	if (kind == FP_SP_PIFO || kind == FP_AIFO) {
		int admitted = kind != FP_AIFO || fp_aifo_admits(pool, q, rank);

		if (p->count >= p->capacity) {
			p->was_full++;
			return FP_REFUSED_FULL;
		}
		if (!admitted) {
			p->not_admitted++;
			return FP_REFUSED_ADMISSION;
		}
	}
	if (kind != FP_HEAP) {
		place = fp_place_as(pool, p, q, rank, p->count, FP_NOWHERE, kind);
		if (place & FP_NOWHERE)
			return fp_refusal_of(place);
	}
	if (p->count >= p->capacity) {
		refused = kind == FP_HEAP ? fp_push_out_of_heap(pool, q, rank)
					  : fp_push_out_of_list(pool, q, place);
		if (refused)
			return refused;
	}
	it->rank = rank;
	it->seq = seq;
	fp_enter_as(pool, p, q, item, it, place, kind);
	return 0;
}

/* fp_pifo_put() of FP_HEAP. */
FP_FUNC int fp_pifo_put_in_heap(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 item, u64 rank,
				u64 seq)
{
	return fp_give_as(pool, q, item, rank, seq, FP_HEAP);
}

/* Kinds that are rarely on a hot path. */
FP_FUNC int fp_pifo_put_approximate(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 item, u64 rank,
				    u64 seq)
{
	switch (fp_pifo_at(pool, q)->kind) {
	case FP_GRADIENT:
		return fp_give_as(pool, q, item, rank, seq, FP_GRADIENT);
	case FP_SP_PIFO:
		return fp_give_as(pool, q, item, rank, seq, FP_SP_PIFO);
	case FP_AIFO:
		return fp_give_as(pool, q, item, rank, seq, FP_AIFO);
	}
	return fp_refuse_pifo(pool);
}

/* The other kinds. */
FP_FUNC int fp_pifo_put_in_list(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 item, u64 rank,
				u64 seq)
{
	switch (fp_pifo_at(pool, q)->kind) {
	case FP_BANDS:
		return fp_give_as(pool, q, item, rank, seq, FP_BANDS);
	case FP_CFFS:
		if (fp_cffs_push_soon(pool, q, item, rank, seq))
			return 0;
		return fp_give_as(pool, q, item, rank, seq, FP_CFFS);
	}
	pool->pushed_out = 0;
	return fp_refuse_pifo(pool);
}

/*
 * fp_pifo_push() of an item that arrived earlier. FP_HEAP orders equal ranks by `seq`. Other kinds
 * append it.
 */
FP_INLINE int fp_pifo_put(struct fp_pool FP_MEM *pool, u32 q, u32 item, u64 rank, u64 seq)
{
	u32 kind = fp_pifo_at(pool, q)->kind;

	if (kind == FP_HEAP)
		return fp_pifo_put_in_heap(pool, q, item, rank, seq);
	if (kind > FP_CFFS)
		return fp_pifo_put_approximate(pool, q, item, rank, seq);
	return fp_pifo_put_in_list(pool, q, item, rank, seq);
}

/*
 * Queues `item` in PIFO `q` by `rank`. Returns 0, or enum fp_refusal. If the PIFO is full and
 * pushes out, pool->pushed_out is the item that was pushed out, otherwise 0. The new item is
 * refused with FP_REFUSED_FULL if it would be the last.
 */
FP_INLINE int fp_pifo_push(struct fp_pool FP_MEM *pool, u32 q, u32 item, u64 rank)
{
	u64 seq = pool->seq + 1;

	pool->seq = seq;
	return fp_pifo_put(pool, q, item, rank, seq);
}

/* Kinds that are rarely on a hot path. */
FP_FUNC u32 fp_pifo_pop_approximate(struct fp_pool FP_MEM *pool FP_ARG, u32 q)
{
	switch (fp_pifo_at(pool, q)->kind) {
	case FP_GRADIENT:
		return fp_take_as(pool, q, FP_GRADIENT);
	case FP_SP_PIFO:
		return fp_take_as(pool, q, FP_SP_PIFO);
	case FP_AIFO:
		return fp_take_as(pool, q, FP_AIFO);
	}
	return 0;
}

/* Removes the item of the smallest rank, the earliest of those. Returns 0 if there is none. */
FP_FUNC u32 fp_pifo_pop(struct fp_pool FP_MEM *pool FP_ARG, u32 q)
{
	u32 item;

	switch (fp_pifo_at(pool, q)->kind) {
	case FP_HEAP:
		return fp_take_as(pool, q, FP_HEAP);
	case FP_BANDS:
		return fp_take_as(pool, q, FP_BANDS);
	case FP_CFFS:
		item = fp_cffs_pop_soon(pool, q);
		return item ? item : fp_take_as(pool, q, FP_CFFS);
	}
	return fp_pifo_pop_approximate(pool, q);
}

/*
 * fp_pifo_pop() for an expected kind. For FP_CFFS, the common case is inline without a call, and
 * fp_pifo_pop() handles every other case and kind.
 */
FP_INLINE u32 fp_pifo_pop_as(struct fp_pool FP_MEM *pool, u32 q, u32 kind)
{
	u32 item;

	if (kind != FP_CFFS)
		return fp_take_as(pool, q, kind);
	item = fp_cffs_pop_soon(pool, q);
	return item ? item : fp_pifo_pop(pool, q);
}

/* fp_pifo_push() for an expected kind, with FP_CFFS as in fp_pifo_pop_as(). */
FP_INLINE int fp_pifo_push_as(struct fp_pool FP_MEM *pool, u32 q, u32 item, u64 rank, u32 kind)
{
	u64 seq = pool->seq + 1;

	pool->seq = seq;
	if (kind != FP_CFFS)
		return fp_give_as(pool, q, item, rank, seq, kind);
	if (fp_cffs_push_soon(pool, q, item, rank, seq))
		return 0;
	return fp_pifo_put(pool, q, item, rank, seq);
}

/* The item that fp_pifo_pop() would remove, which stays. 0 if there is none. */
FP_FUNC u32 fp_pifo_peek(struct fp_pool FP_MEM *pool FP_ARG, u32 q)
{
	switch (fp_pifo_at(pool, q)->kind) {
	case FP_HEAP:
		return fp_pifo_peek_as(pool, q, FP_HEAP);
	case FP_BANDS:
		return fp_pifo_peek_as(pool, q, FP_BANDS);
	case FP_CFFS:
		return fp_pifo_peek_as(pool, q, FP_CFFS);
	case FP_GRADIENT:
		return fp_pifo_peek_as(pool, q, FP_GRADIENT);
	case FP_SP_PIFO:
		return fp_pifo_peek_as(pool, q, FP_SP_PIFO);
	case FP_AIFO:
		return fp_pifo_peek_as(pool, q, FP_AIFO);
	}
	return 0;
}

/* fp_pifo_peek() of `p`, the PIFO `q`: of a heap without a call. */
FP_INLINE u32 fp_pifo_first(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q)
{
	if (p->kind == FP_HEAP)
		return p->count ? fp_heap_first(pool, p) : 0;
	return fp_pifo_peek(pool, q);
}

/*
 * Advances a window like fp_pifo_pop(), for a caller that peeks at the first item and then moves or
 * removes it.
 */
FP_INLINE void fp_pifo_turn(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p)
{
	if (fp_is_window(p->kind) && p->count && !p->top[0])
		fp_window_rotate(pool, p);
}

/* The queued item that would be served last, which stays. 0 if there is none. */
FP_FUNC u32 fp_pifo_last(struct fp_pool FP_MEM *pool FP_ARG, u32 q)
{
	switch (fp_pifo_at(pool, q)->kind) {
	case FP_HEAP:
		return fp_pifo_last_as(pool, q, FP_HEAP);
	case FP_BANDS:
		return fp_pifo_last_as(pool, q, FP_BANDS);
	case FP_CFFS:
		return fp_pifo_last_as(pool, q, FP_CFFS);
	case FP_GRADIENT:
		return fp_pifo_last_as(pool, q, FP_GRADIENT);
	case FP_SP_PIFO:
		return fp_pifo_last_as(pool, q, FP_SP_PIFO);
	case FP_AIFO:
		return fp_pifo_last_as(pool, q, FP_AIFO);
	}
	return 0;
}

/* Removes an item from any position. Returns 0, or 1 if its record is wrong. */
FP_FUNC int fp_leave(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 item)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	struct fp_item FP_MEM *it = fp_item_at(pool, item);

	switch (p->kind) {
	case FP_HEAP:
		return fp_leave_as(pool, p, q, item, it, FP_HEAP);
	case FP_CFFS:
		return fp_leave_as(pool, p, q, item, it, FP_CFFS);
	case FP_GRADIENT:
		return fp_leave_as(pool, p, q, item, it, FP_GRADIENT);
	case FP_SP_PIFO:
		return fp_leave_as(pool, p, q, item, it, FP_SP_PIFO);
	case FP_BANDS:
	case FP_AIFO:
		return fp_leave_as(pool, p, q, item, it, FP_BANDS);
	}
	pool->broken++;
	return 1;
}

/* Removes an item from its PIFO. Returns 0, or FP_REFUSED_ITEM if it is in none. */
FP_FUNC int fp_pifo_remove(struct fp_pool FP_MEM *pool FP_ARG, u32 item)
{
	u32 q = fp_item_at(pool, item)->pifo;

	if (!item || item > pool->items || !q || fp_leave(pool, q, item))
		return fp_refuse_item(pool);
	fp_pifo_at(pool, q)->removed++;
	return 0;
}

/* The position of a queued item for another rank. */
FP_FUNC u32 fp_new_place(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u64 rank, u32 from)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);

	switch (p->kind) {
	case FP_CFFS:
	case FP_GRADIENT:
		return fp_place_as(pool, p, q, rank, p->count - 1, from, FP_CFFS);
	case FP_BANDS:
		return fp_place_as(pool, p, q, rank, p->count - 1, from, FP_BANDS);
	case FP_SP_PIFO:
		return fp_place_as(pool, p, q, rank, p->count - 1, from, FP_SP_PIFO);
	}
	return 0;
}

/* Adds an item that left at the position from fp_new_place(); not in a heap. */
FP_FUNC int fp_enter(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 item, u32 place)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	struct fp_item FP_MEM *it = fp_item_at(pool, item);

	switch (p->kind) {
	case FP_CFFS:
		fp_enter_as(pool, p, q, item, it, place, FP_CFFS);
		break;
	case FP_GRADIENT:
		fp_enter_as(pool, p, q, item, it, place, FP_GRADIENT);
		break;
	case FP_SP_PIFO:
		fp_enter_as(pool, p, q, item, it, place, FP_SP_PIFO);
		break;
	default:
		fp_enter_as(pool, p, q, item, it, place, FP_BANDS);
	}
	return 0;
}

/* fp_pifo_move() in a heap. `seq` as for a put. */
FP_INLINE int fp_heap_move(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 item,
			   struct fp_item FP_MEM *it, u64 rank, u64 seq)
{
	it->rank = rank;
	it->seq = seq;
	if (!fp_heap_shift(pool, p, item, it)) {
		if (fp_heap_leave(pool, p, item, it))
			return fp_refuse_item(pool);
		fp_heap_enter(pool, p, item, it);
	}
	p->moved++;
	return 0;
}

/*
 * fp_pifo_put() into a heap that has capacity: without pushing out, which needs more stack. Returns
 * 0, or FP_REFUSED_ITEM.
 */
FP_INLINE int fp_heap_put(struct fp_pool FP_MEM *pool, u32 q, u32 item, u64 rank, u64 seq)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	struct fp_item FP_MEM *it = fp_item_at(pool, item);

	if (p->kind != FP_HEAP || p->count >= p->capacity || it->pifo)
		return fp_refuse_item(pool);
	it->rank = rank;
	it->seq = seq;
	it->pifo = q;
	p->count++;
	return fp_heap_enter(pool, p, item, it);
}

/*
 * Changes the rank of a queued item, which counts as a new arrival. Returns 0, FP_REFUSED_ITEM if
 * it is in no PIFO, or the refusal of the rank; then it stays where it was. An FP_AIFO always
 * admits it.
 */
FP_FUNC int fp_pifo_move(struct fp_pool FP_MEM *pool FP_ARG, u32 item, u64 rank)
{
	struct fp_item FP_MEM *it = fp_item_at(pool, item);
	u32 q = it->pifo, place;
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);

	if (!item || item > pool->items || !q)
		return fp_refuse_item(pool);
	if (p->kind == FP_HEAP)
		return fp_heap_move(pool, p, item, it, rank, ++pool->seq);
	place = fp_new_place(pool, q, rank, it->place);
	if (place & FP_NOWHERE)
		return fp_refusal_of(place);
	if (fp_leave(pool, q, item))
		return fp_refuse_item(pool);
	it->rank = rank;
	it->seq = ++pool->seq;
	fp_enter(pool, q, item, place);
	p->moved++;
	return 0;
}

/* Pops up to `n` items (at most FP_POP_BATCH) into `out`. Returns their number. */
FP_FUNC u32 fp_pifo_pop_batch(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 FP_MEM *out FP_ARG,
			      u32 n)
{
	u32 i;

	fp_loop(i, FP_POP_BATCH) {
		u32 item;

		if (i >= n)
			break;
		item = fp_pifo_pop(pool, q);
		if (!item)
			break;
		out[i] = item;
	}
	return i;
}

#endif /* FP_PIFO_H */
