/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sp_pifo.h: FP_SP_PIFO (Alcoz et al., NSDI 2020): an approximate PIFO of a few FIFO lists under
 * strict priority, whose bounds follow the ranks that come.
 *
 * A rank goes to the lowest-priority list whose bound it reaches, and becomes that bound
 * (push-up). A rank below the bound of the highest-priority list goes there all the same; all
 * other bounds then sink by what it was short (push-down). The shortage is taken from the bound as
 * it was before: the paper's listing takes it after overwriting. Bounds are unsigned and end at
 * 0: one that were negative would be reached by every rank just the same, and sinks no further in
 * any way that shows.
 *
 * What is full is refused before bounds move. Push O(lists), pop O(1). Memory: 16 bytes a list.
 * Orders exist that starve low priorities; inversions are what it saves memory with.
 */
#ifndef FP_SP_PIFO_H
#define FP_SP_PIFO_H

#include "bands.h"

FP_INLINE u64 FP_MEM *fp_sp_bound(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 list)
{
	return fp_word_at(pool, p, (u64)p->buckets + list);
}

/* Push-down: every bound but the first sinks by `cost`. */
FP_INLINE void fp_sp_sink(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u64 cost)
{
	u32 n = p->buckets, i;

	fp_loop(i, FP_MAX_BANDS - 1) {
		u64 FP_MEM *bound = fp_sp_bound(pool, p, i + 1);

		if (i + 1 >= n)
			break;
		*bound = *bound > cost ? *bound - cost : 0;
	}
}

/* Chooses the list of a rank, and moves the bounds. */
FP_FUNC u32 fp_sp_place(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u64 rank)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u32 n = p->buckets, i;
	u64 bound;

	fp_loop(i, FP_MAX_BANDS - 1) {
		u32 list = n - 1 - i;

		if (i + 1 >= n)
			break;
		if (rank >= *fp_sp_bound(pool, p, list)) {
			*fp_sp_bound(pool, p, list) = rank;
			return list;
		}
	}
	bound = *fp_sp_bound(pool, p, 0);
	*fp_sp_bound(pool, p, 0) = rank;
	if (rank < bound)
		fp_sp_sink(pool, p, bound - rank);
	return 0;
}

#endif /* FP_SP_PIFO_H */
