/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * bbr3.h: a congestion control after draft-ietf-ccwg-bbr (BBR version 3), as a value.
 *
 *   one ACK -> model (model.h) -> phase (phases.h) -> pacing rate and window
 *
 * Call fp_bbr3_init() once and fp_bbr3_on_ack() for each ACK; then apply `cwnd`, `pacing_rate` and
 * `mark_app_limited` to the socket. Call fp_bbr3_on_loss_episode(), fp_bbr3_on_undo() and
 * fp_bbr3_on_restart() at these events. Runtimes: the kernel (bpf/prog/cc_bbr3.bpf.c) and native
 * (fairpath-core, for tests without a network).
 */
#ifndef FP_CC_BBR3_H
#define FP_CC_BBR3_H

#include "phases.h"

FP_INLINE u32 fp_bbr3_pacing_gain(const struct fp_bbr3 *b)
{
	switch (b->phase) {
	case FP_BBR3_STARTUP:
		return FP_BBR3_STARTUP_PACING;
	case FP_BBR3_DRAIN:
		return FP_BBR3_DRAIN_PACING;
	case FP_BBR3_DOWN:
		return FP_BBR3_DOWN_PACING;
	case FP_BBR3_UP:
		return FP_BBR3_UP_PACING;
	default:
		return 100;
	}
}

FP_INLINE u32 fp_bbr3_cwnd_gain(const struct fp_bbr3 *b)
{
	if (b->phase == FP_BBR3_UP)
		return FP_BBR3_UP_CWND;
	return b->phase == FP_BBR3_PROBE_RTT ? FP_BBR3_PROBE_RTT_CWND : FP_BBR3_DEFAULT_CWND;
}

/* Bytes a second. In this order 256 packets a microsecond of 9,000 bytes fit. */
FP_INLINE u64 fp_bbr3_bytes_per_s(u64 bw, u32 mss, u32 gain)
{
	u64 rate = bw * mss * gain / 100;

	return (rate >> 8) * (10000 * (100 - FP_BBR3_PACING_MARGIN)) >> (FP_BBR3_BW_SHIFT - 8);
}

FP_INLINE void fp_bbr3_set_rate(struct fp_bbr3 *b, const struct fp_bbr3_ack *a, u64 bw, u32 gain)
{
	u64 rate = fp_bbr3_min64(fp_bbr3_bytes_per_s(bw, a->mss, gain), a->max_pacing);

	if (b->full_bw_reached || rate > b->pacing_rate)
		b->pacing_rate = rate;
}

/* Before any measurement: the initial window in a round trip, or in a millisecond. */
FP_INLINE void fp_bbr3_init_rate(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u64 bw = ((u64)b->initial_cwnd << FP_BBR3_BW_SHIFT) / (a->srtt_us ? a->srtt_us : 1000);

	b->seen_rtt = a->srtt_us != 0;
	b->pacing_rate = fp_bbr3_bytes_per_s(bw, a->mss, FP_BBR3_STARTUP_PACING);
	b->pacing_rate = fp_bbr3_min64(b->pacing_rate, a->max_pacing);
}

/* The bytes of a millisecond, in packets. */
FP_INLINE void fp_bbr3_set_quantum(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u64 bytes = fp_bbr3_min64(b->pacing_rate / 1000, FP_BBR3_QUANTUM_BYTES);

	b->quantum = fp_bbr3_max32((u32)bytes / (a->mss ? a->mss : 1), 2);
}

FP_INLINE void fp_bbr3_set_pacing(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	if (!b->seen_rtt && a->srtt_us)
		fp_bbr3_init_rate(b, a);
	fp_bbr3_set_rate(b, a, b->bw, fp_bbr3_pacing_gain(b));
	fp_bbr3_set_quantum(b, a);
}

FP_INLINE u32 fp_bbr3_volume_cap(const struct fp_bbr3 *b)
{
	u32 cap = FP_BBR3_NONE32;

	if (b->phase == FP_BBR3_PROBE_RTT || b->phase == FP_BBR3_CRUISE)
		cap = fp_bbr3_with_headroom(b);
	else if (fp_bbr3_in_probe_bw(b))
		cap = b->inflight_longterm;
	cap = fp_bbr3_min32(cap, b->inflight_shortterm);
	return fp_bbr3_max32(cap, FP_BBR3_MIN_CWND);
}

FP_INLINE void fp_bbr3_set_cwnd(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u32 most = fp_bbr3_bdp(b, b->bw, fp_bbr3_cwnd_gain(b));
	u32 cwnd = b->cwnd;

	most += fp_bbr3_max32(b->extra_acked_of[0], b->extra_acked_of[1]);
	most = fp_bbr3_budget(b, most);
	if (b->full_bw_reached)
		cwnd = fp_bbr3_min32(cwnd + a->acked, most);
	else if (cwnd < most || a->delivered - b->begun < b->initial_cwnd)
		cwnd += a->acked;
	cwnd = fp_bbr3_max32(cwnd, FP_BBR3_MIN_CWND);
	if (b->phase == FP_BBR3_PROBE_RTT)
		cwnd = fp_bbr3_min32(cwnd, fp_bbr3_probe_rtt_cwnd(b));
	b->cwnd = fp_bbr3_min32(cwnd, fp_bbr3_volume_cap(b));
}

