/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Deficit round robin: flows take turns, and each may send a quantum of bytes a turn.
 *
 * The unused rest of a quantum is kept for the next turn if the next packet is longer, and is lost
 * if the flow is empty. Weights multiply the quantum. With a quantum of at least the longest
 * packet, every turn sends, at O(1) per packet. A smaller quantum is finer but costs empty turns.
 *
 * Turns are rounds: the rank is the round in which a flow or child is due, so the queue is the only
 * list. The next packet of a child is unknown, so a child may exceed its quantum by one packet, and
 * then skips rounds until it made up for it.
 *
 * Section numbers are those of the paper. Deliberately absent: its hash of flows into queues, which
 * the scheduler does.
 */
#include <fairpath/policy.h>

struct flow {
	u64 deficit; /* bytes that it may still send */
	u64 turn; /* flows: whether it got its quantum of this turn; children: their next round */
};

struct class
{
	PARAMS;
	u64 round;
};

struct global {
};

enum { DRR_QUANTUM };

POLICY{
	STATE,
	.name = "drr",
	.about = "deficit round robin: flows take turns of a quantum of bytes",
	.source = "Shreedhar, Varghese: Efficient Fair Queueing using Deficit Round Robin, SIGCOMM 1995",
	.over = FLOWS | CHILDREN,
	.usual = FP_OVER_FLOWS,
	.queue = { .kind = FP_CFFS, .buckets = 64 },
	.params = {
		{ "quantum", "bytes", "bytes per turn at weight 1", 64, 1000000, 1514 },
	},
};

FP_INLINE u64 drr_quantum(struct class *c, struct fp_call *r)
{
	return max(1, div(shl(c->param[DRR_QUANTUM], 14), r->cost));
}

RANK_ENQUEUE
{
	if (r->backlogged)
		return KEEP;
	if (r->over == FP_OVER_FLOWS)
		return c->round + 1;
	/* A child that returns before its debt is paid waits for its round anyway. */
	if (f->turn <= c->round) {
		f->turn = c->round + 1;
		f->deficit = drr_quantum(c, r);
	}
	return f->turn;
}

/* The child sent, perhaps too much: then it skips rounds. */
FP_INLINE u64 drr_charge_child(const struct fp_meta *p, struct flow *f, struct class *c,
			       struct fp_call *r)
{
	u64 quantum = drr_quantum(c, r);
	u64 rounds;

	if (p->bytes < f->deficit) {
		f->deficit -= p->bytes;
		return KEEP;
	}
	rounds = div(p->bytes - f->deficit, quantum) + 1;
	f->deficit = f->deficit + rounds * quantum - p->bytes;
	f->turn = add(r->rank, rounds);
	return f->turn;
}

RANK_DEQUEUE
{
	c->round = max(c->round, r->rank);
	if (r->over == FP_OVER_CHILDREN)
		return drr_charge_child(p, f, c, r);
	/* Section 3: the quantum comes at the beginning of the turn. */
	if (!f->turn)
		f->deficit = add(f->deficit, drr_quantum(c, r));
	f->turn = 0;
	if (p->bytes > f->deficit) {
		r->verdict = LATER;
		return r->rank + 1;
	}
	f->deficit -= p->bytes;
	if (r->packets <= 1) {
		f->deficit = 0;
		return KEEP;
	}
	f->turn = r->next_bytes <= f->deficit;
	return f->turn ? KEEP : r->rank + 1;
}

/* Another part dropped the last packet of a flow: nothing to send, nothing kept. */
ON_DROP
{
	if (r->over == FP_OVER_FLOWS && r->packets <= 1)
		f->deficit = f->turn = 0;
	return 0;
}
