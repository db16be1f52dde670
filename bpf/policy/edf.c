/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Earliest deadline first: every packet has a deadline, and the earliest one goes first. If any
 * order meets all deadlines, this one does.
 *
 * The deadline is `hint`, in ns of the scheduler's clock, if the packet has one. Otherwise it is
 * the arrival plus the parameter of its DSCP, by the three upper bits (the class selector: EF is
 * cs5). Late packets are sent anyway.
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

#define EDF_MOST 60000000000ull

POLICY{
	STATE,
	.name = "edf",
	.about = "earliest deadline first, by the deadline of the packet or of its DSCP",
	.source = "Liu, Layland: Scheduling Algorithms for Multiprogramming, JACM 1973, section 7",
	.over = PACKETS | REFERENCES,
	.usual = FP_OVER_PACKETS,
	.params = {
		{ "cs0", "ns", "deadline of DSCP 0 to 7, best effort", 0, EDF_MOST, 100000000 },
		{ "cs1", "ns", "deadline of DSCP 8 to 15, background", 0, EDF_MOST, 500000000 },
		{ "cs2", "ns", "deadline of DSCP 16 to 23, AF2", 0, EDF_MOST, 50000000 },
		{ "cs3", "ns", "deadline of DSCP 24 to 31, AF3", 0, EDF_MOST, 30000000 },
		{ "cs4", "ns", "deadline of DSCP 32 to 39, AF4, video", 0, EDF_MOST, 20000000 },
		{ "cs5", "ns", "deadline of DSCP 40 to 47, EF, voice", 0, EDF_MOST, 5000000 },
		{ "cs6", "ns", "deadline of DSCP 48 to 55, routing", 0, EDF_MOST, 10000000 },
		{ "cs7", "ns", "deadline of DSCP 56 to 63, network control", 0, EDF_MOST, 10000000 },
	},
};

RANK_ENQUEUE
{
	if (p->hint)
		return p->hint;
	return add(r->now, c->param[p->dscp >> 3 & 7]);
}
