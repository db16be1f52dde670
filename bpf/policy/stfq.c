/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Start-time fair queueing: each flow gets its share of the bytes, by weight.
 *
 * Every packet starts in virtual time where the last one of its flow ended, or now. Packets leave
 * in the order of their starts. The end of a flow is kept until virtual time has passed it, so that
 * a flow with one packet at a time gets no more than its share.
 *
 * Debts end with the busy period (section 2): when nothing waits, virtual time moves to the largest
 * finish.
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

POLICY{
	STATE,
	.name = "stfq",
	.about = "start-time fair queueing: bytes shared by weight",
	.source = "Goyal, Vin, Cheng: Start-time Fair Queueing, SIGCOMM 1996",
	.over = PACKETS | FLOWS | CHILDREN | REFERENCES,
	.usual = FP_OVER_PACKETS,
};

RANK_ENQUEUE
{
	u64 start;

	if (!r->waiting)
		c->virtual = max(c->virtual, c->finish);
	start = max(c->virtual, f->finish);

	/*
	 * Flows and children are queued by the start of their next packet, and charged when it
	 * leaves.
	 */
	if (r->over == FP_OVER_FLOWS || r->over == FP_OVER_CHILDREN)
		return r->backlogged ? KEEP : start;
	f->finish = add(start, virtual_time(p->bytes, r->cost));
	c->finish = max(c->finish, f->finish);
	return start;
}

RANK_DEQUEUE
{
	c->virtual = max(c->virtual, r->rank);
	if (r->over == FP_OVER_FLOWS || r->over == FP_OVER_CHILDREN)
		f->finish = add(r->rank, virtual_time(p->bytes, r->cost));
	c->finish = max(c->finish, f->finish);
	return f->finish;
}
