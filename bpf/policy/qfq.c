/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Quick fair queueing: shares by weight, with every child close to its share at any time.
 *
 * Like stfq, it gives each child its share. In addition, a child that had its share waits until
 * virtual time catches up (it is not eligible), so that a heavy child does not send a burst and
 * then pause. Over any time in which a child waits, it gets at most a few packets less than its
 * share, for any number of children (the B-WFI below).
 *
 *   start time S, rounded down to a slot: S'   eligible where S' <= virtual time
 *   slot: 2^i >= longest packet / weight       first of those: the least F' = S' + 2 slots
 *
 * F' needs no packet length in advance, so it can rank children whose next packet is unknown.
 * Virtual time advances by bytes over the sum of weights, and jumps to the lowest S' if none is
 * eligible. With a sum of weights of 1, B-WFI = weight * (3 slots + 2 longest packets).
 *
 * When nothing waits, a new busy period begins: virtual time and all start times are 0 again, and
 * the sum has the weights of children that sent in this period.
 *
 * Section numbers are those of the paper. Deliberately absent: groups and their bitmaps (section
 * 4), which find the same child in O(1). The scheduler's queues find it in O(log children).
 */
#include <fairpath/policy.h>

struct flow {
	u64 start;
	u64 weight; /* as counted in class.weights */
	u64 period; /* the busy period of both */
};

struct class
{
	PARAMS;
	u64 virtual; /* read by WANTS_ELIGIBLE */
	u64 weights;
	u64 period;
};

struct global {
};

enum { QFQ_LONGEST };

POLICY{
	STATE,
	.name = "qfq",
	.about = "quick fair queueing: shares by weight, at any time",
	.source = "Checconi, Rizzo, Valente: QFQ, IEEE/ACM Transactions on Networking 2013",
	.over = CHILDREN,
	.usual = FP_OVER_CHILDREN,
	.wants = WANTS_ELIGIBLE,
	.params = {
		{ "longest", "bytes", "the longest packet; with longer ones the bound is looser", 64,
		  1000000, 1514 },
	},
};

/* The weight of the child in parts of 2^-16, as in the sum of weights. */
FP_INLINE void qfq_weigh(struct flow *f, struct class *c, struct fp_call *r)
{
	u64 weight = max(1, div(shl(FP_COST_ONE, 16), r->cost));

	c->weights = sub(c->weights, f->weight) + weight;
	f->weight = weight;
}

/* Section 3: eligible from the start of the slot; the rank is two slots later. */
FP_INLINE u64 qfq_rank(struct flow *f, struct class *c, struct fp_call *r)
{
	u64 slot = max(2, virtual_time(c->param[QFQ_LONGEST], r->cost));
	u32 bits = 64 - (u32)__builtin_clzll(slot - 1);

	r->due = shl(shr(f->start, bits), bits);
	return add(r->due, shl(2, bits));
}

RANK_ENQUEUE
{
	if (r->backlogged)
		return KEEP;
	if (!r->waiting) {
		c->period++;
		c->virtual = c->weights = 0;
	}
	if (f->period != c->period) {
		f->period = c->period;
		f->start = f->weight = 0;
	}
	qfq_weigh(f, c, r);
	f->start = max(f->start, c->virtual);
	return qfq_rank(f, c, r);
}

RANK_DEQUEUE
{
	qfq_weigh(f, c, r);
	c->virtual = add(c->virtual, div(shl(virtual_time(p->bytes, FP_COST_ONE), 16), c->weights));
	f->start = add(f->start, virtual_time(p->bytes, r->cost));
	return qfq_rank(f, c, r);
}
