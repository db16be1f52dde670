/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Strict priority: no packet of a lower band leaves while a higher one has packets.
 *
 * Over packets and flows, the band comes from the packet: its IP precedence, its mark, or its hint.
 * Flows of one band take turns, in the band of their last packet. Over children, the heavier child
 * goes first, and children of one weight take turns.
 *
 * Strict priority starves by design. `guard` limits it: each band can delay a packet or flow by
 * that time (guard.h), and a child is served at least once in it.
 *
 * Source: RFC 8622 and RFC 4594 for the preferences of networks; there is no paper. Queue: FP_HEAP,
 * which fits both kinds of ranks. Without a guard, a tree may use FP_BANDS, which is O(1).
 */
#include "guard.h"

enum {
	PRIORITY_BY,
	PRIORITY_GUARD,
};

/* The source of the band. */
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
		      .about = "maximum time that the previous band goes first; 0: without limit",
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
