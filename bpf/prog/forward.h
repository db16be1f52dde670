/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward.h: rtt_forward's part besides measuring: whether a frame goes through AF_XDP, by which
 * exit, and what is changed in it for that.
 *
 *   fp_decide()    looks only: link header, socket, route (route.h); all else goes to the stack
 * unchanged note_of() what policies see of the packet, from what the monitor parsed put()     the
 * note before the frame; MAC addresses, TTL, tag in it
 *
 * Two exits, towards subscribers and towards the internet; they may be two VLANs of one interface.
 *   bridge  a frame leaves by the other exit, with its tag, or with the other exit's
 *   router  the kernel's FIB says by which exit, to whose MAC address, and whether its MTU allows
 * it; TTL or hop limit goes down by one (RFC 1812 section 5.3.1, RFC 8200 section 3)
 *
 * What a router must answer or think about (TTL over, options, no neighbour, too big) is the
 * stack's, counted by reason. Netfilter sees nothing of what goes through. Deliberately absent:
 * reverse path filtering, and more than one tag that is changed.
 */
#ifndef FP_FORWARD_H
#define FP_FORWARD_H

#include "../core/forward/link.h"
#include "../core/sched/meta.h"

#define FP_EXITS       2
#define FP_EXIT_QUEUES 64
#define FP_NOTE_MAGIC  0x746e7066u /* "fpnt" */

/* How packets are forwarded. */
enum fp_forwarding {
	FP_FORWARD_OFF = 0,
	FP_FORWARD_BRIDGE = 1,
	FP_FORWARD_ROUTER = 2,
};

/* Mirrored in crates/edge/bpf/src/forward.rs. Integers in host order. */
struct fp_exit {
	u32 ifindex;	/* where its frames come and go */
	u32 route;	/* what the FIB calls it: the VLAN device, or ifindex */
	u32 end;	/* enum fp_end: whose class counts for what leaves here */
	u32 mtu;	/* bytes of IP */
	u16 vlan;	/* its tag; 0: none, or in a bridge whatever tag a frame has */
	u16 stack_seen; /* what goes to the stack is measured there (tcx ingress) */
	u8 mac[MAC_BYTES];
	u16 zero;
};

struct fp_forward {
	u32 mode; /* enum fp_forwarding */
	u32 zero;
	struct fp_exit exit[FP_EXITS];
	u8 own[MAX_OWN][8]; /* MAC addresses of this host; zero where unused */
};

_Static_assert(sizeof(struct fp_forward) == 96, "what forward.rs writes");

/* Before a frame in AF_XDP; mirrored in crates/edge/afxdp/src/note.rs. */
struct fp_note {
	u32 magic;
	u32 exit;
	struct fp_meta meta;
};

/* What fp_decide() leaves for fp_put_note(), in w->own_use. */
struct fp_going {
	struct fp_note note;
	u16 macs[MAC_BYTES]; /* destination and source, of a router's next hop */
	u32 zero;
};

_Static_assert(sizeof(struct fp_note) == 88, "what note.rs reads");
_Static_assert(sizeof(struct fp_going) <= sizeof(((struct fp_work *)0)->own_use), "it fits");

/* Key: 0. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fp_forward);
} forward SEC(".maps");

/* Key: exit * FP_EXIT_QUEUES + receive queue; value: AF_XDP socket. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, FP_EXITS *FP_EXIT_QUEUES);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

/* Key: exit by which it came * WAYS + enum way; value: frames, for each CPU. Read by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FP_EXITS *WAYS);
	__type(key, u32);
	__type(value, u64);
} ways SEC(".maps");

/* A plan: way, exits by which it came and leaves, and where its IP header is. */
#define PLAN(way, in, out, ip) ((way) | (in) << 8 | (out) << 12 | (ip) << 16)
#define WAY_OF(plan)	       ((plan) & 0xff)
#define IN_OF(plan)	       ((plan) >> 8 & 1)
#define OUT_OF(plan)	       ((plan) >> 12 & 1)
#define IP_OF(plan)	       ((plan) >> 16 & 31)

FP_INLINE struct fp_forward *the_forwarding(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&forward, &key);
}

FP_INLINE void count_way(u32 in, u32 way)
{
	u32 key = in * WAYS + way;
	u64 *frames = bpf_map_lookup_elem(&ways, &key);

	if (frames)
		(*frames)++;
}

