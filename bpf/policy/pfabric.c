/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pFabric: the flow with the fewest bytes left goes first, its packets in order.
 *
 * The sender says in `hint` how many bytes its flow has left. A flow stands where the least of its
 * waiting packets puts it, so that a flow about to end takes its older packets along; no PIFO of
 * packets, nor a tree of them, can do that. Flows with much left starve while others keep coming,
 * by design: srpt's `patience` or a separate class is the remedy.
 *
 * The least is kept while the flow waits. Bytes left only ever shrink, so it is the latest
 * packet's; a sender that counts upwards again is believed when its queue has been empty. Left out:
 * the paper's dropping of the least urgent packet, which is the port's limit here.
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
	.about = "the flow with the fewest bytes left first, its packets in order",
	.source = "Alizadeh and others: pFabric, SIGCOMM 2013; per-flow ranks: Eiffel, NSDI 2019, "
		  "section 3.2",
	.over = FLOWS,
	.usual = FP_OVER_FLOWS,
};

RANK_ENQUEUE
{
	/* KEEP and NEVER are no ranks that a sender can ask for. */
	u64 rank = min(p->hint, KEEP - 1);

	if (!r->backlogged)
		return rank;
	return rank < r->rank ? rank : KEEP;
}

RANK_DEQUEUE
{
	return r->packets > 1 && r->next_hint < r->rank ? r->next_hint : KEEP;
}
