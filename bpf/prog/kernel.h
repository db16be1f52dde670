/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * kernel.h: the few kernel types that the programs use. Field offsets come from the BTF of the
 * running kernel (CO-RE), so only names matter here. linux/bpf.h of distributions is too old.
 */
#ifndef FP_KERNEL_H
#define FP_KERNEL_H

#include "../core/runtime.h"

typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

#include <bpf/bpf_helpers.h>

#define FP_CO_RE __attribute__((preserve_access_index))

struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 tc_index;
	u32 data;
	u32 data_end;
	u32 gso_segs;
	u32 priority;
	u32 wire_len;
	u32 tc_classid;
	u32 queue_mapping;
	u64 tstamp;
	u8 tstamp_type;
} FP_CO_RE;

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
} FP_CO_RE;

enum {
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_ARENA = 33,
};

#define BPF_F_MMAPABLE	 (1u << 10)
#define BPF_RB_NO_WAKEUP 1

/* Verdicts: continue with the next program or the stack. */
#define TCX_NEXT    (-1)
#define TCX_PASS    0 /* to the stack, past all other programs */
#define TCX_DROP    2
#define TC_ACT_OK   0 /* of a filter: the class is selected */
#define XDP_PASS    2
#define XDP_DROP    1
#define XDP_ABORTED 0

#endif /* FP_KERNEL_H */
