/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rtt.h: the path of a frame through the monitor.
 *
 *   frame -> parse -> flow table -> TCP or echo -> samples and flow events
 *                       |    ^
 *            SYN, SYN-ACK    third packet of the handshake
 *                       v    |
 *                  half-open table
 *
 * One call per frame. fp_rtt_expire() closes idle flows, a few sets per call. fp_rtt_finish()
 * reports the flows that are still open. docs/design/0002-passive-rtt.md explains each rule.
 */
#ifndef FP_RTT_H
#define FP_RTT_H

#include "../parse/parse.h"
#include "flow_life.h"
#include "tcp.h"
#include "echo.h"

/* A flow is announced after a packet of each side. */
FP_FUNC int fp_announce_flow(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			     struct fp_flow FP_MEM *f FP_ARG)
{
	f->flags |= FP_FLOW_ANNOUNCED;
	if (!f->reason)
		f->reason = FP_OPENED_FIRST_SEEN;
	w->stats.flows_opened++;
	fp_tally_opened(r, f);
	fp_report_flow(r, w, f, FP_EVENT_OPENED, f->reason, f->initiator, w->frame.now);
	return 0;
}

/* Moves a half-open flow whose handshake completed into a free way of the flow table. */
FP_FUNC int fp_promote(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 halfway)
{
	struct fp_table half = fp_half_table(r), main = fp_flow_table(r);
	u32 half_set = fp_set_of(w->hash, half.mask), set = fp_set_of(w->hash, main.mask);
	u32 way = fp_find(r, w, &main, set);
	struct fp_flow FP_MEM *from = fp_flow_at(r, &half, half_set, halfway);
	struct fp_flow FP_MEM *to;

	if (way < FP_WAYS) /* the 5-tuple's earlier life ends here */
		fp_retire_flow(r, w, &main, set, way, FP_CLOSED_REUSE, w->frame.now);
	else
		way = fp_free_way(r, w, 0, 1);
	if (way >= FP_WAYS) {
		fp_refuse_flow(r, w);
		return -1;
	}
	to = fp_flow_at(r, &main, set, way);
	FP_COPY(to, from);
	FP_COPY(fp_rare_of(r, to), fp_rare_of(r, from));
	fp_set_at(r, &main, set)->tag[way] = fp_tag(w->hash);
	fp_add32(&r->flows_used, 1);
	fp_set_at(r, &half, half_set)->tag[halfway] = 0;
	if (fp_side_seen(to, 0) && fp_side_seen(to, 1))
		fp_announce_flow(r, w, to);
	fp_handle_end(r, w, to); /* FIN already */
	return 0;
}

FP_INLINE int fp_handshake_done(const struct fp_work FP_MEM *w, const struct fp_flow FP_MEM *f)
{
	if ((w->packet.tcp_flags & FP_TCP_SYN) || !(w->packet.tcp_flags & FP_TCP_ACK))
		return 0;
	/* Where only one direction passes, its second packet shows that the other side answered. */
	return w->packet.side == f->initiator || !(f->flags & FP_FLOW_SYN);
}

/*
 * Whether a packet of an established 5-tuple belongs to its next connection, which is still half
 * open.
 */
FP_INLINE int fp_is_next_life(const struct fp_work FP_MEM *w, const struct fp_flow FP_MEM *f)
{
	const struct fp_dir FP_MEM *mine = &f->dir[w->packet.side];
	const struct fp_dir FP_MEM *other = &f->dir[!w->packet.side];

	if (w->packet.tcp_flags & FP_TCP_SYN)
		return 1;
	return (f->flags & FP_FLOW_SYN_ACK) && w->packet.side == f->initiator &&
	       w->packet.seq == mine->next && w->packet.ack == other->next;
}

