/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/packet.h: bytes of a packet -> words, as xtables reads them.
 *
 * This is not the parser of round-trip times: here a header that was cut short, a fragment or an
 * unusual extension header has the meaning that iptables gives it. A packet with one of these is
 * `slow`: it is evaluated in the written order of each rule.
 */
#ifndef FP_RULES_PACKET_H
#define FP_RULES_PACKET_H

#include "abi.h"

#define FP_FAMILY_IPV4	 0
#define FP_FAMILY_IPV6	 1
#define FP_FAMILY_ARP	 2
#define FP_FAMILY_BRIDGE 3

#define FP_P_HOPOPTS  0
#define FP_P_ICMP     1
#define FP_P_IGMP     2
#define FP_P_TCP      6
#define FP_P_UDP      17
#define FP_P_DCCP     33
#define FP_P_ROUTING  43
#define FP_P_FRAGMENT 44
#define FP_P_ESP      50
#define FP_P_AH	      51
#define FP_P_ICMPV6   58
#define FP_P_NONE     59
#define FP_P_DSTOPTS  60
#define FP_P_SCTP     132
#define FP_P_UDPLITE  136

/* Results of reading bytes. */
#define FP_THERE	0
#define FP_SHORT_PACKET 1 /* the packet ends before */
#define FP_CUT_PACKET	2 /* it has the bytes, but they were not captured */

/* True if `bytes` at `at` can be read from the head; otherwise why not. */
FP_INLINE u32 fp_rules_has(const struct fp_rules_work FP_MEM *w, u32 at, u32 bytes)
{
	if (at > 0xffff || at + bytes > w->length)
		return FP_SHORT_PACKET;
	if (at + bytes > w->captured || at + bytes > FP_RULES_HEAD)
		return FP_CUT_PACKET;
	return FP_THERE;
}

/* Loads for offsets that fp_rules_has() accepted. */
FP_INLINE u32 fp_rules_u8(const struct fp_rules_work FP_MEM *w, u32 at)
{
	return w->head[at & (FP_RULES_HEAD - 1)];
}

FP_INLINE u32 fp_rules_u16(const struct fp_rules_work FP_MEM *w, u32 at)
{
	return fp_load16(w->head + (at & (FP_RULES_HEAD - 1)));
}

FP_INLINE u32 fp_rules_u32(const struct fp_rules_work FP_MEM *w, u32 at)
{
	return fp_load32(w->head + (at & (FP_RULES_HEAD - 1)));
}

FP_INLINE u32 fp_rules_u32_raw(const struct fp_rules_work FP_MEM *w, u32 at)
{
	return fp_load32_raw(w->head + (at & (FP_RULES_HEAD - 1)));
}

/* Bytes that a match of this protocol requires: 0 if it has none. */
FP_INLINE u32 fp_rules_header_bytes(u32 protocol)
{
	switch (protocol) {
	case FP_P_TCP:
		return 20;
	case FP_P_UDP:
	case FP_P_UDPLITE:
	case FP_P_ESP:
	case FP_P_ICMP:
	case FP_P_ICMPV6:
		return 8;
	case FP_P_DCCP:
	case FP_P_SCTP:
	case FP_P_AH:
		return 12;
	}
	return 0;
}

FP_INLINE int fp_rules_has_ports(u32 protocol)
{
	return protocol == FP_P_TCP || protocol == FP_P_UDP || protocol == FP_P_UDPLITE ||
	       protocol == FP_P_DCCP || protocol == FP_P_SCTP;
}

