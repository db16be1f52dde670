/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward/link.h: which frames may go to an AF_XDP socket, for the programs that send them there.
 *
 * To the stack go frames that are no IP (ARP), group addresses (a bridge floods them), neighbour
 * discovery, what is for this host by its MAC address, what is cut short. A frame is looked at in
 * its first buffer only, and nothing here changes it.
 */
#ifndef FP_FORWARD_LINK_H
#define FP_FORWARD_LINK_H

#define ETH_BYTES    14
#define MAC_BYTES    6
#define TAG_BYTES    4
#define MAX_TAGS     2
#define MAX_OWN	     4
#define ETH_IPV4     0x0800
#define ETH_IPV6     0x86dd
#define ETH_VLAN     0x8100
#define ETH_QINQ     0x88a8
#define VLAN_MASK    0x0fff
#define PROTO_ICMPV6 58
#define ND_FIRST     133 /* router solicitation, RFC 4861 section 4 */
#define ND_LAST	     137 /* redirect */
#define IPV4_BYTES   20
#define IPV6_BYTES   40

#define be16(x) ((u16)__builtin_bswap16(x))

/* What became of a frame; the order is shared with crates/edge/bpf/src/redirect.rs. */
enum way {
	TO_SOCKET,
	NO_SOCKET,
	NOT_IP,
	GROUP,
	OWN,
	NEIGHBOUR,
	SHORT,
	NO_ROOM, /* before the frame, for what is to stand there: passed */
	REDIRECT_WAYS,
	/* Of rtt_forward only. */
	OTHER_VLAN = REDIRECT_WAYS, /* its tag is none of the exits' */
	NO_DESK,		    /* the monitor has no work area for this CPU */
	TOO_BIG,
	/* Of its router mode only. */
	OTHER_HOST, /* not sent to the interface's MAC address */
	TTL,
	OPTIONS,	/* IPv4's, or hop-by-hop ones */
	STRANGE,	/* addresses that no router forwards, or a wrong header checksum */
	NO_NEIGHBOUR,	/* the next hop's MAC address is not known yet */
	LOCAL,		/* this host's own, broadcast, no route */
	UNREACHABLE,	/* a route that says so; blackholes */
	NOT_FORWARDING, /* sysctl forwarding is off */
	TUNNEL,		/* the route encapsulates */
	OTHER_EXIT,	/* by an interface that is not one of the exits */
	/* Dropped. */
	LOST, /* the socket went away when the frame was changed already */
	WAYS,
};

/* What a look at the link header found. */
struct glance {
	u32 ip;	  /* where the IP header begins, at most ETH_BYTES + MAX_TAGS * TAG_BYTES */
	u16 vlan; /* the outermost tag's identifier, 0 none */
	u16 ethertype;
};

FP_INLINE int same_mac(const u8 *a, const volatile u8 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] &&
	       a[5] == b[5];
}

/* Neighbour discovery that is sent to one host has an address like any other packet. */
FP_INLINE int is_neighbour(const u8 *ip, const u8 *end)
{
	if (ip + IPV6_BYTES + 1 > end || ip[6] != PROTO_ICMPV6)
		return 0;
	return ip[IPV6_BYTES] >= ND_FIRST && ip[IPV6_BYTES] <= ND_LAST;
}

/* TO_SOCKET: an IP packet to one host, as far as the link header tells. */
FP_INLINE u32 look_at_link(const u8 *frame, const u8 *end, struct glance *g)
{
	const u8 *at = frame + ETH_BYTES;
	u32 i;

	g->ip = ETH_BYTES;
	g->vlan = 0;
	if (at > end)
		return SHORT;
	if (frame[0] & 1)
		return GROUP;
	g->ethertype = *(const u16 *)(frame + 12);
#pragma unroll
	for (i = 0; i < MAX_TAGS; i++) {
		if (g->ethertype != be16(ETH_VLAN) && g->ethertype != be16(ETH_QINQ))
			break;
		if (at + TAG_BYTES > end)
			return SHORT;
		if (i == 0)
			g->vlan = be16(*(const u16 *)at) & VLAN_MASK;
		g->ethertype = *(const u16 *)(at + 2);
		at += TAG_BYTES;
		g->ip += TAG_BYTES;
	}
	if (g->ethertype == be16(ETH_IPV6))
		return is_neighbour(at, end) ? NEIGHBOUR : TO_SOCKET;
	return g->ethertype == be16(ETH_IPV4) ? TO_SOCKET : NOT_IP;
}

#endif /* FP_FORWARD_LINK_H */
