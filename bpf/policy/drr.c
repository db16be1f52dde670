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
 * then skips rounds until it made up for it: up to a packet over its quantum, which a light child
 * needs thousands for. So the queue is a heap, because a window would clamp these rounds. Quanta are
 * counted in parts of a byte, because those of light children are a few bytes.
 *
 * Debts end with the busy period of a node, as in the paper, where an empty flow has no deficit: when
 * nothing waits, the round moves to the last one in which a child is due.
 *
 * Section numbers are those of the paper. Deliberately absent: its hash of flows into queues, which
 * the scheduler does.
 */
#include <fairpath/policy.h>

struct flow {
	u64 deficit; /* DRR_BYTE a byte that it may still send */
	u64 turn; /* flows: whether it got its quantum of this turn; children: their next round */
};

struct class
{
	PARAMS;
	u64 round;
	u64 last; /* children: the last round in which one is due */
};

struct global {
};

enum { DRR_QUANTUM };

/* Turns without sending that a flow takes one by one, so that flows keep their order. */
#define DRR_TURNS 128
/* Parts of a byte in a deficit, as a power of two. */
#define DRR_BYTE_SHIFT 14

POLICY{
	STATE,
	.name = "drr",
	.about = "deficit round robin: flows take turns of a quantum of bytes",
	.source = "Shreedhar, Varghese: Efficient Fair Queueing using Deficit Round Robin, SIGCOMM 1995",
	.over = FLOWS | CHILDREN,
	.usual = FP_OVER_FLOWS,
	.queue = { .kind = FP_HEAP },
	.params = {
		{ "quantum", "bytes", "bytes per turn of the heaviest child, or of a flow of weight 1", 64, 1000000, 1514 },
	},
};

/* FP_COST_ONE is 2^14, too. */
FP_INLINE u64 drr_quantum(struct class *c, struct fp_call *r)
{
	return max(1, div(shl(c->param[DRR_QUANTUM], 14 + DRR_BYTE_SHIFT), r->cost));
}

FP_INLINE u64 drr_parts(u64 bytes)
{
	return bytes << DRR_BYTE_SHIFT;
}

RANK_ENQUEUE
{
	if (r->backlogged)
		return KEEP;
	if (r->over == FP_OVER_FLOWS)
		return c->round + 1;
	if (!r->waiting)
		c->round = max(c->round, c->last);
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
	u64 parts = drr_parts(p->bytes);
	u64 rounds;

	if (parts < f->deficit) {
		f->deficit -= parts;
		return KEEP;
	}
	rounds = div(parts - f->deficit, quantum) + 1;
	f->deficit = f->deficit + rounds * quantum - parts;
	f->turn = add(r->rank, rounds);
	c->last = max(c->last, f->turn);
	return f->turn;
}

/*
 * Rounds until the next turn of a flow whose packet exceeds its deficit. If it needs very many, all but
 * DRR_TURNS pass at once, with their quanta: they would send nothing.
 */
FP_INLINE u64 drr_skip(const struct fp_meta *p, struct flow *f, u64 quantum)
{
	u64 more = div(drr_parts(p->bytes) - f->deficit - 1, quantum);

	if (more < DRR_TURNS)
		return 1;
	f->deficit += (more - DRR_TURNS) * quantum;
	return more - DRR_TURNS + 1;
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
	if (drr_parts(p->bytes) > f->deficit) {
		r->verdict = LATER;
		return add(r->rank, drr_skip(p, f, drr_quantum(c, r)));
	}
	f->deficit -= drr_parts(p->bytes);
	if (r->packets <= 1) {
		f->deficit = 0;
		return KEEP;
	}
	f->turn = drr_parts(r->next_bytes) <= f->deficit;
	return f->turn ? KEEP : r->rank + 1;
}

/* Another part dropped the last packet of a flow: nothing to send, nothing kept. */
ON_DROP
{
	if (r->over == FP_OVER_FLOWS && r->packets <= 1)
		f->deficit = f->turn = 0;
	return 0;
}
