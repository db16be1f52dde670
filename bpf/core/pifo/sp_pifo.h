/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sp_pifo.h: FP_SP_PIFO (Alcoz et al., NSDI 2020): an approximate PIFO of a few FIFO lists under
 * strict priority, with bounds that adapt to the ranks.
 *
 * A rank goes to the lowest-priority list whose bound it reaches, and becomes that bound (push-up).
 * A rank below the bound of the highest-priority list goes to that list anyway, and all other
 * bounds decrease by the difference (push-down). The difference is to the bound before the change:
 * the listing in the paper takes it after overwriting. So bounds stay sorted, and none is less than
 * the decrease. Corrupted bounds end at 0 and not at 2^64.
 *
 * Each list holds at most `each` items, like the queues of a switch. A full list or PIFO refuses
 * before bounds change. Push O(lists), pop O(1). Memory: 24 bytes per list. Some orders starve low
 * priorities. Inversions are the price of the saved memory.
 */
#ifndef FP_SP_PIFO_H
#define FP_SP_PIFO_H

#include "bands.h"

FP_INLINE u64 FP_MEM *fp_sp_bound(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 list)
{
	return fp_word_at(pool, p, (u64)p->buckets + list);
}

/* Maximum of items of a list. */
FP_INLINE u64 FP_MEM *fp_sp_held(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 list)
{
	return fp_word_at(pool, p, 2ull * p->buckets + list);
}

/* The list of a rank by the current bounds. */
FP_INLINE u32 fp_sp_choose(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u64 rank)
{
	u32 n = p->buckets, i;

	fp_loop(i, FP_MAX_BANDS - 1) {
		if (i + 1 >= n)
			break;
		if (rank >= *fp_sp_bound(pool, p, n - 1 - i))
			return n - 1 - i;
	}
	return 0;
}

/* Push-down: every bound except the first decreases by `cost`. */
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

/*
 * Chooses the list of a rank and changes the bounds, or refuses. `from`: the list that the item
 * leaves, FP_NOWHERE if it is new.
 */
FP_FUNC u32 fp_sp_place(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u64 rank, u32 from)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u32 list = fp_sp_choose(pool, p, rank);
	u64 bound = *fp_sp_bound(pool, p, list);

	if (list != from && *fp_sp_held(pool, p, list) >= p->each) {
		p->was_full++;
		return FP_NOWHERE | FP_REFUSED_FULL;
	}
	*fp_sp_bound(pool, p, list) = rank;
	if (rank < bound)
		fp_sp_sink(pool, p, bound - rank);
	return list;
}

#endif /* FP_SP_PIFO_H */
