/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward/route.h: the egress of a packet in a router. The hook queries the FIB.
 *
 *   fp_fib_request()  IP header -> query, or the reason to pass the packet to the stack
 *   (the hook)  query -> result: bpf_fib_lookup(), neighbours resolved, MTU checked
 *   fp_fib_result()  result -> egress and MAC addresses, or the reason to pass it to the stack
 *   fp_fib_reverse()  result -> query for the route back to the sender
 *   (the hook)  query -> result, without neighbours
 *   fp_fib_sender()  result -> the same egress, or the reason to pass the packet to the stack
 *   fp_fib_combine()  all, and the earlier decision -> decision
 *
 * The packet is not changed.
 */
#ifndef FP_FORWARD_ROUTE_H
#define FP_FORWARD_ROUTE_H

#include "link.h"

#define FP_AF_INET  2
#define FP_AF_INET6 10

/* The kernel's BPF_FIB_LOOKUP_SKIP_NEIGH, of the query for the route back. */
#define FP_FIB_SKIP_NEIGHBOUR 4

/* The kernel's enum BPF_FIB_LKUP_RET_*, as far as needed. */
enum fp_fib_answer {
	FP_FIB_SUCCESS = 0,
	FP_FIB_NOT_FORWARDED = 4,
	FP_FIB_FORWARDING_DISABLED = 5,
	FP_FIB_UNSUPPORTED_TUNNEL = 6,
	FP_FIB_NO_NEIGHBOUR = 7,
	FP_FIB_FRAGMENTATION_NEEDED = 8,
};

/* Input of fp_forward_change() from fp_fib_result(). */
struct fp_next_hop {
	u16 macs[FP_MAC_BYTES]; /* destination and source */
	u32 zero;
};

