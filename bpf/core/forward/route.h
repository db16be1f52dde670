/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward/route.h: where a packet leaves a router, by the kernel's FIB: bpf_fib_lookup() with neighbours
 * resolved and the MTU looked at.
 *
 * Nothing is changed in the packet here; why the stack gets one is the returned enum way. Included
 * by forward.h, in its middle.
 */
#ifndef FP_FORWARD_ROUTE_H
#define FP_FORWARD_ROUTE_H

#define AF_INET	     2
#define AF_INET6     10
#define PROTO_HOPOPT 0

#define be32(x) ((u32)__builtin_bswap32(x))

/* UAPI's, as bpf_fib_lookup() takes it. */
struct bpf_fib_lookup {
	u8 family;
	u8 l4_protocol;
	u16 sport;
	u16 dport;
	u16 tot_len; /* in: bytes of IP; out: the MTU */
	u32 ifindex;
	u32 flowinfo; /* IPv4: tos in the first byte */
	u32 src[4];
	u32 dst[4];
	u32 vlan;
	u8 smac[MAC_BYTES];
	u8 dmac[MAC_BYTES];
};

_Static_assert(sizeof(struct bpf_fib_lookup) == 64, "UAPI");

FP_INLINE u32 ipv4_sum(const u8 *ip)
{
	u32 sum = 0, i;

#pragma unroll
	for (i = 0; i < IPV4_BYTES; i += 2)
		sum += *(const u16 *)(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Fills the question to the FIB from an IPv4 header; TO_SOCKET, or why the stack gets the packet.
 */
FP_INLINE u32 ask_ipv4(struct bpf_fib_lookup *fib, const u8 *ip, const u8 *end, u32 frame_bytes)
{
	u32 source, destination;

	if (ip + IPV4_BYTES > end)
		return SHORT;
	if (ip[0] != 0x45)
		return OPTIONS;
	if (ip[8] <= 1)
		return TTL;
	/* RFC 1812 section 5.3.7: this network, loopback, class D and E. */
	source = ip[12];
	destination = ip[16];
	if (!source || source == 127 || source >= 224 || !destination || destination == 127 ||
	    destination >= 224 || ipv4_sum(ip) != 0xffff)
		return STRANGE;
	fib->tot_len = be16(*(const u16 *)(ip + 2));
	if (fib->tot_len > frame_bytes)
		return SHORT;
	fib->family = AF_INET;
	fib->l4_protocol = ip[9];
	fib->flowinfo = ip[1] & ~3u;
	fib->src[0] = *(const u32 *)(ip + 12);
	fib->dst[0] = *(const u32 *)(ip + 16);
	return TO_SOCKET;
}

/* Likewise IPv6. */
FP_INLINE u32 ask_ipv6(struct bpf_fib_lookup *fib, const u8 *ip, const u8 *end, u32 frame_bytes)
{
	u32 i;

	if (ip + IPV6_BYTES > end)
		return SHORT;
	if (ip[0] >> 4 != 6)
		return STRANGE;
	if (ip[6] == PROTO_HOPOPT)
		return OPTIONS;
	if (ip[7] <= 1)
		return TTL;
	/* RFC 4291 sections 2.5.2, 2.5.3, 2.5.6 and 2.7: unspecified, loopback, link-local, groups.
	 */
	if (ip[8] == 0xff || ip[24] == 0xff || (ip[8] == 0xfe && ip[9] >> 6 == 2) ||
	    (ip[24] == 0xfe && ip[25] >> 6 == 2))
		return STRANGE;
#pragma unroll
	for (i = 0; i < 4; i++) {
		fib->src[i] = *(const u32 *)(ip + 8 + 4 * i);
		fib->dst[i] = *(const u32 *)(ip + 24 + 4 * i);
	}
	if (!(fib->src[0] | fib->src[1] | fib->src[2]) && (fib->src[3] & 0xffffff) == 0 &&
	    fib->src[3] >> 24 <= 1)
		return STRANGE;
	fib->tot_len = be16(*(const u16 *)(ip + 4)) + IPV6_BYTES;
	if (fib->tot_len > frame_bytes)
		return SHORT;
	fib->family = AF_INET6;
	fib->l4_protocol = ip[6];
	fib->flowinfo = *(const u32 *)ip & be32(0x0fffffff);
	return TO_SOCKET;
}

/* What the FIB's answer means; by its enum BPF_FIB_LKUP_RET_*. */
FP_INLINE u32 way_of_answer(long answer)
{
	switch (answer) {
	case 0:
		return TO_SOCKET;
	case 4:
		return LOCAL;
	case 5:
		return NOT_FORWARDING;
	case 6:
		return TUNNEL;
	case 7:
		return NO_NEIGHBOUR;
	case 8:
		return TOO_BIG;
	default: /* 1 to 3, no source address, and errors */
		return UNREACHABLE;
	}
}

/* Where a packet at `plan` leaves, by the FIB; the next hop's MAC addresses go to w. */
FP_FUNC u32 fp_route(struct xdp_md *ctx, struct fp_work FP_MEM *w FP_ARG, u32 plan)
{
	struct fp_forward *f = the_forwarding();
	struct bpf_fib_lookup fib = {};
	const u8 *ip = (const u8 *)(u64)ctx->data + IP_OF(plan),
		 *end = (const u8 *)(u64)ctx->data_end;
	u32 bytes = bpf_xdp_get_buff_len(ctx) - IP_OF(plan), way, out, i;

	if (!f || ip + 1 > end)
		return SHORT;
	way = ip[0] >> 4 == 4 ? ask_ipv4(&fib, ip, end, bytes) : ask_ipv6(&fib, ip, end, bytes);
	if (way != TO_SOCKET)
		return way;
	fib.ifindex = f->exit[IN_OF(plan)].route;
	way = way_of_answer(bpf_fib_lookup(ctx, &fib, sizeof(fib), 0));
	if (way != TO_SOCKET)
		return way;
	if (fib.ifindex == f->exit[0].route)
		out = 0;
	else if (fib.ifindex == f->exit[1].route)
		out = 1;
	else
		return OTHER_EXIT;
#pragma unroll
	for (i = 0; i < MAC_BYTES / 2; i++) {
		FP_PUT(going_of(w)->macs[i], *(u16 *)(fib.dmac + 2 * i));
		FP_PUT(going_of(w)->macs[MAC_BYTES / 2 + i], *(u16 *)(fib.smac + 2 * i));
	}
	return PLAN(TO_SOCKET, 0, out, 0);
}

/* The hop count, one less; the header is behind `ip`. */
FP_INLINE void one_hop(u8 *ip)
{
	if (ip[0] >> 4 == 4) {
		u16 *checksum = (u16 *)(ip + 10);
		u32 sum = *checksum + be16(0x0100);

		*checksum = (u16)(sum + (sum >= 0xffff));
		ip[8]--;
	} else {
		ip[7]--;
	}
}

#endif /* FP_FORWARD_ROUTE_H */
