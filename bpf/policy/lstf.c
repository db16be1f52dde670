/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Least slack time first: the packet that can wait least goes first.
 *
 * `hint` is the slack of the packet on arrival: the ns that it may wait, here and downstream. Slack
 * decreases equally for all waiting packets, so slack plus arrival is a constant order. The back
 * end subtracts the sojourn time in the outcome from the slack that it forwards.
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
	.name = "lstf",
	.about = "least slack time first",
	.source = "Mittal and others: Universal Packet Scheduling, NSDI 2016, section 2.1",
	.over = PACKETS | REFERENCES,
	.usual = FP_OVER_PACKETS,
};

RANK_ENQUEUE
{
	return add(r->now, p->hint);
}
