/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * heap.h: FP_HEAP, exact order of any ranks. An implicit heap with four children per node over item
 * numbers. Each item stores its position, so any item can be moved and removed.
 *
 * Push, pop, move, remove O(log4 n). peek O(1). last O(n), since the largest is one of the leaves:
 * pushing out of a large full heap is slow, and cffs.h is the alternative. Memory: 4 bytes per item
 * of `capacity`, in addition to the items.
 *
 * Invariant: no child is before its parent, where before is (rank, seq) as unsigned numbers.
 */
#ifndef FP_HEAP_H
#define FP_HEAP_H

#include "item.h"

#define FP_NO_PLACE 0xffffffffu
/* Maximum depth of a heap: 4^16 = 2^32. */
#define FP_HEAP_LEVELS 17

/* The item at position `pos` of the heap: two per word. */
FP_INLINE u32 FP_MEM *fp_heap_slot(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u64 pos)
{
	return (u32 FP_MEM *)fp_word_at(pool, p, pos / 2) + pos % 2;
}

FP_INLINE int fp_before(struct fp_item FP_MEM *a, struct fp_item FP_MEM *b)
{
	return a->rank < b->rank || (a->rank == b->rank && a->seq < b->seq);
}

/* Stores the position of an item in the heap and in the item. */
FP_INLINE void fp_heap_put(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 pos, u32 item,
			   struct fp_item FP_MEM *it)
{
	*fp_heap_slot(pool, p, pos) = item;
	it->place = pos;
}

/* Moves the hole at `pos` up to the position of `item`. */
FP_FUNC int fp_heap_up(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 item, u32 pos)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	struct fp_item FP_MEM *it = fp_item_at(pool, item);
	u32 i;

	fp_loop(i, FP_HEAP_LEVELS) {
		u32 up = (pos - 1) / 4, above;
		struct fp_item FP_MEM *parent;

		if (!pos)
			break;
		above = *fp_heap_slot(pool, p, up);
		parent = fp_item_at(pool, above);
		if (!fp_before(it, parent))
			break;
		fp_heap_put(pool, p, pos, above, parent);
		pos = up;
	}
	fp_heap_put(pool, p, pos, item, it);
	return 0;
}

/* The position of the first of up to four children of `pos`, FP_NO_PLACE if there is none. */
FP_INLINE u32 fp_heap_min_child(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 pos)
{
	u64 first = (u64)pos * 4 + 1, rank = 0, seq = 0;
	u32 min = FP_NO_PLACE, c;

	for (c = 0; c < 4; c++) {
		struct fp_item FP_MEM *child;

		if (first + c >= p->count)
			break;
		child = fp_item_at(pool, *fp_heap_slot(pool, p, first + c));
		if (!c || child->rank < rank || (child->rank == rank && child->seq < seq)) {
			min = (u32)(first + c);
			rank = child->rank;
			seq = child->seq;
		}
	}
	return min;
}

/* Moves the hole at `pos` down to the position of `item`. */
FP_FUNC int fp_heap_down(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 item, u32 pos)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	struct fp_item FP_MEM *it = fp_item_at(pool, item);
	u32 i;

	fp_loop(i, FP_HEAP_LEVELS) {
		u32 down = fp_heap_min_child(pool, p, pos), below;
		struct fp_item FP_MEM *child;

		if (down == FP_NO_PLACE)
			break;
		below = *fp_heap_slot(pool, p, down);
		child = fp_item_at(pool, below);
		if (!fp_before(child, it))
			break;
		fp_heap_put(pool, p, pos, below, child);
		pos = down;
	}
	fp_heap_put(pool, p, pos, item, it);
	return 0;
}

/* Removes the item at `pos`. The last item fills the hole. The caller ensures that count > 0. */
FP_INLINE void fp_heap_take(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 pos)
{
	u32 end = p->count - 1, filler = *fp_heap_slot(pool, p, end);
	struct fp_item FP_MEM *it = fp_item_at(pool, filler);

	p->count = end;
	if (pos >= end)
		return;
	if (pos && fp_before(it, fp_item_at(pool, *fp_heap_slot(pool, p, (pos - 1) / 4))))
		fp_heap_up(pool, q, filler, pos);
	else
		fp_heap_down(pool, q, filler, pos);
}

/* The largest rank, the latest of those. O(n). */
FP_FUNC u32 fp_heap_last(struct fp_pool FP_MEM *pool FP_ARG, u32 q)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u32 count = p->count < pool->items ? p->count : pool->items;
	u32 last, i, first;

	if (!count)
		return 0;
	/* The first leaf: the first position without a child at 4 * pos + 1. */
	first = count > 1 ? (count - 2) / 4 + 1 : 0;
	last = *fp_heap_slot(pool, p, count - 1);
	fp_loop(i, count - first) {
		u32 other = *fp_heap_slot(pool, p, first + i);

		if (fp_before(fp_item_at(pool, last), fp_item_at(pool, other)))
			last = other;
	}
	return fp_item_bound(pool, last);
}

#endif /* FP_HEAP_H */
