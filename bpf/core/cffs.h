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
 * Two halves, because one array by modulo lets ranks of the next turn go before those of this one.
 * The halves change places only when something is popped and the primary is empty; then base goes
 * on by N g. A push into an empty PIFO whose rank lies beyond the window moves the window there,
 * with half a primary of room for lower ranks that follow: an idle queue of times starts anew.
 *
 * Everything O(levels), at most four words. Memory: 16 bytes a bucket and an eighth of a byte for
 * each half's bit. N from 1 to 2^20, any number; ranks are plain 64-bit numbers.
 *
 * Order is (bucket, arrival): exact where g is 1. Invariants: bit <=> not empty; base never goes
 * back; without clamping, what is popped is at least base.
 */
#ifndef FP_CFFS_H
#define FP_CFFS_H

#include "bands.h"

/* The bucket of a rank, and whether that is in the secondary half: `half * buckets + bucket`. */
FP_INLINE u32 fp_window_at(struct fp_pifo FP_MEM *p, u32 half, u32 bucket)
{
	return (half & 1) * p->buckets + bucket;
}

/* Moves an empty window so that `rank` lies in the middle of its primary half. */
FP_INLINE void fp_window_rebase(struct fp_pifo FP_MEM *p, u64 rank)
{
	u32 shift = p->shift & 63;

	p->base = (rank >> shift << shift) - ((u64)(p->buckets / 2) << shift);
	p->rebases++;
}

/*
 * Where a rank goes; FP_NOWHERE and why, if nowhere. `others`: how many items are queued besides.
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

/* Lets the secondary half become the primary one. */
FP_INLINE void fp_window_rotate(struct fp_pifo FP_MEM *p)
{
	p->half = (p->half & 1) ^ 1;
	p->base += (u64)p->buckets << (p->shift & 63);
	p->rotations++;
}

/* Word `word` of a half's index, which lies behind the buckets of both. */
FP_INLINE u64 FP_MEM *fp_index_word(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half,
				    u64 word)
{
	return fp_word_at(pool, p, 2ull * p->buckets + (u64)(half & 1) * p->words + word);
}

/* Sets a bit; 1 if its word was 0, so that the level above has to know. */
FP_INLINE int fp_index_set(u64 FP_MEM *word, u32 i)
{
	u64 was = *word;

	*word = was | fp_bit(i);
	return !was;
}

/* Clears a bit; 1 if its word is 0 now. */
FP_INLINE int fp_index_clear(u64 FP_MEM *word, u32 i)
{
	u64 is = *word & ~fp_bit(i);

	*word = is;
	return !is;
}

/* Says that a bucket is not empty any more. */
FP_INLINE void fp_cffs_set(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half, u32 i)
{
	u32 levels = p->levels;

	if (levels > 0) {
		if (!fp_index_set(fp_index_word(pool, p, half, i >> 6), i))
			return;
		i >>= 6;
	}
	if (levels > 1) {
		if (!fp_index_set(fp_index_word(pool, p, half, (u64)p->level_at[0] + (i >> 6)), i))
			return;
		i >>= 6;
	}
	if (levels > 2) {
		if (!fp_index_set(fp_index_word(pool, p, half, (u64)p->level_at[1] + (i >> 6)), i))
			return;
		i >>= 6;
	}
	p->top[half & 1] |= fp_bit(i);
}

/* Says that a bucket is empty now. */
FP_INLINE void fp_cffs_clear(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half, u32 i)
{
	u32 levels = p->levels;

	if (levels > 0) {
		if (!fp_index_clear(fp_index_word(pool, p, half, i >> 6), i))
			return;
		i >>= 6;
	}
	if (levels > 1) {
		if (!fp_index_clear(fp_index_word(pool, p, half, (u64)p->level_at[0] + (i >> 6)),
				    i))
			return;
		i >>= 6;
	}
	if (levels > 2) {
		if (!fp_index_clear(fp_index_word(pool, p, half, (u64)p->level_at[1] + (i >> 6)),
				    i))
			return;
		i >>= 6;
	}
	p->top[half & 1] &= ~fp_bit(i);
}

/* The first bucket of a half that is not empty. The caller knows that top[half] is not 0. */
FP_INLINE u32 fp_cffs_first(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half)
{
	u32 i = fp_lowest(p->top[half & 1]);
	u32 levels = p->levels;

	if (levels > 2)
		i = i * 64 + fp_lowest(*fp_index_word(pool, p, half, (u64)p->level_at[1] + i));
	if (levels > 1)
		i = i * 64 + fp_lowest(*fp_index_word(pool, p, half, (u64)p->level_at[0] + i));
	if (levels > 0)
		i = i * 64 + fp_lowest(*fp_index_word(pool, p, half, i));
	return i;
}

/* The last bucket of a half that is not empty, likewise. */
FP_INLINE u32 fp_cffs_last(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half)
{
	u32 i = fp_highest(p->top[half & 1]);
	u32 levels = p->levels;

	if (levels > 2)
		i = i * 64 + fp_highest(*fp_index_word(pool, p, half, (u64)p->level_at[1] + i));
	if (levels > 1)
		i = i * 64 + fp_highest(*fp_index_word(pool, p, half, (u64)p->level_at[0] + i));
	if (levels > 0)
		i = i * 64 + fp_highest(*fp_index_word(pool, p, half, i));
	return i;
}

#endif /* FP_CFFS_H */