/* The word FP_W_L4, from the offset of the transport header. */
FP_INLINE int fp_rules_read_l4(struct fp_rules_work FP_MEM *w, u32 protocol)
{
	u32 at = w->transport, needed = fp_rules_header_bytes(protocol), there;
	u64 word = protocol;

	if (w->fragment) {
		w->word[FP_W_L4] = word | FP_L4_FRAGMENT;
		/* xtables drops a TCP fragment that could overwrite the header. */
		w->slow |= w->fragment == 1 && protocol == FP_P_TCP;
		return 0;
	}
	if (!needed) {
		w->word[FP_W_L4] = word;
		return 0;
	}
	there = fp_rules_has(w, at, 4);
	if (there == FP_THERE) {
		word |= FP_L4_PORTS;
		if (fp_rules_has_ports(protocol))
			word |= (u64)fp_rules_u16(w, at) << 16 | (u64)fp_rules_u16(w, at + 2) << 32;
		else
			word |= (u64)fp_rules_u8(w, at) << 16 | (u64)fp_rules_u8(w, at + 1) << 24;
		if (fp_rules_has(w, at, needed) == FP_THERE) {
			word |= FP_L4_HEADER;
			if (protocol == FP_P_TCP)
				word |= (u64)fp_rules_u8(w, at + 13) << 48;
		}
	}
	w->word[FP_W_L4] = word;
	w->slow |= !(word & FP_L4_HEADER);
	return 0;
}

FP_INLINE int fp_rules_read_ipv4(struct fp_rules_work FP_MEM *w)
{
	u32 total, header, fragment, length;

	if (fp_rules_has(w, 0, 20) != FP_THERE)
		return 0;
	header = (fp_rules_u8(w, 0) & 15) * 4;
	total = fp_rules_u16(w, 2);
	/* Many segments of TCP (GSO) that are together longer than the field can say have no number there. */
	length = total < header ? w->length : total;
	w->counted = length;
	/* Before netfilter sees it, IP drops a packet that is shorter than that, and trims a frame. */
	if (!(w->known & FP_KNOWN_LENGTH)) {
		if (total > w->length)
			return 0;
		w->length = length;
	}
	w->word[FP_W_ADDR] = fp_load64_raw(w->head + 12);
	fragment = fp_rules_u16(w, 6) & 0x1fff;
	w->fragment = fragment;
	w->transport = header;
	w->word[FP_W_META] |= (u64)fp_rules_u8(w, 1) << FP_META_TOS | (u64)fp_rules_u8(w, 8)
									      << FP_META_TTL;
	fp_rules_read_l4(w, fp_rules_u8(w, 9));
	return 1;
}

FP_INLINE int fp_rules_is_extension(u32 next)
{
	return next == FP_P_HOPOPTS || next == FP_P_ROUTING || next == FP_P_FRAGMENT ||
	       next == FP_P_AH || next == FP_P_NONE || next == FP_P_DSTOPTS;
}

/*
 * Extension headers of a packet: more are unknown. Linux 6.18 reads any number, later kernels drop
 * packets with more than 12 (IP6_MAX_EXT_HDRS_CNT).
 */
#define FP_RULES_EXTENSIONS 64

/* The end of a walk over extension headers. */
#define FP_WALK_FOUND	0
#define FP_WALK_MISSING 1 /* no such header */
#define FP_WALK_BROKEN	2 /* the packet ends in a header, or bytes are missing */
#define FP_WALK_CUT	3

/*
 * Walks to header `target`, or with 256 to the first one that is no extension, as ipv6_find_hdr().
 * Sets w->walk_at, w->walk_next (the protocol) and w->walk_fragment of what was found. It reads 4 bytes
 * of a `routing` header; ipv6_skip_exthdr() reads 2.
 */
FP_FUNC u32 fp_rules_walk(struct fp_rules_work FP_MEM *w FP_ARG, u32 target, u32 routing)
{
	volatile u32 FP_MEM *at = &w->walk_at, *next = &w->walk_next;
	u32 i, there, bytes, offset;

	*at = w->network + 40;
	*next = fp_rules_u8(w, w->network + 6);
	w->walk_fragment = 0;
	fp_loop(i, FP_RULES_EXTENSIONS) {
		int found = *next == target;

		if (!fp_rules_is_extension(*next) || *next == FP_P_NONE) {
			if (target == 256 || found)
				return FP_WALK_FOUND;
			return FP_WALK_MISSING;
		}
		bytes = *next == FP_P_ROUTING ? routing : 2;
		there = fp_rules_has(w, *at, bytes);
		if (there != FP_THERE)
			return there == FP_CUT_PACKET ? FP_WALK_CUT : FP_WALK_BROKEN;
		if (*next == FP_P_FRAGMENT) {
			there = fp_rules_has(w, *at + 2, 2);
			if (there != FP_THERE)
				return there == FP_CUT_PACKET ? FP_WALK_CUT : FP_WALK_BROKEN;
			offset = fp_rules_u16(w, *at + 2) & 0xfff8;
			if (offset) {
				u32 after = fp_rules_u8(w, *at);

				if (target == 256 &&
				    (!fp_rules_is_extension(after) || after == FP_P_NONE)) {
					w->walk_fragment = offset;
					*next = after;
					return FP_WALK_FOUND;
				}
				if (!found)
					return FP_WALK_MISSING;
				w->walk_fragment = offset;
				return FP_WALK_FOUND;
			}
			bytes = 8;
		} else if (*next == FP_P_AH) {
			bytes = (fp_rules_u8(w, *at + 1) + 2) * 4;
		} else {
			bytes = (fp_rules_u8(w, *at + 1) + 1) * 8;
		}
		if (found)
			return FP_WALK_FOUND;
		*next = fp_rules_u8(w, *at);
		*at += bytes;
	}
	return FP_WALK_CUT;
}

