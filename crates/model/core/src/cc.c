/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * cc.c: the native runtime of congestion control. Every function here is declared in cc.rs; nothing
 * else links to it.
 */
#include "cc/bbr3.h"

/* The state of a connection for tests; mirrored in cc.rs. */
struct fp_native_bbr3_view {
	u64 pacing_rate;
	u64 max_bw;
	u64 bw;
	u32 cwnd;
	u32 min_rtt;
	u32 inflight_longterm;
	u32 inflight_shortterm;
	u32 tx_in_flight;
	u32 lost_since;
	u32 phase;
	u32 full_bw_reached;
	u32 mark_app_limited;
	u32 too_high;
};

u64 fp_native_bbr3_bytes(void)
{
	return sizeof(struct fp_bbr3);
}

u64 fp_native_bbr3_ack_bytes(void)
{
	return sizeof(struct fp_bbr3_ack);
}

void fp_native_bbr3_init(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	memset(b, 0, sizeof(*b));
	fp_bbr3_init(b, a);
}

void fp_native_bbr3_on_ack(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	b->too_high = 0;
	fp_bbr3_on_ack(b, a);
}

void fp_native_bbr3_on_loss_episode(struct fp_bbr3 *b, u32 cwnd)
{
	fp_bbr3_on_loss_episode(b, cwnd);
}

void fp_native_bbr3_on_undo(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	fp_bbr3_on_undo(b, a);
}

void fp_native_bbr3_on_restart(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	fp_bbr3_on_restart(b, a);
}

void fp_native_bbr3_view(const struct fp_bbr3 *b, struct fp_native_bbr3_view *view)
{
	*view = (struct fp_native_bbr3_view){
		.pacing_rate = b->pacing_rate,
		.max_bw = b->max_bw,
		.bw = b->bw,
		.cwnd = b->cwnd,
		.min_rtt = b->min_rtt,
		.inflight_longterm = b->inflight_longterm,
		.inflight_shortterm = b->inflight_shortterm,
		.tx_in_flight = b->tx_in_flight,
		.lost_since = b->lost_since,
		.phase = b->phase,
		.full_bw_reached = b->full_bw_reached,
		.mark_app_limited = b->mark_app_limited,
		.too_high = b->too_high,
	};
}
