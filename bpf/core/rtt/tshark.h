/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * tshark.h: pairs data and acknowledgements like tshark 4.0.17, for comparison with it.
 *
 * Only in the native runtime. docs/design/0004-tshark-as-oracle.md explains how the rules were
 * found and what they omit. In short:
 *
 * - every segment with payload, SYN or FIN is stored, including keep-alives, probes and copies; SYN
 * and FIN count one number, even together; at most config.max_segments per direction;
 * - the acknowledgement number counts in every packet, even without the ACK flag: it removes
 * everything that ends at or before it, and the oldest segment that ends exactly there is the
 * sample;
 * - a SYN with an initial number that differs from the first of this side starts a new
 * conversation;
 * - an echo request replaces an earlier one with the same number and checksum from either side, and
 * a reply answers it once.
 *
 * So the list of a direction is in order of arrival, not of sequence. `next` is the first number of
 * the direction, valid with FP_DIR_SEQ. Flows go directly into the flow table, nothing is evicted,
 * and a full set refuses new flows (flows_refused).
 */
#ifndef FP_TSHARK_H
#define FP_TSHARK_H

#include "tcp.h"

/* Walks through the segments of a direction, the oldest first. */
struct fp_tshark_walk {
	struct fp_segments *list;
	u32 chunk;
	u32 at;
	u32 left;
};

static struct fp_tshark_walk fp_tshark_begin(struct fp_segments *list)
{
	struct fp_tshark_walk walk = { list, list->head, list->head_at, list->count };

	return walk;
}

static struct fp_segment *fp_tshark_next(struct fp_rtt *r, struct fp_tshark_walk *walk)
{
	if (--walk->left == 0)
		return &walk->list->newest;
	if (walk->at == FP_CHUNK_SEGMENTS) {
		walk->chunk = fp_chunk(r, walk->chunk)->next;
		walk->at = 0;
	}
	return &fp_chunk(r, walk->chunk)->segment[walk->at++];
}

/*
 * Keeps the segments for which `keep` returns 1, in order. It is called for each, the oldest first.
 */
static void fp_tshark_filter(struct fp_rtt *r, struct fp_work *w, struct fp_segments *list,
			     int (*keep)(struct fp_work *w, const struct fp_segment *s))
{
	struct fp_tshark_walk from = fp_tshark_begin(list), to = from;
	u32 i, count = list->count, kept = 0;

	for (i = 0; i < count; i++) {
		const struct fp_segment *s = fp_tshark_next(r, &from);

		if (keep(w, s)) {
			*fp_tshark_next(r, &to) = *s;
			kept++;
		}
	}
	for (i = kept; i < count; i++)
		fp_segments_drop_last(r, list, w->hash);
}

static void fp_tshark_match(struct fp_work *w, const struct fp_segment *s, u32 method)
{
	w->match.time = s->time;
	w->match.end = s->end;
	w->match.flags = s->flags;
	w->match.acked =
		s->flags & FP_SEGMENT_SYN || method == FP_METHOD_ICMP ? 0 : s->end - s->seq;
	w->match.method = s->flags & FP_SEGMENT_SYN ? FP_METHOD_HANDSHAKE : method;
}

/*
 * Whether the segment is unacknowledged. The first that ends at the acknowledgement is the match.
 */
static int fp_tshark_outstanding(struct fp_work *w, const struct fp_segment *s)
{
	if (s->end == w->packet.ack && !w->match.method)
		fp_tshark_match(w, s, FP_METHOD_SEQ);
	return fp_serial(w->packet.ack, s->end) < 0;
}

static void fp_tshark_add(struct fp_rtt *r, struct fp_work *w, struct fp_dir *d)
{
	u32 numbers = (w->packet.tcp_flags & (FP_TCP_SYN | FP_TCP_FIN)) != 0;
	u32 limit = r->config.max_segments;
	struct fp_segment *s;

	if (!w->packet.payload && !numbers)
		return;
	s = fp_segments_append(r, &d->segments, limit, w->hash);
	if (s)
		fp_fill_segment(w, s, w->packet.seq, w->packet.seq + w->packet.payload + numbers,
				fp_segment_flags(w));
	else
		w->stats.segments_refused++;
}

/* The initial numbers of both directions, as far as this packet shows them. */
static void fp_tshark_begins(struct fp_work *w, struct fp_dir *mine, struct fp_dir *other)
{
	u32 syn = w->packet.tcp_flags & FP_TCP_SYN, ack = w->packet.tcp_flags & FP_TCP_ACK;

	if (!(mine->flags & FP_DIR_SEQ) || (syn && ack))
		mine->next = w->packet.seq - !syn;
	mine->flags |= FP_DIR_SEQ;
	if (!(other->flags & FP_DIR_SEQ) && ack) {
		other->next = w->packet.ack - 1;
		other->flags |= FP_DIR_SEQ;
	}
}

