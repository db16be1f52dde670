/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * parse.h: from the first bytes of a frame to struct fp_packet.
 *
 * Reads w->head (at most FP_HEAD_BYTES). Lengths come from the IP header, not from the end of the
 * frame, because frames carry padding and trailers. But no packet is longer than its frame: its
 * sender writes the header, and would write the volume of others. Later fragments have no transport
 * header and are not parsed further. ICMP errors quote another packet and do not count as traffic.
 *
 * Deliberately absent: reassembly, MPLS, tunnels (GRE, VXLAN, GTP).
 */
#ifndef FP_PARSE_H
#define FP_PARSE_H

#include "../work.h"
#include "numbers.h"
#include "usual.h"

#define FP_MAX_VLAN_TAGS   4
#define FP_MAX_EXTENSIONS  8
#define FP_MAX_TCP_OPTIONS 40
/* Of an IP packet. BIG TCP makes GSO packets of up to 512 KiB. */
#define FP_MAX_IP_BYTES (1u << 20)

enum fp_parsed {
	FP_PARSED = 0,
	FP_NOT_IP,
	FP_TRUNCATED,
	FP_MALFORMED,
	FP_FRAGMENT,
	FP_OTHER_PROTOCOL,
};

/* The position of the parser in w->head. */
struct fp_cursor {
	u32 at;
	u32 next;      /* ethertype, then IP protocol */
	u32 l4_bytes;  /* from the transport header to the end of the IP packet */
	u32 l4_header; /* bytes of the transport header, where it is known */
	u32 more_frag; /* first fragment of several */
	u32 later;     /* another fragment: no transport header */
};

#define FP_NEED(w, c, bytes)                                                                       \
	do {                                                                                       \
		if ((c)->at + (bytes) > (w)->head_bytes)                                           \
			return FP_TRUNCATED;                                                       \
	} while (0)

/* The PPP protocol at c->at, of one byte if compressed (RFC 1661 section 6.5). */
FP_INLINE void fp_parse_ppp(struct fp_work FP_MEM *w, struct fp_cursor *c)
{
	u32 proto = fp_load16(w->head + c->at);

	c->at += 2;
	if (proto >> 8 & 1) {
		proto >>= 8;
		c->at -= 1;
	}
	c->next = proto == FP_PPP_IPV4 ? FP_ETH_IPV4 : (proto == FP_PPP_IPV6 ? FP_ETH_IPV6 : 0);
}

FP_INLINE int fp_parse_ethertype(struct fp_work FP_MEM *w, struct fp_cursor *c)
{
	u32 i;

	fp_loop(i, FP_MAX_VLAN_TAGS) {
		if (c->next != FP_ETH_VLAN && c->next != FP_ETH_QINQ && c->next != FP_ETH_QINQ_OLD)
			break;
		FP_NEED(w, c, 4);
		if (!w->packet.vlan)
			w->packet.vlan = fp_load16(w->head + c->at) & 0x0fff;
		c->next = fp_load16(w->head + c->at + 2);
		c->at += 4;
	}
	if (c->next == FP_ETH_PPPOE_SESSION) {
		FP_NEED(w, c, 8);
		c->at += 6;
		fp_parse_ppp(w, c);
	}
	return FP_PARSED;
}

/* Leaves c->next at the ethertype of the network header that begins at c->at, 0 for others. */
FP_INLINE int fp_parse_link(struct fp_work FP_MEM *w, struct fp_cursor *c)
{
	u32 family;

	switch (w->frame.link) {
	case FP_LINK_ETHERNET:
		FP_NEED(w, c, 14);
		c->next = fp_load16(w->head + 12);
		c->at = 14;
		return fp_parse_ethertype(w, c);
	case FP_LINK_RAW:
		FP_NEED(w, c, 1);
		c->next = w->head[0] >> 4 == 4 ? FP_ETH_IPV4
					       : (w->head[0] >> 4 == 6 ? FP_ETH_IPV6 : 0);
		return FP_PARSED;
	case FP_LINK_SLL:
		FP_NEED(w, c, 16);
		c->next = fp_load16(w->head + 14);
		c->at = 16;
		return fp_parse_ethertype(w, c);
	case FP_LINK_SLL2:
		FP_NEED(w, c, 20);
		c->next = fp_load16(w->head);
		c->at = 20;
		return fp_parse_ethertype(w, c);
	case FP_LINK_NULL:
		FP_NEED(w, c, 4);
		family = fp_load32_raw(w->head);
		if (family > 0xffff)
			family = fp_load32(w->head);
		c->at = 4;
		/* AF_INET is 2 everywhere; AF_INET6 is 10, 24, 28 or 30 by system. */
		c->next = family == 2 ? FP_ETH_IPV4 : 0;
		if (family == 10 || family == 24 || family == 28 || family == 30)
			c->next = FP_ETH_IPV6;
		return FP_PARSED;
	case FP_LINK_PPP:
		FP_NEED(w, c, 4);
		if (w->head[0] == 0xff && w->head[1] == 0x03)
			c->at = 2;
		fp_parse_ppp(w, c);
		return FP_PARSED;
	}
	c->next = 0;
	return FP_PARSED;
}

