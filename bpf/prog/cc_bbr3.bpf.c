// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * cc_bbr3.bpf.c: bpf/core/cc/bbr3.h as a congestion control of this machine, `fp_bbr3like`.
 *
 *   tcp_ack -> cong_control -> struct fp_bbr3_ack -> the model -> snd_cwnd, sk_pacing_rate
 *
 * For the lab: it is what a BPF program can do of BBR version 3, not the kernel patches of that
 * name. The state of a connection is in socket storage, because TCP has only 104 bytes for
 * congestion controls. The storage ends with the socket. Use needs CAP_NET_ADMIN (flags stay 0).
 * The map is a `.struct_ops.link`: the name ends with the link, and so with the process. Sockets
 * that still use it keep the programs until they close.
 *
 * Deliberately absent: get_info (struct_ops has none, so INET_DIAG_BBRINFO stays empty), ECN.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include "../core/cc/bbr3.h"

/* Of the kernel: enum tcp_ca_state, enum tcp_ca_event, enum sk_pacing, tcp_sack_seen. */
#define TCP_CA_RECOVERY	  3
#define CA_EVENT_TX_START 0
#define SK_PACING_NONE	  0
#define SK_PACING_NEEDED  1
#define TCP_SACK_SEEN	  1
#define TCP_INFINITE	  0x7fffffffu
#define TCP_MAX_WINDOW	  0x3fffffffu
#define SNDBUF_FACTOR	  3
#define MIN_TSO_SEGS	  2
#define MIN_TSO_RATE	  150000ull /* bytes a second: below it, one packet at a time */
#define SK_STORAGE	  24
#define F_NO_PREALLOC	  1
#define GET_F_CREATE	  1

struct sock {
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
} FP_CO_RE;

struct inet_connection_sock {
	u8 icsk_ca_state : 5;
} FP_CO_RE;

struct tcp_options_received {
	u16 sack_ok : 3;
} FP_CO_RE;

struct tcp_sock {
	u64 tcp_mstamp;
	u32 srtt_us;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 mss_cache;
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 delivered;
	u32 lost;
	u32 app_limited;
	u8 is_cwnd_limited : 1;
	struct tcp_options_received rx_opt;
} FP_CO_RE;

struct rate_sample {
	u64 prior_mstamp;
	u32 prior_delivered;
	s32 delivered;
	long interval_us;
	long rtt_us;
	int losses;
	u32 acked_sacked;
	u32 prior_in_flight;
	_Bool is_app_limited;
	_Bool is_ack_delayed;
} FP_CO_RE;

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cwnd_event)(struct sock *sk, int event);
	void (*cwnd_event_tx_start)(struct sock *sk); /* Linux 7.1 */
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 (*sndbuf_expand)(struct sock *sk);
	u32 (*min_tso_segs)(struct sock *sk);
	void (*init)(struct sock *sk);
	char name[16];
};

/* By socket. Written and read by the programs below, under the socket's lock. */
struct {
	__uint(type, SK_STORAGE);
	__uint(map_flags, F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fp_bbr3);
} states SEC(".maps");

/* Of all connections since the object was loaded. Written here, read by user space. */
u64 connections = 0;
u64 phases_entered[8] = {};
u64 losses_over_threshold = 0;
u64 losses_recorded = 0;
u64 undone = 0;
u64 without_storage = 0;

char _license[] SEC("license") = "GPL";

_Static_assert(FP_BBR3_PHASES < 8, "phases_entered has enough bits");

FP_INLINE struct fp_bbr3 *state_of(struct tcp_sock *tp, u64 flags)
{
	return bpf_sk_storage_get(&states, tp, 0, flags);
}

FP_INLINE u32 in_flight_of(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

/* State that does not depend on an ACK. */
FP_INLINE void look(struct fp_bbr3_ack *a, struct tcp_sock *tp)
{
	const struct inet_connection_sock *icsk = (void *)tp;

	a->now_us = tp->tcp_mstamp;
	a->max_pacing = ((struct sock *)tp)->sk_max_pacing_rate;
	a->delivered = tp->delivered;
	a->lost = tp->lost;
	a->in_flight = in_flight_of(tp);
	a->srtt_us = tp->srtt_us >> 3;
	a->rtt_us = FP_BBR3_NONE32;
	a->cwnd = tp->snd_cwnd;
	a->mss = tp->mss_cache;
	a->random = bpf_get_prandom_u32();
	a->cwnd_limited = BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
	a->has_sack = (BPF_CORE_READ_BITFIELD(tp, rx_opt.sack_ok) & TCP_SACK_SEEN) != 0;
	a->in_recovery = BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state) >= TCP_CA_RECOVERY;
}

FP_INLINE void read_sample(struct fp_bbr3_ack *a, const struct rate_sample *rs)
{
	long rtt_us = rs->rtt_us;
	long interval_us = rs->interval_us;
	s32 delivered = rs->delivered;

	a->prior_delivered = rs->prior_delivered;
	a->prior_in_flight = rs->prior_in_flight;
	a->acked = rs->acked_sacked;
	a->sampled = rs->prior_mstamp != 0;
	a->sample = delivered > 0 ? delivered : 0;
	a->interval_us = delivered > 0 && interval_us > 0 ? interval_us : 0;
	if (rtt_us >= 0)
		a->rtt_us = rtt_us;
	a->app_limited = rs->is_app_limited;
	a->ack_delayed = rs->is_ack_delayed;
}

