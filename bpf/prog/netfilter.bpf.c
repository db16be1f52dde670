// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * netfilter.bpf.c: BPF programs at the netfilter hooks of the reader's network namespace. Kernels
 * without nfnetlink_hook list them nowhere else. Links by their ids need CAP_SYS_ADMIN, but an
 * iterator needs CAP_BPF and CAP_PERFMON, which the daemon keeps.
 */
#include "iter.h"

#include <bpf/bpf_core_read.h>

/* As in linux/bpf.h. */
enum bpf_link_type {
	BPF_LINK_TYPE_NETFILTER = 10,
};

struct net;

struct nsproxy {
	struct net *net_ns;
} FP_CO_RE;

struct task_struct {
	struct nsproxy *nsproxy;
} FP_CO_RE;

struct bpf_link {
	enum bpf_link_type type;
	struct bpf_prog *prog;
} FP_CO_RE;

struct nf_hook_ops {
	u8 pf;
	u32 hooknum;
} FP_CO_RE;

/* Absent without CONFIG_NETFILTER_BPF_LINK. */
struct bpf_nf_link {
	struct nf_hook_ops hook_ops;
	struct net *net;
	u32 dead;
} FP_CO_RE;

struct bpf_iter__bpf_link {
	struct bpf_iter_meta *meta;
	struct bpf_link *link;
};

/* Read by crates/edge/bpf/src/netfilter.rs. */
struct hooked_program {
	u32 id;
	char name[NAME_BYTES];
	u32 family; /* NFPROTO_IPV4, NFPROTO_IPV6 */
	u32 hook;   /* NF_INET_PRE_ROUTING and so on */
};

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("iter/bpf_link")
int netfilter_programs(struct bpf_iter__bpf_link *ctx)
{
	struct task_struct *reader = (struct task_struct *)bpf_get_current_task();
	struct bpf_link *link = ctx->link;
	struct bpf_nf_link *hooked = (struct bpf_nf_link *)link;
	struct hooked_program entry = {};

	/* The last call has no link. */
	if (!link || link->type != BPF_LINK_TYPE_NETFILTER ||
	    !bpf_core_type_exists(struct bpf_nf_link))
		return 0;
	if (BPF_CORE_READ(hooked, net) != BPF_CORE_READ(reader, nsproxy, net_ns) ||
	    BPF_CORE_READ(hooked, dead))
		return 0;
	entry.id = BPF_CORE_READ(link, prog, aux, id);
	BPF_CORE_READ_STR_INTO(&entry.name, link, prog, aux, name);
	entry.family = BPF_CORE_READ(hooked, hook_ops.pf);
	entry.hook = BPF_CORE_READ(hooked, hook_ops.hooknum);
	bpf_seq_write(ctx->meta->seq, &entry, sizeof(entry));
	return 0;
}
