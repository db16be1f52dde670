/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * AIFO: one FIFO queue that lets in what a sorted one would send.
 *
 * The larger a packet's rank among the last ones that came, and the fuller the queue, the less it
 * is released: what a full PIFO would push out later is refused now. Order within the queue is order
 * of arrival. It needs a limit to be full of: the node's queue capacity.
 *
 * The rank is the packet's `hint`. Window and headroom are the queue's (FP_AIFO): `buckets` ranks
 * are remembered, and up to `shift` parts of 256 of its capacity everything is released; the paper's
 * k is 0.1.
 */
#include <fairpath/policy.h>

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
	.name = "aifo",
	.about = "one FIFO that lets in what a sorted queue would send",
	.source = "Yu and others: Programmable Packet Scheduling with a Single Queue, SIGCOMM 2021",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
	.queue = { .kind = FP_AIFO, .buckets = 64, .shift = 26 },
};

RANK_ENQUEUE
{
	return p->hint;
}
