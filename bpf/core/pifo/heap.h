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
 * equal rates, arrivals. They never use the heap. It is implicit, with four children per node, whose
 * entries are one cache line: ranks and item numbers. Each item stores its run, or its position, so
 * any item can be moved and removed.
 *
 * Push, pop, move, remove O(1) in runs and O(log4 n) in the heap. peek O(1). last O(n), since the
 * largest is one of the leaves: pushing out of a large full heap is slow, and cffs.h is the
 * alternative. Memory: 112 bytes, and 16 per item of `capacity`, in addition to the items.
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

/* One position of the heap. */
struct fp_entry {
	u64 rank; /* of the item */
	u32 item;
	u32 zero;
};

#define FP_RUN_WORDS (sizeof(struct fp_runs) / 8)
/* Of a position. */
#define FP_ENTRY_WORDS (sizeof(struct fp_entry) / 8)
/* Words before position 0: the runs, and space, so that children (4 i + 1 to 4 i + 4) are one line. */
#define FP_HEAP_WORDS (FP_RUN_WORDS + 3 * FP_ENTRY_WORDS)

FP_INLINE struct fp_runs FP_MEM *fp_runs_of(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p)
{
	u64 at = p->at[0];

	return (struct fp_runs FP_MEM *)fp_pool_bound(pool,
						      at + FP_RUN_WORDS <= pool->capacity ? at : 0);
}

/* The entries from position 0 on; the caller checks positions, with fp_heap_bound(). */
FP_INLINE struct fp_entry FP_MEM *fp_heap_entries(struct fp_pool FP_MEM *pool,
						  struct fp_pifo FP_MEM *p)
{
	return (struct fp_entry FP_MEM *)fp_word_at(pool, p, FP_HEAP_WORDS);
}

/* Position `pos` of the heap. */
FP_INLINE struct fp_entry FP_MEM *fp_heap_entry(struct fp_pool FP_MEM *pool,
						struct fp_pifo FP_MEM *p, u64 pos)
{
	return (struct fp_entry FP_MEM *)fp_word_at(pool, p, FP_HEAP_WORDS + pos * FP_ENTRY_WORDS);
}

/* `count`, or fewer: as many positions as there is memory for. */
FP_INLINE u32 fp_heap_bound(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 count)
{
	u64 at = (u64)p->at[0] + FP_HEAP_WORDS;
	u64 space = at < pool->capacity ? (pool->capacity - at) / FP_ENTRY_WORDS + 1 : 1;

	return count < space ? count : (u32)space;
}

FP_INLINE int fp_before(struct fp_item FP_MEM *a, struct fp_item FP_MEM *b)
{
	return a->rank < b->rank || (a->rank == b->rank && a->seq < b->seq);
}

/* True if the item is before that of an entry. Items of equal ranks are read. */
FP_INLINE int fp_before_entry(struct fp_pool FP_MEM *pool, struct fp_item FP_MEM *it,
			      struct fp_entry FP_MEM *entry)
{
	u64 rank = it->rank, other = entry->rank;

	return rank < other || (rank == other && it->seq < fp_item_at(pool, entry->item)->seq);
}

/* The same for two entries. */
FP_INLINE int fp_entry_before(struct fp_pool FP_MEM *pool, struct fp_entry FP_MEM *a,
			      struct fp_entry FP_MEM *b)
{
	return a->rank < b->rank || (a->rank == b->rank && fp_item_at(pool, a->item)->seq <
								   fp_item_at(pool, b->item)->seq);
}

/* Writes an item to a position. */
FP_INLINE void fp_heap_set(struct fp_entry FP_MEM *entry, u64 rank, u32 item,
			   struct fp_item FP_MEM *it, u32 pos)
{
	entry->rank = rank;
	entry->item = item;
	it->place = pos;
}

/* Moves the hole at `pos`, which has memory, up to the position of `item`. */
FP_FUNC int fp_heap_up(struct fp_pool FP_MEM *pool FP_ARG, struct fp_entry FP_MEM *entries FP_ARG,
		       u32 item, u32 pos)
{
	struct fp_item FP_MEM *it = fp_item_at(pool, item);
	u32 i;

	fp_loop(i, FP_HEAP_LEVELS) {
		u32 up = (pos - 1) / 4;
		struct fp_entry FP_MEM *parent;

		if (!pos)
			break;
		parent = &entries[up];
		if (!fp_before_entry(pool, it, parent))
			break;
		fp_heap_set(&entries[pos], parent->rank, parent->item,
			    fp_item_at(pool, parent->item), pos);
		pos = up;
	}
	fp_heap_set(&entries[pos], it->rank, item, it, pos);
	return 0;
}

