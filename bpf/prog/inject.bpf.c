// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * inject.bpf.c: TCP traffic for the bench, from both sides of a router, and where it ends.
 *
 *   inject  test run with live frames: writes a whole header into the recycled frame and sends it
 *           by the link to the router. Even runs are data from the clients, odd ones are ACKs of
 *           data inject_lag packets earlier.
 *   sink  XDP: counts forwarded packets and drops them
 *   sink_skb  tcx: the same, for a receiver without XDP
 *
 * There is no state per flow: its numbers follow from its round, so that the generator does not use
 * the cache of the measured code. TCP checksums are 0, because routers do not check them.
 */
#include "kernel.h"

#define HEADER_BYTES 66		 /* Ethernet 14, IPv4 20, TCP with timestamps 32 */
#define CLIENT_NET   0x0a400001u /* 10.64.0.1 and up */
#define SERVER_NET   0x0a800001u /* 10.128.0.1 and up */
#define CLIENTS	     4096u	 /* addresses; then the next port */
#define SERVERS	     64u
#define FIRST_PORT   1024u
#define SERVER_PORT  443u
#define SERVER_SEQ   0x50000000u
#define FAN_FIRST    16u /* the first byte of the first destination */
#define FAN_HOSTS    16u /* addresses from a destination to the next one */

/* All set before loading. */
const volatile u32 inject_flows = 1;
const volatile u32 inject_lag = 32;	 /* data packets between data and its ACK */
const volatile u32 inject_ip_bytes = 64; /* of a data packet; the frame has 14 more */
const volatile u32 inject_link[2] = {};	 /* ifindex towards the router: clients', servers' */
/* Destinations of data: FAN_FIRST + below [0], below [1], below [2], below [3] * FAN_HOSTS + 1.
 * [0] == 0: the servers above. */
const volatile u32 inject_fan[4] = {};
const volatile u8 inject_from[2][6] = {};
const volatile u8 inject_to[2][6] = {};

/* The next flow and round: data, ACKs. */
struct turn {
	u32 flow;
	u32 round;
};

struct turn turns[2] = {};
u64 injected = 0;
/* By link of arrival: [0] ACKs that reached the clients, [1] data that reached the servers. */
u64 arrived[2] = {};

char _license[] SEC("license") = "Dual MIT/GPL";

struct header {
	u8 to[6];
	u8 from[6];
	u16 ethertype;
	u16 version; /* and service */
	u16 total;
	u32 id_fragment;
	u16 ttl_protocol;
	u16 checksum;
	u32 src;
	u32 dst;
	u16 sport;
	u16 dport;
	u32 seq;
	u32 ack;
	u16 flags; /* and header length */
	u16 window;
	u16 tcp_checksum;
	u16 urgent;
	u32 options; /* NOP, NOP, timestamps */
	u32 tsval;
	u32 tsecr;
} __attribute__((packed));

_Static_assert(sizeof(struct header) == HEADER_BYTES, "as it is on the wire");

#define be16(x) ((u16)__builtin_bswap16(x))
#define be32(x) ((u32)__builtin_bswap32(x))

FP_INLINE void write_ip(struct header *h, u32 total, u32 src, u32 dst)
{
	u32 sum = 0x4500 + total + 0x4000 + 0x4006 + (src >> 16) + (src & 0xffff) + (dst >> 16) +
		  (dst & 0xffff);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	h->version = be16(0x4500);
	h->total = be16(total);
	h->id_fragment = be32(0x4000);
	h->ttl_protocol = be16(0x4006);
	h->checksum = be16((u16)~sum);
	h->src = be32(src);
	h->dst = be32(dst);
}

FP_INLINE void write_link(struct header *h, u32 side)
{
	u32 i;

	for (i = 0; i < 6; i++) {
		h->to[i] = inject_to[side][i];
		h->from[i] = inject_from[side][i];
	}
	h->ethertype = be16(0x0800);
}

FP_INLINE struct turn take_turn(u32 side)
{
	struct turn now = turns[side];

	turns[side].flow = now.flow + 1;
	if (now.flow + 1 >= inject_flows) {
		turns[side].flow = 0;
		turns[side].round = now.round + 1;
	}
	return now;
}

/* Equally likely below each number, and the same for the same packet of each run (splitmix64). */
FP_INLINE u32 fan_destination(u64 packet)
{
	u64 x = packet * 0x9e3779b97f4a7c15ull;
	u32 part[4], i;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	x ^= x >> 31;
	for (i = 0; i < 4; i++)
		part[i] = ((x >> (16 * i) & 0xffff) * inject_fan[i]) >> 16;
	return (FAN_FIRST + part[0]) << 24 | part[1] << 16 | part[2] << 8 |
	       (part[3] * FAN_HOSTS + 1);
}

FP_INLINE void write_data(struct header *h, u32 payload)
{
	struct turn t = take_turn(0);
	u32 client = CLIENT_NET + t.flow % CLIENTS, server = SERVER_NET + t.flow % SERVERS;

	if (inject_fan[0])
		server = fan_destination(injected);
	write_ip(h, payload + 52, client, server);
	h->sport = be16(FIRST_PORT + t.flow / CLIENTS);
	h->dport = be16(SERVER_PORT);
	h->seq = be32(t.flow * 7919 + t.round * payload);
	h->ack = be32(SERVER_SEQ);
	h->tsval = be32(1000 + t.round);
	h->tsecr = be32(500000 + t.round);
}

FP_INLINE void write_ack(struct header *h, u32 payload)
{
	struct turn t = take_turn(1);
	u32 client = CLIENT_NET + t.flow % CLIENTS, server = SERVER_NET + t.flow % SERVERS;

	write_ip(h, 52, server, client);
	h->sport = be16(SERVER_PORT);
	h->dport = be16(FIRST_PORT + t.flow / CLIENTS);
	h->seq = be32(SERVER_SEQ);
	h->ack = be32(t.flow * 7919 + (t.round + 1) * payload);
	h->tsval = be32(500001 + t.round);
	h->tsecr = be32(1000 + t.round);
}

SEC("xdp")
int inject(struct xdp_md *ctx)
{
	struct header *h = (struct header *)(u64)ctx->data;
	u32 payload = inject_ip_bytes - 52, side = inject_fan[0] ? 0 : injected & 1;
	u64 pair = injected >> 1;

	if ((u8 *)h + HEADER_BYTES > (u8 *)(u64)ctx->data_end)
		return XDP_ABORTED;
	injected++;
	if (side && pair < inject_lag)
		return XDP_DROP;
	write_link(h, side);
	if (side)
		write_ack(h, payload);
	else
		write_data(h, payload);
	h->flags = be16(0x8010);
	h->window = be16(0xffff);
	h->tcp_checksum = 0;
	h->urgent = 0;
	h->options = be32(0x0101080a);
	if (side && payload && bpf_xdp_adjust_tail(ctx, -(int)payload))
		return XDP_ABORTED;
	return bpf_redirect(inject_link[side], 0);
}

SEC("xdp.frags")
int sink(struct xdp_md *ctx)
{
	arrived[ctx->ingress_ifindex == inject_link[1]]++;
	return XDP_DROP;
}

SEC("tcx/ingress")
int sink_skb(struct __sk_buff *skb)
{
	arrived[skb->ifindex == inject_link[1]]++;
	return TCX_DROP;
}