FP_INLINE u32 socket_key(u32 in, u32 queue)
{
	return in * FP_EXIT_QUEUES + (queue & (FP_EXIT_QUEUES - 1));
}

FP_INLINE struct fp_going FP_MEM *going_of(struct fp_work FP_MEM *w)
{
	return (struct fp_going FP_MEM *)w->own_use;
}

/* Does this frame belong to the exit? */
FP_INLINE int is_of_exit(const struct fp_forward *f, const struct fp_exit *e, u32 ifindex, u32 vlan)
{
	if (e->ifindex != ifindex)
		return 0;
	return e->vlan == vlan || (!e->vlan && f->mode == FP_FORWARD_BRIDGE);
}

FP_INLINE int is_own_mac(const struct fp_forward *f, const u8 *mac)
{
	u32 i;

#pragma unroll
	for (i = 0; i < MAX_OWN; i++) {
		if (same_mac(mac, f->own[i]))
			return 1;
	}
	return 0;
}

#include "../core/forward/route.h"

/* What is to become of a frame; nothing is changed. */
FP_FUNC u32 fp_decide(struct xdp_md *ctx, struct fp_work FP_MEM *w FP_ARG)
{
	struct fp_forward *f = the_forwarding();
	const u8 *frame = (const u8 *)(u64)ctx->data, *end = (const u8 *)(u64)ctx->data_end;
	struct glance g;
	u32 way = look_at_link(frame, end, &g), in = 0, out = 1, key, plan;
	int router, own;

	if (!f || !f->mode)
		return PLAN(NO_SOCKET, 0, 0, 0);
	if (way == SHORT)
		return PLAN(SHORT, 0, 0, 0);
	router = f->mode == FP_FORWARD_ROUTER;
	if (!is_of_exit(f, &f->exit[0], ctx->ingress_ifindex, g.vlan)) {
		if (!is_of_exit(f, &f->exit[1], ctx->ingress_ifindex, g.vlan))
			return PLAN(OTHER_VLAN, ctx->ingress_ifindex != f->exit[0].ifindex, 0, 0);
		in = 1;
		out = 0;
	}
	if (way == GROUP || frame + MAC_BYTES > end)
		return PLAN(way, in, 0, 0);
	own = is_own_mac(f, frame);
	if (router ? way == TO_SOCKET && !same_mac(frame, f->exit[in].mac) : own)
		return PLAN(router ? OTHER_HOST : OWN, in, 0, 0);
	if (way != TO_SOCKET)
		return PLAN(way, in, 0, 0);
	key = socket_key(in, ctx->rx_queue_index);
	if (ctx->rx_queue_index >= FP_EXIT_QUEUES || !bpf_map_lookup_elem(&sockets, &key))
		return PLAN(NO_SOCKET, in, 0, 0);
	plan = PLAN(TO_SOCKET, in, out, g.ip);
	if (router) {
		u32 answer = fp_route(ctx, w, plan);

		out = OUT_OF(answer);
		if (WAY_OF(answer) != TO_SOCKET)
			return PLAN(WAY_OF(answer), in, 0, 0);
	} else if (bpf_xdp_get_buff_len(ctx) - g.ip > f->exit[out].mtu) {
		return PLAN(TOO_BIG, in, 0, 0);
	}
	return PLAN(TO_SOCKET, in, out, g.ip);
}

/* How many bytes longer a frame leaves than it came: a router's tag is its exit's. */
FP_INLINE int growth(const struct fp_forward *f, u32 plan)
{
	u32 tagged = IP_OF(plan) > ETH_BYTES;

	if (f->mode != FP_FORWARD_ROUTER)
		return 0;
	return f->exit[OUT_OF(plan)].vlan ? (tagged ? 0 : TAG_BYTES) : (tagged ? -TAG_BYTES : 0);
}

/* The tag that a frame leaves with. */
FP_INLINE u16 tag_of(const struct fp_forward *f, u32 plan, u16 came_with)
{
	u16 vlan = f->exit[OUT_OF(plan)].vlan;

	return vlan || f->mode == FP_FORWARD_ROUTER ? vlan : came_with;
}

