/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * cffs.h: FP_CFFS, Eiffel's circular hierarchical find-first-set queue (Saeed et al., NSDI 2019,
 * section 3.1.1): buckets of ranks in a window that moves.
 *
 *        base             base + N g           base + 2 N g
 *          |  primary half   |  secondary half    |
 *   below  | 0 | 1 | .. |N-1 | 0 | 1 |  ..  | N-1 |  beyond       g = 2^shift ranks a bucket
 *
 *   top          [ . . 1 . ]              one word a half, in struct fp_pifo
 *                  /   |
 *   level 1   [..1.] [....] ...           bit set <=> the word below is not 0
 *               |
 *   level 0   [.1..] [....] ...           bit set <=> the bucket is not empty
 *
 * There are two halves, because a single array by modulo would serve ranks of the next turn before
 * those of this one. The halves swap only on a pop with an empty primary half; then base increases
 * by N g. A push into an empty PIFO with a rank outside the window moves the window to the rank,
 * with half a primary half below it for lower ranks that follow. So an idle queue of times starts
 * again.
 *
 * All operations are O(levels), at most four words. Memory: 16 bytes per bucket and 1/8 byte for
 * the bit of each half. N is any number from 1 to 2^20. Ranks are plain 64-bit numbers.
 *
 * Order is (bucket, arrival), which is exact if g is 1. Invariants: a bit is set if and only if its
 * bucket is not empty; base never decreases; without clamping, a popped rank is at least base.
 */
#ifndef FP_CFFS_H
#define FP_CFFS_H

#include "bands.h"

/* Below the top: 64^4 > 2^20 buckets. */
#define FP_CFFS_LEVELS 3

/* The position of a bucket of a half. */
FP_INLINE u32 fp_window_at(struct fp_pifo FP_MEM *p, u32 half, u32 bucket)
{
	return (half & 1 ? p->stride : 0) + bucket;
}

/* Moves an empty window so that `rank` is in the middle of its primary half. */
FP_INLINE void fp_window_rebase(struct fp_pifo FP_MEM *p, u64 rank)
{
	u32 shift = p->shift & 63;

	p->base = (rank >> shift << shift) - ((u64)(p->buckets / 2) << shift);
	p->rebases++;
}

/*
 * The position for a rank, or FP_NOWHERE with the reason. `others`: number of other queued items.
 */
FP_INLINE u32 fp_window_place(struct fp_pifo FP_MEM *p, u64 rank, u32 others)
{
	u32 n = p->buckets, half = p->half & 1;
	u64 at;

	if (rank < p->base) {
		p->was_below++;
		return fp_outside_place(p, p->below, FP_REFUSED_BELOW, fp_window_at(p, half, 0));
	}
	at = (rank - p->base) >> (p->shift & 63);
	if (at < n)
		return fp_window_at(p, half, (u32)at);
	if (at < 2ull * n)
		return fp_window_at(p, half ^ 1, (u32)(at - n));
	if (!others) {
		fp_window_rebase(p, rank);
		return fp_window_at(p, half, n / 2);
	}
	p->was_beyond++;
	return fp_outside_place(p, p->beyond, FP_REFUSED_BEYOND, fp_window_at(p, half ^ 1, n - 1));
}

/* Makes the secondary half the primary one. */
FP_INLINE void fp_window_rotate(struct fp_pifo FP_MEM *p)
{
	p->half = (p->half & 1) ^ 1;
	p->base += (u64)p->buckets << (p->shift & 63);
	p->rotations++;
}

/* Half and bucket of a position. */
FP_INLINE u32 fp_half_of(struct fp_pifo FP_MEM *p, u32 place)
{
	return place >= p->stride;
}

FP_INLINE u32 fp_bucket_of(struct fp_pifo FP_MEM *p, u32 place)
{
	return place >= p->stride ? place - p->stride : place;
}

