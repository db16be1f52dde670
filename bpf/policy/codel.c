/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * CoDel: one FIFO without a standing queue. Flows are not distinguished: see fq_codel.
 *
 * Source: RFC 8289; the decision is in codel.h. An empty queue restarts, like dequeue() of an empty
 * queue in RFC 8289.
 */
#include "codel.h"

struct flow {
};

struct class
{
	PARAMS;
	struct codel codel;
};

struct global {
};

POLICY{
	STATE,
	.name = "codel",
	.about = "first in, first out, without a standing queue",
	.source = "Nichols, Jacobson, McGregor, Iyengar: Controlled Delay, RFC 8289",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
	.queue = { .kind = FP_BANDS, .buckets = 1 },
	.params = { CODEL_PARAM_BLOCK },
};

RANK_ENQUEUE
{
	if (!r->queue_packets)
		codel_emptied(&c->codel);
	return 0;
}

RANK_DEQUEUE
{
	r->verdict = codel_decide(&c->codel, c->param, p, r, sub(r->queue_bytes, p->bytes));
	return 0;
}
