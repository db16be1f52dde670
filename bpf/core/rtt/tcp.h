/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * tcp.h: round-trip times, loss and reordering of TCP from passing packets.
 *
 * Each segment with new data is stored with its time, end and TSval until it is acknowledged. An
 * ACK that advances gives at most one sample, from the newest segment that it covers:
 *
 *   seq  the segment ends where the ACK does (or the ACK falls inside a GSO packet), was never
 *        retransmitted, and no earlier segment was sent after it. This is Karn's rule as in
 *        tcptrace: a retransmission removes all segments after its start.
 *   ts  the newest covered segment whose TSval the ACK echoes. Also retransmissions, which Karn's
 *       rule excludes, if a different TSval distinguishes them from the original (RFC 7323
 *       section 4.3).
 *
 * Hybrid prefers seq, and timestamps can veto it. An echo newer than the matched segment means that
 * an earlier ACK was lost. An older one means that the ACK answers an earlier copy.
 *
 * Loss: data observed twice was lost downstream. A hole that a later retransmission fills was lost
 * upstream. A hole filled by older data is reordering.
 *
 * Deliberately absent: reassembly, SACK scoreboards, congestion state.
 */
#ifndef FP_TCP_H
#define FP_TCP_H

#include "flow_life.h"
#include "sample.h"

/* A larger jump is another connection or garbage: start again. */
#define FP_SEQ_JUMP (1 << 30)
/* A hole filled later than this was retransmitted, unless timestamps show otherwise. */
#define FP_REORDER_NS 3000000ull
#define FP_NO_PLACE   FP_CHUNK_SEGMENTS

/* The FP_CHUNK_SEGMENTS records of holes of one side, if FP_DIR_TROUBLE. */
FP_INLINE struct fp_segment FP_MEM *fp_holes(struct fp_rtt FP_MEM *r, struct fp_flow FP_MEM *f,
					     u32 side)
{
	return fp_chunk(r, fp_rare(r, f, side)->trouble)->segment;
}

/*
 * Index of a free record of a hole, or of the oldest one if all are used. FP_NO_PLACE without a
 * chunk.
 */
FP_FUNC u32 fp_hole_new(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			struct fp_flow FP_MEM *f FP_ARG, u32 side)
{
	struct fp_dir FP_MEM *d = &f->dir[side & 1];
	struct fp_segment FP_MEM *holes;
	u32 i, oldest = 0;

	if (!(d->flags & FP_DIR_TROUBLE)) {
		u32 chunk = fp_chunk_take(r, w->hash);

		if (!chunk)
			return FP_NO_PLACE;
		fp_rare(r, f, side)->trouble = chunk;
		d->flags |= FP_DIR_TROUBLE;
		fp_loop(i, FP_CHUNK_SEGMENTS)
			fp_chunk(r, chunk)->segment[i].flags = 0;
	}
	holes = fp_holes(r, f, side);
	fp_loop(i, FP_CHUNK_SEGMENTS) {
		if (!holes[i].flags)
			return i;
		if (holes[i].time < holes[oldest].time)
			oldest = i;
	}
	w->stats.holes_dropped++;
	return oldest;
}

/* Drops holes and retransmissions that `ack` covers. Unfilled holes were not observed here. */
FP_FUNC int fp_holes_acked(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			   struct fp_flow FP_MEM *f FP_ARG, u32 side)
{
	struct fp_segment FP_MEM *holes = fp_holes(r, f, side);
	u32 i, left = 0, ack = w->packet.ack;

	fp_loop(i, FP_CHUNK_SEGMENTS) {
		struct fp_segment FP_MEM *t = &holes[i];

		if (!t->flags)
			continue;
		if (fp_serial(t->end, ack) > 0) {
			left = 1;
			continue;
		}
		if (t->flags & FP_HOLE_MISSING)
			fp_rare(r, f, side)->unobserved_bytes += t->end - t->seq;
		t->flags = 0;
	}
	if (!left) {
		fp_chunk_give(r, fp_rare(r, f, side)->trouble, w->hash);
		f->dir[side & 1].flags &= ~FP_DIR_TROUBLE;
	}
	return 0;
}