/*
 * The bytes from c->at to the end of the frame. They pass through memory: otherwise the verifier
 * would follow c->at through every iteration of its loops, to decide a comparison of the result.
 */
FP_INLINE u32 fp_bytes_left(struct fp_work FP_MEM *w, const struct fp_cursor *c)
{
	FP_PUT(w->packet.ip_bytes, fp_wire_bytes(w) - c->at);
	return *(volatile u32 FP_MEM *)&w->packet.ip_bytes;
}

/* A header whose lengths contradict each other or the frame. The bytes of the frame are real. */
FP_INLINE int fp_contradiction(struct fp_work FP_MEM *w, u32 room)
{
	w->packet.ip_bytes = room < FP_MAX_IP_BYTES ? room : FP_MAX_IP_BYTES;
	return FP_MALFORMED;
}

FP_INLINE int fp_parse_ipv4(struct fp_work FP_MEM *w, struct fp_cursor *c, u32 *ip)
{
	u32 header, total, fragment, room;

	FP_NEED(w, c, 20);
	header = (w->head[c->at] & 0x0f) * 4;
	total = fp_load16(w->head + c->at + 2);
	if (w->head[c->at] >> 4 != 4 || header < 20)
		return FP_MALFORMED;
	room = fp_bytes_left(w, c);
	if (total == 0)
		total = room; /* BIG TCP, and a sender that offloads */
	fragment = fp_load16(w->head + c->at + 6);
	c->later = fragment & 0x1fff;
	c->more_frag = fragment & 0x2000;
	c->next = w->head[c->at + 9];
	*ip = c->at;
	w->packet.dscp = w->head[c->at + 1] >> 2;
	w->packet.ecn = w->head[c->at + 1] & 3;
	w->packet.key.family = 4;
	c->at += header;
	if (total < header || total > room || total > FP_MAX_IP_BYTES)
		return fp_contradiction(w, room);
	w->packet.ip_bytes = total;
	c->l4_bytes = total - header;
	return FP_PARSED;
}

FP_INLINE int fp_parse_ipv6(struct fp_work FP_MEM *w, struct fp_cursor *c, u32 *ip)
{
	u32 i, left, room;

	FP_NEED(w, c, 40);
	if (w->head[c->at] >> 4 != 6)
		return FP_MALFORMED;
	room = fp_bytes_left(w, c);
	left = fp_load16(w->head + c->at + 4);
	if (left == 0)
		left = room - 40; /* BIG TCP, or a jumbogram */
	c->next = w->head[c->at + 6];
	*ip = c->at;
	w->packet.dscp = (fp_load16(w->head + c->at) >> 6) & 63;
	w->packet.ecn = (fp_load16(w->head + c->at) >> 4) & 3;
	w->packet.key.family = 6;
	w->packet.ip_bytes = 40 + left;
	c->at += 40;
	if (40 + left > room || left > FP_MAX_IP_BYTES)
		return fp_contradiction(w, room);
	fp_loop(i, FP_MAX_EXTENSIONS) {
		u32 bytes;

		switch (c->next) {
		case 0:	 /* hop-by-hop */
		case 43: /* routing */
		case 60: /* destination options */
			FP_NEED(w, c, 2);
			bytes = (w->head[c->at + 1] + 1) * 8;
			break;
		case 51: /* authentication header */
			FP_NEED(w, c, 2);
			bytes = (w->head[c->at + 1] + 2) * 4;
			break;
		case 44: /* fragment */
			FP_NEED(w, c, 8);
			c->later = fp_load16(w->head + c->at + 2) & 0xfff8;
			c->more_frag = w->head[c->at + 3] & 1;
			bytes = 8;
			break;
		default:
			bytes = 0;
		}
		if (bytes == 0)
			break;
		if (bytes > left)
			return FP_MALFORMED;
		c->next = w->head[c->at];
		c->at += bytes;
		left -= bytes;
		if (c->later)
			break;
	}
	c->l4_bytes = left;
	return FP_PARSED;
}

