/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * flow.h: the flow table and its antechamber for half-open flows.
 *
 * Both are set-associative: a hash chooses a set of FP_WAYS places, a set has one lock and one
 * cache line of tags. A handshake lives in the half-open table until its third packet, so a SYN
 * flood fills that table alone. Lock order: flow set, then half-open set.
 *
 * A place is given up only by policy (fp_victim): closed or idle flows first, one-sided ones
 * next, established ones never before config.evict_guard of silence. Nothing sweeps a whole
 * table: fp_rtt_expire() looks at a few sets a call.
 */
#ifndef FP_FLOW_H
#define FP_FLOW_H

#include "segments.h"

/* A one-sided flow (no answer seen) keeps its place this long against newcomers. */
#define FP_ONE_SIDED_GUARD 1000000000ull

/* Direction flags. */
#define FP_DIR_SEQ	0x01 /* next is valid */
#define FP_DIR_ACKED	0x02 /* una is valid */
#define FP_DIR_FIN	0x04
#define FP_DIR_SYN	0x08 /* began with a SYN */
#define FP_DIR_WINDOW_0 0x10 /* the receiver of this direction's data closed its window */
#define FP_DIR_MIDFLOW	0x20 /* began without a SYN: what was sent before is unknown */
#define FP_DIR_SEEN	0x40
#define FP_DIR_TS	0x80 /* tsval is valid */

/* Flow flags. */
#define FP_FLOW_SYN	  0x01 /* began with a SYN */
#define FP_FLOW_SYN_ACK	  0x02 /* a SYN-ACK was seen */
#define FP_FLOW_CLOSED	  0x04
#define FP_FLOW_REOPENING 0x08 /* the half-open table may hold the same 5-tuple */
#define FP_FLOW_ANNOUNCED 0x10 /* its opening was told */

/* Holes and retransmissions of one direction: a chunk of their own, taken when the first occurs. */
#define FP_TROUBLE_HOLE	     0x100
#define FP_TROUBLE_AGAIN     0x200 /* a retransmission that its own TSval identifies */
#define FP_TROUBLE_AMBIGUOUS 0x400 /* a TSval that several copies carried */

struct fp_dir {	   /* what one side sends */
	u64 last;  /* when a packet of it was seen */
	u64 point; /* where it is counted */
	u64 least; /* least RTT towards the receiver of this data; 0 none */
	u64 given; /* when a sample was last given out */
	struct fp_segments segments;
	u32 next;    /* highest sequence number seen, plus one */
	u32 una;     /* highest acknowledgement of it */
	u32 trouble; /* chunk of holes and retransmissions, 0 none */
	u32 behind;  /* the interface behind which its sender lies */
	u32 flags;   /* FP_DIR_* */
	u32 tsval;   /* newest TSval sent, if FP_DIR_TS */
	struct fp_counts counts;
};

/* What a flow has to tell the classes of its ends (tally.h); one cache line beside the key's. */
struct fp_tally {
	u64 context[2];	      /* by side: generation and facts that its slot was found by */
	u64 flushed;	      /* when it was told last */
	u32 slot[2];	      /* by side */
	u32 pending_bytes[2]; /* of IP, by sending side; untold */
	u32 samples[2];	      /* of that side's data; untold, as the next two */
	u32 max_rtt_us[2];
	u32 rtt_sum_us[2];
};

struct fp_told {
	u32 data_packets;
	u16 retransmitted_packets; /* the lower half: differences are small */
	u16 lost_before_packets;
	u16 spurious_packets;
	u16 reordered_packets;
};

struct fp_flow {
	struct fp_key key;
	u64 opened;
	u32 id;
	u8 flags;     /* FP_FLOW_* */
	u8 initiator; /* side */
	u8 reason;    /* enum fp_reason: how it was opened */
	u8 closer;    /* side that sent the first FIN */
	u32 isn[2];   /* initial sequence number of each side, if FP_DIR_SYN */
	struct fp_tally tally;
	struct fp_dir dir[2];
	struct fp_told told[2]; /* of dir[].counts: what the classes know */
} __attribute__((aligned(64)));

struct fp_set {
	u32 lock;
	u32 zero;
	u32 tag[FP_WAYS]; /* 0 free */
	u32 pad[6];
};

/* One of the two tables. */
struct fp_table {
	u64 sets;
	u64 flows;
	u32 mask;
	u32 half;
};

#define FP_NO_WAY FP_WAYS

/* What becomes of a flow, for the classes of its ends (tally.h). */
enum fp_tally_flow {
	FP_TALLY_OPENED = 1,
	FP_TALLY_CLOSED,
	FP_TALLY_FAILED,
	FP_TALLY_ONE_SIDED,
};
FP_FUNC int fp_tally_opened(struct fp_rtt FP_MEM *r FP_ARG, struct fp_flow FP_MEM *f FP_ARG);
FP_FUNC int fp_tally_flush(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			   struct fp_flow FP_MEM *f FP_ARG, u32 what);

