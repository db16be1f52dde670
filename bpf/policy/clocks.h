/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * clocks.h: three clocks of a child, for policies with a floor, a ceiling and a weight.
 *
 *   owed    real time up to which its floor is served: if it is in the past, the child is due
 *           first
 *   share   virtual time up to which it had its share: the lowest is served if no child is due
 *   free    real time up to which its ceiling is used: before that, the child waits in the shaper
 *
 * Every packet advances all clocks by its bytes. After an idle time, the real clocks of a child are
 * at most `credit` ns behind, and its share is not before the virtual time of the node. Idle time
 * gives no more than that. A real clock that is ahead owes bytes, at the rate that they were charged
 * at. If the rate changes, it owes the same bytes at the new one.
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
	u64 floor; /* the rate that `owed` is charged at */
	u64 ceil;  /* the rate that `free` is charged at */
};

/* The time `at`, which a clock reached at rate `was`, as its bytes reach it at `rate`. */
FP_INLINE u64 clocks_at_rate(u64 at, u64 was, u64 rate, u64 now, u64 credit)
{
	u64 ahead = sub(at, now);
	u64 bytes =
		ahead >> 44 ? div(ahead, was >> FP_RATE_SHIFT) : div(ahead << FP_RATE_SHIFT, was);

	return ahead ? add(now, time_at(bytes, rate)) : max(at, sub(now, credit));
}

/* Follows changed rates of the child. `credit` is the most that it may be behind then. */
FP_INLINE void clocks_follow_rates(struct clocks *h, const struct fp_call *r, u64 credit)
{
	if (h->ceil != r->ceil)
		h->free = clocks_at_rate(h->free, h->ceil, r->ceil, r->now, credit);
	if (h->floor != r->floor)
		h->owed = clocks_at_rate(h->owed, h->floor, r->floor, r->now, credit);
	h->ceil = r->ceil;
	h->floor = r->floor;
}

/* Returns the rank of a child that has packets again, and sets r->due. */
FP_INLINE u64 clocks_begin(struct clocks *h, u64 virtual, struct fp_call *r, u64 credit)
{
	clocks_follow_rates(h, r, credit);
	h->owed = max(h->owed, sub(r->now, credit));
	h->free = max(h->free, sub(r->now, credit));
	h->share = max(h->share, virtual);
	r->due = r->floor ? h->owed : NEVER;
	return h->share;
}

/* The child sent `bytes`: advances its share from its last end, or from the node's virtual time. */
FP_INLINE void clocks_charge_share(struct clocks *h, u64 virtual, const struct fp_call *r,
				   u64 bytes)
{
	h->share = add(max(r->rank, virtual), virtual_time(bytes, r->cost));
}

/* Advances its ceiling, from at most `credit` ns behind. */
FP_INLINE void clocks_charge_ceiling(struct clocks *h, const struct fp_call *r, u64 bytes,
				     u64 credit)
{
	/* A ceiling that is set later starts then. */
	if (!r->ceil)
		credit = 0;
	h->free = add(max(h->free, sub(r->now, credit)), time_at(bytes, r->ceil));
}

/* The next time at which it may send. */
FP_INLINE u64 clocks_send_time(const struct clocks *h, const struct fp_call *r)
{
	return r->ceil ? h->free : 0;
}

#endif /* FP_POLICY_CLOCKS_H */
