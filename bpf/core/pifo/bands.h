/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * bands.h: FP_BANDS, strict priority. Up to 64 FIFO lists. The rank of an item is its band, and
 * band 0 is served first. One word has a bit for each band that is not empty.
 *
 * All operations are O(1). Memory: 8 bytes per band. A rank above the last band is clamped, dropped
 * or an error, as configured.
 *
 * FP_SP_PIFO and FP_AIFO use the same lists and word, and choose the list differently.
 */
#ifndef FP_BANDS_H
#define FP_BANDS_H

#include "item.h"

/* A position that no item has: enum fp_refusal is in the lower bits. */
#define FP_NOWHERE 0x80000000u

/* The result for a rank outside: `nearest`, or a refusal. */
FP_INLINE u32 fp_outside_place(struct fp_pifo FP_MEM *p, u32 policy, u32 refusal, u32 nearest)
{
	if (policy == FP_OUTSIDE_CLAMP)
		return nearest;
	if (policy == FP_OUTSIDE_DROP)
		return FP_NOWHERE | refusal;
	p->errors++;
	return FP_NOWHERE | FP_REFUSED_RANK;
}

/* The refusal in an invalid position; never 0. */
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
