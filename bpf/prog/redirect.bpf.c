// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * redirect.bpf.c: the way into AF_XDP: an IP packet to the socket of the queue it came by, all else
 * to the stack.
 *
 * What the stack gets: frames that are no IP (ARP), group addresses (a bridge floods them),
 * neighbour discovery, what is for this host by its MAC address, what is cut short. And everything,
 * as long as a queue has no socket: a process that dies takes its sockets along, and traffic flows
 * on.
 *
 * Never drops by itself. Redirected packets that the socket does not take are counted by the kernel
 * (XDP_STATISTICS). Deliberately absent: fragments of headers beyond the first buffer, tunnels.
 */
#include "kernel.h"

#define ETH_BYTES    14
#define MAX_TAGS     2
#define MAX_OWN	     4
#define ETH_IPV4     0x0800
#define ETH_IPV6     0x86dd
#define ETH_VLAN     0x8100
#define ETH_QINQ     0x88a8
#define PROTO_ICMPV6 58
#define ND_FIRST     133 /* router solicitation, RFC 4861 section 4 */
#define ND_LAST	     137 /* redirect */
#define IPV6_BYTES   40
#define MAX_SOCKETS  64

#define be16(x) ((u16)__builtin_bswap16(x))

/* What became of a frame; the order is shared with crates/fairpath-bpf/src/redirect.rs. */
enum way {
	TO_SOCKET,
	NO_SOCKET,
	NOT_IP,
	GROUP,
	OWN,
	NEIGHBOUR,
	SHORT,
	NO_STAMP, /* no room before the frame for the time: passed */
	WAYS,
};

/* MAC addresses of this host, all zero where unused; set before loading. */
const volatile u8 redirect_own[MAX_OWN][6] = {};
/* Whether the time of arrival (ns, monotonic) is to stand before the frame; set before loading. */
const volatile u32 redirect_stamp = 0;

/* Key: receive queue; value: AF_XDP socket. Written by user space, read here. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_SOCKETS);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

/* Key: enum way; value: frames, for each CPU. Written here, read by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WAYS);
	__type(key, u32);
	__type(value, u64);
} ways SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

FP_INLINE void count(u32 way)
{
	u64 *frames = bpf_map_lookup_elem(&ways, &way);

	if (frames)
		(*frames)++;
}

FP_INLINE int is_own(const u8 *mac)
{
	u32 i;

#pragma unroll
	for (i = 0; i < MAX_OWN; i++) {
		const volatile u8 *own = redirect_own[i];

		if (mac[0] == own[0] && mac[1] == own[1] && mac[2] == own[2] && mac[3] == own[3] &&
		    mac[4] == own[4] && mac[5] == own[5])
			return 1;
	}
	return 0;
}

/* Neighbour discovery that is sent to one host has an address like any other packet. */
FP_INLINE int is_neighbour(const u8 *ip, const u8 *end)
{
	if (ip + IPV6_BYTES + 1 > end || ip[6] != PROTO_ICMPV6)
		return 0;
	return ip[IPV6_BYTES] >= ND_FIRST && ip[IPV6_BYTES] <= ND_LAST;
}

FP_INLINE u32 way_of(const u8 *frame, const u8 *end)
{
	const u8 *at = frame + ETH_BYTES;
	u16 ethertype;
	u32 i;

	if (at > end)
		return SHORT;
	if (frame[0] & 1)
		return GROUP;
	if (is_own(frame))
		return OWN;
	ethertype = *(const u16 *)(frame + 12);
#pragma unroll
	for (i = 0; i < MAX_TAGS; i++) {
		if (ethertype != be16(ETH_VLAN) && ethertype != be16(ETH_QINQ))
			break;
		if (at + 4 > end)
			return SHORT;
		ethertype = *(const u16 *)(at + 2);
		at += 4;
	}
	if (ethertype == be16(ETH_IPV6))
		return is_neighbour(at, end) ? NEIGHBOUR : TO_SOCKET;
	return ethertype == be16(ETH_IPV4) ? TO_SOCKET : NOT_IP;
}

/* Writes the time before the frame, where AF_XDP carries it along; all pointers are void then. */
FP_INLINE int stamp(struct xdp_md *ctx)
{
	u64 *before;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(u64)))
		return 0;
	before = (u64 *)(u64)ctx->data_meta;
	if ((u8 *)(before + 1) > (u8 *)(u64)ctx->data)
		return 0;
	*before = bpf_ktime_get_ns();
	return 1;
}

SEC("xdp.frags")
int redirect(struct xdp_md *ctx)
{
	u32 way = way_of((const u8 *)(u64)ctx->data, (const u8 *)(u64)ctx->data_end);
	int verdict;

	if (way == TO_SOCKET && redirect_stamp && !stamp(ctx))
		way = NO_STAMP;
	if (way != TO_SOCKET) {
		count(way);
		return XDP_PASS;
	}
	verdict = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	count(verdict == XDP_PASS ? NO_SOCKET : TO_SOCKET);
	return verdict;
}
