/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/meta.h: from a parsed frame to the metadata that policies see.
 *
 * A frame that is not IP has no addresses and no ports, DSCP 0 and no class: it is one flow. The
 * back end sets the bytes on the wire, the segments of a GSO packet, and the hint.
 */
#ifndef FP_SCHED_META_H
#define FP_SCHED_META_H

#include "../class/classify.h"
#include "../parse/parse.h"
#include "abi.h"

FP_INLINE void fp_put_address(u8 FP_MEM *to, const u64 FP_MEM *from)
{
	((volatile u64 FP_MEM *)to)[0] = from[0];
	((volatile u64 FP_MEM *)to)[1] = from[1];
}

/* Hash of addresses, ports and protocol, with the direction of the packet; never 0. */
FP_INLINE u32 fp_meta_hash(const struct fp_hash_keys FP_MEM *h, const struct fp_meta FP_MEM *m)
{
	const u8 FP_MEM *from = m->source;
	const u8 FP_MEM *to = m->destination;
	u64 rest = (u64)m->source_port << 32 | m->destination_port << 8 | m->protocol;
	u32 hash = (u32)fp_hash_5(h, fp_load64_raw(from), fp_load64_raw(from + 8),
				  fp_load64_raw(to), fp_load64_raw(to + 8), rest);

	return hash ? hash : 1;
}

/* The end whose class counts: packets towards subscribers belong to their receiver. */
enum fp_end {
	FP_OF_SENDER = 0,
	FP_OF_RECEIVER = 1,
};

/*
 * Sets the SACK blocks of an ACK that has the option. Returns 0 if one of them is not beyond its number, or the first is
 * in the second: that one reports a duplicate (RFC 2883), which no later ACK repeats.
 */
FP_FUNC int fp_fill_sacks(struct fp_meta FP_MEM *m FP_ARG, const struct fp_work FP_MEM *w FP_ARG)
{
	u32 at = w->packet.sack_at;
	u32 bytes = w->head[at + 1];
	int beyond = 1;
	u32 i;

	fp_loop(i, FP_SACK_BLOCKS) {
		u32 edge = at + 2 + 8 * i;
		u32 left = 0, right = 0;

		if (bytes >= 10 + 8 * i) {
			left = fp_load32(w->head + edge);
			right = fp_load32(w->head + edge + 4);
			if (fp_serial(left, w->packet.ack) <= 0 || fp_serial(right, left) <= 0)
				beyond = 0;
		}
		FP_PUT(m->sack[i & (FP_SACK_BLOCKS - 1)], (u64)left << 32 | right);
	}
	if (m->sack[1] && fp_serial((u32)(m->sack[0] >> 32), (u32)(m->sack[1] >> 32)) >= 0 &&
	    fp_serial((u32)m->sack[0], (u32)m->sack[1]) <= 0)
		beyond = 0;
	return beyond;
}

/*
 * The flags of an ACK that a later one of its connection can replace; 0 for other packets. Its length
 * shows that it has no data, and no options but timestamps and SACK blocks, such as those of MPTCP.
 */
FP_INLINE u32 fp_pure_ack(const struct fp_work FP_MEM *w)
{
	u32 flags = w->packet.tcp_flags;
	u32 bytes = w->packet.key.family == 4 ? 40 : 60;

	if (w->packet.flags & FP_PACKET_HAS_TS)
		bytes += 12;
	/* After two NOPs. */
	if (w->packet.sack_at)
		bytes += 2 + w->head[w->packet.sack_at + 1];
	if ((w->packet.flags & (FP_PACKET_CUT | FP_PACKET_CUT_OPTIONS)) ||
	    w->packet.ip_bytes != bytes || w->frame.segs > 1)
		return 0;
	/* Other protocols have no flags. */
	if ((flags & (FP_TCP_FIN | FP_TCP_SYN | FP_TCP_RST | FP_TCP_ACK | FP_TCP_URG)) !=
	    FP_TCP_ACK)
		return 0;
	return FP_PURE_ACK | flags;
}

/* Metadata from the packet itself, as fp_parse() left it in w->packet. */
FP_INLINE void fp_fill_meta(const struct fp_rtt FP_MEM *r, struct fp_meta FP_MEM *m,
			    const struct fp_work FP_MEM *w)
{
	u32 sender = w->packet.side & 1;
	int is_ip = w->packet.ip_bytes != 0;
	u32 i;

	FP_PUT(m->hint, 0ull);
	if (is_ip) {
		fp_put_address(m->source, w->packet.key.addr[sender]);
		fp_put_address(m->destination, w->packet.key.addr[!sender]);
	} else {
		*(volatile u64 FP_MEM *)m->source = 0;
		*(volatile u64 FP_MEM *)(m->source + 8) = 0;
		*(volatile u64 FP_MEM *)m->destination = 0;
		*(volatile u64 FP_MEM *)(m->destination + 8) = 0;
	}
	FP_PUT(m->source_port, is_ip ? __builtin_bswap16(w->packet.key.port[sender]) : 0);
	FP_PUT(m->destination_port, is_ip ? __builtin_bswap16(w->packet.key.port[!sender]) : 0);
	FP_PUT(m->protocol, is_ip ? w->packet.key.proto : 0);
	FP_PUT(m->dscp, is_ip ? w->packet.dscp : 0);
	FP_PUT(m->ecn, is_ip ? w->packet.ecn : 0);
	FP_PUT(m->ack_flags, is_ip ? fp_pure_ack(w) : 0);
	for (i = 0; i < FP_SACK_BLOCKS; i++)
		FP_PUT(m->sack[i], 0ull);
	if (m->ack_flags && w->packet.sack_at && !fp_fill_sacks(m, w))
		FP_PUT(m->ack_flags, 0);
	FP_PUT(m->ack, m->ack_flags ? w->packet.ack : 0);
	FP_PUT(m->flow_hash, fp_meta_hash(&r->hash, m));
}

/*
 * Parses w->head and fills in what policies see, with the class of one end. Returns enum fp_parsed.
 */
FP_FUNC int fp_parse_and_classify(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
				  struct fp_meta FP_MEM *m FP_ARG, u32 end)
{
	int parsed = fp_parse(w);
	u32 side = (w->packet.side ^ (end == FP_OF_RECEIVER)) & 1;
	u32 slot = FP_OTHER;

	fp_fill_meta(r, m, w);
	if (r->config.slots && w->packet.ip_bytes) {
		w->image = *(volatile u32 FP_MEM *)&r->image;
		slot = fp_class_of(r, w, side, 1);
	}
	FP_PUT(m->class_id, slot);
	FP_PUT(m->arrival, w->frame.now);
	FP_PUT(m->bytes, fp_wire_bytes(w));
	FP_PUT(m->mark, w->frame.mark);
	FP_PUT(m->segments, (u8)(w->frame.segs < 255 ? w->frame.segs : 255));
	return parsed;
}

#endif /* FP_SCHED_META_H */
