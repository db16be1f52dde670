// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * empty.bpf.c: programs without instructions. Their run time in the kernel's statistics is the cost
 * of a call and of the statistics. The monitor's cost is the rest.
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

/* A program after these at tcx receives no packet (tests). */
SEC("tcx/ingress")
int pass_ingress(struct __sk_buff *skb)
{
	return TCX_PASS;
}

SEC("tcx/egress")
int pass_egress(struct __sk_buff *skb)
{
	return TCX_PASS;
}

SEC("xdp.frags")
int empty_xdp(struct xdp_md *ctx)
{
	return XDP_PASS;
}