/* Options that the capture truncated count as absent. */
FP_FUNC int fp_parse_tcp_options(struct fp_work FP_MEM *w FP_ARG, u32 at, u32 end)
{
	u32 i;

	if (end > w->head_bytes) {
		end = w->head_bytes;
		w->packet.flags |= FP_PACKET_CUT_OPTIONS;
	}
	fp_loop(i, FP_MAX_TCP_OPTIONS) {
		u32 kind, bytes;

		if (at >= end)
			break;
		kind = w->head[at];
		if (kind == 0)
			break;
		if (kind == 1) {
			at += 1;
			continue;
		}
		if (at + 2 > end)
			break;
		bytes = w->head[at + 1];
		if (bytes < 2 || at + bytes > end)
			break;
		if (kind == 8 && bytes == 10) {
			w->packet.tsval = fp_load32(w->head + at + 2);
			w->packet.tsecr = fp_load32(w->head + at + 6);
			w->packet.flags |= FP_PACKET_HAS_TS;
		}
		if (kind == 5 && bytes >= 10) {
			FP_PUT(w->packet.sack_at, (u16)at);
			w->packet.sack[0][0] = fp_load32(w->head + at + 2);
			w->packet.sack[0][1] = fp_load32(w->head + at + 6);
			w->packet.sack[1][0] = bytes >= 18 ? fp_load32(w->head + at + 10) : 0;
			w->packet.sack[1][1] = bytes >= 18 ? fp_load32(w->head + at + 14) : 0;
		}
		at += bytes;
	}
	return 0;
}

FP_INLINE int fp_parse_tcp(struct fp_work FP_MEM *w, struct fp_cursor *c)
{
	u32 header;

	if (c->l4_bytes < 20)
		return FP_MALFORMED;
	FP_NEED(w, c, 20);
	header = (w->head[c->at + 12] >> 4) * 4;
	if (header < 20 || header > c->l4_bytes)
		return FP_MALFORMED;
	w->packet.kind = FP_PACKET_TCP;
	w->packet.seq = fp_load32(w->head + c->at + 4);
	w->packet.ack = fp_load32(w->head + c->at + 8);
	w->packet.tcp_flags = w->head[c->at + 13];
	w->packet.window = fp_load16(w->head + c->at + 14);
	w->packet.payload = c->l4_bytes - header;
	c->l4_header = header;
	if (c->more_frag)
		w->packet.flags |= FP_PACKET_CUT;
	if (header > 20)
		fp_parse_tcp_options(w, c->at + 20, c->at + header);
	return FP_PARSED;
}

FP_INLINE int fp_parse_echo(struct fp_work FP_MEM *w, struct fp_cursor *c, u32 request, u32 reply)
{
	u32 type;

	if (c->l4_bytes < 8)
		return FP_MALFORMED;
	FP_NEED(w, c, 8);
	type = w->head[c->at];
	if ((type != request && type != reply) || w->head[c->at + 1] != 0)
		return FP_OTHER_PROTOCOL;
	w->packet.kind = type == request ? FP_PACKET_ECHO_REQUEST : FP_PACKET_ECHO_REPLY;
	w->packet.window = fp_load16(w->head + c->at + 2);
	w->packet.seq = fp_load16(w->head + c->at + 6);
	w->packet.payload = c->l4_bytes;
	return FP_PARSED;
}

