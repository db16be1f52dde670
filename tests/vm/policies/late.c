/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Every packet waits 5 ms once it is the next, in the order of arrival. Drops each packet of DSCP 8. */
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
	.name = "late",
	.about = "the next packet waits 5 ms",
	.source = "a test",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
};

RANK_ENQUEUE
{
	return r->now;
}

RANK_DEQUEUE
{
	if (p->dscp == 8)
		r->verdict = DROP;
	return KEEP;
}

SEND_TIME
{
	return add(r->now, 5000000);
}
