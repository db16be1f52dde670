/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Pacing: packets of a flow leave at even distances, at the flow's rate times its weight. Flows do
 * not wait for each other. A packet gets its send time on arrival.
 *
 * With `by_hint`, the packet has its own send time (earliest departure time, in the clock of
 * `now`), like TCP packets of a host. A time in the past is now. A time after the scheduler's
 * horizon drops the packet, without a charge to its flow.
 *
 * Source: Saeed and others: Carousel, SIGCOMM 2017, section 4. Deliberately absent: its wheel (the
 * scheduler's shaper is exact), and its back-pressure, which the limits of the back end provide.
 */
#include <fairpath/policy.h>

enum {
	PACING_RATE,
	PACING_BY_HINT,
};

struct flow {
	u64 next; /* when its next packet may leave */
	u64 at;	  /* when its last one may */
};

struct class
{
	PARAMS;
};

struct global {
};

POLICY{
	STATE,
	.name = "pacing",
	.about = "each flow evenly at its own rate, or at the times in the packets",
	.source = "Saeed and others: Carousel, SIGCOMM 2017",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
	.params = { { .name = "rate",
		      .unit = "bps",
		      .about = "rate of a flow of weight 1",
		      .min = 8000,
		      .most = 1000000000000,
		      .standard = 10000000 },
		    { .name = "by_hint",
		      .about = "1: the hint of a packet is its earliest departure time",
		      .most = 1 } },
};

RANK_ENQUEUE
{
	if (c->param[PACING_BY_HINT]) {
		f->at = max(r->now, p->hint);
		return f->at;
	}
	f->at = max(r->now, f->next);
	f->next = add(f->at, div(time_at(p->bytes, c->param[PACING_RATE]) * r->cost, FP_COST_ONE));
	return f->at;
}

SEND_TIME
{
	return f->at;
}
