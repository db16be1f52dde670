/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Tins with thresholds: a child has priority for a share of the rate, and none beyond it.
 *
 * The threshold of a child is its weight over that of the heaviest child. The lighter child goes
 * first while it is below its threshold, and the heaviest one last: it has all that the others
 * leave. A child with a weight of at most 1/`low` (bulk) goes after the other light ones. A child
 * above its threshold sends only if no other child may send, the one that is the least ahead first.
 * So nothing is unused, and no tin starves if the thresholds sum to less than one. Debts end with the
 * busy period of a node, as in stfq.
 *
 *   weight 4 of 16 (voice)   first, up to 1/4       at   the time of its next packet:
 *   weight 1 of 16 (bulk)    then, up to 1/16            + bytes / threshold each
 *   weight 16      (other)   the rest                eligible where at <= bytes of all children
 *
 * CAKE measures thresholds against its configured rate, by the clock. Here the bytes of the node
 * are the clock, so the thresholds are shares of the present rate, also below a busy link and after
 * the rate was changed.
 *
 * Source: the shaped mode of CAKE. A child that waits for its time is not eligible, as in WF2Q+
 * (Bennett, Zhang, INFOCOM 1996). Deliberately absent: the mapping of DSCPs, which the tree has.
 */
#include <fairpath/policy.h>

/* Bytes for which a share that was not used is remembered while a child waits. */
#define TINS_LEAD 65536
/* The rank of the heaviest child: 2^40 / FP_COST_ONE. */
#define TINS_LAST (1ull << 26)

struct flow {
	u64 at; /* virtual time of the next packet within the threshold */
};

struct class
{
	PARAMS;
	u64 virtual; /* read by WANTS_ELIGIBLE: bytes of all children */
	u64 finish;  /* the largest `at` of all children */
};

struct global {
};

enum { TINS_LOW };

POLICY{
	STATE,
	.name = "tins",
	.about = "priority up to a share of the rate: light children first, the heaviest has the rest",
	.source = "Hoiland-Jorgensen and others: Piece of CAKE, LANMAN 2018, section III-C",
	.over = CHILDREN,
	.usual = FP_OVER_CHILDREN,
	.wants = WANTS_ELIGIBLE,
	.params = {
		{ "low", "", "children of at most 1/low of the largest weight go after other light ones",
		  1, 65536, 16 },
	},
};

/* Lighter first, except bulk. */
FP_INLINE u64 tins_rank(struct flow *f, struct class *c, struct fp_call *r)
{
	r->due = f->at;
	if (r->cost > FP_COST_ONE && div(r->cost, FP_COST_ONE) >= c->param[TINS_LOW])
		return TINS_LAST - 1;
	return div(shl(1, 40), r->cost);
}

RANK_ENQUEUE
{
	if (r->backlogged)
		return KEEP;
	if (!r->waiting)
		c->virtual = max(c->virtual, c->finish);
	f->at = max(f->at, c->virtual);
	return tins_rank(f, c, r);
}

RANK_DEQUEUE
{
	c->virtual = add(c->virtual, virtual_time(p->bytes, FP_COST_ONE));
	f->at = max(f->at, sub(c->virtual, virtual_time(TINS_LEAD, FP_COST_ONE)));
	f->at = add(f->at, virtual_time(p->bytes, r->cost));
	c->finish = max(c->finish, f->at);
	return tins_rank(f, c, r);
}