FP_INLINE struct fp_table fp_flow_table(struct fp_rtt FP_MEM *r)
{
	struct fp_table t = { r->flow_sets, r->flows, r->config.flow_sets - 1, 0 };

	return t;
}

FP_INLINE struct fp_table fp_half_table(struct fp_rtt FP_MEM *r)
{
	struct fp_table t = { r->half_sets, r->half_flows, r->config.half_sets - 1, 1 };

	return t;
}

FP_INLINE struct fp_set FP_MEM *fp_set_at(struct fp_rtt FP_MEM *r, const struct fp_table *t,
					  u32 index)
{
	return FP_AT(struct fp_set, r, t->sets + (u64)index * sizeof(struct fp_set));
}

FP_INLINE struct fp_flow FP_MEM *fp_flow_at(struct fp_rtt FP_MEM *r, const struct fp_table *t,
					    u32 set, u32 way)
{
	return FP_AT(struct fp_flow, r,
		     t->flows + ((u64)set * FP_WAYS + way) * sizeof(struct fp_flow));
}

FP_INLINE u32 fp_hash_key(const struct fp_key FP_MEM *key, u64 seed)
{
	const u64 FP_MEM *word = (const u64 FP_MEM *)key;
	u64 h = seed, i;

	for (i = 0; i < sizeof(*key) / 8; i++) {
		h = (h ^ word[i]) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 32;
	}
	return (u32)h;
}

/* Set by the high half of the mixed hash, tag by all of it; never 0. */
FP_INLINE u32 fp_tag(u32 hash)
{
	return hash | 1;
}

FP_INLINE u32 fp_set_of(u32 hash, u32 mask)
{
	return (hash >> 1) & mask;
}

FP_INLINE int fp_key_equal(const struct fp_key FP_MEM *a, const struct fp_key FP_MEM *b)
{
	const u64 FP_MEM *x = (const u64 FP_MEM *)a;
	const u64 FP_MEM *y = (const u64 FP_MEM *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3] && x[4] == y[4];
}

/* The way of `key` in a locked set, or FP_NO_WAY. */
FP_INLINE u32 fp_find(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, const struct fp_table *t,
		      u32 set)
{
	struct fp_set FP_MEM *s = fp_set_at(r, t, set);
	u32 way, tag = fp_tag(w->hash);

	fp_loop(way, FP_WAYS) {
		if (s->tag[way] == tag &&
		    fp_key_equal(&fp_flow_at(r, t, set, way)->key, &w->packet.key))
			return way;
	}
	return FP_NO_WAY;
}

FP_INLINE int fp_seen(const struct fp_flow FP_MEM *f, u32 side)
{
	return (f->dir[side].flags & FP_DIR_SEEN) != 0;
}

FP_INLINE u64 fp_flow_last(const struct fp_flow FP_MEM *f)
{
	return f->dir[0].last > f->dir[1].last ? f->dir[0].last : f->dir[1].last;
}

FP_INLINE u64 fp_idle(const struct fp_flow FP_MEM *f, u64 now)
{
	u64 last = fp_flow_last(f);

	return now > last ? now - last : 0;
}

FP_INLINE int fp_flow_expired(struct fp_rtt FP_MEM *r, const struct fp_flow FP_MEM *f, int half,
			      u64 now)
{
	u64 idle = fp_idle(f, now);

	if (half)
		return idle > r->config.half_open_timeout;
	if (f->flags & FP_FLOW_CLOSED)
		return idle > r->config.closed_timeout;
	if (f->key.proto != 6)
		return idle > r->config.echo_timeout;
	return idle > r->config.flow_timeout;
}

/* Fills the flow event's head and counts; `side` opened or closed it. */
FP_FUNC int fp_tell_flow(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			 struct fp_flow FP_MEM *f FP_ARG, u32 kind_reason_side, u64 now)
{
	struct fp_flow_event FP_MEM *e = &w->event;
	u32 side;

	if (r->config.quiet)
		return 0;
	e->head.time = now;
	e->head.number = w->frame.number;
	FP_PUT(e->head.rtt, 0);
	FP_PUT(e->head.least, 0);
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
	FP_PUT(e->head.way, 0);
	e->head.seen = fp_seen(f, 0) | fp_seen(f, 1) << 1;
	e->head.opened = f->opened;
	fp_loop(side, 2) {
		FP_COPY(&e->counts[side], &f->dir[side].counts);
		e->least[side] = f->dir[!side].least;
		e->towards[side] = f->dir[side].behind;
	}
	if (fp_emit(w, sizeof(struct fp_flow_event)))
		w->stats.events_lost++;
	return 0;
}

FP_INLINE void fp_tell(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, struct fp_flow FP_MEM *f,
		       u32 kind, u32 reason, u32 side, u64 now)
{
	fp_tell_flow(r, w, f, kind | reason << 8 | side << 16, now);
}

