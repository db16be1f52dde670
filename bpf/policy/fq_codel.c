/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * FQ-CoDel: every flow has a separate queue, takes turns of a quantum of bytes, and loses packets
 * by CoDel. Flows that send less than a quantum a turn (DNS, games, the first packets of anything)
 * go first.
 *
 * Two lists, new flows before old ones. A flow begins as a new one with a quantum of credit; who is
 * out of credit gets another quantum at the end of the old ones, and a new flow that ran empty is
 * put there once before it may be new again: else it would never let the old ones send.
 *
 * The lists are one queue, by rounds: everybody old has one turn in each. Who is out of credit is
 * told at once in which round he will have some, instead of passing through the list as often; a
 * GSO packet costs its flow forty turns and the machine one. And it is told as it sends, not when
 * it is looked at next. But for that, where a packet is no more than a quantum and hosts do not
 * matter, this is packet by packet what the RFC's lists do.
 *
 * `hosts` shares between hosts first, then between the flows of each: a quantum is divided by the
 * number of flows that the busier of the packet's two hosts has waiting, so that a machine with a
 * hundred downloads gets no more than one with a single call (as CAKE's triple isolation).
 *
 * Source: RFC 8290 section 4, with flows by the scheduler's table (sets of eight, not a plain
 * hash). What happens when all is full is the scheduler's: `overflow = fattest`. Deliberately
 * absent: the order of flows of hosts: only their shares are even.
 */
#include "codel.h"

enum {
	FQ_CODEL_QUANTUM = CODEL_PARAMS,
	FQ_CODEL_HOSTS,
};

/* Rounds that a flow is put off at once, and the ranks of these: the queue's window. */
#define FQ_CODEL_AHEAD	120
#define FQ_CODEL_WINDOW 256

/* Credit is counted in parts of a byte, so that a divided quantum does not round away. */
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
	.about = "a queue for each flow, turns of a quantum, none of them standing; even between "
		 "hosts",
	.source = "Hoeiland-Joergensen and others: FQ-CoDel, RFC 8290; CoDel: RFC 8289",
	.over = FLOWS,
	.usual = FP_OVER_FLOWS,
	.wants = WANTS_HOSTS | WANTS_EMPTY,
	.queue = { .kind = FP_CFFS, .buckets = FQ_CODEL_WINDOW },
	.params = { CODEL_PARAM_BLOCK,
		    { .name = "quantum",
		      .unit = "bytes",
		      .about = "what a flow may send in a turn",
		      .least = 64,
		      .most = 1048576,
		      .standard = 1514 },
		    { .name = "hosts",
		      .about = "1 shares between hosts first, 0 between flows only",
		      .most = 1,
		      .standard = 1 } },
};

/* A turn's credit; never none, so that every flow's turn comes. */
FP_INLINE s64 fq_codel_grant(const u64 *param, const struct fp_call *r)
{
	u64 quantum = param[FQ_CODEL_QUANTUM] * FQ_CODEL_BYTE;

	if (!param[FQ_CODEL_HOSTS])
		return (s64)quantum;
	return (s64)max(div(quantum, r->hosts), FQ_CODEL_BYTE);
}

/* Two ranks a round: new flows of a round go before those whose turn it is. */
FP_INLINE u64 fq_codel_turn(const struct class *c, u64 rounds)
{
	return 2 * add(c->round, rounds) + 1;
}

/* Credit for as many turns as it takes to have some; the turn in which it has. */
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
	/* Whether or not it has more to send, its turn is over. */
	r->verdict |= LINGER;
	return fq_codel_wait(f, c, r);
}