/* Word `word` of the index of a half, which follows its buckets. */
FP_INLINE u64 FP_MEM *fp_index_word(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half,
				    u64 word)
{
	return fp_word_at(pool, p, (u64)(half & 1 ? p->stride : 0) + p->buckets + word);
}

/* Sets a bit. Returns 1 if its word was 0, so that the level above changes. */
FP_INLINE int fp_index_set(u64 FP_MEM *word, u32 i)
{
	u64 was = *word;

	*word = was | fp_bit(i);
	return !was;
}

/* Clears a bit. Returns 1 if its word is 0 now. */
FP_INLINE int fp_index_clear(u64 FP_MEM *word, u32 i)
{
	u64 is = *word & ~fp_bit(i);

	*word = is;
	return !is;
}

/* The first word of a level of bitmaps: 0 for the lowest. */
FP_INLINE u64 fp_level_at(struct fp_pifo FP_MEM *p, u32 level)
{
	return level ? p->level_at[(level - 1) & 1] : 0;
}

/* Sets or clears bucket `i` on all levels, for windows of more than 4,096 buckets. */
FP_FUNC int fp_cffs_change_deep(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 half, u32 i, u32 set)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u32 level;

	fp_loop(level, FP_CFFS_LEVELS) {
		u64 FP_MEM *word;

		if (level >= p->levels)
			break;
		word = fp_index_word(pool, p, half, fp_level_at(p, level) + (i >> 6));
		if (!(set ? fp_index_set(word, i) : fp_index_clear(word, i)))
			return 0;
		i >>= 6;
	}
	if (set)
		p->top[half & 1] |= fp_bit(i);
	else
		p->top[half & 1] &= ~fp_bit(i);
	return 0;
}

/* The same for the first or last non-empty bucket of a half. */
FP_FUNC u32 fp_cffs_find_deep(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 half, u32 last)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u64 word = p->top[half & 1];
	u32 i = last ? fp_highest(word) : fp_lowest(word), step;

	fp_loop(step, FP_CFFS_LEVELS) {
		if (step >= p->levels)
			break;
		word = *fp_index_word(pool, p, half, fp_level_at(p, p->levels - 1 - step) + i);
		i = i * 64 + (last ? fp_highest(word) : fp_lowest(word));
	}
	return i;
}

/* Marks bucket `i` as not empty. */
FP_INLINE void fp_cffs_set(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 half,
			   u32 i)
{
	if (p->levels != 1)
		fp_cffs_change_deep(pool, q, half, i, 1);
	else if (fp_index_set(fp_index_word(pool, p, half, i >> 6), i))
		p->top[half & 1] |= fp_bit(i >> 6);
}

/* Marks bucket `i` as empty. */
FP_INLINE void fp_cffs_clear(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 half,
			     u32 i)
{
	if (p->levels != 1)
		fp_cffs_change_deep(pool, q, half, i, 0);
	else if (fp_index_clear(fp_index_word(pool, p, half, i >> 6), i))
		p->top[half & 1] &= ~fp_bit(i >> 6);
}

/* The first non-empty bucket of a half. The caller ensures that top[half] is not 0. */
FP_INLINE u32 fp_cffs_first(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 half)
{
	u32 i;

	if (p->levels != 1)
		return fp_cffs_find_deep(pool, q, half, 0);
	i = fp_lowest(p->top[half & 1]);
	return i * 64 + fp_lowest(*fp_index_word(pool, p, half, i));
}

/* Like fp_window_place(), for a rank in the window. */
FP_INLINE u32 fp_cffs_place(struct fp_pifo FP_MEM *p, u64 rank, u32 others)
{
	u64 at = (rank - p->base) >> (p->shift & 63), n = p->buckets;
	u32 half = p->half & 1;

	if (rank >= p->base && at < n)
		return fp_window_at(p, half, (u32)at);
	return fp_window_place(p, rank, others);
}