/* Handles a packet of the half-open table. Returns 1 if it did. The flow set is locked. */
FP_FUNC int fp_track_half_open(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			       u32 established)
{
	struct fp_table t = fp_half_table(r);
	u32 set = fp_set_of(w->hash, t.mask), way;
	struct fp_run_set_op FP_MEM *s = fp_set_at(r, &t, set);
	u32 syn = w->packet.tcp_flags & FP_TCP_SYN, ack = w->packet.tcp_flags & FP_TCP_ACK;
	struct fp_flow FP_MEM *f;
	int taken = 0;

	if (!fp_lock(&s->lock)) {
		w->stats.lock_failures++;
		return 1;
	}
	way = fp_find(r, w, &t, set);
	if (way >= FP_WAYS) {
		if (!syn)
			goto out;
		way = fp_free_way(r, w, 1, 0);
		if (way >= FP_WAYS)
			goto out;
		fp_flow_start(r, w, 1, way);
		w->stats.half_open_started++;
		f = fp_flow_at(r, &t, set, way);
		f->reason = ack ? FP_OPENED_SYN_ACK : FP_OPENED_SYN;
		f->initiator = ack ? !w->packet.side : w->packet.side;
		f->closer = f->initiator;
	}
	f = fp_flow_at(r, &t, set, way);
	if (established && !fp_is_next_life(w, f))
		goto out;
	taken = 1;
	/* Another initial sequence number: the client gave up and started again. */
	if (syn && !ack && (f->dir[w->packet.side].flags & FP_DIR_SEQ) &&
	    !fp_is_same_syn(r, w, f) && w->packet.side == f->initiator) {
		fp_flow_free(r, s, f, FP_WAYS);
		fp_flow_start(r, w, 1, way);
		f->reason = FP_OPENED_SYN;
	}
	if (syn)
		f->flags |= ack ? FP_FLOW_SYN_ACK : FP_FLOW_SYN;
	if (!fp_tally_packet(r, w, f))
		goto out;
	fp_tally_due(r, w, f);
	if (!fp_tcp(r, w, f))
		goto out;
	if (w->packet.tcp_flags & FP_TCP_RST) {
		w->stats.half_open_failed++;
		fp_tally_flush(r, w, f, FP_TALLY_FAILED);
		fp_flow_free(r, s, f, way);
	} else if (fp_handshake_done(w, f)) {
		fp_promote(r, w, way);
	}
out:
	fp_unlock(&s->lock);
	return taken;
}

/* Starts a flow whose opening was not observed. RST and a single FIN start nothing. */
FP_INLINE u32 fp_start_midflow(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w)
{
	u32 way;

	if (w->packet.tcp_flags & (FP_TCP_RST | FP_TCP_FIN | FP_TCP_SYN))
		return FP_NO_WAY;
	if (w->packet.kind == FP_PACKET_ECHO_REPLY)
		return FP_NO_WAY;
	way = fp_free_way(r, w, 0, 0);
	if (way >= FP_WAYS)
		fp_refuse_flow(r, w);
	else
		fp_flow_start(r, w, 0, way);
	return way;
}

/* A SYN, or any packet while the next connection of its 5-tuple is half open. */
FP_INLINE int fp_is_for_half_open(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
				  struct fp_flow FP_MEM *f)
{
	u32 syn = w->packet.tcp_flags & FP_TCP_SYN;

	/* Repeated packets of the handshake (its last ACK was lost) stay with the flow. */
	if (fp_likely(!(syn | (f->flags & FP_FLOW_REOPENING))))
		return 0;
	if (syn && !(f->flags & (FP_FLOW_CLOSED | FP_FLOW_REOPENING)) && fp_is_same_syn(r, w, f))
		return 0;
	if (syn)
		f->flags |= FP_FLOW_REOPENING;
	return fp_track_half_open(r, w, 1);
}

/* The flags of a packet that w->seen may describe, never 0; 0 for packets that open or close. */
FP_INLINE u32 fp_identity_flags(const struct fp_work FP_MEM *w)
{
	if (w->packet.kind != FP_PACKET_TCP ||
	    (w->packet.tcp_flags & (FP_TCP_SYN | FP_TCP_FIN | FP_TCP_RST)))
		return 0;
	return 1u << 16 | w->packet.flags << 8 | w->packet.tcp_flags;
}

/* The entry of a packet in w->seen. */
FP_INLINE struct fp_identity FP_MEM *fp_seen_place(struct fp_work FP_MEM *w)
{
	u32 mixed = w->packet.seq ^ w->packet.ack ^ w->packet.key.port[0] ^
		    (u32)w->packet.key.port[1] << 16;

	return &w->seen[mixed * 0x9e3779b1u >> (32 - FP_SEEN_BITS)];
}

/* True if hooks at egress recognise packets: not where classes need the flow, or a filter decides. */
FP_INLINE int fp_recognises(struct fp_rtt FP_MEM *r)
{
	return r->watched_count > 1 && !r->config.slots && !r->filters;
}

/*
 * Notes a packet at the ingress of a monitored interface, if it was counted there and has nothing new
 * any more: its next hook recognises it without its flow. fp_rtt_parsed() removed an earlier note.
 */
FP_INLINE void fp_note_packet(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			      const struct fp_flow FP_MEM *f)
{
	struct fp_identity FP_MEM *seen = fp_seen_place(w);
	u32 flags = fp_identity_flags(w);

	if (!fp_recognises(r) || w->frame.direction != FP_INGRESS)
		return;
	if (!flags || f->dir[w->packet.side & 1].point != w->point || fp_advances(w, f))
		return;
	FP_COPY(&seen->key, &w->packet.key);
	seen->seq = w->packet.seq;
	seen->ack = w->packet.ack;
	seen->payload = w->packet.payload;
	seen->tsval = w->packet.tsval;
	seen->flags = flags;
}

