/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The class tree: floors, ceilings and borrowing, at every node of a tree of any depth (ISP, site,
 * subscriber).
 *
 * Each child of a node gets its floor, whatever the other children send, while the floors fit into
 * the rate of the node: a floor holds as far as the floors above it do. The rest is shared by
 * weight among children with more packets, up to their ceilings. Nothing is unused while a child
 * may send. So a child gets the larger of its floor and its share.
 *
 * In detail: a child whose floor is due goes first, the most overdue before all others. All packets
 * of a child count for its floor, but excess never delays it: the next packet is due no later than
 * its bytes at the rate of the floor from now. Packets by the floor in excess of the share count
 * against the share, for the last CLASS_TREE_LEAD bytes.
 *
 * `burst` of a child is the time that it may run ahead of its ceiling, or be served behind its
 * floor, after it was idle. Without a burst, idle time gives nothing. The bucket of the ceiling
 * holds at least one packet, for packets that wait while the link is busy. It may become negative
 * by the last packet, because a node does not know its next packet before it leaves.
 *
 * Source: clocks.h. Deliberately absent: HTB's quantum and r2q. The checker checks the sum of
 * floors.
 */
#include "clocks.h"

/* Bytes for which excess of a floor over the share is remembered. */
#define CLASS_TREE_LEAD 131072
/* ns for which a late floor (the link stood still) is made up. */
#define CLASS_TREE_DEBT 1000000000

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
	.name = "class_tree",
	.about = "floors, ceilings and shares by weight, with borrowing, at any depth",
	.source = "Billaud, Gulati: hClock, EuroSys 2013; shares by STFQ, SIGCOMM 1996",
	.over = CHILDREN,
	.usual = FP_OVER_CHILDREN,
	.wants = WANTS_DUE,
};

RANK_ENQUEUE
{
	/* Nothing waits: the busy period is over, and with it all debts of shares. */
	if (!r->waiting)
		c->virtual = max(c->virtual, c->finish);
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
	/* A floor that is set later starts then. */
	h->owed = r->floor ? add(h->owed, time_at(p->bytes, r->floor)) : r->now;
	c->finish = max(c->finish, h->share);
	r->due = r->floor ? h->owed : NEVER;
	return h->share;
}

SEND_TIME
{
	return clocks_send_time(&f->clocks, r);
}
