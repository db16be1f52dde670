/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * guard.h: bands before each other, and a guard against starving.
 *
 * Without a guard the rank is the band. With one, a band is `guard` ns that everybody before it may
 * come later and still go first: what waits ages, and after that it is reordered no longer. So a
 * packet of band b leaves before all that come b * guard after it, whatever their band.
 */
#ifndef FP_POLICY_GUARD_H
#define FP_POLICY_GUARD_H

#include <fairpath/policy.h>

/* The rank in `band`, for who begins to wait at `now`. */
FP_INLINE u64 guard_rank(u64 band, u64 now, u64 guard)
{
	return guard ? add(now, band * guard) : band;
}

#endif /* FP_POLICY_GUARD_H */
