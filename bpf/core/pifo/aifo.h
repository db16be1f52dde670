/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * aifo.h: FP_AIFO (Yu et al., SIGCOMM 2021): an approximate PIFO of one FIFO and a window of the
 * last ranks. It refuses now what a PIFO would push out later.
 *
 * A packet is admitted if the share of smaller ranks in the window is at most (C - c) / (C (1 -
 * k)): C the capacity, c the queued items, k the headroom, in which everything is admitted. Both
 * sides are multiplied out as integers, so nothing is rounded or divided. The window stores every
 * rank that arrives, admitted or not. In an empty window no rank is smaller.
 *
 * Push O(window), pop O(1). Memory: 8 bytes, and 8 per stored rank.
 */
#ifndef FP_AIFO_H
#define FP_AIFO_H

#include "bands.h"

/* Stores `rank`. Returns 1 if the item is admitted. */
FP_FUNC int fp_aifo_admits(struct fp_pool FP_MEM *pool FP_ARG, u32 q, u64 rank)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	u64 window = p->window <= FP_MAX_AIFO_WINDOW ? p->window : 0, seen = p->base;
	u64 known = seen < window ? seen : window, left, one = FP_AIFO_HEADROOM_ONE;
	u32 i, smaller = 0;

	if (!window)
		return 1;
	fp_loop(i, known)
		smaller += *fp_word_at(pool, p, 1ull + i) < rank;
	*fp_word_at(pool, p, 1 + seen % window) = rank;
	p->base = seen + 1;
	left = p->capacity > p->count ? p->capacity - p->count : 0;
	/* No overflow: 2^10 * 2^32 * 2^8. */
	return (u64)smaller * p->capacity * (one - (p->headroom & (one - 1))) <= known * left * one;
}

#endif /* FP_AIFO_H */
