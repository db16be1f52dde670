/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * usual.h: the short path of the parser, for usual packets: TCP over IPv4 or IPv6 in Ethernet, with
 * no tags, fragments, IP options or extension headers, and no TCP options but timestamps.
 *
 *   bytes  0     6    14    22    30    38    46    54    62    70    78   86
 *   IPv4   | MAC addresses | ....  IP  .... | ..  TCP  .. | timestamps |
 *   IPv6   | MAC addresses | .......  IP  ....... | ..  TCP  .. | timestamps |
 *          struct fp_usual has the words at 6, 14, ...
 *
 * Each word of a header is loaded once: in the kernel from the packet, elsewhere from w->head. All
 * other packets, also those with lengths that contradict each other, take the long path (parse.h).
 * It has the same result for usual packets: usual_packets_parse_alike_on_both_paths.
 */
#ifndef FP_USUAL_H
#define FP_USUAL_H

#include "../work.h"
#include "numbers.h"

#define FP_USUAL_WORDS 10
/* NOP, NOP, timestamps of 10 bytes, as loaded. */
#define FP_USUAL_OPTIONS 0x0a080101u

/* The first headers of a frame in Ethernet. Words after `bytes` of the frame have any value. */
struct fp_usual {
	u64 word[FP_USUAL_WORDS];
	u32 bytes;
};

/* The parts of a TCP header, as loaded. */
struct fp_usual_tcp {
	u32 at; /* of the header in the frame */
	u32 seq;
	u32 ack;
	u32 flags;   /* data offset, flags, window */
	u32 options; /* the first, if there is one */
	u32 tsval;
	u32 tsecr;
	u32 l4_bytes; /* of the header and its payload */
};

/* Bytes of the header, 0 for packets of the long path. */
FP_INLINE u32 fp_usual_header(const struct fp_usual *u, const struct fp_usual_tcp *t)
{
	u32 header = (t->flags >> 4 & 15) * 4;

	if (fp_unlikely((header ^ 32) | (t->options ^ FP_USUAL_OPTIONS)) && header != 20)
		return 0;
	if (fp_unlikely(t->at + header > u->bytes || header > t->l4_bytes))
		return 0;
	return header;
}

FP_INLINE void fp_usual_put_tcp(struct fp_work FP_MEM *w, const struct fp_usual_tcp *t, u32 header)
{
	u32 has_ts = header >> 5 & FP_PACKET_HAS_TS;

	w->packet.seq = fp_be32(t->seq);
	w->packet.ack = fp_be32(t->ack);
	w->packet.payload = t->l4_bytes - header;
	w->packet.window = fp_be16(t->flags >> 16);
	w->packet.kind = FP_PACKET_TCP;
	w->packet.tcp_flags = t->flags >> 8;
	w->packet.flags = has_ts;
	w->packet.tsval = fp_be32(t->tsval) & (0 - has_ts);
	w->packet.tsecr = fp_be32(t->tsecr) & (0 - has_ts);
}

/* Writes the two endpoints into the key, the lower one as side 0. */
FP_INLINE void fp_set_key(struct fp_work FP_MEM *w, u64 src0, u64 src1, u64 dst0, u64 dst1,
			  u32 sport, u32 dport)
{
	struct fp_key FP_MEM *key = &w->packet.key;
	int swap = src0 != dst0 ? src0 > dst0 : src1 != dst1 ? src1 > dst1 : sport > dport;

	w->packet.side = swap;
	key->addr[0][0] = swap ? dst0 : src0;
	key->addr[0][1] = swap ? dst1 : src1;
	key->addr[1][0] = swap ? src0 : dst0;
	key->addr[1][1] = swap ? src1 : dst1;
	key->port[0] = swap ? dport : sport;
	key->port[1] = swap ? sport : dport;
}

/* An IPv4 address as a word of a key: ::ffff:a.b.c.d. */
FP_INLINE u64 fp_mapped(u32 address)
{
	return (u64)address << 32 | 0xffff0000u;
}

/* The same for IPv4, without branches: which side is lower is random. */
FP_INLINE void fp_set_key_v4(struct fp_work FP_MEM *w, u32 src, u32 dst, u32 sport, u32 dport)
{
	struct fp_key FP_MEM *key = &w->packet.key;
	u64 s = (u64)src << 16 | sport, d = (u64)dst << 16 | dport;
	/* The compiler would compare and branch. */
	u64 swap = fp_hide32((d - s) >> 32) >> 31, change = (s ^ d) & (0 - swap);

	s ^= change;
	d ^= change;
	w->packet.side = swap;
	FP_PUT(key->addr[0][0], 0ull);
	key->addr[0][1] = fp_mapped(s >> 16);
	FP_PUT(key->addr[1][0], 0ull);
	key->addr[1][1] = fp_mapped(d >> 16);
	key->port[0] = s;
	key->port[1] = d;
}

