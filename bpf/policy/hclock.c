/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * hClock: reservation, limit and share, one level of it, as published. For production use
 * class_tree. This policy is for comparison with it.
 *
 * Differences: only packets sent by reservation count for the reservation, so that a child gets it
 * at even distances whatever its share is. Packets by reservation in excess of the share always
 * count. There are no bursts, so idle time gives nothing, and a backlogged child makes up for what
 * it missed of its limit.
 *
 * Source: clocks.h, and Gulati, Merchant, Varman: mClock, OSDI 2010, whose R tags do not change
 * when a request is served by weight. Deliberately absent: the tree of the paper.
 */
#include "clocks.h"

struct flow {
	struct clocks clocks;
};

struct class
{
	PARAMS;
	u64 virtual;
	u64 finish; /* the largest share of all children */
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
	/* Nothing waits: the busy period is over, and with it all debts of shares. */
	if (!r->waiting)
		c->virtual = max(c->virtual, c->finish);
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
	/* A floor that is set later starts then. */
	if (!r->floor)
		h->owed = r->now;
	c->finish = max(c->finish, h->share);
	r->due = r->floor ? h->owed : NEVER;
	return h->share;
}

SEND_TIME
{
	return clocks_send_time(&f->clocks, r);
}
