/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Shortest remaining processing time: who has the fewest bytes left goes first, so that short
 * transfers end soon and the mean completion time is the least there can be.
 *
 * The sender says in `hint` how many bytes its flow has left. Long transfers starve while short
 * ones keep coming, by design. `patience` is the guard against that: a packet is passed only by
 * packets that come within so much time after it. It counts every byte left as patience / 2^30 ns
 * of delay, 2^30 bytes and more as all of it.
 *
 * Packets of one flow may pass each other; pfabric keeps them in order.
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

enum { SRPT_PATIENCE };

#define SRPT_BITS 30

POLICY{
	STATE,
	.name = "srpt",
	.about = "shortest remaining processing time: the fewest bytes left first",
	.source = "Schrage, Miller: The queue M/G/1 with the SRPT discipline, Operations Research 1966",
	.over = PACKETS | REFERENCES,
	.usual = FP_OVER_PACKETS,
	.params = {
		{ "patience", "ns", "nobody who comes this much later goes before; 0: ever", 0,
		  10000000000, 0 },
	},
};

RANK_ENQUEUE
{
	u64 left = min(p->hint, 1ull << SRPT_BITS);

	if (!c->param[SRPT_PATIENCE])
		return p->hint;
	return add(r->now, left * min(c->param[SRPT_PATIENCE], 1ull << 33) >> SRPT_BITS);
}
