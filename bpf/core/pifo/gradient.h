/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * gradient.h: FP_GRADIENT, the approximate gradient queue (Eiffel, NSDI 2019, section 3.1.2): the
 * window and the buckets of cffs.h, but what is not empty is known by two sums instead of bitmaps.
 *
 * Bucket j weighs w(i) = 2^(i / 16), where i = 124 + N - 1 - j, so that the first bucket weighs
 * most. a is the sum of w(i), b that of i w(i), over buckets that are not empty. b / a is the
 * middle of the i. Where all buckets below the largest i are full, that i is 1 / (2^(1/16) - 1) =
 * 22.6 above the middle, and the guess is right. Where buckets are sparse it is not: then the
 * nearest bucket below the guess is taken, which is not always the first, or the nearest above
 * it. The first is never more than FP_GRADIENT_FAR above the middle (a single one with a gap of
 * some 53 buckets behind it), so neither is the mistake, and nothing is ever lost. The paper gives
 * a gain of at most 9 % over bitmaps; cffs.h is the one to take, and what tests compare this with.
 *
 * Push, move, remove O(1); pop a division and at most FP_GRADIENT_FAR + 1 buckets looked at, those
 * without result counted in `searched`; last O(N), exact. Memory: 16 bytes a bucket and 32. At most 523
 * buckets: above, b would not fit in 64 bits with room to spare.
 */
#ifndef FP_GRADIENT_H
#define FP_GRADIENT_H

#include "cffs.h"

/* The least i: weights below are too coarse as integers. */
#define FP_GRADIENT_LEAST 124
/* From the middle to the guess: 22.6, and what the division cuts off. */
#define FP_GRADIENT_REACH 23
/* From the middle to the first bucket, at most. */
#define FP_GRADIENT_FAR 56

/* 2^(f / 16) in parts of 2^20. */
static const u32 fp_gradient_root[16] = {
	1048576, 1095000, 1143480, 1194106, 1246974, 1302182, 1359835, 1420040,
	1482910, 1548564, 1617125, 1688722, 1763488, 1841564, 1923097, 2008240,
};

FP_INLINE u64 fp_gradient_weight(u32 i)
{
	return ((u64)fp_gradient_root[i & 15] << ((i >> 4) & 63)) >> 20;
}

/* Adds a bucket's weight, or takes it away. */
FP_INLINE void fp_gradient_add(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half,
			       u32 bucket, int sign)
{
	u64 i = (u64)FP_GRADIENT_LEAST + p->buckets - 1 - bucket;
	u64 w = fp_gradient_weight((u32)i);
	u64 FP_MEM *a = fp_index_word(pool, p, half, 0);
	u64 FP_MEM *b = fp_index_word(pool, p, half, 1);

	*a += sign > 0 ? w : -w;
	*b += sign > 0 ? i * w : -(i * w);
	p->top[half & 1] = *a != 0;
}

/*
 * The bucket to look at in step `step`: from the guess towards the middle, then from the guess on
 * the other way. `buckets` or more where there is none.
 */
FP_INLINE u32 fp_gradient_look(u64 largest, u64 guess, u32 step)
{
	u64 i = step <= FP_GRADIENT_REACH ? guess - step : guess + step - FP_GRADIENT_REACH;

	return i <= largest ? (u32)(largest - i) : ~0u;
}

/* A bucket of a half that is not empty, often the first; `buckets` if there is none. */
FP_FUNC u32 fp_gradient_first(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 half)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u64 a = *fp_index_word(pool, p, half, 0), b = *fp_index_word(pool, p, half, 1);
	u64 largest = (u64)FP_GRADIENT_LEAST + p->buckets - 1;
	u64 guess = fp_quotient(b, a) + FP_GRADIENT_REACH;
	u32 i;

	fp_loop(i, FP_GRADIENT_FAR + 1) {
		u32 bucket = fp_gradient_look(largest, guess, i);

		if (bucket >= p->buckets)
			continue;
		if (fp_list_at(pool, p, fp_window_at(p, half, bucket))->head)
			return bucket;
		p->searched++;
	}
	return p->buckets;
}

/* The last bucket of a half that is not empty; `buckets` if there is none. O(N). */
FP_FUNC u32 fp_gradient_last(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 half)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u32 i, n = p->buckets;

	fp_loop(i, FP_MAX_GRADIENT) {
		if (i >= n)
			break;
		if (fp_list_at(pool, p, fp_window_at(p, half, n - 1 - i))->head)
			return n - 1 - i;
	}
	return n;
}

#endif /* FP_GRADIENT_H */
