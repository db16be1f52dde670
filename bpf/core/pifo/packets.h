/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * packets.h: packets that a BPF qdisc owns, by the numbers of items.
 *
 * A queue has numbers, and an array of kptrs has the packet of each. Only BPF qdiscs own packets on
 * stock kernels. In tc and XDP, an item's number stands for an entry of the program's own table.
 *
 *   FP_PACKETS(waiting, 1000);              items 1 to 1000
 *   old = waiting_put(item, skb);           owns skb now; `old` is 0, or must be dropped
 *   skb = waiting_take(item);               owned by the caller; 0 if there is none
 *
 * The verifier refuses programs that lose what these return. Needs <bpf/bpf_helpers.h>, and the type
 * `struct sk_buff` of <vmlinux.h> or as declared by the program.
 */
#ifndef FP_PACKETS_H
#define FP_PACKETS_H

#include "../runtime.h"

#define FP_PACKETS(name, most)                                                                     \
	struct name##_slot {                                                                       \
		struct sk_buff __attribute__((btf_type_tag("kptr"))) * skb;                        \
	};                                                                                         \
	struct {                                                                                   \
		__uint(type, 2); /* BPF_MAP_TYPE_ARRAY */                                          \
		__uint(max_entries, (most) + 1);                                                   \
		__type(key, u32);                                                                  \
		__type(value, struct name##_slot);                                                 \
	} name SEC(".maps");                                                                       \
	FP_INLINE struct sk_buff *name##_put(u32 item, struct sk_buff *skb)                        \
	{                                                                                          \
		struct name##_slot *slot = bpf_map_lookup_elem(&name, &item);                      \
                                                                                                   \
		return slot ? bpf_kptr_xchg(&slot->skb, skb) : skb;                                \
	}                                                                                          \
	FP_INLINE struct sk_buff *name##_take(u32 item)                                            \
	{                                                                                          \
		struct name##_slot *slot = bpf_map_lookup_elem(&name, &item);                      \
                                                                                                   \
		return slot ? bpf_kptr_xchg(&slot->skb, 0) : 0;                                    \
	}                                                                                          \
	struct name##_slot

#endif /* FP_PACKETS_H */
