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

/* The position of a bucket of the primary half (0) or secondary half (1). */
FP_INLINE u32 fp_window_at(struct fp_pifo FP_MEM *p, u32 half, u32 bucket)
{
	return p->at[half & 1] + bucket;
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
	u32 n = p->buckets;
	u64 at;

	if (rank < p->base) {
		p->was_below++;
		return fp_outside_place(p, p->below, FP_REFUSED_BELOW, fp_window_at(p, 0, 0));
	}
	at = (rank - p->base) >> (p->shift & 63);
	if (at < n)
		return fp_window_at(p, 0, (u32)at);
	if (at < 2ull * n)
		return fp_window_at(p, 1, (u32)(at - n));
	if (!others) {
		fp_window_rebase(p, rank);
		return fp_window_at(p, 0, n / 2);
	}
	p->was_beyond++;
	return fp_outside_place(p, p->beyond, FP_REFUSED_BEYOND, fp_window_at(p, 1, n - 1));
}

/* Half and bucket of a position. */
FP_INLINE u32 fp_half_of(struct fp_pifo FP_MEM *p, u32 place)
{
	return place - p->at[0] >= p->buckets;
}

FP_INLINE u32 fp_bucket_of(struct fp_pifo FP_MEM *p, u32 place)
{
	return place - p->at[fp_half_of(p, place)];
}

/* Word `word` of the index of a half, which follows its buckets. */
FP_INLINE u64 FP_MEM *fp_index_word(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half,
				    u64 word)
{
	return fp_pool_bound(pool, (u64)p->at[half & 1] + p->buckets + word);
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

/* The first non-empty bucket of a half of one level. */
FP_INLINE u32 fp_cffs_first_flat(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half)
{
	u32 i = fp_lowest(p->top[half & 1]);

	return i * 64 + fp_lowest(*fp_index_word(pool, p, half, i));
}

/* Looks up `first` after a change of the index. */
FP_INLINE void fp_cffs_seek(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p)
{
	if (p->levels == 1)
		p->first =
			p->top[0] ? fp_window_at(p, 0, fp_cffs_first_flat(pool, p, 0)) : FP_NO_LIST;
}

/* Makes the secondary half the primary one. */
FP_INLINE void fp_window_rotate(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p)
{
	u64 top = p->top[0];
	u32 at = p->at[0];

	p->top[0] = p->top[1];
	p->top[1] = top;
	p->at[0] = p->at[1];
	p->at[1] = at;
	p->base += (u64)p->buckets << (p->shift & 63);
	p->rotations++;
	fp_cffs_seek(pool, p);
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
	fp_cffs_seek(pool, p);
}

/* Marks bucket `i` as empty. */
FP_INLINE void fp_cffs_clear(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 half,
			     u32 i)
{
	if (p->levels != 1)
		fp_cffs_change_deep(pool, q, half, i, 0);
	else if (fp_index_clear(fp_index_word(pool, p, half, i >> 6), i))
		p->top[half & 1] &= ~fp_bit(i >> 6);
	fp_cffs_seek(pool, p);
}

/* The first non-empty bucket of a half. The caller ensures that top[half] is not 0. */
FP_INLINE u32 fp_cffs_first(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 q, u32 half)
{
	return p->levels == 1 ? fp_cffs_first_flat(pool, p, half)
			      : fp_cffs_find_deep(pool, q, half, 0);
}

/* Like fp_window_place(), for a rank in the window. */
FP_INLINE u32 fp_cffs_place(struct fp_pifo FP_MEM *p, u64 rank, u32 others)
{
	u64 at = (rank - p->base) >> (p->shift & 63), n = p->buckets;

	if (rank >= p->base && at < n)
		return fp_window_at(p, 0, (u32)at);
	return fp_window_place(p, rank, others);
}

/*
 * The common case of a pop: a window of one level with a non-empty primary half. Returns 0 in other
 * cases, or if the memory is inconsistent, without changes.
 *
 * `first` names the list, so that this pop need not wait for the search, which serves the next one.
 * Whether a word runs empty is random, so it is not a branch.
 */
FP_INLINE u32 fp_cffs_pop_soon(struct fp_pool FP_MEM *pool, u32 q)
{
	struct fp_pifo FP_MEM *p = fp_pifo_known(pool, q);
	u64 first, index, i, word, bits;
	struct fp_list FP_MEM *list;
	u32 item;

	if (q > pool->pifos)
		return 0;
	first = p->first;
	if (first >= pool->capacity)
		return 0;
	list = (struct fp_list FP_MEM *)fp_pool_word(pool, first);
	item = list->head;
	if ((u32)(item - 1) >= pool->items)
		return 0;
	if (item != list->tail) {
		list->head = fp_item_known(pool, item)->next;
	} else {
		index = (u64)p->at[0] + p->buckets;
		if (index + 63 >= pool->capacity)
			return 0;
		i = first - p->at[0];
		word = i >> 6 & 63;
		list->head = 0;
		bits = *fp_pool_word(pool, index + word) & ~fp_bit((u32)i);
		*fp_pool_word(pool, index + word) = bits;
		bits = p->top[0] & ~(fp_is_zero(bits) << word);
		p->top[0] = bits;
		word = fp_lowest(bits);
		first = p->at[0] + word * 64 + fp_lowest(*fp_pool_word(pool, index + word));
		p->first = bits ? (u32)first : FP_NO_LIST;
	}
	fp_item_known(pool, item)->pifo = 0;
	p->count--;
	p->popped++;
	return item;
}

/*
 * The common case of a push: one level, a free item, a rank in the window, and capacity. Returns 0
 * in other cases, without changes.
 */
FP_INLINE int fp_cffs_push_soon(struct fp_pool FP_MEM *pool, u32 q, u32 item, u64 rank, u64 seq)
{
	struct fp_pifo FP_MEM *p = fp_pifo_known(pool, q);
	struct fp_list FP_MEM *list;
	struct fp_item FP_MEM *it;
	u64 i, n, second, at, index;

	if (q > pool->pifos)
		return 0;
	i = (rank - p->base) >> (p->shift & 63);
	n = p->buckets;
	if (rank < p->base || i >= 2 * n || p->count >= p->capacity || p->first == FP_NO_FIRST ||
	    (u32)(item - 1) >= pool->items)
		return 0;
	it = fp_item_known(pool, item);
	if (it->pifo)
		return 0;
	/* The half is random, so it is not a branch. */
	second = (n - 1 - i) >> 63;
	i -= n & -second;
	at = p->at[second] + i;
	/* The index is after the lists, so one comparison is for both. */
	index = p->at[second] + n + (i >> 6);
	if (index >= pool->capacity)
		return 0;
	list = (struct fp_list FP_MEM *)fp_pool_word(pool, at);
	it->rank = rank;
	it->seq = seq;
	it->next = 0;
	it->place = (u32)at;
	it->pifo = q;
	if (list->head) {
		u32 tail = list->tail;

		it->prev = tail;
		list->tail = item;
		fp_item_at(pool, tail)->next = item;
	} else {
		FP_PUT(list->head, item);
		list->tail = item;
		*fp_pool_word(pool, index) |= fp_bit((u32)i);
		p->top[second] |= fp_bit((u32)i >> 6);
		if ((at | -second) < p->first)
			p->first = (u32)at;
	}
	p->count++;
	pool->pushed_out = 0;
	return 1;
}

#endif /* FP_CFFS_H */
