/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * echo.h: round-trip times of ICMP and ICMPv6 echo.
 *
 * A flow is (addresses, identifier). A request waits in the list of its direction under its number.
 * The first reply answers it, and duplicates find nothing. A number that is used again while the
 * first request waits is ambiguous: neither gives a sample.
 */
#ifndef FP_ECHO_H
#define FP_ECHO_H

#include "sample.h"

/* Maximum of waiting requests of one flow. */
#define FP_MAX_ECHO 256

/* The waiting request with this number, or 0. */
FP_INLINE struct fp_segment FP_MEM *fp_echo_find(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
						 struct fp_dir FP_MEM *d)
{
	u32 chunk = d->segments.head, at = d->segments.head_at, i;
	u32 count = d->segments.count;

	fp_loop(i, count) {
		struct fp_segment FP_MEM *s =
			i + 1 == count ? &d->segments.newest : &fp_chunk(r, chunk)->segment[at];

		if (s->seq == w->packet.seq)
			return s;
		if (++at == FP_CHUNK_SEGMENTS) {
			chunk = fp_chunk(r, chunk)->next;
			at = 0;
		}
	}
	return 0;
}

/* Removes answered, ambiguous and old requests from the front of the list. */
FP_FUNC int fp_echo_trim(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			 struct fp_dir FP_MEM *d FP_ARG)
{
	u32 i;

	fp_loop(i, FP_MAX_ECHO) {
		struct fp_segment FP_MEM *s;

		if (!d->segments.count)
			break;
		s = fp_segments_first(r, &d->segments);
		if (!(s->flags & FP_SEGMENT_DEAD) && w->frame.now - s->time <= r->config.max_rtt &&
		    d->segments.count < FP_MAX_ECHO)
			break;
		fp_segments_drop_first(r, &d->segments, w->hash);
	}
	return 0;
}

FP_INLINE void fp_echo_request(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			       struct fp_dir FP_MEM *mine, struct fp_segment FP_MEM *known)
{
	struct fp_segment FP_MEM *s;

	if (known && !(known->flags & FP_SEGMENT_DEAD)) {
		known->flags |= FP_SEGMENT_DEAD;
		return;
	}
	s = fp_segments_append(r, &mine->segments, FP_MAX_ECHO, w->hash);
	if (!s) {
		w->stats.segments_refused++;
		return;
	}
	s->time = w->frame.now;
	s->seq = s->end = w->packet.seq;
	s->tsval = 0;
	s->flags = w->frame.direction << 4;
	if (w->frame.flags & FP_FRAME_AFTER_QUEUE)
		s->flags |= FP_SEGMENT_QUEUE;
}

/* Handles one echo packet of a flow whose set is locked. */
FP_FUNC int fp_echo(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
		    struct fp_flow FP_MEM *f FP_ARG)
{
	int request = w->packet.kind == FP_PACKET_ECHO_REQUEST;
	struct fp_dir FP_MEM *mine = &f->dir[w->packet.side];
	struct fp_dir FP_MEM *requested = request ? mine : &f->dir[!w->packet.side];
	struct fp_segment FP_MEM *s;

	fp_echo_trim(r, w, requested);
	s = fp_echo_find(r, w, requested);
	if (mine->point != w->point) {
		/* At another hook, only an unknown request or an awaited reply is new. */
		if (mine->point && (request ? s != 0 : !s || (s->flags & FP_SEGMENT_DEAD))) {
			w->stats.second_hook_packets++;
			return 0;
		}
		mine->point = w->point;
	}
	mine->behind = w->behind;
	mine->flags |= FP_DIR_SEEN;
	fp_count_packet(r, w, f, w->packet.side);
	w->stats.echo_packets++;
	if (request) {
		fp_echo_request(r, w, mine, s);
	} else if (s && !(s->flags & FP_SEGMENT_DEAD)) {
		w->match.time = s->time;
		w->match.end = s->end;
		w->match.flags = s->flags;
		w->match.acked = 0;
		w->match.method = FP_METHOD_ICMP;
		s->flags |= FP_SEGMENT_DEAD;
		if (r->config.icmp)
			fp_take_sample(r, w, f);
	}
	return 1;
}

#endif /* FP_ECHO_H */
