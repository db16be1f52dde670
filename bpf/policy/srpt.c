/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Shortest remaining processing time: the packet with the fewest remaining bytes goes first, so
 * that short transfers end soon and the mean completion time is minimal.
 *
 * The sender writes the remaining bytes of its flow into `hint`. Long transfers starve while short
 * ones keep coming, by design. `patience` limits that: only packets that arrive within this time
 * after a packet can pass it. Each remaining byte counts as patience / 2^30 ns of delay, and 2^30
 * bytes or more as all of it.
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
	.about = "shortest remaining processing time: the fewest remaining bytes first",
	.source = "Schrage, Miller: The queue M/G/1 with the SRPT discipline, Operations Research 1966",
	.over = PACKETS | REFERENCES,
	.usual = FP_OVER_PACKETS,
	.params = {
		{ "patience", "ns", "maximum time that later packets can go first; 0: without limit", 0,
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