FP_INLINE void report(struct tcp_sock *tp, const struct fp_bbr3 *b)
{
	struct sock *sk = (struct sock *)tp;
	u32 cwnd = b->cwnd;

	if (cwnd > tp->snd_cwnd_clamp)
		cwnd = tp->snd_cwnd_clamp;
	if (cwnd > TCP_MAX_WINDOW)
		cwnd = TCP_MAX_WINDOW;
	tp->snd_cwnd = cwnd ? cwnd : 1;
	sk->sk_pacing_rate = b->pacing_rate;
}

FP_INLINE void count_phase(u32 before, u32 now)
{
	if (before != now)
		__sync_fetch_and_add(&phases_entered[now & 7], 1);
}

SEC("struct_ops")
int cc_init(u64 *ctx)
{
	struct tcp_sock *tp = (struct tcp_sock *)ctx[0];
	struct sock *sk = (struct sock *)tp;
	struct fp_bbr3_ack a = {};
	struct fp_bbr3 *b = state_of(tp, GET_F_CREATE);

	if (!b) {
		__sync_fetch_and_add(&without_storage, 1);
		return 0;
	}
	/* The socket may have used it before. fp_bbr3_init() resets the sent packets. */
	__builtin_memset(b, 0, __builtin_offsetof(struct fp_bbr3, sent));
	look(&a, tp);
	fp_bbr3_init(b, &a);
	__sync_fetch_and_add(&connections, 1);
	__sync_fetch_and_add(&phases_entered[FP_BBR3_STARTUP], 1);
	tp->snd_ssthresh = TCP_INFINITE;
	sk->sk_pacing_rate = b->pacing_rate;
	/* With fq, pacing is set already. Otherwise the timer of TCP paces. */
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	return 0;
}

SEC("struct_ops")
int cc_main(u64 *ctx)
{
	struct tcp_sock *tp = (struct tcp_sock *)ctx[0];
	const struct rate_sample *rs = (const struct rate_sample *)ctx[3];
	struct fp_bbr3_ack a = {};
	struct fp_bbr3 *b = state_of(tp, 0);
	u32 before;

	if (!b)
		return 0;
	look(&a, tp);
	read_sample(&a, rs);
	before = b->phase;
	if (a.lost != b->lost_seen)
		__sync_fetch_and_add(&losses_recorded, a.lost - b->lost_seen);
	fp_bbr3_on_ack(b, &a);
	count_phase(before, b->phase);
	if (b->too_high) {
		b->too_high = 0;
		__sync_fetch_and_add(&losses_over_threshold, 1);
	}
	if (b->mark_app_limited) {
		u32 until = a.delivered + a.in_flight;

		tp->app_limited = until ? until : 1;
	}
	report(tp, b);
	return 0;
}

/* Called when a loss episode begins. */
SEC("struct_ops")
int cc_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = (struct tcp_sock *)ctx[0];
	struct fp_bbr3 *b = state_of(tp, 0);

	if (b)
		fp_bbr3_on_loss_episode(b, tp->snd_cwnd);
	return tp->snd_ssthresh;
}

SEC("struct_ops")
int cc_undo_cwnd(u64 *ctx)
{
	struct tcp_sock *tp = (struct tcp_sock *)ctx[0];
	struct fp_bbr3_ack a = {};
	struct fp_bbr3 *b = state_of(tp, 0);
	u32 before, cwnd;

	if (!b)
		return tp->snd_cwnd;
	look(&a, tp);
	before = b->phase;
	cwnd = fp_bbr3_on_undo(b, &a);
	count_phase(before, b->phase);
	__sync_fetch_and_add(&undone, 1);
	return cwnd;
}

FP_INLINE void restart(struct tcp_sock *tp)
{
	struct fp_bbr3_ack a = {};
	struct fp_bbr3 *b = state_of(tp, 0);
	u32 before;

	if (!b || !tp->app_limited)
		return;
	look(&a, tp);
	before = b->phase;
	fp_bbr3_on_restart(b, &a);
	count_phase(before, b->phase);
	report(tp, b);
}

/* Up to Linux 7.0; later cc_tx_start. User space omits the one that the kernel lacks. */
SEC("struct_ops")
int cc_event(u64 *ctx)
{
	if ((u32)ctx[1] == CA_EVENT_TX_START)
		restart((struct tcp_sock *)ctx[0]);
	return 0;
}

SEC("struct_ops")
int cc_tx_start(u64 *ctx)
{
	restart((struct tcp_sock *)ctx[0]);
	return 0;
}

SEC("struct_ops")
int cc_sndbuf_expand(u64 *ctx)
{
	return SNDBUF_FACTOR;
}

SEC("struct_ops")
int cc_min_tso_segs(u64 *ctx)
{
	const struct sock *sk = (const struct sock *)ctx[0];

	return sk->sk_pacing_rate < MIN_TSO_RATE ? 1 : MIN_TSO_SEGS;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fp_bbr3like = {
	.ssthresh = (void *)cc_ssthresh,
	.cwnd_event = (void *)cc_event,
	.cwnd_event_tx_start = (void *)cc_tx_start,
	.cong_control = (void *)cc_main,
	.undo_cwnd = (void *)cc_undo_cwnd,
	.sndbuf_expand = (void *)cc_sndbuf_expand,
	.min_tso_segs = (void *)cc_min_tso_segs,
	.init = (void *)cc_init,
	.name = "fp_bbr3like",
};