FP_INLINE u32 fp_ipv4_sum(const u8 *ip)
{
	u32 sum = 0, i;

	FP_UNROLL
	for (i = 0; i < FP_IPV4_BYTES; i += 2)
		sum += fp_packet16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

FP_INLINE u32 fp_fib_request_ipv4(struct fp_fib *fib, const u8 *ip, const u8 *end, u32 bytes)
{
	u32 source, destination;

	if (ip + FP_IPV4_BYTES > end)
		return FP_GO_SHORT;
	if (ip[0] != 0x45)
		return FP_GO_OPTIONS;
	if (ip[8] <= 1)
		return FP_GO_TTL;
	/* RFC 1812 section 5.3.7: this network, loopback, class D and E. */
	source = ip[12];
	destination = ip[16];
	if (!source || source == 127 || source >= 224 || !destination || destination == 127 ||
	    destination >= 224 || fp_ipv4_sum(ip) != 0xffff)
		return FP_GO_NOT_FORWARDABLE;
	fib->tot_len = fp_be16(fp_packet16(ip + 2));
	if (fib->tot_len > bytes)
		return FP_GO_SHORT;
	fib->family = FP_AF_INET;
	fib->l4_protocol = ip[9];
	fib->flowinfo = ip[1] & ~3u;
	fib->src[0] = fp_packet32(ip + 12);
	fib->dst[0] = fp_packet32(ip + 16);
	return FP_GO_TO_SOCKET;
}

FP_INLINE u32 fp_fib_request_ipv6(struct fp_fib *fib, const u8 *ip, const u8 *end, u32 bytes)
{
	u32 i;

	if (ip + FP_IPV6_BYTES > end)
		return FP_GO_SHORT;
	if (ip[0] >> 4 != 6)
		return FP_GO_NOT_FORWARDABLE;
	if (ip[6] == FP_PROTO_HOPOPT)
		return FP_GO_OPTIONS;
	if (ip[7] <= 1)
		return FP_GO_TTL;
	/* RFC 4291 sections 2.5.2, 2.5.3, 2.5.6, 2.7: unspecified, loopback, link-local, groups. */
	if (ip[8] == 0xff || ip[24] == 0xff || (ip[8] == 0xfe && ip[9] >> 6 == 2) ||
	    (ip[24] == 0xfe && ip[25] >> 6 == 2))
		return FP_GO_NOT_FORWARDABLE;
	FP_UNROLL
	for (i = 0; i < 4; i++) {
		fib->src[i] = fp_packet32(ip + 8 + 4 * i);
		fib->dst[i] = fp_packet32(ip + 24 + 4 * i);
	}
	if (!(fib->src[0] | fib->src[1] | fib->src[2]) && (fib->src[3] & 0xffffff) == 0 &&
	    fib->src[3] >> 24 <= 1)
		return FP_GO_NOT_FORWARDABLE;
	fib->tot_len = fp_be16(fp_packet16(ip + 4)) + FP_IPV6_BYTES;
	if (fib->tot_len > bytes)
		return FP_GO_SHORT;
	fib->family = FP_AF_INET6;
	fib->l4_protocol = ip[6];
	fib->flowinfo = fp_packet32(ip) & fp_be32(0x0fffffff);
	return FP_GO_TO_SOCKET;
}

/*
 * Fills a zeroed query from the IP header at `ip`, with `bytes` from there on. Returns
 * FP_GO_TO_SOCKET if the FIB is to be queried for the ingress interface.
 */
FP_INLINE u32 fp_fib_request(struct fp_fib *fib, const u8 *ip, const u8 *end, u32 bytes)
{
	if (ip + 1 > end)
		return FP_GO_SHORT;
	return ip[0] >> 4 == 4 ? fp_fib_request_ipv4(fib, ip, end, bytes)
			       : fp_fib_request_ipv6(fib, ip, end, bytes);
}

FP_INLINE u32 fp_fib_outcome(long answer)
{
	switch (answer) {
	case FP_FIB_SUCCESS:
		return FP_GO_TO_SOCKET;
	case FP_FIB_NOT_FORWARDED:
		return FP_GO_LOCAL;
	case FP_FIB_FORWARDING_DISABLED:
		return FP_GO_NOT_FORWARDING;
	case FP_FIB_UNSUPPORTED_TUNNEL:
		return FP_GO_TUNNEL;
	case FP_FIB_NO_NEIGHBOUR:
		return FP_GO_NO_NEIGHBOUR;
	case FP_FIB_FRAGMENTATION_NEEDED:
		return FP_GO_TOO_BIG;
	default: /* 1 to 3, no source address, and errors */
		return FP_GO_UNREACHABLE;
	}
}

/* Outcome and egress from the result of the FIB, for fp_fib_combine(). */
FP_INLINE u32 fp_fib_result(const struct fp_forward *f, long answer, const struct fp_fib *fib,
			    struct fp_next_hop FP_MEM *next)
{
	u32 outcome = fp_fib_outcome(answer), out, i;

	if (outcome != FP_GO_TO_SOCKET)
		return outcome;
	if (fib->ifindex == f->exit[0].route)
		out = 0;
	else if (fib->ifindex == f->exit[1].route)
		out = 1;
	else
		return FP_GO_OTHER_EXIT;
	FP_UNROLL
	for (i = 0; i < FP_MAC_BYTES / 2; i++) {
		FP_PUT(next->macs[i], fp_packet16(fib->dmac + 2 * i));
		FP_PUT(next->macs[FP_MAC_BYTES / 2 + i], fp_packet16(fib->smac + 2 * i));
	}
	return FP_GO(FP_GO_TO_SOCKET, 0, out, 0);
}

/*
 * Fills a zeroed query for the route back to the sender of the packet at `ip`, whose egress is
 * `routed`. Returns 0 if the kernel has no such check: it has none of IPv6.
 *
 * The kernel looks up the sender as if the answer arrived by the egress interface
 * (fib_validate_source() of Linux; RFC 3704).
 */
FP_INLINE int fp_fib_reverse(const struct fp_forward *f, u32 routed, struct fp_fib *fib,
			     const u8 *ip, const u8 *end)
{
	if (FP_GO_OUTCOME(routed) != FP_GO_TO_SOCKET || ip + FP_IPV4_BYTES > end || ip[0] != 0x45)
		return 0;
	fib->family = FP_AF_INET;
	fib->flowinfo = ip[1] & ~3u;
	fib->src[0] = fp_packet32(ip + 16);
	fib->dst[0] = fp_packet32(ip + 12);
	fib->ifindex = f->exit[FP_GO_OUT(routed)].route;
	return 1;
}

/*
 * The egress `routed` of a packet that entered by `in`, if the route back proves its sender as the
 * kernel requires. The stack decides otherwise: it also knows several next hops and accept_local.
 */
FP_INLINE u32 fp_fib_sender(const struct fp_forward *f, u32 in, u32 routed, long answer,
			    const struct fp_fib *fib)
{
	const struct fp_exit *e = &f->exit[in];

	if (answer != FP_FIB_SUCCESS)
		return FP_GO_SENDER;
	if (e->sender == FP_SENDER_STRICT && fib->ifindex != e->route)
		return FP_GO_SENDER;
	return routed;
}

/* Combines the decision so far (`go`) with that of fp_fib_request(), fp_fib_result()
 * or fp_fib_sender(). */
FP_INLINE u32 fp_fib_combine(u32 go, u32 routed)
{
	if (FP_GO_OUTCOME(routed) != FP_GO_TO_SOCKET)
		return FP_GO(FP_GO_OUTCOME(routed), FP_GO_IN(go), 0, 0);
	return FP_GO(FP_GO_TO_SOCKET, FP_GO_IN(go), FP_GO_OUT(routed), FP_GO_IP(go));
}

#endif /* FP_FORWARD_ROUTE_H */