FP_FUNC int fp_rules_read_ipv6(struct fp_rules_work FP_MEM *w FP_ARG)
{
	u32 payload, walk;

	if (fp_rules_has(w, 0, 40) != FP_THERE)
		return 0;
	if (!(w->known & FP_KNOWN_LENGTH)) {
		payload = fp_rules_u16(w, 4);
		if (payload + 40 > w->length)
			return 0;
		/*
		 * A jumbogram has its length in an option. Many segments of TCP (GSO, since Linux 7.0) have it
		 * nowhere.
		 */
		if (payload || (fp_rules_u8(w, 6) != FP_P_HOPOPTS && w->length <= 40 + 0xffff))
			w->length = payload + 40;
	}
	w->counted = w->length;
	w->word[FP_W_ADDR] = fp_load64_raw(w->head + 8);
	w->word[FP_W_ADDR1] = fp_load64_raw(w->head + 16);
	w->word[FP_W_ADDR2] = fp_load64_raw(w->head + 24);
	w->word[FP_W_ADDR3] = fp_load64_raw(w->head + 32);
	w->word[FP_W_META] |= (u64)(fp_rules_u16(w, 0) >> 4 & 0xff) << FP_META_TOS |
			      (u64)fp_rules_u8(w, 7) << FP_META_TTL;
	walk = fp_rules_walk(w, 256, 4);
	if (walk != FP_WALK_FOUND) {
		w->word[FP_W_L4] = FP_L4_FAILED;
		w->slow = 1;
		if (walk == FP_WALK_CUT)
			w->unknown[FP_W_L4] = ~0ull;
		return 1;
	}
	/* In a later fragment, xtables takes the start of the packet for it. */
	w->transport = w->walk_fragment ? 0 : w->walk_at;
	w->fragment = w->walk_fragment;
	fp_rules_read_l4(w, w->walk_next);
	return 1;
}

/* ARP of Ethernet and IPv4: hardware and protocol addresses of 6 and 4 bytes. */
FP_FUNC int fp_rules_read_arp(struct fp_rules_work FP_MEM *w FP_ARG)
{
	u64 sender, receiver;

	if (fp_rules_has(w, 0, 28) != FP_THERE)
		return 0;
	w->counted = w->length;
	w->word[FP_W_ARP] = (u64)fp_rules_u16(w, 6) | (u64)fp_rules_u16(w, 0) << 16 |
			    (u64)fp_rules_u16(w, 2) << 32 | (u64)fp_rules_u8(w, 4) << 48;
	sender = fp_load32_raw(w->head + 14);
	receiver = fp_load32_raw(w->head + 24);
	w->word[FP_W_ADDR] = sender | receiver << 32;
	/* The addresses of the payload take the place of those of the frame. */
	w->word[FP_W_SMAC] = fp_load32_raw(w->head + 8) | (u64)(fp_load32_raw(w->head + 10) >> 16)
								  << 32;
	w->word[FP_W_DMAC] = fp_load32_raw(w->head + 18) | (u64)(fp_load32_raw(w->head + 20) >> 16)
								   << 32;
	return 1;
}

