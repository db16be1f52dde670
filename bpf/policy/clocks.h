/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * clocks.h: three clocks of a child, for policies that know a floor, a ceiling and a weight.
 *
 *   owed    real time up to which its floor is served: behind now, it is due before all shares
 *   share   virtual time up to which it had its share: the lowest is served where nobody is due
 *   free    real time up to which its ceiling is used up: before that it waits with the shaper
 *
 * Whatever is sent moves all clocks on by its bytes. A child that was idle finds its real clocks no
 * further behind than `credit` ns, and its share no earlier than the node's virtual time: having
 * been silent is worth no more than that.
 *
 * Source: Billaud, Gulati: hClock, EuroSys 2013 (reservation, limit, share); the virtual time is
 * that of Goyal, Vin, Cheng: Start-time Fair Queueing, SIGCOMM 1996.
 */
#ifndef FP_POLICY_CLOCKS_H
#define FP_POLICY_CLOCKS_H

#include <fairpath/policy.h>

struct clocks {
	u64 owed;
	u64 share;
	u64 free;
};

/* A child has something to send again: its rank. Sets r->due. */
FP_INLINE u64 clocks_begin(struct clocks *h, u64 virtual, struct fp_call *r, u64 credit)
{
	h->owed = max(h->owed, sub(r->now, credit));
	h->free = max(h->free, sub(r->now, credit));
	h->share = max(h->share, virtual);
	r->due = r->floor ? h->owed : NEVER;
	return h->share;
}

/* It sent `bytes`: its share moves on from where it stood, or from the node's virtual time. */
FP_INLINE void clocks_charge_share(struct clocks *h, u64 virtual, const struct fp_call *r,
				   u64 bytes)
{
	h->share = add(max(r->rank, virtual), virtual_time(bytes, r->cost));
}

/* Its ceiling, too, from no further behind than `credit`. */
FP_INLINE void clocks_charge_ceiling(struct clocks *h, const struct fp_call *r, u64 bytes,
				     u64 credit)
{
	/* A ceiling that is set later begins then. */
	if (!r->ceil)
		credit = 0;
	h->free = add(max(h->free, sub(r->now, credit)), time_at(bytes, r->ceil));
}

/* When it may send again. */
FP_INLINE u64 clocks_send_time(const struct clocks *h, const struct fp_call *r)
{
	return r->ceil ? h->free : 0;
}

#endif /* FP_POLICY_CLOCKS_H */
