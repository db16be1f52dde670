/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules_path.h: the MTU of a packet's path, as TCPMSS --clamp-mss-to-pmtu reads it: the smaller one of
 * the packet's route and of the route back to its source.
 *
 *   route       its own structure, with an MTU of the path that ICMP errors reported, metrics, device
 *   route back  bpf_fib_lookup(), which also reads reported MTUs, but of metrics the locked ones only
 *
 * So rules are refused while a route has another MTU that is not locked: crates/router/fairpath/src/rules/live/paths.rs.
 */
#ifndef FP_RULES_PATH_H
#define FP_RULES_PATH_H

#include "../core/forward/abi.h"

struct net_device___path {
	u32 mtu;
	struct inet6_dev *ip6_ptr;
} FP_CO_RE;

struct inet6_dev {
	struct {
		s32 mtu6;
	} cnf;
} FP_CO_RE;

struct lwtunnel_state {
	u16 flags;
	u16 headroom;
} FP_CO_RE;

struct dst_entry___path {
	unsigned long _metrics;
	unsigned long expires;
	struct lwtunnel_state *lwtstate;
	struct xfrm_state *xfrm;
} FP_CO_RE;

struct rtable___path {
	u8 rt_uses_gateway;
	u32 rt_mtu_locked : 1;
	u32 rt_pmtu : 31;
} FP_CO_RE;

struct net___path {
	struct net_device *loopback_dev;
} FP_CO_RE;

#define METRICS_FLAGS	   3ull
#define LOCKED_MTU	   (1u << 2)
#define TUNNEL_REDIRECTS   5 /* LWTUNNEL_STATE_OUTPUT_REDIRECT, LWTUNNEL_STATE_XMIT_REDIRECT */
#define LARGEST_IPV4	   65535u
#define MINIMUM_IPV6	   1280u
#define OLD_MTU		   576u /* of a gateway behind a path with a locked MTU */
#define LOOPBACK	   1	/* index of lo, the interface of a route for sent packets */
#define FIB_SKIP_NEIGHBOUR (1u << 2)
#define FIB_NOT_FORWARDED  4
#define FIB_NO_FORWARDING  5
#define FIB_FRAG_NEEDED	   8
#define FIB_FAMILY_IPV4	   2
#define FIB_FAMILY_IPV6	   10

/* The MTU of IPv4 or IPv6 at an interface. */
FP_INLINE u32 mtu_of_device(const u8 *device, u32 family)
{
	const u8 *inet6;

	if (family == FP_FAMILY_IPV4)
		return (u32)word_at(device + bpf_core_field_offset(struct net_device___path, mtu));
	inet6 = (const u8 *)word_at(device +
				    bpf_core_field_offset(struct net_device___path, ip6_ptr));
	if (!inet6)
		return MINIMUM_IPV6;
	return (u32)word_at(inet6 + bpf_core_field_offset(struct inet6_dev, cnf.mtu6));
}

/* The MTU without the headers of a tunnel of the route. */
FP_INLINE u32 without_tunnel(const u8 *dst, u32 mtu)
{
	const u8 *tunnel =
		(const u8 *)word_at(dst + bpf_core_field_offset(struct dst_entry___path, lwtstate));
	u32 headroom;

	if (!tunnel || !(word_at(tunnel + bpf_core_field_offset(struct lwtunnel_state, flags)) &
			 TUNNEL_REDIRECTS))
		return mtu;
	headroom = (u16)word_at(tunnel + bpf_core_field_offset(struct lwtunnel_state, headroom));
	return headroom < mtu ? mtu - headroom : mtu;
}