#define FP_TYPE_IPV4   0x0800
#define FP_TYPE_ARP    0x0806
#define FP_TYPE_RARP   0x8035
#define FP_TYPE_VLAN   0x8100
#define FP_TYPE_IPV6   0x86dd
#define FP_TYPE_QINQ   0x88a8
#define FP_LINK_BYTES  14
#define FP_TAG_BYTES   4
#define FP_LLC_BYTES   10    /* 802.2 with two bytes of control, a gap, and the type of SNAP */
#define FP_LAST_LENGTH 0x5ff /* larger numbers are types */

FP_INLINE u64 fp_rules_mac(const struct fp_rules_work FP_MEM *w, u32 at)
{
	return fp_rules_u32_raw(w, at) | (u64)(fp_rules_u32_raw(w, at + 2) >> 16) << 32;
}

/* A frame whose headers were not captured: everything behind the link-layer header is unknown. */
FP_FUNC int fp_bridge_cut(struct fp_rules_work FP_MEM *w FP_ARG)
{
	FP_PUT(w->unknown[FP_W_L4], ~0ull);
	FP_PUT(w->unknown[FP_W_ADDR], ~0ull);
	FP_PUT(w->unknown[FP_W_ADDR1], ~0ull);
	FP_PUT(w->unknown[FP_W_ADDR2], ~0ull);
	FP_PUT(w->unknown[FP_W_ADDR3], ~0ull);
	FP_PUT(w->unknown[FP_W_ARP], ~0ull);
	w->unknown[FP_W_META] |= 0xffull << FP_META_TOS;
	FP_PUT(w->slow, 1);
	return 0;
}

/* Ports, or type and code. A frame without them does not match; it is not dropped. */
FP_FUNC int fp_bridge_read_l4(struct fp_rules_work FP_MEM *w FP_ARG, u32 protocol, u32 at)
{
	u64 word = protocol | FP_L4_HEADER;
	u32 there;

	w->word[FP_W_L4] = word;
	if (!fp_rules_has_ports(protocol) && protocol != FP_P_ICMP && protocol != FP_P_ICMPV6 &&
	    protocol != FP_P_IGMP)
		return 0;
	there = fp_rules_has(w, at, 4);
	if (there == FP_CUT_PACKET) {
		w->unknown[FP_W_L4] = ~0xffull & ~(u64)FP_L4_HEADER;
		FP_PUT(w->slow, 1);
	}
	if (there != FP_THERE)
		return 0;
	word |= FP_L4_PORTS;
	if (fp_rules_has_ports(protocol))
		word |= (u64)fp_rules_u16(w, at) << 16 | (u64)fp_rules_u16(w, at + 2) << 32;
	else
		word |= (u64)fp_rules_u8(w, at) << 16 | (u64)fp_rules_u8(w, at + 1) << 24;
	w->word[FP_W_L4] = word;
	return 0;
}

FP_FUNC int fp_bridge_read_ipv4(struct fp_rules_work FP_MEM *w FP_ARG)
{
	u32 at = w->network, protocol, there = fp_rules_has(w, at, 20);

	if (there == FP_CUT_PACKET)
		return fp_bridge_cut(w);
	if (there != FP_THERE)
		return 0;
	w->word[FP_W_ADDR] = fp_rules_u32_raw(w, at + 12) | (u64)fp_rules_u32_raw(w, at + 16) << 32;
	w->word[FP_W_META] |= (u64)fp_rules_u8(w, at + 1) << FP_META_TOS;
	protocol = fp_rules_u8(w, at + 9);
	if (fp_rules_u16(w, at + 6) & 0x1fff) {
		w->word[FP_W_L4] = protocol | FP_L4_HEADER | FP_L4_FRAGMENT;
		return 0;
	}
	return fp_bridge_read_l4(w, protocol, at + (fp_rules_u8(w, at) & 15) * 4);
}

