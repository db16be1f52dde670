/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Hierarchical packet fair queueing: shares of shares. Each node of the tree shares its rate among
 * its children by weight, and the unused share of a child stays within its parent.
 *
 * As a tree of PIFOs: start-time fair queueing at each node over references, one for each packet
 * below. Each reference has its own start time, so virtual time is exact at every node for any
 * number of waiting packets. Below it, leaves of packets by stfq share among flows.
 *
 * Debts end with the busy period of a node, as in stfq.
 */
#include <fairpath/policy.h>

struct flow {
	u64 finish;
};

struct class
{
	PARAMS;
	u64 virtual;
	u64 finish; /* the largest of all children */
};

struct global {
};

POLICY{
	STATE,
	.name = "hpfq",
	.about = "hierarchical fair queueing: a tree of shares by weight",
	.source = "Sivaraman and others: Programmable Packet Scheduling at Line Rate, SIGCOMM "
		  "2016, section 2.2",
	.over = REFERENCES | PACKETS,
	.usual = FP_OVER_REFERENCES,
};

RANK_ENQUEUE
{
	u64 start;

	if (!r->waiting)
		c->virtual = max(c->virtual, c->finish);
	start = max(c->virtual, f->finish);

	f->finish = add(start, virtual_time(p->bytes, r->cost));
	c->finish = max(c->finish, f->finish);
	return start;
}

RANK_DEQUEUE
{
	c->virtual = max(c->virtual, r->rank);
	return 0;
}
