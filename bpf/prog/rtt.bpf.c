// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * rtt.bpf.c: the kernel runtime of the RTT core. Only hooks and maps.
 *
 *   rtt_ingress[_raw], rtt_egress[_raw]   tcx; _raw for devices without a link header (ppp, tun)
 *   rtt_xdp                               XDP, ingress only
 *   rtt_forward  XDP: the same, and passes forwarded frames to AF_XDP (forward.h)
 *   rtt_expire  called by user space from time to time: closes idle flows
 *   rtt_replay  without attaching: frames and times from the arena (tests)
 *
 * Except rtt_forward, no program changes a packet or its verdict, which is "next" or "pass".
 */
#include "kernel.h"
#include "../core/rtt/rtt.h"
#include "forward.h"
#include "usual.h"
#include "stack_sent.h"

/* Work area of a test run. */
#define FP_REPLAY_CPU 0
/* Offset of the monitor: libbpf may keep globals in the first page. */
#define FP_ARENA_START 4096ull

/* The memory of the monitor; struct fp_rtt first. Written by the programs, read by both sides. */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

/* Claim the work area by an atomic bit: softirqs nest on PREEMPT_RT. Set before loading. */
const volatile u32 softirqs_nest = 0;

/* Nonzero if an interface has rtt_forward. Set before loading. */
const volatile u32 forwarding = 0;

char _license[] SEC("license") = "Dual MIT/GPL";

/* The verifier ties a program to its arena by a reference to the map. */
FP_INLINE struct fp_rtt FP_MEM *the_monitor(void)
{
	asm volatile("" : : "r"(&arena));
	return (struct fp_rtt FP_MEM *)FP_ARENA_START;
}

/* The scratch of this CPU, claimed if necessary. 0 if it is in use or missing. */
FP_INLINE struct fp_work FP_MEM *claim_work(struct fp_rtt FP_MEM *r)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct fp_work FP_MEM *w;

	if (!r->ready || cpu >= r->config.cpus)
		return 0;
	w = fp_work_of(r, cpu);
	if (softirqs_nest && fp_cas32(&w->busy, 0, 1)) {
		w->stats.scratch_busy++;
		return 0;
	}
	return w;
}

FP_INLINE void release_work(struct fp_work FP_MEM *w)
{
	if (softirqs_nest)
		fp_store_release32(&w->busy, 0);
}

static __attribute__((noinline)) int load_xdp(struct xdp_md *ctx, struct fp_work FP_MEM *w,
					      u32 bytes)
{
	u64 buffer[FP_HEAD_BYTES / 8] = {};

	if (bytes > FP_HEAD_BYTES)
		bytes = FP_HEAD_BYTES;
	/* The compared register must be the one that is passed. */
	asm volatile("" : "+r"(bytes));
	if (bytes == 0 || bpf_xdp_load_bytes(ctx, 0, buffer, bytes))
		return 0;
	copy_buffer(w, buffer);
	w->head_bytes = bytes;
	return 0;
}

FP_INLINE int watch_skb(struct __sk_buff *skb, u32 way, u32 link)
{
	struct fp_rtt FP_MEM *r = the_monitor();
	struct fp_work FP_MEM *w = claim_work(r);
	const u8 *data = (const u8 *)(u64)skb->data, *end = (const u8 *)(u64)skb->data_end;
	u32 shown;
	int err;

	if (forwarding && way == FP_EGRESS)
		count_stack(skb);
	if (!w)
		return TCX_NEXT;
	w->frame.number = 0;
	w->frame.wire_len = skb->len;
	w->frame.segs = skb->gso_segs;
	w->frame.ifindex = skb->ifindex;
	w->frame.rx_ifindex = way == FP_EGRESS ? skb->ingress_ifindex : 0;
	w->frame.link = link;
	w->frame.vlan = skb->vlan_present ? skb->vlan_tci : 0;
	w->frame.mark = skb->mark;
	w->frame.direction = way;
	w->frame.flags = 0;
	if (way == FP_EGRESS && w->frame.rx_ifindex && fp_is_watched(r, w->frame.rx_ifindex))
		w->frame.flags = FP_FRAME_SEEN_BEFORE;

	if (link == FP_LINK_ETHERNET && parse_usual(skb, w)) {
		/* A packet that was measured at its ingress needs no time. */
		if (way == FP_EGRESS && fp_rtt_seen(r, w)) {
			release_work(w);
			return TCX_NEXT;
		}
		w->frame.now = bpf_ktime_get_ns();
		fp_rtt_parsed(r, w, FP_PARSED);
		release_work(w);
		return TCX_NEXT;
	}
	w->frame.now = bpf_ktime_get_ns();
	shown = copy_linear(w, data, end);
	w->head_bytes = shown;
	err = fp_parse_any(w);
	if (err == FP_TRUNCATED && shown < skb->len) {
		load_skb(skb, w, skb->len);
		err = fp_parse(w);
	}
	fp_rtt_parsed(r, w, err);
	release_work(w);
	return TCX_NEXT;
}

SEC("tcx/ingress")
int rtt_ingress(struct __sk_buff *skb)
{
	return watch_skb(skb, FP_INGRESS, FP_LINK_ETHERNET);
}

SEC("tcx/egress")
int rtt_egress(struct __sk_buff *skb)
{
	return watch_skb(skb, FP_EGRESS, FP_LINK_ETHERNET);
}

SEC("tcx/ingress")
int rtt_ingress_raw(struct __sk_buff *skb)
{
	return watch_skb(skb, FP_INGRESS, FP_LINK_RAW);
}

SEC("tcx/egress")
int rtt_egress_raw(struct __sk_buff *skb)
{
	return watch_skb(skb, FP_EGRESS, FP_LINK_RAW);
}

