/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * hClock: reservation, limit and share, one level of it, as published. class_tree is what operators
 * want; this is what it is compared with.
 *
 * The differences: only what is sent by reservation pays for the reservation, so that a child gets
 * it at even distances whatever its share brings; what reservations bring beyond the share is never
 * forgotten; idle time is worth nothing, for there are no bursts, and what a backlogged child
 * missed of its limit is made up for.
 *
 * Source: clocks.h; who pays for what is Gulati, Merchant, Varman: mClock, OSDI 2010, whose R tags
 * stay where they are when a request is served by weight. Deliberately absent: the paper's tree.
 */
#include "clocks.h"

struct flow {
	struct clocks clocks;
};

struct class
{
	PARAMS;
	u64 virtual;
};

struct global {
};

POLICY{
	STATE,
	.name = "hclock",
	.about = "reservation, limit and share of each child, as published",
	.source = "Billaud, Gulati: hClock, EuroSys 2013; Gulati and others: mClock, OSDI 2010",
	.over = CHILDREN,
	.usual = FP_OVER_CHILDREN,
	.wants = WANTS_DUE,
};

RANK_ENQUEUE
{
	return clocks_begin(&f->clocks, c->virtual, r, 0);
}

RANK_DEQUEUE
{
	struct clocks *h = &f->clocks;

	clocks_charge_share(h, c->virtual, r, p->bytes);
	clocks_charge_ceiling(h, r, p->bytes, NEVER);
	if (r->by_floor)
		h->owed = add(h->owed, time_at(p->bytes, r->floor));
	else
		c->virtual = max(c->virtual, r->rank);
	/* A floor that is set later owes nothing for the time before. */
	if (!r->floor)
		h->owed = r->now;
	r->due = r->floor ? h->owed : NEVER;
	return h->share;
}

SEND_TIME
{
	return clocks_send_time(&f->clocks, r);
}
