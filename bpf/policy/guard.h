/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * guard.h: bands in strict order, with a limit on starvation.
 *
 * Without a guard, the rank is the band. With a guard, each band adds `guard` ns to the rank, so
 * waiting packets age. A packet of band b leaves before all packets that arrive b * guard after it,
 * of any band.
 */
#ifndef FP_POLICY_GUARD_H
#define FP_POLICY_GUARD_H

#include <fairpath/policy.h>

/* The rank in `band` for a packet that starts to wait at `now`. */
FP_INLINE u64 guard_rank(u64 band, u64 now, u64 guard)
{
	return guard ? add(now, band * guard) : band;
}

#endif /* FP_POLICY_GUARD_H */
