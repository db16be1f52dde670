/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * heap.h: FP_HEAP, exact order of any ranks: two runs, which are FIFO lists of increasing ranks, and
 * a heap of the other items.
 *
 *   run 0   3 - 5 - 8         push: appended to the run whose last rank is the highest that is not
 *   run 1   4 - 40            above the new one; into the heap if there is none
 *   heap    [ 6 9 7 ]         pop: the first of three
 *
 * Most queues of a scheduler get ranks nearly in order: virtual times of equal weights, send times of
 * equal rates, arrivals. They never use the heap. It is implicit, with four children per node over
 * item numbers. Each item stores its run, or its position, so any item can be moved and removed.
 *
 * Push, pop, move, remove O(1) in runs and O(log4 n) in the heap. peek O(1). last O(n), since the
 * largest is one of the leaves: pushing out of a large full heap is slow, and cffs.h is the
 * alternative. Memory: 64 bytes, and 4 per item of `capacity`, in addition to the items.
 *
 * Invariants, where before is (rank, seq) as unsigned numbers: in the heap, no child is before its
 * parent; in a run, no item is before the previous one.
 */
#ifndef FP_HEAP_H
#define FP_HEAP_H

#include "item.h"

/* Maximum depth of a heap: 4^16 = 2^32. */
#define FP_HEAP_LEVELS 17

#define FP_RUNS 2
/* fp_item.place of an item of run r: this bit, and r. Otherwise the position in the heap. */
#define FP_IN_RUN 0x80000000u

/* The runs, which precede the positions of the heap. */
struct fp_runs {
	u64 first[FP_RUNS]; /* rank of the head */
	u64 last[FP_RUNS];  /* rank of the tail */
	struct fp_list list[FP_RUNS];
	u32 heap; /* items in the heap */
	u32 zero[3];
};

_Static_assert(sizeof(struct fp_runs) == 64, "one cache line");

#define FP_RUN_WORDS (sizeof(struct fp_runs) / 8)

FP_INLINE struct fp_runs FP_MEM *fp_runs_of(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p)
{
	u64 at = p->at[0];

	return (struct fp_runs FP_MEM *)fp_pool_bound(pool,
						      at + FP_RUN_WORDS <= pool->capacity ? at : 0);
}

/* The items from position 0 on, two per word; the caller checks positions, with fp_heap_bound(). */
FP_INLINE u32 FP_MEM *fp_heap_slots(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p)
{
	return (u32 FP_MEM *)fp_word_at(pool, p, FP_RUN_WORDS);
}

/* The item at position `pos` of the heap. */
FP_INLINE u32 FP_MEM *fp_heap_slot(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u64 pos)
{
	return (u32 FP_MEM *)fp_word_at(pool, p, FP_RUN_WORDS + pos / 2) + pos % 2;
}

