/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * class/matches.h: what selects a class for an end of a packet, except its address. Each match has
 * a line, fp_key_NAME() and FP_MIX_NAME(). fp_class_of() looks them up in the order of the lines,
 * those of FP_MATCHES_FIRST before prefixes. The kinds of rules, `struct Rules` of fairpath-core
 * and the image are generated from the lines. The words of a match are in
 * crates/model/class/src/criterion.rs.
 *
 * A line has the number of the rule (below 32, never changed), its name, its constant, the end that
 * it matches, a condition for a look-up, the field of Rules, the Rust type of its values, and a
 * description.
 */
#ifndef FP_MATCHES_H
#define FP_MATCHES_H

#include "../work.h"

/* The end that a match applies to. */
#define FP_OF_ANY    0 /* either end */
#define FP_OF_LINK   1 /* the end whose link this hook sees */
#define FP_OF_INSIDE 2 /* the end that is not behind an uplink */

/* clang-format off */
#define FP_MATCHES_FIRST(X)                                                                        \
	X(4, mark, MARK, FP_OF_INSIDE, 1, marks, u32, "Packet mark.")                              \
	X(5, mac, MAC, FP_OF_LINK, 1, macs, [u8; 6], "The endpoint's link-layer address.")
#define FP_MATCHES_LAST(X)                                                                         \
	X(6, vlan, VLAN, FP_OF_LINK, fp_key_vlan(w, sender), vlans, u16, "Outermost VLAN by which the endpoint is reached.") \
	X(7, dscp, DSCP, FP_OF_INSIDE, 1, dscps, u8, "Differentiated services code point, 0 to 63.") \
	X(8, interface, INTERFACE, FP_OF_ANY, 1, interfaces, u32, "Interface by which the endpoint is reached.")
/* clang-format on */
#define FP_MATCHES(X) FP_MATCHES_FIRST(X) FP_MATCHES_LAST(X)

/* True if this hook sees the link towards the end. */
FP_INLINE int fp_link_known(const struct fp_work FP_MEM *w, int sender)
{
	if (w->frame.direction == FP_DIRECTION_UNKNOWN || (w->frame.flags & FP_FRAME_THROUGH))
		return 1;
	return w->frame.direction == (sender ? FP_INGRESS : FP_EGRESS);
}

/* The interface towards an end, 0 unknown. */
FP_INLINE u32 fp_reached_by(const struct fp_work FP_MEM *w, int sender)
{
	if (!sender && (w->frame.flags & FP_FRAME_THROUGH))
		return w->frame.rx_ifindex;
	if (fp_link_known(w, sender))
		return w->frame.ifindex;
	return sender ? w->frame.rx_ifindex : 0;
}

/*
 * fp_key_NAME(): the number to look up. FP_MIX_NAME(): mixes it into the 128 bits (a, b) by which a
 * flow detects that its class must be looked up again.
 */

FP_INLINE u64 fp_key_mark(const struct fp_work FP_MEM *w, int sender)
{
	(void)sender;
	return w->frame.mark;
}
#define FP_MIX_mark(a, b) (a |= (u64)w->frame.mark << 32)

/* The link-layer address, 0 if this hook does not see it. */
FP_INLINE u64 fp_key_mac(const struct fp_work FP_MEM *w, int sender)
{
	u32 at = sender ? 6 : 0;

	if (w->frame.link != FP_LINK_ETHERNET)
		return 0;
	return (u64)fp_load16(w->head + at) << 32 | fp_load32(w->head + at + 2);
}
#define FP_MIX_mac(a, b) (b = fp_key_mac(w, sender))

/* The identifier of the VLAN towards an end, if fp_link_known(). */
FP_INLINE u64 fp_key_vlan(const struct fp_work FP_MEM *w, int sender)
{
	if (!sender && (w->frame.flags & FP_FRAME_THROUGH))
		return w->frame.out_vlan & 0x0fff;
	return w->packet.vlan;
}
#define FP_MIX_vlan(a, b) (b |= fp_key_vlan(w, sender) << 48)

FP_INLINE u64 fp_key_dscp(const struct fp_work FP_MEM *w, int sender)
{
	(void)sender;
	return w->packet.dscp;
}
#define FP_MIX_dscp(a, b) (b ^= (u64)(w->packet.dscp + 1) << 56)

FP_INLINE u64 fp_key_interface(const struct fp_work FP_MEM *w, int sender)
{
	return fp_reached_by(w, sender);
}
#define FP_MIX_interface(a, b) ((void)0) /* interfaces are always included */

#endif /* FP_MATCHES_H */
