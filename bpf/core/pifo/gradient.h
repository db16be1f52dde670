/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * gradient.h: FP_GRADIENT, the approximate gradient queue (Eiffel, NSDI 2019, section 3.1.2): the
 * window and the buckets of cffs.h, but with two sums instead of bitmaps to find non-empty buckets.
 *
 * Bucket j has the weight w(i) = 2^(i / 16) with i = 124 + N - 1 - j, so the first bucket is the
 * heaviest. a is the sum of w(i), b that of i w(i), over non-empty buckets. b / a is the mean of
 * the i. If all buckets below the largest i are full, that i is 1 / (2^(1/16) - 1) = 22.6 above the
 * mean, and the estimate is exact. If buckets are sparse, it is not: then the nearest bucket below
 * the estimate is taken, which is not always the first, or the nearest above it. The first is at
 * most FP_GRADIENT_FAR above the mean (a single bucket, with a gap of about 53 buckets after it).
 * So the error has the same limit, and nothing is lost. The paper reports a gain of at most 9 %
 * over bitmaps. Prefer cffs.h; tests compare this with it.
 *
 * Push, move, remove O(1). Pop takes a division and at most FP_GRADIENT_FAR + 1 buckets, of which
 * the empty ones count in `searched`. last O(N), exact. Memory: 16 bytes per bucket and 32. At most
 * 523 buckets: with more, b would not fit in 64 bits with a margin.
 */
#ifndef FP_GRADIENT_H
#define FP_GRADIENT_H

#include "cffs.h"

/* The minimum i: smaller weights are too coarse as integers. */
#define FP_GRADIENT_MIN 124
/* From the mean to the estimate: 22.6, and the rounding of the division. */
#define FP_GRADIENT_REACH 23
/* Maximum from the mean to the first bucket. */
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

/* Adds or subtracts the weight of a bucket. */
FP_INLINE void fp_gradient_add(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 half,
			       u32 bucket, int sign)
{
	u64 i = (u64)FP_GRADIENT_MIN + p->buckets - 1 - bucket;
	u64 w = fp_gradient_weight((u32)i);
	u64 FP_MEM *a = fp_index_word(pool, p, half, 0);
	u64 FP_MEM *b = fp_index_word(pool, p, half, 1);

	*a += sign > 0 ? w : -w;
	*b += sign > 0 ? i * w : -(i * w);
	p->top[half & 1] = *a != 0;
}

/*
 * The bucket to check in step `step`: from the estimate towards the mean, then from the estimate in
 * the other direction. `buckets` or more if there is none.
 */
FP_INLINE u32 fp_gradient_look(u64 largest, u64 guess, u32 step)
{
	u64 i = step <= FP_GRADIENT_REACH ? guess - step : guess + step - FP_GRADIENT_REACH;

	return i <= largest ? (u32)(largest - i) : ~0u;
}

/* A non-empty bucket of a half, often the first. `buckets` if there is none. */
FP_FUNC u32 fp_gradient_first(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 half)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u64 a = *fp_index_word(pool, p, half, 0), b = *fp_index_word(pool, p, half, 1);
	u64 largest = (u64)FP_GRADIENT_MIN + p->buckets - 1;
	u64 guess = fp_quotient(b, a) + FP_GRADIENT_REACH;
	u32 i;

	fp_loop(i, FP_GRADIENT_FAR + 1) {
		u32 bucket = fp_gradient_look(largest, guess, i);

		if (bucket >= p->buckets)
			continue;
		if (fp_list_at(pool, p, fp_window_at(p, half, bucket), FP_GRADIENT)->head)
			return bucket;
		p->searched++;
	}
	return p->buckets;
}

/* The last non-empty bucket of a half. `buckets` if there is none. O(N). */
FP_FUNC u32 fp_gradient_last(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u32 half)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u32 i, n = p->buckets;

	fp_loop(i, FP_MAX_GRADIENT) {
		if (i >= n)
			break;
		if (fp_list_at(pool, p, fp_window_at(p, half, n - 1 - i), FP_GRADIENT)->head)
			return n - 1 - i;
	}
	return n;
}

#endif /* FP_GRADIENT_H */
