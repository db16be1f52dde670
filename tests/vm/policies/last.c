/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Last in, first out, with the number of packets of its class. */
#include <fairpath/policy.h>

struct flow {
};

struct class
{
	PARAMS;
	u64 packets;
};

struct global {
	u64 packets;
};

POLICY{
	STATE,
	.name = "last",
	.about = "last in, first out",
	.source = "a test",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
};

RANK_ENQUEUE
{
	c->packets++;
	g->packets++;
	return NEVER - 2 - g->packets;
}