/* The newest retransmission whose own TSval is echoed and that the ACK newly covers. */
FP_FUNC int fp_match_retransmission(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
				    struct fp_flow FP_MEM *f FP_ARG, u32 side)
{
	struct fp_segment FP_MEM *holes = fp_holes(r, f, side);
	struct fp_dir FP_MEM *d = &f->dir[side & 1];
	struct fp_match FP_MEM *m = &w->match;
	u32 i;

	fp_loop(i, FP_CHUNK_SEGMENTS) {
		struct fp_segment FP_MEM *t = &holes[i];

		if (!(t->flags & FP_HOLE_RETRANSMITTED) || t->tsval != w->packet.tsecr)
			continue;
		if (d->flags & FP_DIR_ACKED && fp_serial(t->end, d->segments.una) <= 0)
			continue;
		/*
		 * An ambiguous record applies to any part of it: the answer may be for that part.
		 */
		if ((t->flags & FP_HOLE_AMBIGUOUS) && fp_serial(t->seq, w->packet.ack) < 0) {
			m->method = 0;
			return 0;
		}
		if (fp_serial(t->end, w->packet.ack) > 0 || (m->method && t->time < m->time))
			continue;
		m->time = t->time;
		m->end = t->end;
		m->flags = t->flags;
		m->acked = w->packet.ack - t->seq;
		m->method = t->flags & FP_SEGMENT_SYN ? FP_METHOD_HANDSHAKE : FP_METHOD_TS;
	}
	return 0;
}

/*
 * Removes every segment that the ACK covers. `newest` is the last of them (or the one that contains
 * the ACK), `echoed` the newest whose TSval the ACK echoes, `oldest` the first.
 */
FP_FUNC int fp_remove_covered(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			      struct fp_dir FP_MEM *d FP_ARG)
{
	struct fp_covered FP_MEM *newest = &w->newest;
	u32 i, ack = w->packet.ack, count = d->segments.count;
	u32 echoes = r->config.mode == FP_MODE_TS && (w->packet.flags & FP_PACKET_HAS_TS);

	fp_loop(i, count) {
		struct fp_segment FP_MEM *s = fp_segments_first(r, &d->segments);

		if (fp_serial(ack, s->seq) <= 0)
			break;
		newest->time = s->time;
		newest->seq = s->seq;
		newest->end = s->end;
		newest->tsval = s->tsval;
		newest->flags = s->flags;
		if (!newest->any) {
			w->oldest.seq = s->seq;
			w->oldest.tsval = s->tsval;
			w->oldest.flags = s->flags;
		}
		newest->any = 1;
		if (echoes && (s->flags & FP_SEGMENT_TS) && s->tsval == w->packet.tsecr)
			FP_COPY(&w->echoed, newest);
		if (fp_serial(ack, s->end) < 0) {
			s->seq = ack; /* inside a GSO packet: the rest stays */
			break;
		}
		fp_segments_drop_first(r, &d->segments, w->hash);
	}
	return 0;
}

/* Whether the echo of the ACK contradicts a match by sequence number. */
FP_INLINE int fp_echo_contradicts(struct fp_work FP_MEM *w, const struct fp_dir FP_MEM *d)
{
	const struct fp_covered FP_MEM *newest = &w->newest;
	const struct fp_covered FP_MEM *oldest = &w->oldest;

	if (!(w->packet.flags & FP_PACKET_HAS_TS) || !(newest->flags & FP_SEGMENT_TS))
		return 0;
	if (fp_serial(w->packet.tsecr, newest->tsval) > 0) {
		w->stats.refused_stale_ack++;
		return 1;
	}
	/*
	 * Only if the list starts where the last ACK ended, the echo is that of the oldest segment.
	 */
	if (!(oldest->flags & FP_SEGMENT_TS) ||
	    ((d->flags & FP_DIR_ACKED) && oldest->seq != d->segments.una))
		return 0;
	if (fp_serial(w->packet.tsecr, oldest->tsval) < 0) {
		w->stats.refused_old_echo++;
		return 1;
	}
	return 0;
}

