/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Least slack time first: who can wait the least goes first.
 *
 * `hint` is the packet's slack as it comes: the ns that it may spend waiting, here and further on.
 * Slack shrinks alike for all who wait, so that slack plus arrival orders them once and for all.
 * Whoever sends the packet on takes its sojourn, which the outcome tells, off the slack it carries.
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
	.about = "least slack time first: who can wait the least",
	.source = "Mittal and others: Universal Packet Scheduling, NSDI 2016, section 2.1",
	.over = PACKETS | REFERENCES,
	.usual = FP_OVER_PACKETS,
};

RANK_ENQUEUE
{
	return add(r->now, p->hint);
}