/* The transport header of the supported protocols. */
FP_INLINE int fp_parse_transport(struct fp_work FP_MEM *w, struct fp_cursor *c, u32 *sport,
				 u32 *dport)
{
	int err;

	if (c->later)
		return FP_FRAGMENT;
	if (c->next == FP_PROTO_UDP && c->l4_bytes >= 8 && c->at + 8 <= w->head_bytes) {
		*sport = __builtin_bswap16(fp_load16(w->head + c->at));
		*dport = __builtin_bswap16(fp_load16(w->head + c->at + 2));
		c->l4_header = 8;
		return FP_OTHER_PROTOCOL;
	}
	if (c->next == FP_PROTO_TCP)
		err = fp_parse_tcp(w, c);
	else if (c->next == FP_PROTO_ICMP && w->packet.key.family == 4)
		err = fp_parse_echo(w, c, 8, 0);
	else if (c->next == FP_PROTO_ICMPV6 && w->packet.key.family == 6)
		err = fp_parse_echo(w, c, 128, 129);
	else
		return FP_OTHER_PROTOCOL;
	if (err)
		return err;
	if (w->packet.kind == FP_PACKET_TCP) {
		*sport = __builtin_bswap16(fp_load16(w->head + c->at));
		*dport = __builtin_bswap16(fp_load16(w->head + c->at + 2));
	} else {
		*sport = *dport = __builtin_bswap16(fp_load16(w->head + c->at + 4));
	}
	return FP_PARSED;
}

/* A header that ends after its frame is missing, and not a matter of the capture. */
FP_INLINE int fp_parse_result(const struct fp_work FP_MEM *w, int err)
{
	return err == FP_TRUNCATED && fp_wire_bytes(w) == w->head_bytes ? FP_MALFORMED : err;
}

FP_FUNC int fp_parse_any(struct fp_work FP_MEM *w FP_ARG)
{
	struct fp_cursor c = {};
	u64 src0, src1, dst0, dst1;
	u32 ip = 0, sport = 0, dport = 0;
	int err;

	FP_PUT(w->wire_bytes,
	       w->frame.wire_len > w->head_bytes ? w->frame.wire_len : w->head_bytes);
	w->packet.vlan = w->frame.vlan & 0x0fff;
	FP_PUT(w->packet.flags, 0);
	FP_PUT(w->packet.tcp_flags, 0);
	FP_PUT(w->packet.ack, 0);
	FP_PUT(w->packet.sack_at, (u16)0);
	FP_PUT(w->packet.ip_bytes, 0);
	err = fp_parse_link(w, &c);
	if (err)
		return fp_parse_result(w, err);
	if (c.next == FP_ETH_IPV4)
		err = fp_parse_ipv4(w, &c, &ip);
	else if (c.next == FP_ETH_IPV6)
		err = fp_parse_ipv6(w, &c, &ip);
	else
		return FP_NOT_IP;
	if (!w->packet.ip_bytes)
		return fp_parse_result(w, err);

	w->packet.key.proto = c.next;
	w->packet.key.zero = 0;
	if (!err)
		err = fp_parse_transport(w, &c, &sport, &dport);
	if (w->frame.segs > 1 && err != FP_MALFORMED)
		w->packet.ip_bytes += (w->frame.segs - 1) * (c.at - ip + c.l4_header);

	if (w->packet.key.family == 4) {
		src0 = dst0 = 0;
		src1 = fp_mapped(fp_load32_raw(w->head + ip + 12));
		dst1 = fp_mapped(fp_load32_raw(w->head + ip + 16));
	} else {
		src0 = fp_load64_raw(w->head + ip + 8);
		src1 = fp_load64_raw(w->head + ip + 16);
		dst0 = fp_load64_raw(w->head + ip + 24);
		dst1 = fp_load64_raw(w->head + ip + 32);
	}
	fp_set_key(w, src0, src1, dst0, dst1, sport, dport);
	return fp_parse_result(w, err);
}

/*
 * Fills w->packet from w->frame and w->head, the same in every runtime. Addresses, ip_bytes and
 * dscp are valid if an IP header was read, also a malformed one, which has the bytes of its frame;
 * otherwise ip_bytes is 0. The SACK blocks are valid if sack_at is not 0.
 */
FP_FUNC int fp_parse(struct fp_work FP_MEM *w FP_ARG)
{
	return fp_parse_usual_head(w) ? FP_PARSED : fp_parse_any(w);
}

#endif /* FP_PARSE_H */
