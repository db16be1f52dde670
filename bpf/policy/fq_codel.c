/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * FQ-CoDel: every flow has a queue of its own, takes turns of a quantum of bytes, and loses packets
 * by CoDel. Flows that send less than a quantum a turn (DNS, games, the first packets of anything)
 * go first.
 *
 * Two lists, new flows before old ones. A flow begins as a new one with a quantum of credit; who is
 * out of credit gets another quantum at the end of the old ones, and a new flow that ran empty is
 * put there once before it may be new again: else it would never let the old ones send.
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

/* The two lists, by rank. */
enum {
	FQ_CODEL_NEW,
	FQ_CODEL_OLD,
	FQ_CODEL_LISTS,
};

/* Credit is counted in parts of a byte, so that a divided quantum does not round away. */
#define FQ_CODEL_BYTE 256

struct flow {
	struct codel codel;
	s64 credit; /* FQ_CODEL_BYTE a byte */
};

struct class
{
	PARAMS;
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
	.queue = { .kind = FP_BANDS, .buckets = FQ_CODEL_LISTS },
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

RANK_ENQUEUE
{
	if (r->backlogged)
		return KEEP;
	f->credit = fq_codel_grant(c->param, r);
	return FQ_CODEL_NEW;
}

RANK_DEQUEUE
{
	if (f->credit <= 0) {
		f->credit += fq_codel_grant(c->param, r);
		r->verdict = r->packets ? LATER : LINGER;
		return FQ_CODEL_OLD;
	}
	if (!r->packets) {
		codel_emptied(&f->codel);
		r->verdict = r->rank == FQ_CODEL_NEW ? LINGER : SEND;
		return FQ_CODEL_OLD;
	}
	r->verdict = codel_decide(&f->codel, c->param, p, r, sub(r->bytes, p->bytes));
	if (!(r->verdict & DROP))
		f->credit -= (s64)p->bytes * FQ_CODEL_BYTE;
	return KEEP;
}
