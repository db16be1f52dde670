/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * types.h: the kernel's types that edf.bpf.c uses. The kernel's BTF has their offsets, so only names
 * count. A vmlinux.h of a kernel with BPF qdiscs has all of them, too.
 */
#ifndef TYPES_H
#define TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#define RELOCATED __attribute__((preserve_access_index))
#define KFUNC	  __attribute__((section(".ksyms")))

struct sk_buff {
	unsigned int len;
	__be16 protocol;
} RELOCATED;

struct qdisc_skb_head {
	__u32 qlen;
} RELOCATED;

struct gnet_stats_queue {
	__u32 backlog;
	__u32 drops;
} RELOCATED;

struct Qdisc {
	__u32 limit;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
} RELOCATED;

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

struct nlattr;
struct netlink_ext_ack;

struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
};

struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct __sk_buff {
	__u32 len;
} RELOCATED;

extern void bpf_kfree_skb(struct sk_buff *skb) KFUNC;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) KFUNC;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 expire, __u64 delta_ns) KFUNC;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) KFUNC;
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *into) KFUNC;

#endif /* TYPES_H */