/* The protocol is that of ipv6_skip_exthdr(), which ends at a fragment's header. */
FP_FUNC int fp_bridge_read_ipv6(struct fp_rules_work FP_MEM *w FP_ARG)
{
	u32 at = w->network, walk, there = fp_rules_has(w, at, 40);

	if (there == FP_CUT_PACKET)
		return fp_bridge_cut(w);
	if (there != FP_THERE)
		return 0;
	w->word[FP_W_ADDR] = fp_rules_u32_raw(w, at + 8) | (u64)fp_rules_u32_raw(w, at + 12) << 32;
	w->word[FP_W_ADDR1] = fp_rules_u32_raw(w, at + 16) | (u64)fp_rules_u32_raw(w, at + 20)
								     << 32;
	w->word[FP_W_ADDR2] = fp_rules_u32_raw(w, at + 24) | (u64)fp_rules_u32_raw(w, at + 28)
								     << 32;
	w->word[FP_W_ADDR3] = fp_rules_u32_raw(w, at + 32) | (u64)fp_rules_u32_raw(w, at + 36)
								     << 32;
	w->word[FP_W_META] |= (u64)(fp_rules_u16(w, at) >> 4 & 0xff) << FP_META_TOS;
	walk = fp_rules_walk(w, 256, 2);
	if (walk == FP_WALK_CUT) {
		w->word[FP_W_L4] = FP_L4_HEADER;
		w->unknown[FP_W_L4] = ~(u64)FP_L4_HEADER;
		FP_PUT(w->slow, 1);
	} else if (walk == FP_WALK_MISSING || (walk == FP_WALK_FOUND && w->walk_fragment)) {
		w->word[FP_W_L4] = FP_L4_HEADER | FP_P_FRAGMENT;
	} else if (walk == FP_WALK_BROKEN || w->walk_next == FP_P_NONE) {
		w->word[FP_W_L4] = FP_L4_HEADER | FP_L4_FAILED;
	} else {
		fp_bridge_read_l4(w, w->walk_next, w->walk_at);
	}
	return 0;
}

FP_FUNC int fp_bridge_read_arp(struct fp_rules_work FP_MEM *w FP_ARG)
{
	u32 at = w->network, there = fp_rules_has(w, at, 8), hardware, protocol, first, second;
	u64 word = FP_L4_HEADER, sender, receiver;

	if (there == FP_CUT_PACKET)
		return fp_bridge_cut(w);
	if (there != FP_THERE)
		return 0;
	hardware = fp_rules_u8(w, at + 4);
	protocol = fp_rules_u8(w, at + 5);
	w->word[FP_W_ARP] = (u64)fp_rules_u16(w, at + 6) | (u64)fp_rules_u16(w, at) << 16 |
			    (u64)fp_rules_u16(w, at + 2) << 32 | (u64)hardware << 48;
	/* The packet may end in an address of which less was captured. */
	if (w->captured < w->length &&
	    fp_rules_has(w, at, 8 + 2 * hardware + 2 * protocol) != FP_THERE)
		return fp_bridge_cut(w);
	at += 8;
	first = at + hardware;
	second = first + 4 + hardware;
	if (protocol == 4 && fp_rules_u16(w, at - 6) == FP_TYPE_IPV4 &&
	    fp_rules_has(w, second, 4) == FP_THERE) {
		sender = fp_rules_u32_raw(w, first);
		receiver = fp_rules_u32_raw(w, second);
		w->word[FP_W_ADDR] = sender | receiver << 32;
		word |= FP_L4_ADDRESSES | (sender == receiver ? FP_L4_GRATUITOUS : 0);
	}
	if (hardware == 6 && fp_rules_u16(w, at - 8) == 1) {
		if (fp_rules_has(w, at, 6) == FP_THERE) {
			w->word[FP_W_ADDR1] = fp_rules_mac(w, at);
			word |= FP_L4_SENDER;
		}
		if (fp_rules_has(w, first + protocol, 6) == FP_THERE) {
			w->word[FP_W_ADDR2] = fp_rules_mac(w, first + protocol);
			word |= FP_L4_RECEIVER;
		}
	}
	w->word[FP_W_L4] = word;
	return 0;
}

/* A frame with a length. The match of 802.2 reads behind the end of a frame without its header. */
FP_FUNC int fp_bridge_read_llc(struct fp_rules_work FP_MEM *w FP_ARG)
{
	if (fp_rules_has(w, w->network, FP_LLC_BYTES) != FP_THERE)
		return fp_bridge_cut(w);
	FP_PUT(w->word[FP_W_L4], FP_L4_HEADER);
	return 0;
}

