/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * FQ-CoDel: every flow has a separate queue, takes turns of a quantum of bytes, and is dropped from
 * by CoDel. Flows that send less than a quantum per turn (DNS, games, first packets of flows) go
 * first.
 *
 * There are two lists, new flows before old ones. A flow starts as a new one with a quantum of
 * credit. A flow without credit gets another quantum at the end of the old flows. An empty new flow
 * moves there once before it may be new again; otherwise it would starve the old flows.
 *
 * The lists are one queue, by rounds: every old flow has one turn in each. A flow without credit
 * gets the round in which it has credit at once, instead of passing through the list as often: a
 * GSO packet costs its flow forty turns and the machine one. This happens when it sends, not at its
 * next turn. Otherwise, with packets up to a quantum and without `hosts`, the order is that of the
 * RFC's lists, packet by packet.
 *
 * `hosts` shares between hosts first, then between the flows of each. A quantum is divided by the
 * number of waiting flows of the busier of the packet's two hosts. So a machine with a hundred
 * downloads gets no more than one with a single call (like triple isolation in CAKE).
 *
 * Source: RFC 8290 section 4, with the flow table of the scheduler (sets of eight, not a plain
 * hash). The scheduler handles overflow: `overflow = fattest`. Deliberately absent: an order of
 * flows of hosts. Only their shares are equal.
 */
#include "codel.h"

enum {
	FQ_CODEL_QUANTUM = CODEL_PARAMS,
	FQ_CODEL_HOSTS,
};

/*
 * Maximum of rounds that a flow skips at once, and the ranks of these: the window of the queue, which
 * is most of the memory of a class. A flow that needs more rounds waits again at that turn.
 */
#define FQ_CODEL_AHEAD	31
#define FQ_CODEL_WINDOW 64

/* Credit is counted in parts of a byte, so that division of the quantum does not round it to 0. */
#define FQ_CODEL_BYTE 256

struct flow {
	struct codel codel;
	s64 credit; /* FQ_CODEL_BYTE a byte */
};

struct class
{
	PARAMS;
	u64 round;
};

struct global {
};

POLICY{
	STATE,
	.name = "fq_codel",
	.about = "a queue for each flow, in turns of a quantum, with CoDel; fair between hosts",
	.source = "Hoeiland-Joergensen and others: FQ-CoDel, RFC 8290; CoDel: RFC 8289",
	.over = FLOWS,
	.usual = FP_OVER_FLOWS,
	.wants = WANTS_HOSTS | WANTS_EMPTY,
	.queue = { .kind = FP_CFFS, .buckets = FQ_CODEL_WINDOW },
	.params = { CODEL_PARAM_BLOCK,
		    { .name = "quantum",
		      .unit = "bytes",
		      .about = "bytes per flow and turn",
		      .min = 64,
		      .most = 1048576,
		      .standard = 1514 },
		    { .name = "hosts",
		      .about = "1 shares between hosts first, 0 between flows only",
		      .most = 1,
		      .standard = 1 } },
};

/* The credit of a turn; never 0, so that every flow gets a turn. */
FP_INLINE s64 fq_codel_grant(const u64 *param, const struct fp_call *r)
{
	u64 quantum = param[FQ_CODEL_QUANTUM] * FQ_CODEL_BYTE;

	if (!param[FQ_CODEL_HOSTS])
		return (s64)quantum;
	return (s64)max(div(quantum, r->hosts), FQ_CODEL_BYTE);
}

/* Two ranks per round: new flows of a round precede the old ones of that round. */
FP_INLINE u64 fq_codel_turn(const struct class *c, u64 rounds)
{
	return 2 * add(c->round, rounds) + 1;
}

/* Adds credit for the number of turns needed. Returns the turn in which it has credit. */
FP_INLINE u64 fq_codel_wait(struct flow *f, const struct class *c, const struct fp_call *r)
{
	u64 grant = (u64)fq_codel_grant(c->param, r);
	u64 rounds = min(div((u64)-f->credit, grant) + 1, FQ_CODEL_AHEAD);

	f->credit += (s64)(rounds * grant);
	return fq_codel_turn(c, rounds);
}

RANK_ENQUEUE
{
	if (r->backlogged)
		return KEEP;
	f->credit = fq_codel_grant(c->param, r);
	return 2 * c->round;
}

RANK_DEQUEUE
{
	c->round = max(c->round, r->rank >> 1);
	if (f->credit <= 0) {
		r->verdict = r->packets ? LATER : LINGER;
		return fq_codel_wait(f, c, r);
	}
	if (!r->packets) {
		codel_emptied(&f->codel);
		r->verdict = r->rank & 1 ? SEND : LINGER;
		return fq_codel_turn(c, 1);
	}
	r->verdict = codel_decide(&f->codel, c->param, p, r, sub(r->bytes, p->bytes));
	if (r->verdict & DROP)
		return KEEP;
	f->credit -= (s64)p->bytes * FQ_CODEL_BYTE;
	if (f->credit > 0)
		return KEEP;
	/* Its turn is over, with or without more packets. */
	r->verdict |= LINGER;
	return fq_codel_wait(f, c, r);
}