/* What both families have, after their parts. `ip_header` is its length. */
FP_INLINE void fp_usual_put(struct fp_work FP_MEM *w, const struct fp_usual_tcp *t, u32 header,
			    u32 ip_header, u32 family, u32 traffic_class)
{
	u32 ip_bytes = ip_header + t->l4_bytes;

	fp_usual_put_tcp(w, t, header);
	if (fp_unlikely(w->frame.segs > 1))
		ip_bytes += (w->frame.segs - 1) * (ip_header + header);
	w->packet.ip_bytes = ip_bytes;
	w->packet.vlan = w->frame.vlan & 0x0fff;
	w->packet.dscp = traffic_class >> 2;
	w->packet.ecn = traffic_class & 3;
	w->packet.key.proto = FP_PROTO_TCP;
	w->packet.key.family = family;
	w->packet.key.zero = 0;
	FP_PUT(w->packet.sack_at, (u16)0);
}

/* The length of the frame: that on the wire, captured or not (fp_wire_bytes()). */
FP_INLINE u32 fp_usual_wire_bytes(const struct fp_work FP_MEM *w, const struct fp_usual *u)
{
	return fp_unlikely(w->frame.wire_len < u->bytes) ? u->bytes : w->frame.wire_len;
}

FP_INLINE int fp_usual_v4(struct fp_work FP_MEM *w, const struct fp_usual *u)
{
	u64 ip = u->word[1], addresses = u->word[3];
	u32 total = fp_be16(ip >> 16), wire = fp_usual_wire_bytes(w, u), header;
	struct fp_usual_tcp t = {
		.at = 34,
		.seq = u->word[4],
		.ack = u->word[4] >> 32,
		.flags = u->word[5],
		.options = u->word[6],
		.tsval = u->word[6] >> 32,
		.tsecr = u->word[7],
		.l4_bytes = total - 20,
	};

	/* Version and length; no fragment of several; the protocol. */
	if (fp_unlikely(((ip & 0xff3f0000000000ffull) ^ 0x45) |
			((u->word[2] & 0xff00) ^ FP_PROTO_TCP << 8)))
		return 0;
	if (fp_unlikely(u->bytes < 54 || total < 40 || total > wire - 14))
		return 0;
	header = fp_usual_header(u, &t);
	if (fp_unlikely(!header))
		return 0;
	FP_PUT(w->wire_bytes, wire);
	fp_usual_put(w, &t, header, 20, 4, ip >> 8 & 0xff);
	fp_set_key_v4(w, u->word[2] >> 32, addresses, addresses >> 32 & 0xffff, addresses >> 48);
	return 1;
}

FP_INLINE int fp_usual_v6(struct fp_work FP_MEM *w, const struct fp_usual *u)
{
	u64 ip = u->word[1];
	u32 left = fp_be16(ip >> 32), wire = fp_usual_wire_bytes(w, u), header;
	struct fp_usual_tcp t = {
		.at = 54,
		.seq = u->word[6] >> 32,
		.ack = u->word[7],
		.flags = u->word[7] >> 32,
		.options = u->word[8] >> 32,
		.tsval = u->word[9],
		.tsecr = u->word[9] >> 32,
		.l4_bytes = left,
	};

	if (fp_unlikely((ip & 0x00ff0000000000f0ull) != (0x60 | (u64)FP_PROTO_TCP << 48)))
		return 0;
	if (fp_unlikely(u->bytes < 74 || left < 20 || 40 + left > wire - 14))
		return 0;
	header = fp_usual_header(u, &t);
	if (fp_unlikely(!header))
		return 0;
	FP_PUT(w->wire_bytes, wire);
	fp_usual_put(w, &t, header, 40, 6, fp_be16(ip) >> 4 & 0xff);
	fp_set_key(w, u->word[2], u->word[3], u->word[4], u->word[5], u->word[6] & 0xffff,
		   u->word[6] >> 16 & 0xffff);
	return 1;
}

/* Fills w->packet from w->frame and a usual packet in Ethernet. Returns 0 for others. */
FP_INLINE int fp_parse_usual(struct fp_work FP_MEM *w, const struct fp_usual *u)
{
	u32 type = u->word[0] >> 48;

	if (fp_unlikely(type != fp_be16(FP_ETH_IPV4)))
		return type == fp_be16(FP_ETH_IPV6) && fp_usual_v6(w, u);
	return fp_usual_v4(w, u);
}

/* The same for w->head. */
FP_INLINE int fp_parse_usual_head(struct fp_work FP_MEM *w)
{
	struct fp_usual u;
	u32 i;

	if (fp_unlikely(w->frame.link != FP_LINK_ETHERNET))
		return 0;
	FP_UNROLL
	for (i = 0; i < FP_USUAL_WORDS; i++)
		u.word[i] = fp_load64_raw(w->head + 6 + 8 * i);
	u.bytes = w->head_bytes;
	return fp_parse_usual(w, &u);
}

#endif /* FP_USUAL_H */
