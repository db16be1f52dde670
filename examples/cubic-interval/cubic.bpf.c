// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * cubic.bpf.c: CUBIC (RFC 9438) as a congestion control of this machine, once without and once with
 * the kernel's update interval: its window's rate of growth is computed again only after HZ/32, if the window has
 * not changed. For an experiment about short round trips.
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

typedef __u32 u32;
typedef __u64 u64;
#define CO_RE __attribute__((preserve_access_index))

struct sock {
	int dummy_unused[0];
} CO_RE;
struct tcp_sock {
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 max_packets_out;
	u32 prior_cwnd;
	__u8 is_cwnd_limited : 1;
} CO_RE;
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	char name[16];
} CO_RE;

extern u32 tcp_slow_start(struct tcp_sock *tp, u32 acked) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

#define TCP_CA_LOSS 4
#define UPDATE_NS   28000000ull /* HZ/32 at 250 HZ: 7 ticks */

struct cubic {
	u64 epoch_ns;  /* begin of growth; 0: none */
	u64 last_ns;   /* of the last computation */
	u32 w_max;     /* window before the last loss */
	u32 origin;    /* window at which the curve is flat */
	u64 k_ms;      /* time until then */
	u32 last_cwnd; /* at the last computation */
	u32 count;     /* ACKs per segment of growth */
	u32 acks;      /* since the estimate of Reno's window grew */
	u32 reno;      /* the estimate */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct cubic);
} states SEC(".maps");

char _license[] SEC("license") = "GPL";

static __always_inline void reset(struct cubic *c)
{
	__builtin_memset(c, 0, sizeof(*c));
}

/* Cube root, by bits. */
static __always_inline u64 root3(u64 x)
{
	u64 y = 0;
	for (int s = 20; s >= 0; s--) {
		u64 t = y | (1ull << s);
		if (t * t * t <= x)
			y = t;
	}
	return y;
}

static __always_inline void update(struct cubic *c, u32 cwnd, u32 acked, int slow)
{
	u64 now = bpf_ktime_get_ns();

	c->acks += acked;
	if (slow && c->last_cwnd == cwnd && now - c->last_ns <= UPDATE_NS)
		return;
	c->last_cwnd = cwnd;
	c->last_ns = now;
	if (!c->epoch_ns) {
		c->epoch_ns = now;
		c->acks = acked;
		c->reno = cwnd;
		if (c->w_max <= cwnd) {
			c->k_ms = 0;
			c->origin = cwnd;
		} else {
			/* K = cbrt((w_max - cwnd) / 0.4), in ms: cbrt(d * 2.5e9) */
			c->k_ms = root3((u64)(c->w_max - cwnd) * 2500000000ull);
			c->origin = c->w_max;
		}
	}
	u64 t = (now - c->epoch_ns) / 1000000;
	u64 off = t < c->k_ms ? c->k_ms - t : t - c->k_ms;
	if (off > 1000000)
		off = 1000000;
	/* 0.4 * off^3, off in ms */
	u64 delta = off * off / 1000 * off / 2500000;
	u64 target = t < c->k_ms ? (c->origin > delta ? c->origin - delta : 0) : c->origin + delta;
	u32 count = target > cwnd ? cwnd / (u32)(target - cwnd) : 100 * cwnd;
	/* As fast as Reno with this decrease: 8 * (1024 + 717) / 3 / (1024 - 717) = 15, in eighths. */
	u32 per = (cwnd * 15) >> 3;
	if (per) {
		u32 grown = c->acks / per;
		c->acks -= grown * per;
		c->reno += grown;
	}
	if (c->reno > cwnd) {
		u32 most = cwnd / (c->reno - cwnd);
		if (count > most)
			count = most;
	}
	c->count = count > 2 ? count : 2;
}

static __always_inline void avoid(struct sock *sk, u32 acked, int slow)
{
	struct tcp_sock *tp = (void *)sk;
	struct cubic *c = bpf_sk_storage_get(&states, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	u32 cwnd = tp->snd_cwnd;

	if (!c)
		return;
	if (!BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited) &&
	    !(cwnd < tp->snd_ssthresh && cwnd < 2 * tp->max_packets_out))
		return;
	if (cwnd < tp->snd_ssthresh) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	update(c, tp->snd_cwnd, acked, slow);
	tcp_cong_avoid_ai(tp, c->count, acked);
}

SEC("struct_ops")
void BPF_PROG(cubic_init, struct sock *sk)
{
	struct cubic *c =
		bpf_sk_storage_get(&states, (struct tcp_sock *)sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (c)
		reset(c);
}

SEC("struct_ops")
u32 BPF_PROG(cubic_ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = (void *)sk;
	struct cubic *c = bpf_sk_storage_get(&states, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	u32 cwnd = tp->snd_cwnd, less = cwnd * 717 / 1024;

	if (c) {
		c->epoch_ns = 0;
		c->w_max = cwnd < c->w_max ? cwnd * (1024 + 717) / 2048 : cwnd;
	}
	return less > 2 ? less : 2;
}

SEC("struct_ops")
void BPF_PROG(cubic_set_state, struct sock *sk, __u8 state)
{
	struct cubic *c = bpf_sk_storage_get(&states, (struct tcp_sock *)sk, 0, 0);
	if (c && state == TCP_CA_LOSS)
		reset(c);
}

SEC("struct_ops")
u32 BPF_PROG(cubic_undo, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC("struct_ops")
void BPF_PROG(cubic_avoid, struct sock *sk, u32 ack, u32 acked)
{
	avoid(sk, acked, 0);
}

SEC("struct_ops")
void BPF_PROG(cubic_avoid_slow, struct sock *sk, u32 ack, u32 acked)
{
	avoid(sk, acked, 1);
}

SEC(".struct_ops")
struct tcp_congestion_ops free_cubic = {
	.init = (void *)cubic_init,
	.ssthresh = (void *)cubic_ssthresh,
	.set_state = (void *)cubic_set_state,
	.undo_cwnd = (void *)cubic_undo,
	.cong_avoid = (void *)cubic_avoid,
	.name = "cubic_free",
};

SEC(".struct_ops")
struct tcp_congestion_ops slow_cubic = {
	.init = (void *)cubic_init,
	.ssthresh = (void *)cubic_ssthresh,
	.set_state = (void *)cubic_set_state,
	.undo_cwnd = (void *)cubic_undo,
	.cong_avoid = (void *)cubic_avoid_slow,
	.name = "cubic_slow",
};
