/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The class tree: floors, ceilings and borrowing, at every node of a tree of any depth (ISP, site,
 * subscriber).
 *
 * Each child of a node gets its floor, whatever the others want, while the floors fit into
 * what the node itself gets: a floor holds as far as the floors above it do. What is left goes to
 * those that want more, by weight, up to their ceilings; nothing is left over while somebody may
 * send. So a child gets its floor or its share, whichever is more.
 *
 * Exactly: a child whose floor is due goes first, the most overdue before all. Whatever it sends,
 * by floor or by share, pays for its floor; but what it had beyond is never held against it: the
 * next packet is due no later than its bytes at the floor's rate from now. What it had by its floor
 * beyond its share is held against its share, for the last CLASS_TREE_LEAD bytes.
 *
 * `burst` of a child is how long it may run ahead of its ceiling, and be served behind its floor,
 * after it was idle. Without one, idle time is worth nothing. The ceiling's bucket holds a packet
 * at least, for what waits while the link is busy; and it may go negative by the last packet,
 * because a node does not know its next packet before it leaves.
 *
 * Source: clocks.h. Deliberately absent: HTB's quantum and r2q; the sum of floors is the checker's.
 */
#include "clocks.h"

/* What floors gave beyond the share is remembered for so many bytes. */
#define CLASS_TREE_LEAD 131072
/* What a floor fell behind (the link stood still) is made up for, for so many ns. */
#define CLASS_TREE_DEBT 1000000000

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
	.name = "class_tree",
	.about = "floors, ceilings and shares by weight, with borrowing, at any depth",
	.source = "Billaud, Gulati: hClock, EuroSys 2013; shares by STFQ, SIGCOMM 1996",
	.over = CHILDREN,
	.usual = FP_OVER_CHILDREN,
	.wants = WANTS_DUE,
};

RANK_ENQUEUE
{
	return clocks_begin(&f->clocks, c->virtual, r, r->burst);
}

RANK_DEQUEUE
{
	struct clocks *h = &f->clocks;

	clocks_charge_share(h, c->virtual, r, p->bytes);
	if (r->by_floor)
		h->share = min(h->share, add(c->virtual, virtual_time(CLASS_TREE_LEAD, r->cost)));
	else
		c->virtual = max(c->virtual, r->rank);
	clocks_charge_ceiling(h, r, p->bytes, max(r->burst, time_at(p->bytes, r->ceil)));
	h->owed = min(max(h->owed, sub(r->now, add(r->burst, CLASS_TREE_DEBT))), r->now);
	/* A floor that is set later owes nothing for the time before. */
	h->owed = r->floor ? add(h->owed, time_at(p->bytes, r->floor)) : r->now;
	r->due = r->floor ? h->owed : NEVER;
	return h->share;
}

SEND_TIME
{
	return clocks_send_time(&f->clocks, r);
}
