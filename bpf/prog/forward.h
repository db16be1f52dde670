/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * forward.h: rtt_forward in addition to measuring: frames to AF_XDP, as core/forward decides.
 *
 *   fp_decide()  uses core, socket and FIB; changes nothing
 *   fp_fill_metadata()  what policies see of the packet
 *   fp_put_metadata()  writes the metadata before the frame, and changes the frame
 *   send_on()  to the socket, or to the stack
 *
 * Netfilter does not process these packets.
 */
#ifndef FP_PROG_FORWARD_H
#define FP_PROG_FORWARD_H

#include "../core/forward/metadata.h"

#define FP_EXIT_QUEUES 64

/* The decision of fp_decide() for fp_put_metadata(), in w->own_use. */
struct fp_going {
	struct fp_metadata metadata;
	struct fp_next_hop next;
};

_Static_assert(sizeof(struct fp_going) <= sizeof(((struct fp_work *)0)->own_use), "it fits");

/* Key: 0. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fp_forward);
} forward SEC(".maps");

/* Key: egress * FP_EXIT_QUEUES + receive queue; value: AF_XDP socket. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, FP_EXITS *FP_EXIT_QUEUES);
	__type(key, u32);
	__type(value, u32);
} sockets SEC(".maps");

/* Key: ingress * FP_GO_OUTCOMES + outcome; value: frames, for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FP_EXITS *FP_GO_OUTCOMES);
	__type(key, u32);
	__type(value, u64);
} outcomes SEC(".maps");

FP_INLINE struct fp_forward *the_forwarding(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&forward, &key);
}

FP_INLINE void count_outcome(u32 in, u32 outcome)
{
	u32 key = in * FP_GO_OUTCOMES + outcome;
	u64 *frames = bpf_map_lookup_elem(&outcomes, &key);

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

/*
 * The egress of a frame in router mode, by the FIB of the kernel, which also checks the sender.
 * Stores addresses of the next hop in w.
 */
FP_FUNC u32 fp_route(struct xdp_md *ctx, struct fp_work FP_MEM *w FP_ARG, u32 go)
{
	struct fp_forward *f = the_forwarding();
	struct fp_fib fib = {};
	const u8 *ip = (const u8 *)(u64)ctx->data + FP_GO_IP(go),
		 *end = (const u8 *)(u64)ctx->data_end;
	u32 bytes = bpf_xdp_get_buff_len(ctx) - FP_GO_IP(go), outcome, routed;
	long answer;

	if (!f)
		return FP_GO_SHORT;
	outcome = fp_fib_request(&fib, ip, end, bytes);
	if (outcome != FP_GO_TO_SOCKET)
		return outcome;
	fib.ifindex = f->exit[FP_GO_IN(go)].route;
	answer = bpf_fib_lookup(ctx, (struct bpf_fib_lookup *)&fib, sizeof(fib), 0);
	routed = fp_fib_result(f, answer, &fib, &going_of(w)->next);
	fib = (struct fp_fib){};
	if (!fp_fib_reverse(f, routed, &fib, ip, end))
		return routed;
	answer = bpf_fib_lookup(ctx, (struct bpf_fib_lookup *)&fib, sizeof(fib),
				FP_FIB_SKIP_NEIGHBOUR);
	return fp_fib_sender(f, FP_GO_IN(go), routed, answer, &fib);
}

/* Decides about a frame and changes nothing. */
FP_FUNC u32 fp_decide(struct xdp_md *ctx, struct fp_work FP_MEM *w FP_ARG)
{
	struct fp_forward *f = the_forwarding();
	u32 go, key;

	if (!f)
		return FP_GO(FP_GO_NO_SOCKET, 0, 0, 0);
	go = fp_forward_begin(f, ctx->ingress_ifindex, (const u8 *)(u64)ctx->data,
			      (const u8 *)(u64)ctx->data_end);
	if (FP_GO_OUTCOME(go) != FP_GO_TO_SOCKET)
		return go;
	key = socket_key(FP_GO_IN(go), ctx->rx_queue_index);
	if (ctx->rx_queue_index >= FP_EXIT_QUEUES || !bpf_map_lookup_elem(&sockets, &key))
		return FP_GO(FP_GO_NO_SOCKET, FP_GO_IN(go), 0, 0);
	if (f->mode == FP_FORWARD_ROUTER)
		return fp_fib_combine(go, fp_route(ctx, w, go));
	return fp_forward_bridge(f, go, bpf_xdp_get_buff_len(ctx));
}

/* Makes headroom for the metadata and for an added tag. Returns 0 if there is enough. */
FP_INLINE int make_capacity(struct xdp_md *ctx, int more)
{
	int bytes = (int)sizeof(struct fp_metadata);

	if (more > 0) {
		if (bpf_xdp_adjust_meta(ctx, -(bytes + 2 * FP_TAG_BYTES)))
			return -1;
		return bpf_xdp_adjust_meta(ctx, 2 * FP_TAG_BYTES);
	}
	return bpf_xdp_adjust_meta(ctx, -bytes);
}

/* Fills in the metadata for policies. The monitor parsed w->packet. */
FP_FUNC int fp_fill_metadata(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			     u32 go)
{
	struct fp_forward *f = the_forwarding();

	if (!f)
		return -1;
	fp_metadata_write(r, w, f, go, &going_of(w)->metadata);
	return 0;
}

/* Changes the frame and writes the metadata before it. Returns 0, or the frame is unusable. */
FP_FUNC int fp_put_metadata(struct xdp_md *ctx, struct fp_work FP_MEM *w FP_ARG, u32 go)
{
	struct fp_forward *f = the_forwarding();
	struct fp_going FP_MEM *going = going_of(w);
	u8 *frame;
	u64 *metadata;
	u32 i;
	int more;

	if (!f)
		return -1;
	more = fp_forward_growth(f, go);
	if (more && bpf_xdp_adjust_head(ctx, -more))
		return -1;
	frame = (u8 *)(u64)ctx->data;
	metadata = (u64 *)(u64)ctx->data_meta;
	if ((u8 *)metadata + sizeof(struct fp_metadata) > frame)
		return -1;
#pragma unroll
	for (i = 0; i < sizeof(struct fp_metadata) / 8; i++)
		metadata[i] = ((u64 FP_MEM *)&going->metadata)[i];
	return fp_forward_change(f, go, more, &going->next, frame, (const u8 *)(u64)ctx->data_end);
}

/* Carries out a decision. The stack can no longer use a changed frame. */
FP_INLINE int send_on(struct xdp_md *ctx, const struct fp_forward *f, u32 go)
{
	u32 outcome = FP_GO_OUTCOME(go), in = FP_GO_IN(go);
	int verdict = outcome == FP_GO_LOST ? XDP_DROP : XDP_PASS;

	if (outcome == FP_GO_TO_SOCKET) {
		verdict = bpf_redirect_map(&sockets, socket_key(in, ctx->rx_queue_index),
					   fp_forward_changes(f, go) ? XDP_DROP : XDP_PASS);
		if (verdict == XDP_PASS)
			outcome = FP_GO_NO_SOCKET;
		if (verdict == XDP_DROP)
			outcome = FP_GO_LOST;
	}
	count_outcome(in, outcome);
	return verdict;
}

#endif /* FP_PROG_FORWARD_H */
