/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * bands.h: FP_BANDS, strict priority. Up to 64 FIFO lists; an item's rank is its band, and band 0
 * is served first. One word says which bands hold something.
 *
 * Everything O(1). Memory: 8 bytes a band. A rank beyond the last band is clamped, dropped or an
 * error, as the PIFO says.
 *
 * The same lists and the same word carry FP_SP_PIFO and FP_AIFO, which choose the list otherwise.
 */
#ifndef FP_BANDS_H
#define FP_BANDS_H

#include "item.h"

/* A place no item can have: enum fp_refusal stands in the lower bits. */
#define FP_NOWHERE 0x80000000u

/* What becomes of a rank outside: `nearest`, or a refusal. */
FP_INLINE u32 fp_outside_place(struct fp_pifo FP_MEM *p, u32 policy, u32 refusal, u32 nearest)
{
	if (policy == FP_OUTSIDE_CLAMP)
		return nearest;
	if (policy == FP_OUTSIDE_DROP)
		return FP_NOWHERE | refusal;
	p->errors++;
	return FP_NOWHERE | FP_REFUSED_RANK;
}

/* The refusal that stands in a place that is none; never 0. */
FP_INLINE int fp_refusal_of(u32 place)
{
	return place & 7 ? (int)(place & 7) : FP_REFUSED_RANK;
}

/* The band of a rank. */
FP_INLINE u32 fp_bands_place(struct fp_pifo FP_MEM *p, u64 rank)
{
	if (rank < p->buckets)
		return (u32)rank;
	p->was_beyond++;
	return fp_outside_place(p, p->beyond, FP_REFUSED_BEYOND, p->buckets - 1);
}

#endif /* FP_BANDS_H */
