/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sp_pifo.h: FP_SP_PIFO (Alcoz et al., NSDI 2020): an approximate PIFO of a few FIFO lists under
 * strict priority, whose bounds follow the ranks that come.
 *
 * A rank goes to the lowest-priority list whose bound it reaches, and becomes that bound
 * (push-up). A rank below the bound of the highest-priority list goes there all the same; all
 * other bounds then sink by what it was short (push-down). The shortage is taken from the bound as
 * it was before: the paper's listing takes it after overwriting. Bounds so stay sorted, and none is
 * ever less than what it sinks by; what damage makes of them ends at 0 and not at 2^64.
 *
 * Each list holds at most `each` items, as the queues of a switch do. What its list, or the whole
 * PIFO, has no room for is refused before bounds move. Push O(lists), pop O(1). Memory: 24 bytes a
 * list. Orders exist that starve low priorities; inversions are what it saves memory with.
 */
#ifndef FP_SP_PIFO_H
#define FP_SP_PIFO_H

#include "bands.h"

FP_INLINE u64 FP_MEM *fp_sp_bound(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 list)
{
	return fp_word_at(pool, p, (u64)p->buckets + list);
}

/* Items of a list. */
FP_INLINE u64 FP_MEM *fp_sp_held(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u32 list)
{
	return fp_word_at(pool, p, 2ull * p->buckets + list);
}

/* The list of a rank, by the bounds as they are. */
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

/*
 * Chooses the list of a rank and moves the bounds, or refuses. `from`: the list that the item
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