FP_INLINE void fp_use_match(struct fp_work FP_MEM *w, const struct fp_covered FP_MEM *c, u32 method)
{
	struct fp_match FP_MEM *m = &w->match;

	m->time = c->time;
	m->end = c->end;
	m->flags = c->flags;
	m->acked = w->packet.ack - c->seq;
	m->method = c->flags & FP_SEGMENT_SYN ? FP_METHOD_HANDSHAKE : method;
}

/* A SYN that this side sent before: a repeated handshake. */
FP_INLINE int fp_is_same_syn(struct fp_rtt FP_MEM *r, const struct fp_work FP_MEM *w,
			     struct fp_flow FP_MEM *f)
{
	u32 side = w->packet.side;

	return (f->dir[side].flags & FP_DIR_SYN) && fp_rare(r, f, side)->isn == w->packet.seq;
}

/*
 * Matches an ACK whose data is one segment that ends there, as most do, without a list. Returns 1 if
 * it did; w->match.method is then 0 if the echo contradicts.
 */
FP_INLINE int fp_match_single(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			      struct fp_dir FP_MEM *d)
{
	const struct fp_segment FP_MEM *s = &d->segments.newest;
	u32 acked = (d->flags & FP_DIR_ACKED) != 0, una = d->segments.una;

	if (fp_unlikely((d->segments.count ^ 1) | (s->end ^ w->packet.ack) |
			(r->config.mode ^ FP_MODE_HYBRID)))
		return 0;
	d->segments.count = 0;
	w->match.method = s->flags & FP_SEGMENT_SYN ? FP_METHOD_HANDSHAKE : FP_METHOD_SEQ;
	if ((w->packet.flags & FP_PACKET_HAS_TS) && (s->flags & FP_SEGMENT_TS) &&
	    s->tsval != w->packet.tsecr) {
		if (fp_serial(w->packet.tsecr, s->tsval) > 0) {
			w->stats.refused_stale_ack++;
			FP_PUT(w->match.method, 0);
		} else if (!acked || s->seq == una) {
			w->stats.refused_old_echo++;
			FP_PUT(w->match.method, 0);
		}
	}
	w->match.time = s->time;
	w->match.end = s->end;
	w->match.flags = s->flags;
	w->match.acked = w->packet.ack - s->seq;
	return 1;
}

/* Matches an ACK of any segments. `unseen`: it covers data that was not observed. */
FP_FUNC int fp_match_segments(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			      struct fp_dir FP_MEM *d FP_ARG, u32 unseen)
{
	u32 ack = w->packet.ack, mode = r->config.mode;

	FP_PUT(w->match.method, 0);
	FP_PUT(w->newest.any, 0);
	FP_PUT(w->echoed.any, 0);

	if (d->segments.count)
		fp_remove_covered(r, w, d);
	if (mode == FP_MODE_TS) {
		if (w->echoed.any)
			fp_use_match(w, &w->echoed, FP_METHOD_TS);
	} else if (w->newest.any && !unseen && fp_serial(ack, w->newest.end) <= 0) {
		if (mode == FP_MODE_SEQ || !fp_echo_contradicts(w, d))
			fp_use_match(w, &w->newest, FP_METHOD_SEQ);
	}
	return 0;
}

