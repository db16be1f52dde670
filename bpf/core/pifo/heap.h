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

/* The items from position 0 on; the caller checks positions once, with fp_heap_bound(). */
FP_INLINE u32 FP_MEM *fp_heap_slots(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p)
{
	return (u32 FP_MEM *)fp_word_at(pool, p, 0);
}

/* `count`, or fewer: as many positions as there is memory for. */
FP_INLINE u32 fp_heap_bound(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 count)
{
	u64 at = p->at[0];
	u64 space = at < pool->capacity ? (pool->capacity - at) * 2 : 1;

	return count < space ? count : (u32)space;
}

FP_INLINE int fp_before(struct fp_item FP_MEM *a, struct fp_item FP_MEM *b)
{
	return a->rank < b->rank || (a->rank == b->rank && a->seq < b->seq);
}

/* Moves the hole at `pos`, which has memory, up to the position of `item`. */
FP_FUNC int fp_heap_up(struct fp_pool FP_MEM *pool FP_ARG, u32 FP_MEM *slots FP_ARG, u32 item,
		       u32 pos)
{
	struct fp_item FP_MEM *it = fp_item_at(pool, item);
	u32 i;

	fp_loop(i, FP_HEAP_LEVELS) {
		u32 up = (pos - 1) / 4, above;
		struct fp_item FP_MEM *parent;

		if (!pos)
			break;
		above = slots[up];
		parent = fp_item_at(pool, above);
		if (!fp_before(it, parent))
			break;
		slots[pos] = above;
		parent->place = pos;
		pos = up;
	}
	slots[pos] = item;
	it->place = pos;
	return 0;
}

/* Replaces position `*min` by `pos` if its item is before `it`. Returns the item of `*min`. */
FP_INLINE struct fp_item FP_MEM *fp_heap_prefer(struct fp_pool FP_MEM *pool,
						const u32 FP_MEM *slots, u32 pos, u32 *min,
						struct fp_item FP_MEM *it)
{
	struct fp_item FP_MEM *other = fp_item_at(pool, slots[pos]);

	if (!fp_before(other, it))
		return it;
	*min = pos;
	return other;
}

/* The first of up to four positions from `first` on, which is one of `count`. */
FP_INLINE u32 fp_heap_first_of(struct fp_pool FP_MEM *pool, const u32 FP_MEM *slots, u32 first,
			       u32 count)
{
	struct fp_item FP_MEM *it = fp_item_at(pool, slots[first]);
	u32 min = first;

	if (count - first > 3) {
		it = fp_heap_prefer(pool, slots, first + 1, &min, it);
		it = fp_heap_prefer(pool, slots, first + 2, &min, it);
		fp_heap_prefer(pool, slots, first + 3, &min, it);
		return min;
	}
	if (count - first > 1)
		it = fp_heap_prefer(pool, slots, first + 1, &min, it);
	if (count - first > 2)
		fp_heap_prefer(pool, slots, first + 2, &min, it);
	return min;
}

/* Moves the hole at `pos` down to the position of `item`, in a heap of `count`, all with memory. */
FP_FUNC int fp_heap_down(struct fp_pool FP_MEM *pool FP_ARG, u32 FP_MEM *slots FP_ARG, u32 item,
			 u32 pos, u32 count)
{
	struct fp_item FP_MEM *it = fp_item_at(pool, item);
	u32 i;

	fp_loop(i, FP_HEAP_LEVELS) {
		u64 first = (u64)pos * 4 + 1;
		struct fp_item FP_MEM *child;
		u32 down, below;

		if (first >= count)
			break;
		down = fp_heap_first_of(pool, slots, (u32)first, count);
		below = slots[down];
		child = fp_item_at(pool, below);
		if (!fp_before(child, it))
			break;
		slots[pos] = below;
		child->place = pos;
		pos = down;
	}
	slots[pos] = item;
	it->place = pos;
	return 0;
}

/* Moves the hole at `pos` up or down to the position of `item`. `count` as in fp_heap_down(). */
FP_INLINE void fp_heap_settle(struct fp_pool FP_MEM *pool, u32 FP_MEM *slots, u32 item,
			      struct fp_item FP_MEM *it, u32 pos, u32 count)
{
	if (pos && fp_before(it, fp_item_at(pool, slots[(pos - 1) / 4])))
		fp_heap_up(pool, slots, item, pos);
	else
		fp_heap_down(pool, slots, item, pos, count);
}

/* Adds an item. The caller ensures that count < capacity. */
FP_INLINE void fp_heap_add(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 item)
{
	u32 pos = p->count++;

	if (fp_heap_bound(pool, p, p->count) > pos)
		fp_heap_up(pool, fp_heap_slots(pool, p), item, pos);
	else
		pool->broken++;
}

/* Removes the item at `pos`. The last item fills the hole. The caller ensures that count > 0. */
FP_INLINE void fp_heap_take(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 pos)
{
	u32 end = p->count - 1, filler = *fp_heap_slot(pool, p, end);
	u32 count = fp_heap_bound(pool, p, end);

	p->count = end;
	if (pos < count)
		fp_heap_settle(pool, fp_heap_slots(pool, p), filler, fp_item_at(pool, filler), pos,
			       count);
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
