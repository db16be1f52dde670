/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * SP-PIFO: an approximate order of rank, with a few FIFO queues under strict priority.
 *
 * It saves work per packet: a scan of the queues' bounds instead of a heap. The price is
 * inversions: packets of larger rank that leave before smaller ones, more often with fewer queues
 * and less regular ranks. Low ranks can starve the last queues, and some orders defeat it.
 *
 * The rank is the packet's `hint`, or with `fair` 1 its start time by weight as in stfq, whose debts
 * end with the busy period. The bounds belong to the queue (FP_SP_PIFO), which any policy over
 * packets may use in its tree.
 */
#include <fairpath/policy.h>

struct flow {
	u64 finish;
};

struct class
{
	PARAMS;
	u64 virtual;
	u64 finish; /* the largest of all flows */
};

struct global {
};

enum { SP_PIFO_FAIR };

POLICY{
	STATE,
	.name = "sp_pifo",
	.about = "approximate order of rank with a few FIFO queues",
	.source = "Alcoz, Dietmueller, Vanbever: SP-PIFO, NSDI 2020",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
	.queue = { .kind = FP_SP_PIFO, .buckets = 8 },
	.params = {
		{ "fair", "", "rank by: 0 hint of the packet, 1 start times by weight", 0, 1, 0 },
	},
};

RANK_ENQUEUE
{
	u64 start;

	if (!c->param[SP_PIFO_FAIR])
		return p->hint;
	if (!r->waiting)
		c->virtual = max(c->virtual, c->finish);
	start = max(c->virtual, f->finish);
	f->finish = add(start, virtual_time(p->bytes, r->cost));
	c->finish = max(c->finish, f->finish);
	return start;
}

RANK_DEQUEUE
{
	if (c->param[SP_PIFO_FAIR])
		c->virtual = max(c->virtual, r->rank);
	return 0;
}