/* `count`, or fewer: as many positions as there is memory for. */
FP_INLINE u32 fp_heap_bound(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 count)
{
	u64 at = (u64)p->at[0] + FP_RUN_WORDS;
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

/* The run that the item continues: the one with the highest rank; FP_RUNS if there is none. */
FP_SHORT u32 fp_run_for(struct fp_pool FP_MEM *pool FP_ARG, struct fp_runs FP_MEM *runs FP_ARG,
			u64 rank, u64 seq)
{
	u32 found = FP_RUNS, r;
	u64 best = 0;

	for (r = 0; r < FP_RUNS; r++) {
		u64 last = runs->last[r];

		if (!runs->list[r].head) {
			if (found == FP_RUNS)
				found = r;
		} else if (last <= rank && last >= best) {
			found = r;
			best = last;
		}
	}
	if (found < FP_RUNS && runs->list[found].head && runs->last[found] == rank &&
	    fp_item_at(pool, runs->list[found].tail)->seq > seq)
		found = FP_RUNS;
	return found;
}

FP_INLINE void fp_run_append(struct fp_pool FP_MEM *pool, struct fp_runs FP_MEM *runs, u32 r,
			     u32 item, struct fp_item FP_MEM *it)
{
	it->place = FP_IN_RUN | r;
	runs->last[r] = it->rank;
	if (fp_list_append(pool, &runs->list[r], item, it))
		runs->first[r] = it->rank;
}

FP_SHORT int fp_run_unlink(struct fp_pool FP_MEM *pool FP_ARG, struct fp_runs FP_MEM *runs FP_ARG,
			   u32 item, struct fp_item FP_MEM *it FP_ARG)
{
	u32 r = it->place & (FP_RUNS - 1);
	struct fp_list FP_MEM *list = &runs->list[r];
	u32 was_head = list->head == item, was_tail = list->tail == item;

	if (fp_list_unlink(pool, list, item, it))
		return 0;
	if (was_head)
		runs->first[r] = fp_item_at(pool, list->head)->rank;
	if (was_tail)
		runs->last[r] = fp_item_at(pool, list->tail)->rank;
	return 0;
}

/* The first item, 0 if there is none. */
FP_SHORT u32 fp_heap_first(struct fp_pool FP_MEM *pool FP_ARG, struct fp_pifo FP_MEM *p FP_ARG)
{
	struct fp_runs FP_MEM *runs = fp_runs_of(pool, p);
	u32 first = runs->list[0].head, other, r;
	u64 rank = runs->first[0];

	for (r = 1; r < FP_RUNS; r++) {
		other = runs->list[r].head;
		if (other && (!first || runs->first[r] < rank ||
			      (runs->first[r] == rank &&
			       fp_item_at(pool, other)->seq < fp_item_at(pool, first)->seq))) {
			first = other;
			rank = runs->first[r];
		}
	}
	if (!runs->heap)
		return fp_item_bound(pool, first);
	other = *fp_heap_slot(pool, p, 0);
	if (!first || fp_before(fp_item_at(pool, other), fp_item_at(pool, first)))
		first = other;
	return fp_item_bound(pool, first);
}

/* Adds an item, whose rank and seq are set. The caller counts it. */
FP_INLINE void fp_heap_add(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 item,
			   struct fp_item FP_MEM *it)
{
	struct fp_runs FP_MEM *runs = fp_runs_of(pool, p);
	u32 r = fp_run_for(pool, runs, it->rank, it->seq), pos;

	if (r < FP_RUNS) {
		fp_run_append(pool, runs, r, item, it);
		return;
	}
	pos = runs->heap++;
	if (fp_heap_bound(pool, p, pos + 1) > pos)
		fp_heap_up(pool, fp_heap_slots(pool, p), item, pos);
	else
		pool->broken++;
}

/*
 * Removes an item. The last one of the heap fills its hole, and moves down only if the item is not a
 * `leaf`. Returns 0, or 1 if its record is wrong.
 */
FP_INLINE int fp_heap_take(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 item,
			   struct fp_item FP_MEM *it, int leaf)
{
	struct fp_runs FP_MEM *runs = fp_runs_of(pool, p);
	u32 pos = it->place, end, filler, count;

	if (pos & FP_IN_RUN)
		return fp_run_unlink(pool, runs, item, it);
	if (pos >= runs->heap || *fp_heap_slot(pool, p, pos) != item) {
		pool->broken++;
		return 1;
	}
	end = runs->heap - 1;
	filler = *fp_heap_slot(pool, p, end);
	count = fp_heap_bound(pool, p, end);
	runs->heap = end;
	if (pos < count && leaf)
		fp_heap_up(pool, fp_heap_slots(pool, p), filler, pos);
	else if (pos < count)
		fp_heap_settle(pool, fp_heap_slots(pool, p), filler, fp_item_at(pool, filler), pos,
			       count);
	return 0;
}

/*
 * Removes `item`, the first one. Where it is found counts, and not its record, which may be wrong.
 * Returns 0, or 1 if it is not there.
 */
FP_INLINE int fp_heap_take_first(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 item,
				 struct fp_item FP_MEM *it)
{
	struct fp_runs FP_MEM *runs = fp_runs_of(pool, p);

	if (runs->list[0].head == item)
		it->place = FP_IN_RUN;
	else
		it->place = runs->list[1].head == item ? FP_IN_RUN | 1 : 0;
	return fp_heap_take(pool, p, item, it, 0);
}

/*
 * Moves an item of the heap whose rank and seq changed, if no run takes it: only the items between
 * the two positions move. Returns 0 in other cases, without changes.
 */
FP_SHORT int fp_heap_shift(struct fp_pool FP_MEM *pool FP_ARG, struct fp_pifo FP_MEM *p FP_ARG,
			   u32 item, struct fp_item FP_MEM *it FP_ARG)
{
	struct fp_runs FP_MEM *runs = fp_runs_of(pool, p);
	u32 count = fp_heap_bound(pool, p, runs->heap), pos = it->place;
	u32 FP_MEM *slots = fp_heap_slots(pool, p);

	if (pos >= count || slots[pos] != item ||
	    fp_run_for(pool, runs, it->rank, it->seq) < FP_RUNS)
		return 0;
	fp_heap_settle(pool, slots, item, it, pos, count);
	return 1;
}

/* fp_heap_take() and fp_heap_add() as calls. */
FP_SHORT int fp_heap_leave(struct fp_pool FP_MEM *pool FP_ARG, struct fp_pifo FP_MEM *p FP_ARG,
			   u32 item, struct fp_item FP_MEM *it FP_ARG)
{
	return fp_heap_take(pool, p, item, it, 0);
}

FP_SHORT int fp_heap_enter(struct fp_pool FP_MEM *pool FP_ARG, struct fp_pifo FP_MEM *p FP_ARG,
			   u32 item, struct fp_item FP_MEM *it FP_ARG)
{
	fp_heap_add(pool, p, item, it);
	return 0;
}

/* The largest rank, the latest of those. O(n). */
FP_FUNC u32 fp_heap_last(struct fp_pool FP_MEM *pool FP_ARG, u32 q)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	struct fp_runs FP_MEM *runs = fp_runs_of(pool, p);
	u32 count = runs->heap < pool->items ? runs->heap : pool->items;
	u32 last = 0, i, first;

	fp_loop(i, FP_RUNS) {
		u32 other = runs->list[i & (FP_RUNS - 1)].tail;

		if (runs->list[i & (FP_RUNS - 1)].head &&
		    (!last || fp_before(fp_item_at(pool, last), fp_item_at(pool, other))))
			last = other;
	}
	/* The first leaf: the first position without a child at 4 * pos + 1. */
	first = count > 1 ? (count - 2) / 4 + 1 : 0;
	fp_loop(i, count - first) {
		u32 other = *fp_heap_slot(pool, p, first + i);

		if (!last || fp_before(fp_item_at(pool, last), fp_item_at(pool, other)))
			last = other;
	}
	return fp_item_bound(pool, last);
}

#endif /* FP_HEAP_H */