/* Handles an ACK that advances over data of the other side: at most one sample. */
FP_FUNC int fp_match_ack(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			 struct fp_flow FP_MEM *f FP_ARG, u32 unseen)
{
	u32 from = !w->packet.side, ack = w->packet.ack, mode = r->config.mode;
	struct fp_dir FP_MEM *d = &f->dir[from & 1];
	struct fp_match FP_MEM *m = &w->match;

	if (fp_unlikely(unseen) || !fp_match_single(r, w, d))
		fp_match_segments(r, w, d, unseen);
	if (fp_unlikely(!m->method) && mode != FP_MODE_SEQ && (d->flags & FP_DIR_TROUBLE) &&
	    (w->packet.flags & FP_PACKET_HAS_TS))
		fp_match_retransmission(r, w, f, from);
	if (fp_unlikely(mode == FP_MODE_HANDSHAKE) && m->method != FP_METHOD_HANDSHAKE)
		m->method = 0;

	if (fp_likely(m->method)) {
		if (fp_unlikely(m->flags & FP_SEGMENT_SYN))
			m->acked = 0;
		else if (d->flags & FP_DIR_ACKED)
			m->acked = ack - d->segments.una;
		fp_take_sample(r, w, f);
	}
	d->segments.una = ack;
	d->flags |= FP_DIR_ACKED;
	if (fp_unlikely(d->flags & FP_DIR_TROUBLE))
		fp_holes_acked(r, w, f, from);
	return 0;
}

/* RFC 2883: the first SACK block reports a duplicate if it is acknowledged or inside the second. */
FP_INLINE void fp_count_dsack(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			      struct fp_flow FP_MEM *f)
{
	u32 left = w->packet.sack[0][0], right = w->packet.sack[0][1];
	int inside = w->packet.sack[1][0] != w->packet.sack[1][1] &&
		     fp_serial(left, w->packet.sack[1][0]) >= 0 &&
		     fp_serial(right, w->packet.sack[1][1]) <= 0;

	if (left != right && (inside || fp_serial(right, w->packet.ack) <= 0))
		fp_rare(r, f, !w->packet.side)->spurious_packets++;
}

FP_INLINE void fp_handle_ack(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			     struct fp_flow FP_MEM *f, struct fp_dir FP_MEM *d)
{
	u32 ack = w->packet.ack, unseen = 0;

	if (!(d->flags & FP_DIR_SEQ))
		return;
	if (fp_unlikely(w->packet.window == 0) && !(w->packet.tcp_flags & FP_TCP_RST))
		d->flags |= FP_DIR_WINDOW_0;
	else if (fp_unlikely(d->flags & FP_DIR_WINDOW_0))
		d->flags &= ~FP_DIR_WINDOW_0;
	if (fp_unlikely(w->packet.sack_at))
		fp_count_dsack(r, w, f);
	if (fp_unlikely(fp_serial(ack, d->next) > 0)) { /* of data that was not observed here */
		if (fp_serial(ack, d->next) > FP_SEQ_JUMP)
			return;
		fp_rare(r, f, !w->packet.side)->unobserved_bytes += ack - d->next;
		d->next = ack;
		unseen = 1;
	}
	if (!(d->flags & FP_DIR_ACKED) || fp_serial(ack, d->segments.una) > 0)
		fp_match_ack(r, w, f, unseen);
}

/*
 * Karn's rule: earlier data that is not acknowledged cannot be matched after the start of this
 * packet.
 */
FP_FUNC int fp_apply_karn(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			  struct fp_dir FP_MEM *d FP_ARG)
{
	u32 i, count = d->segments.count;

	fp_loop(i, count) {
		if (fp_serial(d->segments.newest.end, w->packet.seq) <= 0)
			break;
		fp_segments_drop_last(r, &d->segments, w->hash);
	}
	return 0;
}

FP_INLINE u32 fp_segment_flags(const struct fp_work FP_MEM *w)
{
	u32 flags = w->frame.direction << 4;

	if (w->packet.flags & FP_PACKET_HAS_TS)
		flags |= FP_SEGMENT_TS;
	if (w->packet.tcp_flags & FP_TCP_SYN)
		flags |= FP_SEGMENT_SYN;
	if (w->frame.flags & FP_FRAME_AFTER_QUEUE)
		flags |= FP_SEGMENT_QUEUE;
	return flags;
}

