/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/audit.h: checks a scheduler for contradictions. For user space, tests and fuzzing: it walks
 * through everything.
 */
#ifndef FP_SCHED_AUDIT_H
#define FP_SCHED_AUDIT_H

#include "sched.h"

enum fp_fault {
	FP_FAULT_PACKETS = 1,	 /* the count of waiting packets is wrong; where: their number */
	FP_FAULT_BYTES = 2,	 /* the same for bytes */
	FP_FAULT_LOST = 3,	 /* where: a packet that is in no queue */
	FP_FAULT_FLOW = 4,	 /* where: a flow whose count differs from its packets */
	FP_FAULT_UNSEEN = 5,	 /* where: a node that may send and is not in its parent's queue */
	FP_FAULT_IDLE = 6,	 /* where: an empty node in its parent's queue */
	FP_FAULT_REFERENCES = 7, /* where: a node whose references differ from its packets */
	FP_FAULT_SUM = 8,	 /* packets in differ from packets out, dropped and waiting */
	FP_FAULT_DUE = 9,	 /* where: a child that is not where its due time belongs */
};

static u32 fp_audit_packets(struct fp_sched *s, u64 *where)
{
	u64 packets = 0, bytes = 0, delayed = 0;
	u32 h;

	for (h = 1; h <= s->config.packets; h++) {
		struct fp_slot *p = fp_slot_at(s, h);

		if (!p->leaf)
			continue;
		*where = h;
		if (fp_is_delayed(s, h)) {
			if (fp_item_at(fp_pool_of(s), h)->pifo != FP_DELAY_QUEUE)
				return FP_FAULT_LOST;
			delayed++;
			continue;
		}
		packets++;
		bytes += p->meta.bytes;
		if (fp_node_at(s, p->leaf)->config.over == FP_OVER_PACKETS &&
		    !fp_is_item_queued(s, h))
			return FP_FAULT_LOST;
	}
	*where = packets;
	if (packets != s->packets || delayed != s->delayed)
		return FP_FAULT_PACKETS;
	*where = bytes;
	return (u32)bytes != s->bytes_waiting ? FP_FAULT_BYTES : 0;
}

/* Packets of a waiting flow are linked to it, and the flow is in a queue. */
static u32 fp_audit_flows(struct fp_sched *s, u64 *where)
{
	u32 i;

	for (i = 1; i <= fp_flow_entries(&s->config); i++) {
		struct fp_fq *f = fp_fq_at(s, i);
		u32 h = f->head, packets = 0, bytes = 0;

		*where = i;
		if (!f->packets || fp_node_at(s, f->leaf)->config.over != FP_OVER_FLOWS)
			continue;
		if (!fp_is_item_queued(s, fp_flow_item(s, i)))
			return FP_FAULT_LOST;
		while (h && packets <= s->config.packets) {
			struct fp_slot *p = fp_slot_at(s, h);

			if (p->flow != i || p->leaf != f->leaf)
				return FP_FAULT_FLOW;
			packets++;
			bytes += p->meta.bytes;
			h = p->next;
		}
		if (packets != f->packets || bytes != f->bytes)
			return FP_FAULT_FLOW;
	}
	return 0;
}

/* References to a node, in its parent's queue and in the shaper, match its packets. */
static u32 fp_audit_references(struct fp_sched *s, u64 *where)
{
	u32 held = 0, i;

	for (i = 1; i <= s->config.references; i++)
		held += fp_is_item_queued(s, fp_reference_item(s, i)) ? 1 : 0;
	*where = held;
	return held != s->config.references - s->free_references ? FP_FAULT_REFERENCES : 0;
}

static u32 fp_audit_nodes(struct fp_sched *s, u64 *where)
{
	struct fp_pool *pool = fp_pool_of(s);
	u32 i;

	for (i = 2; i <= s->config.nodes; i++) {
		struct fp_node *n = fp_node_at(s, i);
		u32 in = fp_item_at(pool, fp_node_item(s, i))->pifo;

		*where = i;
		if (fp_node_at(s, n->config.parent)->config.over != FP_OVER_CHILDREN)
			continue;
		if (fp_waiting(s, i) && !in)
			return FP_FAULT_UNSEEN;
		if (!fp_waiting(s, i) && in && in != FP_SHAPER)
			return FP_FAULT_IDLE;
	}
	return 0;
}

/* Child `n`, which waits, is where its due time belongs. */
static int fp_audit_due(struct fp_sched *s, u32 child, struct fp_node *n)
{
	struct fp_item *it = fp_item_at(fp_pool_of(s), fp_due_item(s, child));

	if (n->due_queued)
		return it->pifo == fp_due_queue_of(s, n->config.parent) && it->rank == n->due;
	return n->due == FP_NEVER ||
	       (fp_due_slot(n->due) > fp_due_slot(s->now) && fp_is_in_wheel(s, n));
}

/* The wheel holds each child once that has a slot, there. */
static u32 fp_audit_wheel(struct fp_sched *s, u64 *where)
{
	struct fp_wheel *w = FP_AT(struct fp_wheel, s, s->wheel_at);
	u32 held = 0, found = 0, slot, child;

	for (child = 1; child <= s->config.nodes; child++)
		held += fp_node_at(s, child)->due_slot != 0;
	for (slot = 0; slot < FP_DUE_SLOTS; slot++) {
		for (child = w->first[slot]; child && found <= held; found++) {
			*where = child;
			if ((fp_node_at(s, child)->due_slot ^ slot) & (FP_DUE_SLOTS - 1))
				return FP_FAULT_DUE;
			child = *fp_wheel_next(s, child);
		}
	}
	return found != held ? FP_FAULT_DUE : 0;
}

static u32 fp_audit_due_times(struct fp_sched *s, u64 *where)
{
	u32 i;

	for (i = 2; i <= s->config.nodes; i++) {
		struct fp_node *n = fp_node_at(s, i);
		u32 in = fp_item_at(fp_pool_of(s), fp_node_item(s, i))->pifo;

		*where = i;
		/* The rest of a slot that has come waits for the next operation. */
		if ((fp_node_at(s, n->config.parent)->config.wants & WANTS_DUE) &&
		    in == fp_queue_of(n->config.parent) && s->due_slot == fp_due_slot(s->now) &&
		    !fp_audit_due(s, i, n))
			return FP_FAULT_DUE;
	}
	return fp_audit_wheel(s, where);
}

static u32 fp_audit_sum(struct fp_sched *s, u64 *where)
{
	u64 dropped = 0;
	u32 i;

	for (i = 0; i < 32; i++)
		dropped += i == FP_DROP_BROKEN ? 0 : s->stats.dropped[i];
	*where = s->stats.enqueued;
	return s->stats.enqueued != s->stats.sent + dropped + s->packets + s->delayed ? FP_FAULT_SUM
										      : 0;
}

static u32 fp_sched_audit(struct fp_sched *s, u64 *where)
{
	u32 fault = fp_audit_packets(s, where);

	if (!fault)
		fault = fp_audit_flows(s, where);
	if (!fault)
		fault = fp_audit_references(s, where);
	if (!fault)
		fault = fp_audit_nodes(s, where);
	if (!fault)
		fault = fp_audit_due_times(s, where);
	if (!fault)
		fault = fp_audit_sum(s, where);
	return fault;
}

#endif /* FP_SCHED_AUDIT_H */