/*
 * Counts a packet at egress that this CPU measured shortly before, at its ingress. Returns 0 for
 * others. Needs no time.
 */
FP_FUNC int fp_rtt_seen(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG)
{
	const struct fp_identity FP_MEM *seen = fp_seen_place(w);
	u32 packets = w->frame.segs ? w->frame.segs : 1;
	u32 flags = fp_identity_flags(w);

	if (!(w->frame.flags & FP_FRAME_SEEN_BEFORE) || !fp_recognises(r) || !flags)
		return 0;
	if ((seen->flags ^ flags) | (seen->seq ^ w->packet.seq) | (seen->ack ^ w->packet.ack) |
	    (seen->payload ^ w->packet.payload))
		return 0;
	if (((w->packet.flags & FP_PACKET_HAS_TS) && seen->tsval != w->packet.tsval) ||
	    !fp_key_equal(&seen->key, &w->packet.key))
		return 0;
	w->stats.frames += packets;
	w->stats.frame_bytes += fp_wire_bytes(w);
	w->stats.second_hook_packets += packets;
	return 1;
}

FP_INLINE void fp_measure_in_flow(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
				  struct fp_flow FP_MEM *f)
{
	int counted;

	if (!fp_tally_packet(r, w, f))
		return;
	counted = fp_likely(w->packet.kind == FP_PACKET_TCP) ? fp_tcp(r, w, f) : fp_echo(r, w, f);
	if (fp_unlikely(!(f->flags & FP_FLOW_ANNOUNCED)) && counted && fp_side_seen(f, 0) &&
	    fp_side_seen(f, 1))
		fp_announce_flow(r, w, f);
	if (fp_unlikely(w->packet.tcp_flags & (FP_TCP_FIN | FP_TCP_RST)) && counted &&
	    w->packet.kind == FP_PACKET_TCP)
		fp_handle_end(r, w, f);
	fp_note_packet(r, w, f);
	fp_tally_due(r, w, f);
}

#ifndef __bpf__
#include "tshark.h"
#endif

/* Finds the flow of a parsed packet. */
FP_INLINE int fp_track(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w)
{
	struct fp_table t = fp_flow_table(r);
	struct fp_run_set_op FP_MEM *s;
	u32 set, way;

#ifndef __bpf__
	if (r->config.mode == FP_MODE_TSHARK) {
		fp_tshark_track(r, w);
		return 0;
	}
#endif
	w->hash = fp_hash_key(&r->hash, &w->packet.key);
	set = fp_set_of(w->hash, t.mask);
	s = fp_set_at(r, &t, set);
	if (fp_unlikely(!fp_lock(&s->lock))) {
		w->stats.lock_failures++;
		return 0;
	}
	way = fp_find(r, w, &t, set);
	if (fp_likely(way < FP_WAYS)) {
		struct fp_flow FP_MEM *f = fp_flow_at(r, &t, set, way);

		if (fp_likely(w->packet.kind == FP_PACKET_TCP) && fp_is_for_half_open(r, w, f))
			goto out;
	} else {
		if (w->packet.kind == FP_PACKET_TCP && fp_track_half_open(r, w, 0))
			goto out;
		way = fp_start_midflow(r, w);
	}
	if (fp_likely(way < FP_WAYS))
		fp_measure_in_flow(r, w, fp_flow_at(r, &t, set, way));
out:
	fp_unlock(&s->lock);
	return 0;
}

/* The capture point of a frame as a number that is never 0. */
FP_INLINE u64 fp_capture_point(const struct fp_work FP_MEM *w)
{
	return (u64)w->frame.ifindex | (u64)w->packet.vlan << 32 | (u64)w->frame.direction << 48 |
	       1ull << 56;
}

FP_INLINE int fp_filter_matches(const struct fp_filter FP_MEM *f, const struct fp_key FP_MEM *key)
{
	u32 side;

	if ((f->flags & FP_FILTER_PORT) && key->port[0] != f->port && key->port[1] != f->port)
		return 0;
	if (!(f->flags & FP_FILTER_PREFIX))
		return 1;
	for (side = 0; side < 2; side++) {
		if ((key->addr[side][0] & f->mask[0]) == f->addr[0] &&
		    (key->addr[side][1] & f->mask[1]) == f->addr[1])
			return 1;
	}
	return 0;
}