/* Room before the frame for the note, and for a tag if one is to be added; 0 if there is. */
FP_INLINE int make_room(struct xdp_md *ctx, int more)
{
	int bytes = (int)sizeof(struct fp_note);

	if (more > 0) {
		if (bpf_xdp_adjust_meta(ctx, -(bytes + 2 * TAG_BYTES)))
			return -1;
		return bpf_xdp_adjust_meta(ctx, 2 * TAG_BYTES);
	}
	return bpf_xdp_adjust_meta(ctx, -bytes);
}

/* The slot of the class that counts, as the monitor found it, or by a look of our own. */
FP_INLINE u32 slot_of(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, u32 end)
{
	u32 side = (w->packet.side ^ (end == FP_OF_RECEIVER)) & 1;

	if (!r->config.slots || !w->packet.ip_bytes)
		return FP_OTHER;
	if (w->known)
		return w->slot[side];
	w->image = *(volatile u32 FP_MEM *)&r->image;
	return fp_class_of(r, w, side, 1);
}

/* What policies see; w->packet is what the monitor parsed. */
FP_FUNC int fp_note_of(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 plan)
{
	struct fp_forward *f = the_forwarding();
	struct fp_note FP_MEM *note = &going_of(w)->note;
	u32 out = OUT_OF(plan);

	if (!f)
		return -1;
	FP_PUT(note->magic, FP_NOTE_MAGIC);
	FP_PUT(note->exit, out);
	fp_meta_of(&note->meta, w);
	FP_PUT(note->meta.class_id, slot_of(r, w, f->exit[out].end));
	FP_PUT(note->meta.arrival, w->frame.now);
	FP_PUT(note->meta.bytes, w->frame.wire_len + growth(f, plan));
	FP_PUT(note->meta.mark, 0);
	FP_PUT(note->meta.segments, 1);
	return 0;
}

/* Changes the frame and writes the note before it; 0, or the frame is spoilt. */
FP_FUNC int fp_put_note(struct xdp_md *ctx, struct fp_work FP_MEM *w FP_ARG, u32 plan)
{
	struct fp_forward *f = the_forwarding();
	struct fp_going FP_MEM *going = going_of(w);
	u32 ip_at, i;
	u16 vlan;
	u8 *frame, *end;
	u64 *note;
	int more;

	if (!f)
		return -1;
	more = growth(f, plan);
	ip_at = IP_OF(plan) + more;
	vlan = f->exit[OUT_OF(plan)].vlan;
	if (more && bpf_xdp_adjust_head(ctx, -more))
		return -1;
	frame = (u8 *)(u64)ctx->data;
	end = (u8 *)(u64)ctx->data_end;
	note = (u64 *)(u64)ctx->data_meta;
	if ((u8 *)note + sizeof(struct fp_note) > frame)
		return -1;
#pragma unroll
	for (i = 0; i < sizeof(struct fp_note) / 8; i++)
		note[i] = ((u64 FP_MEM *)&going->note)[i];
	if (vlan) {
		if (frame + ETH_BYTES + TAG_BYTES > end)
			return -1;
		if (more)
			*(u32 *)(frame + 12) = be16(ETH_VLAN) | (u32)be16(vlan) << 16;
		else
			*(u16 *)(frame + 14) = (*(u16 *)(frame + 14) & be16(0xf000)) | be16(vlan);
	}
	if (f->mode != FP_FORWARD_ROUTER)
		return 0;
	if (frame + 12 > end || frame + (ip_at & 31) + 12 > end)
		return -1;
#pragma unroll
	for (i = 0; i < MAC_BYTES; i++)
		((u16 *)frame)[i] = going->macs[i];
	one_hop(frame + (ip_at & 31));
	return 0;
}

/* Carries a plan out; a frame that was changed is no longer the stack's. */
FP_INLINE int send_on(struct xdp_md *ctx, const struct fp_forward *f, u32 plan)
{
	u32 way = WAY_OF(plan), in = IN_OF(plan);
	int changed = f->mode == FP_FORWARD_ROUTER || f->exit[OUT_OF(plan)].vlan;
	int verdict = way == LOST ? XDP_DROP : XDP_PASS;

	if (way == TO_SOCKET) {
		verdict = bpf_redirect_map(&sockets, socket_key(in, ctx->rx_queue_index),
					   changed ? XDP_DROP : XDP_PASS);
		if (verdict == XDP_PASS)
			way = NO_SOCKET;
		if (verdict == XDP_DROP)
			way = LOST;
	}
	count_way(in, way);
	return verdict;
}

#endif /* FP_FORWARD_H */
