/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pFabric: the flow with the fewest remaining bytes goes first, its packets in order.
 *
 * The sender writes the remaining bytes of its flow into `hint`. The rank of a flow is the minimum
 * of its waiting packets, so a flow near its end takes its older packets along. No PIFO of packets,
 * nor a tree of them, can do that. Long flows starve while others keep coming, by design. Use
 * `patience` of srpt or a separate class against that.
 *
 * The minimum is kept while the flow waits. Remaining bytes only decrease, so it is that of the
 * latest packet. A sender that increases them takes effect after its queue was empty. Deliberately
 * absent: dropping of the least urgent packet as in the paper; the limit of the back end applies.
 */
#include <fairpath/policy.h>

struct flow {
};

struct class
{
	PARAMS;
};

struct global {
};

POLICY{
	STATE,
	.name = "pfabric",
	.about = "the flow with the fewest remaining bytes first, its packets in order",
	.source = "Alizadeh and others: pFabric, SIGCOMM 2013; per-flow ranks: Eiffel, NSDI 2019, "
		  "section 3.2",
	.over = FLOWS,
	.usual = FP_OVER_FLOWS,
};

RANK_ENQUEUE
{
	/* A sender cannot request the ranks KEEP and NEVER. */
	u64 rank = min(p->hint, KEEP - 1);

	if (!r->backlogged)
		return rank;
	return rank < r->rank ? rank : KEEP;
}

RANK_DEQUEUE
{
	return r->packets > 1 && r->next_hint < r->rank ? r->next_hint : KEEP;
}
