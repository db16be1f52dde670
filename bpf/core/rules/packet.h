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
#define FP_THERE 0
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
FP_FUNC int fp_rules_read_l4(struct fp_rules_work FP_MEM *w FP_ARG, u32 protocol)
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

FP_FUNC int fp_rules_read_ipv4(struct fp_rules_work FP_MEM *w FP_ARG)
{
	u32 total, header, fragment;

	if (fp_rules_has(w, 0, 20) != FP_THERE)
		return 0;
	header = (fp_rules_u8(w, 0) & 15) * 4;
	total = fp_rules_u16(w, 2);
	/* IP trims the frame before netfilter sees it. */
	if (total >= header && total < w->length)
		w->length = total;
	w->word[FP_W_ADDR] = fp_load64_raw(w->head + 12);
	fragment = fp_rules_u16(w, 6) & 0x1fff;
	w->fragment = fragment;
	w->transport = header;
	w->word[FP_W_META] |= (u64)fp_rules_u8(w, 1) << FP_META_TOS |
			      (u64)fp_rules_u8(w, 8) << FP_META_TTL;
	fp_rules_read_l4(w, fp_rules_u8(w, 9));
	return 1;
}

FP_INLINE int fp_rules_is_extension(u32 next)
{
	return next == FP_P_HOPOPTS || next == FP_P_ROUTING || next == FP_P_FRAGMENT ||
	       next == FP_P_AH || next == FP_P_NONE || next == FP_P_DSTOPTS;
}

/* Headers of a chain that is read: more than fit in FP_RULES_HEAD. */
#define FP_RULES_EXTENSIONS 64

/* The end of a walk over extension headers. */
#define FP_WALK_FOUND	0
#define FP_WALK_MISSING 1 /* no such header */
#define FP_WALK_BROKEN	2 /* the packet ends in a header, or bytes are missing */
#define FP_WALK_CUT	3

/*
 * Walks to header `target`, or with 256 to the first one that is no extension, as ipv6_find_hdr().
 * Sets w->transport, w->fragment and w->at (the protocol) of what was found.
 */
FP_FUNC u32 fp_rules_walk(struct fp_rules_work FP_MEM *w FP_ARG, u32 target)
{
	volatile u32 FP_MEM *at = &w->walk_at, *next = &w->walk_next;
	u32 i, there, bytes, offset;

	*at = 40;
	*next = fp_rules_u8(w, 6);
	w->walk_fragment = 0;
	fp_loop(i, FP_RULES_EXTENSIONS) {
		int found = *next == target;

		if (!fp_rules_is_extension(*next) || *next == FP_P_NONE) {
			if (target == 256 || found)
				return FP_WALK_FOUND;
			return FP_WALK_MISSING;
		}
		there = fp_rules_has(w, *at, 2);
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
	payload = fp_rules_u16(w, 4);
	if (payload + 40 < w->length && (payload || fp_rules_u8(w, 6) != FP_P_HOPOPTS))
		w->length = payload + 40;
	w->word[FP_W_ADDR] = fp_load64_raw(w->head + 8);
	w->word[FP_W_ADDR1] = fp_load64_raw(w->head + 16);
	w->word[FP_W_ADDR2] = fp_load64_raw(w->head + 24);
	w->word[FP_W_ADDR3] = fp_load64_raw(w->head + 32);
	w->word[FP_W_META] |= (u64)(fp_rules_u16(w, 0) >> 4 & 0xff) << FP_META_TOS |
			      (u64)fp_rules_u8(w, 7) << FP_META_TTL;
	walk = fp_rules_walk(w, 256);
	if (walk != FP_WALK_FOUND) {
		w->word[FP_W_L4] = FP_L4_FAILED;
		w->slow = 1;
		if (walk == FP_WALK_CUT)
			w->unknown[FP_W_L4] = ~0ull;
		return 1;
	}
	w->transport = w->walk_at;
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
	w->word[FP_W_ARP] = (u64)fp_rules_u16(w, 6) | (u64)fp_rules_u16(w, 0) << 16 |
			    (u64)fp_rules_u16(w, 2) << 32 | (u64)fp_rules_u8(w, 4) << 48;
	sender = fp_load32_raw(w->head + 14);
	receiver = fp_load32_raw(w->head + 24);
	w->word[FP_W_ADDR] = sender | receiver << 32;
	/* The addresses of the payload take the place of those of the frame. */
	w->word[FP_W_SMAC] = fp_load32_raw(w->head + 8) |
			     (u64)(fp_load32_raw(w->head + 10) >> 16) << 32;
	w->word[FP_W_DMAC] = fp_load32_raw(w->head + 18) |
			     (u64)(fp_load32_raw(w->head + 20) >> 16) << 32;
	return 1;
}

/*
 * Fills the words that come from the packet's bytes. The caller has set those of interfaces, marks
 * and the connection. Returns 0 if rules do not see the packet: the kernel drops it before.
 */
FP_INLINE int fp_rules_read(struct fp_rules_work FP_MEM *w)
{
	int there;

	w->transport = 0;
	w->fragment = 0;
	if (w->family == FP_FAMILY_IPV4)
		there = fp_rules_read_ipv4(w);
	else if (w->family == FP_FAMILY_IPV6)
		there = fp_rules_read_ipv6(w);
	else if (w->family == FP_FAMILY_ARP)
		there = fp_rules_read_arp(w);
	else
		return 0;
	w->word[FP_W_META] |= (u64)(w->length > 0xffff ? 0xffff : w->length) << FP_META_LENGTH;
	return there;
}

#endif /* FP_RULES_PACKET_H */