FP_INLINE void fp_fill_segment(const struct fp_work FP_MEM *w, struct fp_segment FP_MEM *s, u32 seq,
			       u32 end, u32 flags)
{
	s->time = w->frame.now;
	s->seq = seq;
	s->end = end;
	s->tsval = w->packet.tsval;
	s->flags = flags;
}

/*
 * Records a retransmission by its TSval. Only the first packet of a direction with a TSval can be
 * identified by it. The others are stored as ambiguous, to refuse the same echo.
 */
FP_FUNC int fp_record_retransmission(struct fp_rtt FP_MEM *r FP_ARG,
				     struct fp_work FP_MEM *w FP_ARG,
				     struct fp_flow FP_MEM *f FP_ARG, u32 end)
{
	u32 flags = fp_segment_flags(w) | FP_HOLE_RETRANSMITTED;
	u32 place, side = w->packet.side;
	const struct fp_dir FP_MEM *d = &f->dir[side & 1];

	if (!(w->packet.flags & FP_PACKET_HAS_TS))
		return 0;
	if ((d->flags & FP_DIR_TS) && fp_serial(w->packet.tsval, d->tsval) <= 0)
		flags |= FP_HOLE_AMBIGUOUS;
	place = fp_hole_new(r, w, f, side);
	if (place != FP_NO_PLACE)
		fp_fill_segment(w, &fp_holes(r, f, side)[place], w->packet.seq, end, flags);
	return 0;
}

/* Whether the data of the hole was sent before the data that arrived ahead of it. */
FP_FUNC int fp_is_reordered(struct fp_work FP_MEM *w FP_ARG, struct fp_flow FP_MEM *f FP_ARG,
			    struct fp_segment FP_MEM *hole FP_ARG)
{
	u64 rtt = f->totals[0].min + f->totals[1].min, age = w->frame.now - hole->time;

	if ((hole->flags & FP_SEGMENT_TS) && (w->packet.flags & FP_PACKET_HAS_TS)) {
		s32 order = fp_serial(w->packet.tsval, hole->tsval);

		if (order)
			return order < 0;
	}
	/* A retransmission needs at least the sender's round trip. */
	if (f->totals[0].min && f->totals[1].min)
		return age < rtt / 2;
	return age < FP_REORDER_NS;
}

/* Removes [seq, end) from the holes and returns the number of removed bytes. */
FP_FUNC u32 fp_fill_holes(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			  struct fp_flow FP_MEM *f FP_ARG, u32 end)
{
	struct fp_segment FP_MEM *holes = fp_holes(r, f, w->packet.side);
	struct fp_rare FP_MEM *rare = fp_rare(r, f, w->packet.side);
	u32 i, side = w->packet.side, filled = 0, reordered = 0, seq = w->packet.seq;

	fp_loop(i, FP_CHUNK_SEGMENTS) {
		struct fp_segment FP_MEM *t = &holes[i];
		u32 from, to, tail;

		if (!(t->flags & FP_HOLE_MISSING))
			continue;
		from = fp_serial(seq, t->seq) > 0 ? seq : t->seq;
		to = fp_serial(end, t->end) < 0 ? end : t->end;
		if (fp_serial(to, from) <= 0)
			continue;
		filled += to - from;
		if (fp_is_reordered(w, f, t))
			reordered = 1;
		else
			rare->upstream_lost_bytes += to - from;
		tail = t->end;
		if (from == t->seq) {
			t->seq = to;
		} else {
			t->end = from;
			if (to != tail) { /* a hole on both sides of it */
				u32 place = fp_hole_new(r, w, f, side);

				if (place != FP_NO_PLACE && place != i) {
					struct fp_segment FP_MEM *rest = &holes[place];

					FP_COPY(rest, t);
					rest->seq = to;
					rest->end = tail;
				}
			}
		}
		if (t->seq == t->end)
			t->flags = 0;
	}
	if (filled) {
		if (reordered)
			rare->reordered_packets++;
		else
			rare->upstream_lost_packets++;
	}
	return filled;
}