/* Whether the filters exclude the packet. Exceptions have priority. */
FP_FUNC int fp_filtered(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG)
{
	u32 i, wanted = !r->filters_only, count = r->filters;

	if (count > FP_MAX_FILTERS)
		count = FP_MAX_FILTERS;
	fp_loop(i, count) {
		const struct fp_filter FP_MEM *f = &r->filter[i % FP_MAX_FILTERS];

		if (!fp_filter_matches(f, &w->packet.key))
			continue;
		if (f->flags & FP_FILTER_EXCEPT)
			return 1;
		wanted = 1;
	}
	return !wanted;
}

/* Counts frames that are not parsed further. */
FP_INLINE void fp_count_unparsed(struct fp_work FP_MEM *w, int err)
{
	switch (err) {
	case FP_NOT_IP:
		w->stats.not_ip++;
		break;
	case FP_TRUNCATED:
		w->stats.truncated++;
		break;
	case FP_MALFORMED:
		w->stats.malformed++;
		break;
	case FP_FRAGMENT:
		w->stats.fragments++;
		break;
	default:
		w->stats.other_protocol++;
	}
}

/* Handles a frame for which the parser returned `err`. Returns enum fp_parsed. */
FP_FUNC int fp_rtt_parsed(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, int err)
{
	w->packets = w->frame.segs ? w->frame.segs : 1;
	w->stats.frames += w->packets;
	w->stats.frame_bytes += fp_wire_bytes(w);
	if (fp_unlikely(r->filters) && w->packet.ip_bytes && fp_filtered(r, w)) {
		w->stats.filtered++;
		return err == FP_TRUNCATED ? FP_PARSED : err;
	}
	if (r->config.slots && w->packet.ip_bytes)
		fp_classify_begin(r, w);
	if (fp_unlikely(err != FP_PARSED)) {
		fp_count_unparsed(w, err);
		if (r->config.slots && w->packet.ip_bytes)
			fp_tally_volume(r, w);
		return err;
	}
	if (w->frame.direction == FP_INGRESS && fp_recognises(r))
		FP_PUT(fp_seen_place(w)->flags, 0);
	w->point = fp_capture_point(w);
	w->behind = w->frame.direction == FP_INGRESS  ? w->frame.ifindex
		    : w->frame.direction == FP_EGRESS ? w->frame.rx_ifindex
						      : 0;
	fp_track(r, w);
	if (r->config.slots)
		fp_tally_volume(r, w);
	return FP_PARSED;
}

/* Handles one frame: w->frame, w->head and w->head_bytes are set. Returns enum fp_parsed. */
FP_INLINE int fp_rtt_frame(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w)
{
	int err = fp_parse(w);

	if (err == FP_PARSED && fp_rtt_seen(r, w))
		return err;
	return fp_rtt_parsed(r, w, err);
}

FP_FUNC int fp_expire_way(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 half,
			  u32 set)
{
	struct fp_table t = half ? fp_half_table(r) : fp_flow_table(r);
	u32 way = w->way;
	u64 now = r->expire_now;

	if (fp_set_at(r, &t, set)->tag[way] &&
	    fp_flow_expired(r, fp_flow_at(r, &t, set, way), half, now))
		fp_retire_flow(r, w, &t, set, way, FP_CLOSED_TIMEOUT, now);
	return 0;
}

/* Closes idle flows in a set of one table. */
FP_FUNC int fp_expire_set(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 half,
			  u32 set)
{
	struct fp_table t = half ? fp_half_table(r) : fp_flow_table(r);
	struct fp_run_set_op FP_MEM *s = fp_set_at(r, &t, set);

	if (!fp_lock(&s->lock)) {
		w->stats.lock_failures++;
		return 0;
	}
	/*
	 * The counter is in memory: kernels up to at least 6.18 report a verifier bug if a register
	 * that is linked to others counts calls of global functions.
	 */
	fp_loop(w->way, FP_WAYS)
		fp_expire_way(r, w, half, set);
	fp_unlock(&s->lock);
	return 0;
}

/* Checks the next r->expire_sets sets of both tables, at time r->expire_now. */
FP_FUNC int fp_rtt_expire(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG)
{
	u32 half = r->config.half_sets, all = half + r->config.flow_sets, i;

	w->frame.number = 0;
	w->frame.ifindex = 0;
	w->image = *(volatile u32 FP_MEM *)&r->image;
	fp_loop(i, r->expire_sets) {
		u32 at = r->expire_cursor;

		if (at >= all)
			at = 0;
		r->expire_cursor = at + 1;
		if (at < half)
			fp_expire_set(r, w, 1, at);
		else
			fp_expire_set(r, w, 0, at - half);
	}
	return 0;
}

#endif /* FP_RTT_H */