/*
 * The type of a frame behind its tag. The kernel has separate numbers for frames with a length:
 * 802.2, and raw 802.3.
 */
FP_FUNC u32 fp_bridge_inner(struct fp_rules_work FP_MEM *w FP_ARG)
{
	u32 type = fp_rules_u16(w, FP_LINK_BYTES + 2);

	if (type > FP_LAST_LENGTH)
		return type;
	return fp_rules_u16(w, FP_LINK_BYTES + FP_TAG_BYTES) == 0xffff ? 1 : 4;
}

/*
 * A frame of a bridge, from its link-layer header. The kernel has removed a tag, so a tagged frame
 * is of type 802.1Q to ebtables, whichever tag it has, and matches of protocols do not apply to it.
 * It drops a frame whose tag is not followed by two bytes.
 */
FP_FUNC int fp_rules_read_bridge(struct fp_rules_work FP_MEM *w FP_ARG)
{
	u32 type, inner, there;

	if (fp_rules_has(w, 0, FP_LINK_BYTES) != FP_THERE)
		return 0;
	w->word[FP_W_DMAC] = fp_rules_mac(w, 0);
	w->word[FP_W_SMAC] = fp_rules_mac(w, 6);
	type = fp_rules_u16(w, 12);
	inner = type;
	w->network = FP_LINK_BYTES;
	if (type == FP_TYPE_VLAN || type == FP_TYPE_QINQ) {
		there = fp_rules_has(w, FP_LINK_BYTES, FP_TAG_BYTES + 2);
		if (there == FP_SHORT_PACKET)
			return 0;
		type = FP_TYPE_VLAN;
		w->network = FP_LINK_BYTES + FP_TAG_BYTES;
		if (there == FP_CUT_PACKET) {
			w->unknown[FP_W_DMAC] = ~0ull << 48;
			w->unknown[FP_W_MISC] |= ~0ull << 48;
			fp_bridge_cut(w);
		} else {
			inner = fp_bridge_inner(w);
			w->word[FP_W_DMAC] |= (u64)fp_rules_u16(w, FP_LINK_BYTES) << 48;
			FP_PUT(w->word[FP_W_L4], FP_L4_HEADER);
		}
	} else if (type == FP_TYPE_IPV4) {
		fp_bridge_read_ipv4(w);
	} else if (type == FP_TYPE_IPV6) {
		fp_bridge_read_ipv6(w);
	} else if (type == FP_TYPE_ARP || type == FP_TYPE_RARP) {
		fp_bridge_read_arp(w);
	} else if (type <= FP_LAST_LENGTH) {
		fp_bridge_read_llc(w);
	}
	w->word[FP_W_SMAC] |= (u64)type << 48;
	w->word[FP_W_MISC] |= (u64)inner << 48;
	w->counted = w->length - w->network;
	return 1;
}

/*
 * Fills the words that come from the packet's bytes. The caller has set those of interfaces, marks
 * and the connection. Returns 0 if rules do not see the packet: the kernel drops it before.
 */
FP_INLINE int fp_rules_read(struct fp_rules_work FP_MEM *w)
{
	u32 length;
	int there;

	FP_PUT(w->transport, 0);
	FP_PUT(w->fragment, 0);
	FP_PUT(w->network, 0);
	/* That of the packet before, whose headers may have been cut. */
	FP_PUT(w->unknown[FP_W_L4], 0ull);
	if (w->family == FP_FAMILY_BRIDGE)
		return fp_rules_read_bridge(w);
	if (w->family == FP_FAMILY_IPV4)
		there = fp_rules_read_ipv4(w);
	else if (w->family == FP_FAMILY_IPV6)
		there = fp_rules_read_ipv6(w);
	else if (w->family == FP_FAMILY_ARP)
		there = fp_rules_read_arp(w);
	else
		return 0;
	/* A match reads the length that a header of IPv4 has; counters are those of all bytes. */
	length = w->counted;
	w->word[FP_W_META] |= (u64)(length > 0xffff ? 0xffff : length) << FP_META_LENGTH;
	w->counted = w->family == FP_FAMILY_ARP ? 28 : w->length;
	return there;
}

#endif /* FP_RULES_PACKET_H */
