/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * stack_sent.h: traffic of the stack on the egress interfaces, for a scheduler that charges it to
 * the rate.
 *
 * Frames from AF_XDP do not pass tcx egress, so everything that does is from the stack: packets of
 * this host, and packets that AF_XDP could not forward. Not used for other interfaces.
 */
#ifndef FP_STACK_SENT_H
#define FP_STACK_SENT_H

#include "forward.h"

/* Traffic of the stack: bytes of Ethernet frames without FCS, headers of all segments. */
struct fp_stack_sent {
	u64 packets;
	u64 bytes;
};

/* Key: egress. Written by the tcx egress programs, mapped by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FP_EXITS);
	__type(key, u32);
	__type(value, struct fp_stack_sent);
} stack_sent SEC(".maps");

/* Counts a packet that the stack sends on an egress interface. */
FP_INLINE void count_stack(struct __sk_buff *skb)
{
	struct fp_forward *f = the_forwarding();
	u32 segs = skb->gso_segs ? skb->gso_segs : 1, key;
	u32 vlan = skb->vlan_present ? skb->vlan_tci & FP_VLAN_MASK : 0;
	struct fp_stack_sent *sent;
	int one_armed;

	if (!f)
		return;
	one_armed = f->exit[0].ifindex == f->exit[1].ifindex;
	if (f->exit[0].ifindex == skb->ifindex && (!one_armed || f->exit[0].vlan == vlan))
		key = 0;
	else if (f->exit[1].ifindex == skb->ifindex && (!one_armed || f->exit[1].vlan == vlan))
		key = 1;
	else
		return;
	sent = bpf_map_lookup_elem(&stack_sent, &key);
	if (!sent)
		return;
	__sync_fetch_and_add(&sent->packets, segs);
	__sync_fetch_and_add(&sent->bytes,
			     skb->wire_len + (u64)segs * (skb->vlan_present ? FP_TAG_BYTES : 0));
}

#endif /* FP_STACK_SENT_H */