/* The MTU of the packet's route: dst_mtu(). 0: it is not known. */
static __attribute__((noinline)) u32 mtu_of_route(const struct sk_buff *skb, u32 family)
{
	const u8 *dst = (const u8 *)(skb->_skb_refdst & ~1ull);
	const struct rtable___path *route =
		bpf_rdonly_cast(dst, bpf_core_type_id_kernel(struct rtable));
	u64 metrics = word_at(dst + bpf_core_field_offset(struct dst_entry___path, _metrics)) &
		      ~METRICS_FLAGS;
	u64 numbers = word_at((const u8 *)metrics), expires;
	u32 mtu = numbers >> 32, locked = 0;
	const u8 *device;

	/* Routes of IPsec have a metric. */
	if (bpf_core_field_exists(struct dst_entry___path, xfrm) &&
	    word_at(dst + bpf_core_field_offset(struct dst_entry___path, xfrm)))
		return mtu;
	if (family == FP_FAMILY_IPV4) {
		u32 reported = BPF_CORE_READ_BITFIELD(route, rt_pmtu);

		expires = word_at(dst + bpf_core_field_offset(struct dst_entry___path, expires));
		locked =
			BPF_CORE_READ_BITFIELD(route, rt_mtu_locked) || ((u32)numbers & LOCKED_MTU);
		if (reported && (s64)(bpf_jiffies64() - expires) < 0)
			mtu = reported;
	}
	if (!mtu) {
		device = (const u8 *)word_at(dst + bpf_core_field_offset(struct dst_entry, dev));
		mtu = mtu_of_device(device, family);
		if (locked && mtu > OLD_MTU && route->rt_uses_gateway)
			mtu = OLD_MTU;
	}
	if (family == FP_FAMILY_IPV4 && mtu > LARGEST_IPV4)
		mtu = LARGEST_IPV4;
	return without_tunnel(dst, mtu);
}

/* That of the route back, for the source in the scratch. Routes of the own host lead to lo. */
static __attribute__((noinline)) u32 mtu_of_way_back(struct __sk_buff *ctx,
						     const struct sk_buff *skb,
						     struct fp_rules_work FP_MEM *w)
{
	u32 is_ipv6 = w->family != FP_FAMILY_IPV4, i;
	u64 space = space_of((const u8 *)skb->dev);
	struct fp_fib fib = {};
	long answer;

	fib.family = is_ipv6 ? FIB_FAMILY_IPV6 : FIB_FAMILY_IPV4;
	/* Longer than each MTU of interest: the answer is the MTU. */
	fib.tot_len = 0xffff;
	fib.ifindex = LOOPBACK;
	for (i = 0; i < 4; i++)
		if (is_ipv6)
			fib.dst[i] = *(volatile u32 FP_MEM *)(w->head + 8 + 4 * i);
	if (!is_ipv6)
		fib.dst[0] = *(volatile u32 FP_MEM *)(w->head + 12);
	answer =
		bpf_fib_lookup(ctx, (struct bpf_fib_lookup *)&fib, sizeof(fib), FIB_SKIP_NEIGHBOUR);
	/* Some hosts forward between certain interfaces, and lo is not one of them. */
	if (answer == FIB_NO_FORWARDING && ctx->ingress_ifindex) {
		fib.tot_len = 0xffff;
		fib.ifindex = ctx->ingress_ifindex;
		answer = bpf_fib_lookup(ctx, (struct bpf_fib_lookup *)&fib, sizeof(fib),
					FIB_SKIP_NEIGHBOUR);
	}
	if (answer == FIB_FRAG_NEEDED)
		return fib.tot_len;
	if (answer != FIB_NOT_FORWARDED && answer != FIB_NO_FORWARDING)
		return ~0u;
	return mtu_of_device(
		(const u8 *)word_at((const u8 *)space +
				    bpf_core_field_offset(struct net___path, loopback_dev)),
		w->family);
}

/* Both, of a packet that was read. 0: not known. */
FP_INLINE u32 mtu_of_path(struct __sk_buff *ctx, const struct sk_buff *skb,
			  struct fp_rules_work FP_MEM *w)
{
	u32 there = mtu_of_route(skb, w->family), back = mtu_of_way_back(ctx, skb, w);

	return there < back ? there : back;
}

#endif /* FP_RULES_PATH_H */