/* The metadata of a frame in XDP. */
FP_INLINE void begin_xdp(struct xdp_md *ctx, struct fp_work FP_MEM *w, u32 bytes)
{
	w->frame.now = bpf_ktime_get_ns();
	w->frame.number = 0;
	w->frame.wire_len = bytes;
	w->frame.segs = 1;
	w->frame.ifindex = ctx->ingress_ifindex;
	w->frame.rx_ifindex = 0;
	w->frame.link = FP_LINK_ETHERNET;
	w->frame.vlan = 0;
	w->frame.mark = 0;
	w->frame.direction = FP_INGRESS;
	w->frame.flags = 0;
	w->frame.out_vlan = 0;
	w->head_bytes = copy_linear(w, (const u8 *)(u64)ctx->data, (const u8 *)(u64)ctx->data_end);
}

/* Loads more of the headers only if the parser needs them. */
FP_INLINE void measure_xdp(struct xdp_md *ctx, struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			   u32 bytes)
{
	int err = fp_parse(w);

	if (err == FP_TRUNCATED && w->head_bytes < bytes) {
		load_xdp(ctx, w, bytes);
		err = fp_parse(w);
	}
	fp_rtt_parsed(r, w, err);
}

SEC("xdp.frags")
int rtt_xdp(struct xdp_md *ctx)
{
	struct fp_rtt FP_MEM *r = the_monitor();
	struct fp_work FP_MEM *w = claim_work(r);
	u32 bytes = bpf_xdp_get_buff_len(ctx);

	if (!w)
		return XDP_PASS;
	begin_xdp(ctx, w, bytes);
	measure_xdp(ctx, r, w, bytes);
	release_work(w);
	return XDP_PASS;
}

/*
 * Passes the destination of the frame to the monitor. The MAC address of its receiver is the next
 * hop's.
 */
FP_INLINE void go_through(struct fp_work FP_MEM *w, const struct fp_forward *f, u32 go)
{
	const struct fp_exit *out = &f->exit[FP_GO_OUT(go)];
	u16 tag = FP_GO_IP(go) > FP_ETH_BYTES ? fp_load16(w->head + FP_ETH_BYTES) : 0;

	w->frame.flags = FP_FRAME_THROUGH;
	w->frame.rx_ifindex = out->ifindex;
	w->frame.out_vlan = fp_forward_tag(f, go, tag);
	if (f->mode == FP_FORWARD_ROUTER) {
		((volatile u16 FP_MEM *)w->head)[0] = going_of(w)->next.macs[0];
		((volatile u16 FP_MEM *)w->head)[1] = going_of(w)->next.macs[1];
		((volatile u16 FP_MEM *)w->head)[2] = going_of(w)->next.macs[2];
	}
}

SEC("xdp.frags")
int rtt_forward(struct xdp_md *ctx)
{
	struct fp_rtt FP_MEM *r = the_monitor();
	struct fp_work FP_MEM *w = claim_work(r);
	struct fp_forward *f = the_forwarding();
	u32 bytes = bpf_xdp_get_buff_len(ctx), go;

	if (!f || !w) {
		count_outcome(0, FP_GO_NO_SCRATCH);
		return XDP_PASS;
	}
	go = fp_decide(ctx, w);
	if (FP_GO_OUTCOME(go) == FP_GO_TO_SOCKET && make_capacity(ctx, fp_forward_growth(f, go)))
		go = FP_GO(FP_GO_NO_HEADROOM, FP_GO_IN(go), 0, 0);
	if (FP_GO_OUTCOME(go) == FP_GO_TO_SOCKET || !f->exit[FP_GO_IN(go)].stack_seen) {
		begin_xdp(ctx, w, bytes);
		if (FP_GO_OUTCOME(go) == FP_GO_TO_SOCKET)
			go_through(w, f, go);
		w->known = 0;
		measure_xdp(ctx, r, w, bytes);
	}
	if (FP_GO_OUTCOME(go) == FP_GO_TO_SOCKET) {
		fp_fill_metadata(r, w, go);
		if (fp_put_metadata(ctx, w, go))
			go = FP_GO(FP_GO_LOST, FP_GO_IN(go), 0, 0);
	}
	release_work(w);
	return send_on(ctx, f, go);
}

/* Softirqs are off in a test run of this type, so no packet waits for a lock held here. */
SEC("tc")
int rtt_expire(struct __sk_buff *skb)
{
	struct fp_rtt FP_MEM *r = the_monitor();
	struct fp_work FP_MEM *w = claim_work(r);

	if (!w)
		return 0;
	fp_rtt_expire(r, w);
	release_work(w);
	return 0;
}

SEC("syscall")
int rtt_replay(void *ctx)
{
	struct fp_rtt FP_MEM *r = the_monitor();
	struct fp_work FP_MEM *w = fp_work_of(r, FP_REPLAY_CPU);
	u32 i, j;

	fp_loop(i, r->replay_frames) {
		struct fp_replay FP_MEM *f =
			FP_AT(struct fp_replay, r, r->replay + (u64)i * sizeof(struct fp_replay));
		u32 bytes = f->bytes < FP_HEAD_BYTES ? f->bytes : FP_HEAD_BYTES;

		FP_COPY(&w->frame, &f->frame);
		for (j = 0; j < FP_HEAD_BYTES / 8; j++)
			((volatile u64 FP_MEM *)w->head)[j] =
				fp_load64_raw(FP_AT(u8, r, f->data + 8 * j));
		w->head_bytes = bytes;
		f->result = fp_rtt_frame(r, w);
	}
	return 0;
}
