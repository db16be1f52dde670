/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Strict priority: nothing of a lower band leaves while a higher one has something.
 *
 * Over packets and flows the band is in the packet: its IP precedence, its mark, or its hint. Flows
 * of one band take turns, and stand in the band of their last packet. Over children the heavier
 * child goes first; children of one weight take turns.
 *
 * Strict priority starves by design. `guard` bounds it: a packet or flow is reordered for so long
 * by each band (guard.h), a child is served at least once in that time.
 *
 * Source: RFC 8622 and RFC 4594 for what networks prefer; no paper is needed. Queue: FP_HEAP, which
 * ranks of both kinds fit; without a guard, a tree may say FP_BANDS, which is O(1).
 */
#include "guard.h"

enum {
	PRIORITY_BY,
	PRIORITY_GUARD,
};

/* What the band is read from. */
enum {
	PRIORITY_PRECEDENCE = 0,
	PRIORITY_MARK = 1,
	PRIORITY_HINT = 2,
};

#define PRIORITY_LAST_BAND 63

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
	.name = "priority",
	.about = "strict priority: by precedence, mark or hint; over children by weight",
	.source = "RFC 4594 section 1.4.1: priority queuing",
	.over = PACKETS | FLOWS | CHILDREN,
	.usual = FP_OVER_PACKETS,
	.wants = WANTS_DUE,
	.params = { { .name = "by",
		      .about = "0: IP precedence, 7 first; 1: mark, 2: hint, 0 to 63, 0 first",
		      .most = 2 },
		    { .name = "guard",
		      .unit = "ns",
		      .about = "after this nobody is overtaken by the next band; 0: strict",
		      .most = 10000000000 } },
};

FP_INLINE u64 priority_band(const struct fp_meta *p, u64 by)
{
	if (by == PRIORITY_MARK)
		return min(p->mark, PRIORITY_LAST_BAND);
	if (by == PRIORITY_HINT)
		return min(p->hint, PRIORITY_LAST_BAND);
	return 7 - (p->dscp >> 3 & 7);
}

/* The rank from now on. */
FP_INLINE u64 priority_rank(const u64 *param, const struct fp_meta *p, struct fp_call *r)
{
	u64 guard = param[PRIORITY_GUARD];

	if (r->over == FP_OVER_CHILDREN) {
		r->due = guard ? add(r->now, guard) : NEVER;
		return r->cost;
	}
	return guard_rank(priority_band(p, param[PRIORITY_BY]), r->now, guard);
}

RANK_ENQUEUE
{
	return r->backlogged ? KEEP : priority_rank(c->param, p, r);
}

RANK_DEQUEUE
{
	return priority_rank(c->param, p, r);
}