/* Tells the end of an announced flow once; one that was never answered is only counted. */
FP_INLINE void fp_close(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, struct fp_flow FP_MEM *f,
			u32 reason, u32 side, u64 now)
{
	if (f->flags & FP_FLOW_CLOSED)
		return;
	f->flags |= FP_FLOW_CLOSED;
	if (!(f->flags & FP_FLOW_ANNOUNCED)) {
		w->stats.one_sided_flows++;
		w->stats.one_sided_bytes += f->dir[0].counts.bytes + f->dir[1].counts.bytes;
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
	fp_tell(r, w, f, FP_EVENT_CLOSED, reason, side, now);
}

/* Gives back what a flow holds and frees its place in a locked set. */
FP_FUNC int fp_flow_free(struct fp_rtt FP_MEM *r FP_ARG, struct fp_set FP_MEM *s FP_ARG,
			 struct fp_flow FP_MEM *f FP_ARG, u32 way)
{
	u32 side;

	fp_loop(side, 2) {
		struct fp_dir FP_MEM *d = &f->dir[side];

		if (d->segments.head)
			fp_segments_clear(r, &d->segments, way);
		if (d->trouble)
			fp_chunk_give(r, d->trouble, way);
		d->trouble = 0;
	}
	if (way < FP_WAYS)
		s->tag[way] = 0;
	return 0;
}

/* Frees the place of a flow that is over, telling so where it was announced. */
FP_INLINE void fp_retire(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
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
		fp_tally_flush(r, w, f, 0); /* what came behind its end */
	} else {
		fp_close(r, w, f, reason, f->closer, now);
	}
	fp_flow_free(r, fp_set_at(r, t, set), f, way);
}

/* How readily a flow gives up its place; 0 never. */
FP_INLINE u32 fp_readiness(struct fp_rtt FP_MEM *r, const struct fp_flow FP_MEM *f, int half,
			   int privileged, u64 now)
{
	u64 idle = fp_idle(f, now);

	if (half)
		return 1;
	if ((f->flags & FP_FLOW_CLOSED) || fp_flow_expired(r, f, half, now))
		return 3;
	if (!fp_seen(f, 0) || !fp_seen(f, 1))
		return privileged || idle > FP_ONE_SIDED_GUARD ? 2 : 0;
	return idle > r->config.evict_guard ? 1 : 0;
}

/* The way whose flow gives up its place most readily, FP_NO_WAY if none does. */
FP_FUNC u32 fp_victim(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 half,
		      u32 privileged)
{
	struct fp_table t = half ? fp_half_table(r) : fp_flow_table(r);
	u32 set = fp_set_of(w->hash, t.mask);
	struct fp_set FP_MEM *s = fp_set_at(r, &t, set);
	u32 way, best = FP_NO_WAY, best_ready = 0;
	u64 now = w->frame.now, best_idle = 0;

	fp_loop(way, FP_WAYS) {
		struct fp_flow FP_MEM *f = fp_flow_at(r, &t, set, way);
		u32 ready;
		u64 idle;

		if (!s->tag[way])
			return way;
		ready = fp_readiness(r, f, half, privileged, now);
		idle = fp_idle(f, now);
		if (ready > best_ready || (ready && ready == best_ready && idle > best_idle)) {
			best = way;
			best_ready = ready;
			best_idle = idle;
		}
	}
	return best;
}

/* A free way of a locked set, made free by policy if need be, or FP_NO_WAY. */
FP_FUNC u32 fp_make_room(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 half,
			 u32 privileged)
{
	struct fp_table t = half ? fp_half_table(r) : fp_flow_table(r);
	u32 set = fp_set_of(w->hash, t.mask), way = fp_victim(r, w, half, privileged);
	u64 now = w->frame.now;
	int over;

	if (way >= FP_WAYS || !fp_set_at(r, &t, set)->tag[way])
		return way;
	over = fp_flow_expired(r, fp_flow_at(r, &t, set, way), half, now);
	fp_retire(r, w, &t, set, way, over ? FP_CLOSED_TIMEOUT : FP_CLOSED_EVICTED, now);
	return way;
}

/* A blank flow for w->packet in a way of a locked set. */
FP_FUNC int fp_flow_start(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 half,
			  u32 way)
{
	struct fp_table t = half ? fp_half_table(r) : fp_flow_table(r);
	u32 set = fp_set_of(w->hash, t.mask), i;
	struct fp_flow FP_MEM *f = fp_flow_at(r, &t, set, way);
	volatile u64 FP_MEM *word = (volatile u64 FP_MEM *)f;

	for (i = 0; i < sizeof(*f) / 8; i++)
		word[i] = 0;
	FP_COPY(&f->key, &w->packet.key);
	f->opened = w->frame.now;
	f->id = fp_fetch_add32(&r->next_flow, 1);
	f->initiator = w->packet.side;
	f->closer = w->packet.side;
	f->tally.flushed = w->frame.now;
	fp_set_at(r, &t, set)->tag[way] = fp_tag(w->hash);
	return 0;
}

#endif /* FP_FLOW_H */
