/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * AIFO: one FIFO queue that admits what a sorted queue would send.
 *
 * A packet is less likely to be admitted the larger its rank is among the last ranks, and the
 * fuller the queue is: what a full PIFO would push out later is refused now. Packets leave in order
 * of arrival. The policy needs a queue capacity of the node.
 *
 * The rank is the packet's `hint`. Window and headroom belong to the queue (FP_AIFO): it stores
 * `buckets` ranks, and admits everything up to `shift` parts of 256 of its capacity. k is 0.1 in
 * the paper.
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
	.about = "one FIFO that admits what a sorted queue would send",
	.source = "Yu and others: Programmable Packet Scheduling with a Single Queue, SIGCOMM 2021",
	.over = PACKETS,
	.usual = FP_OVER_PACKETS,
	.queue = { .kind = FP_AIFO, .buckets = 64, .shift = 26 },
};

RANK_ENQUEUE
{
	return p->hint;
}
