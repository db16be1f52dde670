/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward/forward.h: whether a frame bypasses the stack, its egress interface, and its changes.
 *
 *   fp_forward_begin()  link header and ingress: changes nothing
 *   fp_forward_bridge()  bridge: the other interface, if its MTU permits
 *   fp_fib_request(), fp_fib_result(), fp_fib_reverse(), fp_fib_sender()  router: route.h
 *   fp_forward_growth()  bytes that the hook adds or removes before the frame
 *   fp_forward_change()  tag, MAC addresses, TTL
 *
 * There are two egress interfaces, towards subscribers and towards the internet. They may be two
 * VLANs of one interface.
 *
 *   bridge  a frame leaves by the other interface, with its tag or with that of the interface
 *   router  the FIB of the kernel selects the interface and the MAC address of the next hop, and
 *           checks the MTU. TTL or hop limit is decremented (RFC 1812 section 5.3.1, RFC 8200
 *           section 3)
 *
 * The stack handles all other cases (TTL exceeded, options, no neighbour, too big, a sender without
 * a route back), counted by reason. Deliberately absent: changes of more than one tag.
 */
#ifndef FP_FORWARD_FORWARD_H
#define FP_FORWARD_FORWARD_H

#include "route.h"

/* True if this frame belongs to the egress interface. */
FP_INLINE int fp_is_of_exit(const struct fp_forward *f, const struct fp_exit *e, u32 ifindex,
			    u32 vlan)
{
	if (e->ifindex != ifindex)
		return 0;
	return e->vlan == vlan || (!e->vlan && f->mode == FP_FORWARD_BRIDGE);
}

/* Returns FP_GO_TO_SOCKET with the other interface if nothing excludes forwarding so far. */
FP_INLINE u32 fp_forward_begin(const struct fp_forward *f, u32 ifindex, const u8 *frame,
			       const u8 *end)
{
	struct fp_link_info g;
	u32 outcome = fp_check_link(frame, end, &g), in = 0, out = 1;
	int router, own;

	if (!f->mode)
		return FP_GO(FP_GO_NO_SOCKET, 0, 0, 0);
	if (outcome == FP_GO_SHORT)
		return FP_GO(FP_GO_SHORT, 0, 0, 0);
	router = f->mode == FP_FORWARD_ROUTER;
	if (!fp_is_of_exit(f, &f->exit[0], ifindex, g.vlan)) {
		if (!fp_is_of_exit(f, &f->exit[1], ifindex, g.vlan))
			return FP_GO(FP_GO_OTHER_VLAN, ifindex != f->exit[0].ifindex, 0, 0);
		in = 1;
		out = 0;
	}
	if (outcome == FP_GO_GROUP || frame + FP_MAC_BYTES > end)
		return FP_GO(outcome, in, 0, 0);
	own = fp_is_own(frame, f->own[0], sizeof(f->own[0]));
	if (router ? outcome == FP_GO_TO_SOCKET && !fp_same_mac(frame, f->exit[in].mac) : own)
		return FP_GO(router ? FP_GO_OTHER_HOST : FP_GO_OWN, in, 0, 0);
	if (outcome != FP_GO_TO_SOCKET)
		return FP_GO(outcome, in, 0, 0);
	return FP_GO(FP_GO_TO_SOCKET, in, out, g.ip);
}

/* The decision for a frame of `bytes` in a bridge. */
FP_INLINE u32 fp_forward_bridge(const struct fp_forward *f, u32 go, u32 bytes)
{
	if (bytes - FP_GO_IP(go) > f->exit[FP_GO_OUT(go)].mtu)
		return FP_GO(FP_GO_TOO_BIG, FP_GO_IN(go), 0, 0);
	return go;
}

/* The growth of a frame in bytes: in router mode, the tag is that of the egress interface. */
FP_INLINE int fp_forward_growth(const struct fp_forward *f, u32 go)
{
	u32 tagged = FP_GO_IP(go) > FP_ETH_BYTES;

	if (f->mode != FP_FORWARD_ROUTER)
		return 0;
	return f->exit[FP_GO_OUT(go)].vlan ? (tagged ? 0 : FP_TAG_BYTES)
					   : (tagged ? -FP_TAG_BYTES : 0);
}

/* The tag of a frame at egress. */
FP_INLINE u16 fp_forward_tag(const struct fp_forward *f, u32 go, u16 arrived_with)
{
	u16 vlan = f->exit[FP_GO_OUT(go)].vlan;

	return vlan || f->mode == FP_FORWARD_ROUTER ? vlan : arrived_with;
}

/* True if fp_forward_change() changes such frames, which the stack cannot use afterwards. */
FP_INLINE int fp_forward_changes(const struct fp_forward *f, u32 go)
{
	return f->mode == FP_FORWARD_ROUTER || f->exit[FP_GO_OUT(go)].vlan;
}

/* Decrements the TTL; the header is at `ip` (RFC 1624, equation 3). */
FP_INLINE void fp_decrement_ttl(u8 *ip)
{
	if (ip[0] >> 4 == 4) {
		u32 sum = fp_packet16(ip + 10) + fp_be16(0x0100);

		fp_set_packet16(ip + 10, (u16)(sum + (sum >= 0xffff)));
		ip[8]--;
	} else {
		ip[7]--;
	}
}

/*
 * Changes a frame after the hook extended or shortened its start by `more` bytes
 * (fp_forward_growth()). Returns 0, or -1 if the frame ends inside its headers; it is then
 * unusable.
 */
FP_INLINE int fp_forward_change(const struct fp_forward *f, u32 go, int more,
				const struct fp_next_hop FP_MEM *next, u8 *frame, const u8 *end)
{
	u32 ip_at = FP_GO_IP(go) + more, i;
	u16 vlan = f->exit[FP_GO_OUT(go)].vlan;

	if (vlan) {
		if (frame + FP_ETH_BYTES + FP_TAG_BYTES > end)
			return -1;
		if (more)
			fp_set_packet32(frame + 12, fp_be16(FP_ETH_VLAN) | (u32)fp_be16(vlan)
										   << 16);
		else
			fp_set_packet16(frame + 14, (fp_packet16(frame + 14) & fp_be16(0xf000)) |
							    fp_be16(vlan));
	}
	if (f->mode != FP_FORWARD_ROUTER)
		return 0;
	if (frame + 12 > end || frame + (ip_at & 31) + 12 > end)
		return -1;
	FP_UNROLL
	for (i = 0; i < FP_MAC_BYTES; i++)
		fp_set_packet16(frame + 2 * i, next->macs[i]);
	fp_decrement_ttl(frame + (ip_at & 31));
	return 0;
}

#endif /* FP_FORWARD_FORWARD_H */
