/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Deficit round robin: flows take turns, and each may send a quantum of bytes a turn.
 *
 * What a flow does not use of its quantum because its next packet is longer is kept for its next
 * turn; what it does not use because it has nothing more to send is not. Weights multiply the
 * quantum. A quantum of at least the longest packet makes every turn send, at O(1) a packet; a
 * smaller one is finer and costs empty turns.
 *
 * The turns are rounds: the rank is the number of the round in which flow or child is due, which
 * needs no list but the queue. Of children the next packet is not known beforehand, so that they
 * may overdraw by one packet and sit out as many rounds as it takes to make up for it.
 *
 * Section numbers are the paper's. Left out: its hash of flows into queues, which is the engine's.
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
		{ "quantum", "bytes", "what weight 1 may send a turn", 64, 1000000, 1514 },
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
	/* A child that comes back before its debt is paid waits for its round all the same. */
	if (f->turn <= c->round) {
		f->turn = c->round + 1;
		f->deficit = drr_quantum(c, r);
	}
	return f->turn;
}

/* The child sent, perhaps more than it had: then that many rounds pass it by. */
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

/* Somebody else took a flow's last packet: nothing to send, nothing kept. */
ON_DROP
{
	if (r->over == FP_OVER_FLOWS && r->packets <= 1)
		f->deficit = f->turn = 0;
	return 0;
}
