/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/outcome.h: reports to the back end the outcome of a packet.
 *
 * An operation has at most FP_OUTCOMES_PER_OP outcomes, and starts only if that many fit, so no
 * handle is lost.
 */
#ifndef FP_SCHED_OUTCOME_H
#define FP_SCHED_OUTCOME_H

#include "state.h"

/* A place for outcomes may be before the scheduler in memory: its offset has a sign. */
FP_INLINE struct fp_outcome FP_MEM *fp_outcome_at(struct fp_sched FP_MEM *s, u32 number)
{
	return FP_AT(struct fp_outcome, s,
		     (s64)(s->outcomes_at + (u64)number * sizeof(struct fp_outcome)));
}

/* `p` is the packet of the handle; the handle is 0 for an outcome without a packet. */
FP_INLINE void fp_report_packet(struct fp_sched FP_MEM *s, u32 kind, u32 handle,
				const struct fp_slot FP_MEM *p, u32 reason, u64 at)
{
	struct fp_outcome FP_MEM *o;

	if (s->outcomes >= s->outcomes_most)
		return;
	o = fp_outcome_at(s, s->outcomes);
	FP_PUT(o->rank, handle ? p->rank : 0);
	FP_PUT(o->at, at);
	FP_PUT(o->op, s->op);
	FP_PUT(o->handle, handle);
	FP_PUT(o->node, handle ? p->leaf : 0);
	FP_PUT(o->kind, (u8)kind);
	FP_PUT(o->reason, (u8)reason);
	FP_PUT(o->flags, (u8)0);
	FP_PUT(o->zero, (u8)0);
	FP_PUT(o->bit, 0);
	FP_PUT(o->zero2, 0);
	s->outcomes++;
}

FP_INLINE void fp_report_outcome(struct fp_sched FP_MEM *s, u32 kind, u32 handle, u32 reason,
				 u64 at)
{
	fp_report_packet(s, kind, handle, fp_slot_at(s, handle), reason, at);
}

/* Frees the handle of a packet for the back end. */
FP_INLINE void fp_free_handle(struct fp_slot FP_MEM *p)
{
	FP_PUT(p->leaf, 0);
	FP_PUT(p->flow, 0);
}

/* The bin of a sojourn time: the two bits below the highest select a quarter of an octave. */
FP_INLINE u32 fp_sojourn_bin(u64 ns)
{
	u32 octave = fp_highest(ns);

	if (octave < FP_SOJOURN_FIRST)
		return 0;
	if (octave >= FP_SOJOURN_FIRST + FP_SOJOURN_OCTAVES)
		return FP_SOJOURN_BINS - 1;
	return 4 * (octave - FP_SOJOURN_FIRST) + (u32)(ns >> (octave - 2) & 3);
}

FP_FUNC int fp_account_enqueued(struct fp_sched FP_MEM *s FP_ARG, u32 leaf, u32 bytes)
{
	struct fp_account FP_MEM *a = fp_account_at(s, leaf);

	if (s->config.accounts) {
		a->arrived++;
		a->arrived_bytes += bytes;
	}
	return 0;
}

FP_FUNC int fp_account_sent(struct fp_sched FP_MEM *s FP_ARG, u32 leaf, u64 sojourn)
{
	struct fp_account FP_MEM *a = fp_account_at(s, leaf);

	if (s->config.accounts)
		a->sojourn[fp_sojourn_bin(sojourn) % FP_SOJOURN_BINS]++;
	return 0;
}

FP_FUNC int fp_account_dropped(struct fp_sched FP_MEM *s FP_ARG, u32 leaf, u32 reason, u32 bytes)
{
	struct fp_account FP_MEM *a = fp_account_at(s, leaf);

	if (s->config.accounts) {
		a->dropped[reason & 31]++;
		a->dropped_bytes += bytes;
	}
	return 0;
}

/* The time since its enqueue; 0 while delayed. */
FP_INLINE u64 fp_sojourn_of(struct fp_sched FP_MEM *s, u32 handle)
{
	u64 since = fp_slot_at(s, handle)->enqueued;

	return since < s->now ? s->now - since : 0;
}

/* Drops a packet that is in no queue any more. */
FP_FUNC int fp_drop_packet(struct fp_sched FP_MEM *s FP_ARG, u32 handle, u32 reason)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	struct fp_node FP_MEM *n = fp_node_at(s, p->leaf);

	s->stats.dropped[reason & 31]++;
	n->stats.dropped++;
	fp_account_dropped(s, p->leaf, reason, p->meta.bytes);
	fp_report_outcome(s, FP_DROPPED, handle, reason, fp_sojourn_of(s, handle));
	fp_free_handle(p);
	return 0;
}

/* A packet counts as waiting from here, until fp_end_waiting(). */
FP_INLINE void fp_begin_waiting(struct fp_sched FP_MEM *s, struct fp_node FP_MEM *leaf, u32 bytes)
{
	leaf->stats.packets++;
	leaf->stats.bytes += bytes;
	s->packets++;
	s->bytes_waiting += bytes;
}

FP_INLINE void fp_end_waiting(struct fp_sched FP_MEM *s, struct fp_node FP_MEM *leaf, u32 bytes)
{
	leaf->stats.packets--;
	leaf->stats.bytes -= bytes;
	s->packets--;
	s->bytes_waiting -= bytes;
}

#endif /* FP_SCHED_OUTCOME_H */