/*
 * Starts a connection, or continues one from another congestion control. All zero before, up to
 * `sent`.
 */
FP_INLINE void fp_bbr3_init(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	b->phase = FP_BBR3_STARTUP;
	b->undo_phase = FP_BBR3_PHASES;
	b->min_rtt = a->srtt_us ? a->srtt_us : FP_BBR3_NONE32;
	b->probe_rtt_min = FP_BBR3_NONE32;
	b->min_rtt_stamp = a->now_us;
	b->probe_rtt_min_stamp = a->now_us;
	b->extra_acked_start = a->now_us;
	b->inflight_longterm = FP_BBR3_NONE32;
	b->probe_up_per_inc = FP_BBR3_NONE32;
	b->cwnd = a->cwnd;
	b->initial_cwnd = a->cwnd;
	b->begun = a->delivered;
	b->next_round = a->delivered;
	b->loss_round = a->delivered;
	b->lost_seen = a->lost;
	fp_bbr3_forget_sent(b, a);
	fp_bbr3_reset_shortterm(b);
	fp_bbr3_init_rate(b, a);
	fp_bbr3_set_quantum(b, a);
}

/* Pacing rate, burst and window, from the model and the phase. */
FP_FUNC u32 fp_bbr3_control(struct fp_bbr3 *b FP_CC_ARG, const struct fp_bbr3_ack *a FP_CC_ARG)
{
	fp_bbr3_set_pacing(b, a);
	fp_bbr3_set_cwnd(b, a);
	return 0;
}

FP_INLINE void fp_bbr3_on_ack(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u32 newly = a->lost - b->lost_seen;

	b->cwnd = a->cwnd;
	b->mark_app_limited = 0;
	b->lost_seen = a->lost;
	fp_bbr3_read_sample(b, a);
	if (newly)
		fp_bbr3_record_losses(b, a, newly);
	fp_bbr3_update_model(b, a);
	fp_bbr3_update_start(b, a);
	fp_bbr3_update_cycle(b, a);
	fp_bbr3_update_rtt(b, a);
	fp_bbr3_control(b, a);
}

/* Fast recovery or a timeout begins; `cwnd` is the window before it. */
FP_INLINE void fp_bbr3_on_loss_episode(struct fp_bbr3 *b, u32 cwnd)
{
	fp_bbr3_save_cwnd(b, cwnd, b->was_in_recovery);
	fp_bbr3_save_model(b);
}

/* A loss was spurious: restores the previous state. Returns the window. */
FP_FUNC u32 fp_bbr3_on_undo(struct fp_bbr3 *b FP_CC_ARG, const struct fp_bbr3_ack *a FP_CC_ARG)
{
	u32 undo = b->undo_phase;

	b->cwnd = fp_bbr3_max32(a->cwnd, b->prior_cwnd);
	b->loss_in_round = 0;
	fp_bbr3_reset_full_bw(b, 0);
	b->bw_shortterm = fp_bbr3_max64(b->bw_shortterm, b->undo_bw_shortterm);
	b->inflight_shortterm = fp_bbr3_max32(b->inflight_shortterm, b->undo_inflight_shortterm);
	b->inflight_longterm = fp_bbr3_max32(b->inflight_longterm, b->undo_inflight_longterm);
	b->undo_phase = FP_BBR3_PHASES;
	if (undo == FP_BBR3_STARTUP && b->phase != FP_BBR3_STARTUP) {
		b->full_bw_reached = 0;
		if (b->phase != FP_BBR3_PROBE_RTT)
			b->phase = FP_BBR3_STARTUP;
	} else if (undo == FP_BBR3_UP && b->phase != FP_BBR3_UP && b->phase != FP_BBR3_PROBE_RTT) {
		fp_bbr3_start_refill(b, a);
	}
	return b->cwnd;
}

/* The application sends again, and nothing is in flight. */
FP_FUNC u32 fp_bbr3_on_restart(struct fp_bbr3 *b FP_CC_ARG, const struct fp_bbr3_ack *a FP_CC_ARG)
{
	b->cwnd = a->cwnd;
	b->idle_restart = 1;
	b->extra_acked_start = a->now_us;
	b->extra_acked_delivered = 0;
	if (fp_bbr3_in_probe_bw(b))
		fp_bbr3_set_rate(b, a, b->bw, 100);
	else if (b->phase == FP_BBR3_PROBE_RTT && b->probe_rtt_done &&
		 a->now_us > b->probe_rtt_done)
		fp_bbr3_exit_probe_rtt(b, a);
	return 0;
}

#endif /* FP_CC_BBR3_H */
