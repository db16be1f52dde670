/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * flow_life.h: how a flow gets an entry in a table, and how it ends.
 *
 *   fp_free_way -> fp_flow_start ... fp_close_flow (reported, counted) -> fp_flow_free
 *
 * Flows are evicted only by policy (fp_choose_victim): closed or idle flows first, then one-sided
 * ones, and established ones only after config.evict_guard without packets. Nothing sweeps a whole
 * table: fp_rtt_expire() checks a few sets per call. The end of a flow is counted for the classes
 * of its ends (class/tally.h).
 */
#ifndef FP_FLOW_LIFE_H
#define FP_FLOW_LIFE_H

#include "../class/tally.h"
#include "ring.h"

/*
 * A one-sided flow (no packet of the other side) is safe from eviction by new flows for this time.
 */
#define FP_ONE_SIDED_GUARD 1000000000ull

/* Fills the head and counts of a flow event; `side` opened or closed the flow. */
FP_FUNC int fp_fill_flow_event(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			       struct fp_flow FP_MEM *f FP_ARG, u32 kind_reason_side, u64 now)
{
	struct fp_flow_event FP_MEM *e;
	u32 side;
	u64 at;

	if (r->config.quiet)
		return 0;
	at = fp_ring_place(r, w, sizeof(*e));
	if (!at)
		return 0;
	e = FP_AT(struct fp_flow_event, r, at);
	e->head.time = now;
	e->head.number = w->frame.number;
	FP_PUT(e->head.rtt, 0);
	FP_PUT(e->head.min, 0);
	FP_COPY(&e->head.key, &f->key);
	e->head.flow = f->id;
	e->head.ifindex = w->frame.ifindex;
	FP_PUT(e->head.towards, 0);
	FP_PUT(e->head.seq, 0);
	FP_PUT(e->head.ack, 0);
	FP_PUT(e->head.acked_bytes, 0);
	e->head.kind = kind_reason_side;
	e->head.reason = kind_reason_side >> 8;
	e->head.side = kind_reason_side >> 16;
	FP_PUT(e->head.method, 0);
	FP_PUT(e->head.own_queue, 0);
	FP_PUT(e->head.direction, 0);
	e->head.seen = fp_side_seen(f, 0) | fp_side_seen(f, 1) << 1;
	e->head.opened = fp_rare_of(r, f)->opened;
	fp_loop(side, 2) {
		fp_counts_of(r, f, &e->counts[side], side);
		e->min[side] = f->totals[!side].min;
		e->towards[side] = f->dir[side].behind;
	}
	fp_ring_publish(w);
	return 0;
}

FP_INLINE void fp_report_flow(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			      struct fp_flow FP_MEM *f, u32 kind, u32 reason, u32 side, u64 now)
{
	fp_fill_flow_event(r, w, f, kind | reason << 8 | side << 16, now);
}

/* Reports the end of an announced flow once. A flow without an answer is only counted. */
FP_INLINE void fp_close_flow(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			     struct fp_flow FP_MEM *f, u32 reason, u32 side, u64 now)
{
	if (f->flags & FP_FLOW_CLOSED)
		return;
	f->flags |= FP_FLOW_CLOSED;
	if (!(f->flags & FP_FLOW_ANNOUNCED)) {
		w->stats.one_sided_flows++;
		w->stats.one_sided_bytes += f->totals[0].bytes + f->totals[1].bytes;
		fp_tally_flush(r, w, f, FP_TALLY_ONE_SIDED);
		return;
	}
	w->stats.flows_closed++;
	fp_tally_flush(r, w, f, FP_TALLY_CLOSED);
	if (reason == FP_CLOSED_TIMEOUT)
		w->stats.flows_timed_out++;
	if (reason == FP_CLOSED_EVICTED)
		w->stats.flows_evicted++;
	if (reason == FP_CLOSED_REUSE)
		w->stats.flows_reused++;
	fp_report_flow(r, w, f, FP_EVENT_CLOSED, reason, side, now);
}

/* Frees the memory of a flow and its entry in a locked set. */
FP_FUNC int fp_flow_free(struct fp_rtt FP_MEM *r FP_ARG, struct fp_run_set_op FP_MEM *s FP_ARG,
			 struct fp_flow FP_MEM *f FP_ARG, u32 way)
{
	u32 side;

	fp_loop(side, 2) {
		struct fp_dir FP_MEM *d = &f->dir[side];

		if (d->segments.head)
			fp_segments_clear(r, &d->segments, way);
		if (d->flags & FP_DIR_TROUBLE)
			fp_chunk_give(r, fp_rare(r, f, side)->trouble, way);
		d->flags &= ~FP_DIR_TROUBLE;
	}
	if (way < FP_WAYS)
		s->tag[way] = 0;
	return 0;
}