/*
 * Handles data that begins before the expected number: it fills a hole, or is a retransmission or a
 * probe.
 */
FP_FUNC int fp_handle_old_data(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			       struct fp_flow FP_MEM *f FP_ARG, u32 end)
{
	struct fp_dir FP_MEM *d = &f->dir[w->packet.side];
	struct fp_rare FP_MEM *rare = fp_rare(r, f, w->packet.side);
	u32 seq = w->packet.seq, bytes, filled = 0;
	u32 last = fp_serial(end, d->next) < 0 ? end : d->next;

	bytes = last - seq;
	/* A keep-alive repeats the last byte, or one before the next (RFC 9293 section 3.8.4). */
	if (end - seq <= 1 && seq + 1 == d->next && d->segments.una == d->next &&
	    (d->flags & FP_DIR_ACKED) && !(w->packet.tcp_flags & (FP_TCP_SYN | FP_TCP_FIN))) {
		w->stats.keepalives++;
		return 0;
	}
	if (d->flags & FP_DIR_TROUBLE)
		filled = fp_fill_holes(r, w, f, last);
	if (!filled && (d->flags & FP_DIR_ACKED) && fp_serial(last, d->segments.una) <= 0) {
		rare->spurious_packets++;
		rare->retransmitted_packets++;
		rare->retransmitted_bytes += bytes;
		return 0;
	}
	if (filled < bytes) {
		rare->retransmitted_packets += w->packets;
		rare->retransmitted_bytes += bytes - filled;
	}
	fp_apply_karn(r, w, d);
	fp_record_retransmission(r, w, f, end);
	return 0;
}

/* Handles data after the highest number so far. */
FP_FUNC int fp_handle_new_data(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			       struct fp_flow FP_MEM *f FP_ARG, u32 end)
{
	struct fp_dir FP_MEM *d = &f->dir[w->packet.side];
	u32 seq = w->packet.seq, whole = 1;
	struct fp_segment FP_MEM *s;

	if (fp_unlikely(fp_serial(seq, d->next) > FP_SEQ_JUMP)) {
		fp_segments_clear(r, &d->segments, w->hash);
		d->flags &= ~FP_DIR_ACKED;
	} else if (fp_serial(seq, d->next) > 0) {
		u32 side = w->packet.side, place = fp_hole_new(r, w, f, side);

		if (place != FP_NO_PLACE)
			fp_fill_segment(w, &fp_holes(r, f, side)[place], d->next, seq,
					fp_segment_flags(w) | FP_HOLE_MISSING);
	} else if (fp_serial(seq, d->next) < 0) {
		whole = 0; /* fp_handle_old_data() handled its beginning */
	}
	d->next = end;
	/* A byte into a closed window is answered when the window opens, not when it arrives. */
	if (!whole || ((d->flags & FP_DIR_WINDOW_0) && end - seq == 1))
		return 0;
	s = fp_segments_append(r, &d->segments, r->config.max_segments, w->hash);
	if (s)
		fp_fill_segment(w, s, seq, end, fp_segment_flags(w));
	else
		w->stats.segments_refused++;
	return 0;
}

FP_INLINE void fp_handle_data(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			      struct fp_flow FP_MEM *f, struct fp_dir FP_MEM *d, u32 side)
{
	u32 syn = (w->packet.tcp_flags & FP_TCP_SYN) != 0;
	u32 bytes = w->packet.payload + syn + ((w->packet.tcp_flags & FP_TCP_FIN) != 0);
	u32 end = w->packet.seq + bytes;

	if (fp_unlikely(w->packet.flags & FP_PACKET_CUT))
		return;
	if (fp_unlikely(!(d->flags & FP_DIR_SEQ))) {
		/*
		 * In the middle of a flow, the first data may be a retransmission: it only shows
		 * where new data begins.
		 */
		d->next = syn ? w->packet.seq : end;
		d->flags |= FP_DIR_SEQ | (syn ? FP_DIR_SYN : FP_DIR_MIDFLOW);
		if (!syn)
			return;
		fp_rare(r, f, side)->isn = w->packet.seq;
	}
	if (!bytes)
		return;
	f->totals[side].data_packets += w->packets;
	if (fp_unlikely(fp_serial(w->packet.seq, d->next) < 0))
		fp_handle_old_data(r, w, f, end);
	if (fp_serial(end, d->next) > 0)
		fp_handle_new_data(r, w, f, end);
}

