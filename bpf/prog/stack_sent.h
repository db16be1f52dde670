/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * stack_sent.h: what the stack itself sends by the exits, for a scheduler that charges it to the
 * rate.
 *
 * AF_XDP's own frames do not pass tcx egress, so all that does is the stack's: this host's, and
 * what could not be forwarded by AF_XDP. Never for interfaces that are no exits.
 */
#ifndef FP_STACK_SENT_H
#define FP_STACK_SENT_H

#include "forward.h"

/* What the stack itself sent: bytes of Ethernet frames without FCS, headers of all segments. */
struct fp_stack_sent {
	u64 packets;
	u64 bytes;
};

/* Key: exit. Written by the tcx egress programs, mapped by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FP_EXITS);
	__type(key, u32);
	__type(value, struct fp_stack_sent);
} stack_sent SEC(".maps");

/* A packet that the stack sends by an exit. */
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
