// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * empty.bpf.c: programs that do nothing. What the kernel's statistics report for one is the cost
 * of being called and of the statistics themselves; the monitor's cost is what is above it.
 */
#include "kernel.h"

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("tcx/ingress")
int empty_ingress(struct __sk_buff *skb)
{
	return TCX_NEXT;
}

SEC("tcx/egress")
int empty_egress(struct __sk_buff *skb)
{
	return TCX_NEXT;
}

SEC("xdp.frags")
int empty_xdp(struct xdp_md *ctx)
{
	return XDP_PASS;
}