static void fp_tshark_tcp(struct fp_rtt *r, struct fp_work *w, struct fp_flow *f)
{
	struct fp_dir *mine = &f->dir[w->packet.side], *other = &f->dir[!w->packet.side];

	w->stats.tcp_packets += w->packets;
	w->stats.tcp_bytes += w->packet.payload;
	if (w->packet.flags & FP_PACKET_CUT)
		return;
	fp_tshark_begins(w, mine, other);
	fp_tshark_add(r, w, mine);
	w->match.method = 0;
	fp_tshark_filter(r, w, &other->segments, fp_tshark_outstanding);
	/* Zero is not shown, nor anything if the capture truncated the options. */
	if (w->match.method && w->match.time != w->frame.now &&
	    !(w->packet.flags & FP_PACKET_CUT_OPTIONS))
		fp_take_sample(r, w, f);
}

/*
 * The checksum of the reply to an IPv4 request, or of the request of an IPv6 reply. The two differ
 * only in their types (RFC 1624), and tshark distinguishes requests by it.
 */
static u32 fp_tshark_checksum(const struct fp_work *w)
{
	int request = w->packet.kind == FP_PACKET_ECHO_REQUEST, v4 = w->packet.key.family == 4;
	u32 types = v4 ? 0x0800 : 0x0100; /* 8 becomes 0; 128 becomes 129 */

	return (w->packet.window + (request == v4 ? types : 0)) % 0xffff;
}

/* Whether it is another request than the one that the packet repeats or answers. */
static int fp_tshark_other_echo(struct fp_work *w, const struct fp_segment *s)
{
	if (s->seq != w->packet.seq || s->tsval != fp_tshark_checksum(w))
		return 1;
	fp_tshark_match(w, s, FP_METHOD_ICMP);
	return 0;
}

static void fp_tshark_echo(struct fp_rtt *r, struct fp_work *w, struct fp_flow *f)
{
	/* Requests of both sides are in one list, that of the first side. */
	struct fp_segments *requested = &f->dir[0].segments;
	struct fp_segment *s;

	w->stats.echo_packets++;
	w->match.method = 0;
	fp_tshark_filter(r, w, requested, fp_tshark_other_echo);
	if (w->packet.kind == FP_PACKET_ECHO_REPLY) {
		if (w->match.method && r->config.icmp)
			fp_take_sample(r, w, f);
		return;
	}
	s = fp_segments_append(r, requested, r->config.max_segments, w->hash);
	if (s) {
		fp_fill_segment(w, s, w->packet.seq, w->packet.seq, w->frame.direction << 4);
		s->tsval = fp_tshark_checksum(w);
	} else {
		w->stats.segments_refused++;
	}
}

static void fp_tshark_in_flow(struct fp_rtt *r, struct fp_work *w, struct fp_flow *f)
{
	struct fp_dir *mine = &f->dir[w->packet.side];

	fp_count_packet(r, w, f, w->packet.side);
	mine->behind = w->behind;
	mine->flags |= FP_DIR_SEEN;
	if (w->packet.kind == FP_PACKET_TCP)
		fp_tshark_tcp(r, w, f);
	else
		fp_tshark_echo(r, w, f);
	if (!(f->flags & FP_FLOW_ANNOUNCED) && fp_side_seen(f, 0) && fp_side_seen(f, 1))
		fp_announce_flow(r, w, f);
}

/* Whether a SYN starts a new conversation of a known 5-tuple. */
static int fp_tshark_reused(const struct fp_work *w, const struct fp_flow *f)
{
	const struct fp_dir *mine = &f->dir[w->packet.side];

	return w->packet.kind == FP_PACKET_TCP &&
	       (w->packet.tcp_flags & (FP_TCP_SYN | FP_TCP_ACK)) == FP_TCP_SYN &&
	       (mine->flags & FP_DIR_SEQ) && w->packet.seq != mine->next;
}

/* The way of the flow of the packet, created if needed. FP_NO_WAY if the set is full. */
static u32 fp_tshark_find(struct fp_rtt *r, struct fp_work *w, const struct fp_table *t, u32 set)
{
	u32 way = fp_find(r, w, t, set);

	if (way < FP_WAYS) {
		if (!fp_tshark_reused(w, fp_flow_at(r, t, set, way)))
			return way;
		fp_retire_flow(r, w, t, set, way, FP_CLOSED_REUSE, w->frame.now);
	} else {
		for (way = 0; way < FP_WAYS && fp_set_at(r, t, set)->tag[way]; way++)
			;
	}
	if (way < FP_WAYS)
		fp_flow_start(r, w, 0, way);
	else
		fp_refuse_flow(r, w);
	return way;
}

/* Finds the flow of a parsed packet. One thread, so no locks. */
static void fp_tshark_track(struct fp_rtt *r, struct fp_work *w)
{
	struct fp_table t = fp_flow_table(r);
	u32 set, way;

	w->hash = fp_hash_key(&r->hash, &w->packet.key);
	set = fp_set_of(w->hash, t.mask);
	way = fp_tshark_find(r, w, &t, set);
	if (way < FP_WAYS)
		fp_tshark_in_flow(r, w, fp_flow_at(r, &t, set, way));
}

#endif /* FP_TSHARK_H */