/* Ends a flow and frees its entry. Reports the end if the flow was announced. */
FP_INLINE void fp_retire_flow(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			      const struct fp_table *t, u32 set, u32 way, u32 reason, u64 now)
{
	struct fp_flow FP_MEM *f = fp_flow_at(r, t, set, way);

	if (t->half) {
		if (reason == FP_CLOSED_TIMEOUT) {
			w->stats.half_open_failed++;
			fp_tally_flush(r, w, f, FP_TALLY_FAILED);
		} else if (reason == FP_CLOSED_EVICTED) {
			w->stats.half_open_evicted++;
		}
	} else if (f->flags & FP_FLOW_CLOSED) {
		fp_tally_flush(r, w, f, 0); /* packets after its end */
	} else {
		fp_close_flow(r, w, f, reason, f->closer, now);
	}
	fp_flow_free(r, fp_set_at(r, t, set), f, way);
	if (!t->half)
		fp_add32(&r->flows_used, ~0u);
}

/* The priority for eviction of a flow; 0 never. */
FP_INLINE u32 fp_eviction_readiness(struct fp_rtt FP_MEM *r, const struct fp_flow FP_MEM *f,
				    int half, int privileged, u64 now)
{
	u64 idle = fp_idle(f, now);

	if (half)
		return 1;
	if ((f->flags & FP_FLOW_CLOSED) || fp_flow_expired(r, f, half, now))
		return 3;
	if (!fp_side_seen(f, 0) || !fp_side_seen(f, 1))
		return privileged || idle > FP_ONE_SIDED_GUARD ? 2 : 0;
	return idle > r->config.evict_guard ? 1 : 0;
}

/* The way with the highest priority for eviction, FP_NO_WAY if there is none. */
FP_FUNC u32 fp_choose_victim(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			     u32 half, u32 privileged)
{
	struct fp_table t = half ? fp_half_table(r) : fp_flow_table(r);
	u32 set = fp_set_of(w->hash, t.mask);
	struct fp_run_set_op FP_MEM *s = fp_set_at(r, &t, set);
	u32 i, best = FP_NO_WAY, best_ready = 0;
	u64 now = w->frame.now, best_idle = 0;

	fp_loop(i, FP_WAYS) {
		u32 way = (fp_way_of(w->hash) + i) & (FP_WAYS - 1), ready;
		struct fp_flow FP_MEM *f = fp_flow_at(r, &t, set, way);
		u64 idle;

		if (!s->tag[way])
			return way;
		ready = fp_eviction_readiness(r, f, half, privileged, now);
		idle = fp_idle(f, now);
		if (ready > best_ready || (ready && ready == best_ready && idle > best_idle)) {
			best = way;
			best_ready = ready;
			best_idle = idle;
		}
	}
	return best;
}

/* A free way of a locked set, after an eviction if necessary, or FP_NO_WAY. */
FP_FUNC u32 fp_free_way(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 half,
			u32 privileged)
{
	struct fp_table t = half ? fp_half_table(r) : fp_flow_table(r);
	u32 set = fp_set_of(w->hash, t.mask), way = fp_choose_victim(r, w, half, privileged);
	u64 now = w->frame.now;
	int over;

	if (way >= FP_WAYS || !fp_set_at(r, &t, set)->tag[way])
		return way;
	over = fp_flow_expired(r, fp_flow_at(r, &t, set, way), half, now);
	fp_retire_flow(r, w, &t, set, way, over ? FP_CLOSED_TIMEOUT : FP_CLOSED_EVICTED, now);
	return way;
}

/* Starts an empty flow for w->packet in a way of a locked set. */
FP_FUNC int fp_flow_start(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 half,
			  u32 way)
{
	struct fp_table t = half ? fp_half_table(r) : fp_flow_table(r);
	u32 set = fp_set_of(w->hash, t.mask), i;
	struct fp_flow FP_MEM *f = fp_flow_at(r, &t, set, way);
	struct fp_flow_rare FP_MEM *rare = fp_rare_of(r, f);

	for (i = 0; i < sizeof(*f) / 8; i++)
		((volatile u64 FP_MEM *)f)[i] = 0;
	for (i = 0; i < sizeof(*rare) / 8; i++)
		((volatile u64 FP_MEM *)rare)[i] = 0;
	FP_COPY(&f->key, &w->packet.key);
	rare->opened = w->frame.now;
	f->id = fp_fetch_add32(&r->next_flow, 1);
	f->initiator = w->packet.side;
	f->closer = w->packet.side;
	rare->tally.flushed = w->frame.now;
	fp_set_at(r, &t, set)->tag[way] = fp_tag(w->hash);
	if (!half)
		fp_add32(&r->flows_used, 1);
	return 0;
}

/*
 * Counts a packet of a flow without an entry, and marks its flow: the number of marks is an
 * estimate of the number of flows (linear counting: Whang, Vander-Zanden, Taylor, ACM TODS 1990).
 */
FP_INLINE void fp_refuse_flow(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w)
{
	u32 used = r->flows_used;

	w->stats.flows_refused++;
	if (!r->refused_at || used < r->refused_at)
		r->refused_at = used;
	*FP_AT(u8, r, r->refused + w->hash * 0x9e3779b1u / (~0u / FP_REFUSED_MARKS + 1)) = 1;
}

#endif /* FP_FLOW_LIFE_H */