/* True if it is an FP_CFFS of one level: one comparison of kind and levels. */
FP_INLINE int fp_cffs_is_flat(struct fp_pifo FP_MEM *p)
{
	return p->kind == FP_CFFS && p->levels == 1;
}

/*
 * The common case of a pop: a window of one level with a non-empty primary half. Returns 0 in other
 * cases, or if the memory is inconsistent, without changes. Random events (a bucket or a word
 * becomes empty) are not branches, because a misprediction costs as much as all the rest. A list
 * becomes empty if its head is its tail, which is known before its item is read.
 */
FP_INLINE u32 fp_cffs_pop_soon(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p)
{
	u32 half = p->half & 1, item;
	u64 top = p->top[half], at, bits, i, runs_empty;
	struct fp_list FP_MEM *list;
	struct fp_item FP_MEM *it;
	u64 FP_MEM *word;

	if (!top || !fp_cffs_is_flat(p))
		return 0;
	at = (p->arrays & ~7ull) + 8ull * fp_if(half, p->stride);
	i = fp_lowest_of(top);
	if (!fp_pool_has(pool, at + 8 * (p->buckets + i)))
		return 0;
	word = FP_AT(u64, pool, at + 8 * (p->buckets + i));
	bits = *word;
	i = i * 64 + fp_lowest_of(bits | 1ull << 63);
	if (!fp_pool_has(pool, at + 8 * i))
		return 0;
	list = FP_AT(struct fp_list, pool, at + 8 * i);
	item = list->head;
	if ((u32)(item - 1) >= pool->items)
		return 0;
	it = fp_item_at(pool, item);
	runs_empty = fp_is_zero(item ^ list->tail);
	list->head = fp_if(!runs_empty, it->next);
	it->pifo = 0;
	bits &= ~(runs_empty << (i & 63));
	*word = bits;
	p->top[half] = top & ~(fp_is_zero(bits) << (i >> 6 & 63));
	p->count--;
	p->popped++;
	return item;
}

/*
 * The common case of a push: one level, a free item, a rank in the window, and capacity. Returns 0
 * in other cases, without changes.
 */
FP_INLINE int fp_cffs_push_soon(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q,
				u32 item, u64 rank, u64 seq)
{
	u64 bucket = (rank - p->base) >> (p->shift & 63), n = p->buckets, at, word_at, second;
	struct fp_item FP_MEM *it = fp_item_at(pool, item);
	u32 half, first, head, was_empty;
	struct fp_list FP_MEM *list;

	if (rank < p->base || bucket >= 2 * n || p->count >= p->capacity || !fp_cffs_is_flat(p) ||
	    (u32)(item - 1) >= pool->items || it->pifo)
		return 0;
	/* The half is random too, so it is not a branch. */
	second = (n - 1 - bucket) >> 63;
	half = (p->half & 1) ^ (u32)second;
	bucket -= fp_if(second, (u32)n);
	first = fp_if(half, p->stride);
	at = (p->arrays & ~7ull) + 8ull * first;
	word_at = at + 8 * (n + bucket / 64);
	if (!fp_pool_has(pool, at + 8 * bucket) || !fp_pool_has(pool, word_at))
		return 0;
	list = FP_AT(struct fp_list, pool, at + 8 * bucket);
	head = list->head;
	was_empty = (u32)fp_is_zero(head);
	it->rank = rank;
	it->seq = seq;
	it->next = 0;
	it->prev = list->tail;
	it->place = first + (u32)bucket;
	it->pifo = q;
	/* In an empty list the tail is undefined: item 0 takes the write. */
	fp_item_at(pool, fp_if(was_empty ^ 1, list->tail))->next = item;
	list->head = head | fp_if(was_empty, item);
	list->tail = item;
	*FP_AT(u64, pool, word_at) |= fp_bit((u32)bucket);
	p->top[half] |= fp_bit((u32)bucket / 64);
	p->count++;
	p->pushed++;
	pool->pushed_out = 0;
	return 1;
}

#endif /* FP_CFFS_H */