/* Replaces position `*min` by `pos` if its item is before that of `*min`. */
FP_INLINE void fp_heap_prefer(struct fp_pool FP_MEM *pool, struct fp_entry FP_MEM *entries, u32 pos,
			      u32 *min)
{
	if (fp_entry_before(pool, &entries[pos], &entries[*min]))
		*min = pos;
}

#ifndef __bpf__
/*
 * The first of four positions without a branch, since it is random; 0 if ranks are equal. In BPF, it
 * would need more of the stack than the verifier permits.
 */
FP_INLINE u32 fp_heap_first_of_four(const struct fp_entry *entries, u32 first)
{
	u64 rank = entries[first].rank;
	u32 min = first, equal = 0, pos;

	for (pos = first + 1; pos < first + 4; pos++) {
		u64 other = entries[pos].rank;

		equal |= other == rank;
		min = other < rank ? pos : min;
		rank = other < rank ? other : rank;
	}
	return equal ? 0 : min;
}
#endif

/* The first of up to four positions from `first` on, which is one of `count`. */
FP_INLINE u32 fp_heap_first_of(struct fp_pool FP_MEM *pool, struct fp_entry FP_MEM *entries,
			       u32 first, u32 count)
{
	u32 min = first;

	if (count - first > 3) {
#ifndef __bpf__
		u32 found = fp_heap_first_of_four(entries, first);

		if (fp_likely(found))
			return found;
#endif
		fp_heap_prefer(pool, entries, first + 1, &min);
		fp_heap_prefer(pool, entries, first + 2, &min);
		fp_heap_prefer(pool, entries, first + 3, &min);
		return min;
	}
	if (count - first > 1)
		fp_heap_prefer(pool, entries, first + 1, &min);
	if (count - first > 2)
		fp_heap_prefer(pool, entries, first + 2, &min);
	return min;
}

/* Moves the hole at `pos` down to the position of `item`, in a heap of `count`, all with memory. */
FP_FUNC int fp_heap_down(struct fp_pool FP_MEM *pool FP_ARG, struct fp_entry FP_MEM *entries FP_ARG,
			 u32 item, u32 pos, u32 count)
{
	struct fp_item FP_MEM *it = fp_item_at(pool, item);
	u32 i;

	fp_loop(i, FP_HEAP_LEVELS) {
		u64 first = (u64)pos * 4 + 1;
		struct fp_entry FP_MEM *child;
		u32 down;

		if (first >= count)
			break;
		down = fp_heap_first_of(pool, entries, (u32)first, count);
		child = &entries[down];
		if (fp_before_entry(pool, it, child))
			break;
		fp_heap_set(&entries[pos], child->rank, child->item, fp_item_at(pool, child->item),
			    pos);
		pos = down;
	}
	fp_heap_set(&entries[pos], it->rank, item, it, pos);
	return 0;
}

/* Moves the hole at `pos` up or down to the position of `item`. `count` as in fp_heap_down(). */
FP_INLINE void fp_heap_settle(struct fp_pool FP_MEM *pool, struct fp_entry FP_MEM *entries,
			      u32 item, struct fp_item FP_MEM *it, u32 pos, u32 count)
{
	if (pos && fp_before_entry(pool, it, &entries[(pos - 1) / 4]))
		fp_heap_up(pool, entries, item, pos);
	else
		fp_heap_down(pool, entries, item, pos, count);
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
	struct fp_entry FP_MEM *entry;
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
	entry = fp_heap_entry(pool, p, 0);
	if (!first || entry->rank < rank ||
	    (entry->rank == rank &&
	     fp_item_at(pool, entry->item)->seq < fp_item_at(pool, first)->seq))
		first = entry->item;
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
		fp_heap_up(pool, fp_heap_entries(pool, p), item, pos);
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
	if (pos >= runs->heap || fp_heap_entry(pool, p, pos)->item != item) {
		pool->broken++;
		return 1;
	}
	end = runs->heap - 1;
	filler = fp_heap_entry(pool, p, end)->item;
	count = fp_heap_bound(pool, p, end);
	runs->heap = end;
	if (pos < count && leaf)
		fp_heap_up(pool, fp_heap_entries(pool, p), filler, pos);
	else if (pos < count)
		fp_heap_settle(pool, fp_heap_entries(pool, p), filler, fp_item_at(pool, filler),
			       pos, count);
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
	struct fp_entry FP_MEM *entries = fp_heap_entries(pool, p);

	if (pos >= count || entries[pos].item != item ||
	    fp_run_for(pool, runs, it->rank, it->seq) < FP_RUNS)
		return 0;
	fp_heap_settle(pool, entries, item, it, pos, count);
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
		struct fp_entry FP_MEM *entry = fp_heap_entry(pool, p, first + i);

		if (!last || fp_before_entry(pool, fp_item_at(pool, last), entry))
			last = entry->item;
	}
	return fp_item_bound(pool, last);
}

#endif /* FP_HEAP_H */
