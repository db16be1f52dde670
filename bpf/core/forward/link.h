/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward/link.h: which frames may bypass the stack, by their link header.
 *
 * The stack gets frames that are not IP (ARP), group addresses (a bridge floods them), neighbour
 * discovery, frames to a MAC address of this host, and truncated frames. Only the first buffer of a
 * frame is read, from `frame` to `end`, and nothing is changed here.
 */
#ifndef FP_FORWARD_LINK_H
#define FP_FORWARD_LINK_H

#include "../parse/numbers.h"
#include "abi.h"

#define FP_ETH_BYTES  14
#define FP_TAG_BYTES  4
#define FP_GO_TAGS    2 /* maximum of parsed tags */
#define FP_VLAN_MASK  0x0fff
#define FP_ND_FIRST   133 /* router solicitation, RFC 4861 section 4 */
#define FP_ND_LAST    137 /* redirect */
#define FP_IPV4_BYTES 20
#define FP_IPV6_BYTES 40

/* The parsed link header. */
struct fp_link_info {
	u32 ip;	  /* position of the IP header, at most FP_ETH_BYTES + FP_GO_TAGS * FP_TAG_BYTES */
	u16 vlan; /* the outermost tag's identifier, 0 none */
	u16 ethertype;
};

FP_INLINE int fp_same_mac(const u8 *a, const volatile u8 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] &&
	       a[5] == b[5];
}

/* True if `mac` is one of FP_MAX_OWN addresses that are `stride` bytes apart. */
FP_INLINE int fp_is_own(const u8 *mac, const volatile u8 *own, u32 stride)
{
	u32 i;

	FP_UNROLL
	for (i = 0; i < FP_MAX_OWN; i++) {
		if (fp_same_mac(mac, own + i * stride))
			return 1;
	}
	return 0;
}

/* Unicast neighbour discovery has the address of a normal packet, so its type is checked. */
FP_INLINE int fp_is_neighbour(const u8 *ip, const u8 *end)
{
	if (ip + FP_IPV6_BYTES + 1 > end || ip[6] != FP_PROTO_ICMPV6)
		return 0;
	return ip[FP_IPV6_BYTES] >= FP_ND_FIRST && ip[FP_IPV6_BYTES] <= FP_ND_LAST;
}

/* Returns FP_GO_TO_SOCKET for a unicast IP packet, by its link header. */
FP_INLINE u32 fp_check_link(const u8 *frame, const u8 *end, struct fp_link_info *g)
{
	const u8 *at = frame + FP_ETH_BYTES;
	u32 i;

	g->ip = FP_ETH_BYTES;
	g->vlan = 0;
	if (at > end)
		return FP_GO_SHORT;
	if (frame[0] & 1)
		return FP_GO_GROUP;
	g->ethertype = fp_packet16(frame + 12);
	FP_UNROLL
	for (i = 0; i < FP_GO_TAGS; i++) {
		if (g->ethertype != fp_be16(FP_ETH_VLAN) && g->ethertype != fp_be16(FP_ETH_QINQ))
			break;
		if (at + FP_TAG_BYTES > end)
			return FP_GO_SHORT;
		if (i == 0)
			g->vlan = fp_be16(fp_packet16(at)) & FP_VLAN_MASK;
		g->ethertype = fp_packet16(at + 2);
		at += FP_TAG_BYTES;
		g->ip += FP_TAG_BYTES;
	}
	if (g->ethertype == fp_be16(FP_ETH_IPV6))
		return fp_is_neighbour(at, end) ? FP_GO_NEIGHBOUR : FP_GO_TO_SOCKET;
	return g->ethertype == fp_be16(FP_ETH_IPV4) ? FP_GO_TO_SOCKET : FP_GO_NOT_IP;
}

/* For a frame to AF_XDP without a plan. `own` is as for fp_is_own(), 6 bytes apart. */
FP_INLINE u32 fp_redirect_outcome(const u8 *frame, const u8 *end, const volatile u8 *own)
{
	struct fp_link_info g;
	u32 outcome = fp_check_link(frame, end, &g);

	if (outcome != FP_GO_SHORT && outcome != FP_GO_GROUP && frame + FP_MAC_BYTES <= end &&
	    fp_is_own(frame, own, FP_MAC_BYTES))
		return FP_GO_OWN;
	return outcome;
}

#endif /* FP_FORWARD_LINK_H */