/* Serial order (RFC 7323 section 5.2): reordering must not restore an old TSval. */
FP_INLINE void fp_update_tsval(struct fp_work FP_MEM *w, struct fp_dir FP_MEM *d)
{
	if (!(w->packet.flags & FP_PACKET_HAS_TS))
		return;
	if (!(d->flags & FP_DIR_TS) || fp_serial(w->packet.tsval, d->tsval) > 0)
		d->tsval = w->packet.tsval;
	d->flags |= FP_DIR_TS;
}

/* Whether the packet has anything new. A repetition at another hook has not. */
FP_INLINE int fp_advances(const struct fp_work FP_MEM *w, const struct fp_flow FP_MEM *f)
{
	const struct fp_dir FP_MEM *mine = &f->dir[w->packet.side];
	const struct fp_dir FP_MEM *other = &f->dir[!w->packet.side];
	u32 flags = w->packet.tcp_flags;
	u32 end = w->packet.seq + w->packet.payload + ((flags & FP_TCP_SYN) != 0) +
		  ((flags & FP_TCP_FIN) != 0);

	if (!(mine->flags & FP_DIR_SEQ) || fp_serial(end, mine->next) > 0)
		return 1;
	return (flags & FP_TCP_ACK) && (other->flags & FP_DIR_SEQ) &&
	       (!(other->flags & FP_DIR_ACKED) ||
		fp_serial(w->packet.ack, other->segments.una) > 0);
}

/* FIN and RST. */
FP_INLINE void fp_handle_end(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			     struct fp_flow FP_MEM *f)
{
	u32 side = w->packet.side;

	if (w->packet.tcp_flags & FP_TCP_RST) {
		fp_close_flow(r, w, f, FP_CLOSED_RST, side, w->frame.now);
	} else if (w->packet.tcp_flags & FP_TCP_FIN) {
		if (!((f->dir[0].flags | f->dir[1].flags) & FP_DIR_FIN))
			f->closer = side;
		f->dir[side].flags |= FP_DIR_FIN;
		if (f->dir[!side].flags & FP_DIR_FIN)
			fp_close_flow(r, w, f, FP_CLOSED_FIN, f->closer, w->frame.now);
	}
}

/*
 * Handles one TCP packet of a flow whose set is locked. Returns 0 if another hook observed it
 * before.
 */
FP_FUNC int fp_tcp(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
		   struct fp_flow FP_MEM *f FP_ARG)
{
	u32 side = w->packet.side & 1;
	struct fp_dir FP_MEM *mine = &f->dir[side];

	if (fp_unlikely(mine->point != w->point)) {
		if (mine->point && !fp_advances(w, f)) {
			w->stats.second_hook_packets += w->packets;
			return 0;
		}
		mine->point = w->point;
	}
	fp_count_packet(r, w, f, side);
	mine->behind = w->behind;
	mine->flags |= FP_DIR_SEEN;
	w->stats.tcp_packets += w->packets;
	w->stats.tcp_bytes += w->packet.payload;

	if (w->packet.tcp_flags & FP_TCP_ACK)
		fp_handle_ack(r, w, f, &f->dir[side ^ 1]);
	if (!(w->packet.tcp_flags & FP_TCP_RST))
		fp_handle_data(r, w, f, mine, side);
	fp_update_tsval(w, mine);
	return 1;
}

#endif /* FP_TCP_H */
