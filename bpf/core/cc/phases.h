/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * phases.h: the phases of the sender.
 *
 *   Startup -> Drain -> [ Down -> Cruise -> Refill -> Up ] -> Down ...     ProbeBW
 *                                     every 5 s without a low RTT: ProbeRTT, 200 ms
 *
 * draft-ietf-ccwg-bbr, "State Machine Operation" and "Updating the Model Upon Packet Loss".
 */
#ifndef FP_CC_PHASES_H
#define FP_CC_PHASES_H

#include "model.h"

FP_INLINE void fp_bbr3_start_round(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	b->next_round = a->delivered;
}

FP_INLINE void fp_bbr3_pick_wait(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	b->rounds_since_probe = a->random & 1;
	b->probe_wait =
		FP_BBR3_PROBE_WAIT_US + ((u64)(a->random >> 1) * FP_BBR3_PROBE_SPREAD_US >> 31);
}

FP_INLINE void fp_bbr3_start_down(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	fp_bbr3_reset_signals(b);
	b->probe_up_per_inc = FP_BBR3_NONE32;
	fp_bbr3_pick_wait(b, a);
	b->cycle_stamp = a->now_us;
	b->acks = FP_BBR3_ACKS_STOPPING;
	fp_bbr3_start_round(b, a);
	b->phase = FP_BBR3_DOWN;
}

FP_INLINE void fp_bbr3_start_refill(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	fp_bbr3_reset_shortterm(b);
	b->probe_up_rounds = 0;
	b->probe_up_acked = 0;
	b->probe_precautionary = 0;
	b->acks = FP_BBR3_ACKS_REFILLING;
	fp_bbr3_start_round(b, a);
	b->phase = FP_BBR3_REFILL;
}

/* The volume grows by 1, 2, 4, ... packets a round. */
FP_INLINE void fp_bbr3_raise_slope(struct fp_bbr3 *b)
{
	u32 growth = 1u << (b->probe_up_rounds & 31);

	b->probe_up_rounds = fp_bbr3_min32(b->probe_up_rounds + 1, 30);
	b->probe_up_per_inc = fp_bbr3_max32(b->cwnd / growth, 1);
}

FP_INLINE void fp_bbr3_start_up(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	b->acks = FP_BBR3_ACKS_STARTING;
	fp_bbr3_start_round(b, a);
	fp_bbr3_reset_full_bw(b, b->rate);
	b->phase = FP_BBR3_UP;
	fp_bbr3_raise_slope(b);
}

/* True if more was lost since then than on a path that is not full. */
FP_INLINE u32 fp_bbr3_is_too_high(const struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	if ((u64)b->lost_since * 100 > (u64)b->tx_in_flight * FP_BBR3_LOSS_THRESH)
		return 1;
	return b->lost_since && !a->has_sack;
}

/* The volume in flight when losses passed the threshold, `newly` of them at this ACK. */
FP_INLINE u32 fp_bbr3_inflight_at_loss(const struct fp_bbr3 *b, u32 newly)
{
	u32 before = b->tx_in_flight - fp_bbr3_min32(newly, b->tx_in_flight);
	u64 allowed = (u64)before * FP_BBR3_LOSS_THRESH;
	u64 had = (u64)(b->lost_since - fp_bbr3_min32(newly, b->lost_since)) * 100;

	if (had >= allowed)
		return before;
	return before + (u32)((allowed - had) / (100 - FP_BBR3_LOSS_THRESH));
}

FP_INLINE void fp_bbr3_handle_too_high(struct fp_bbr3 *b, const struct fp_bbr3_ack *a,
				       u32 in_flight)
{
	b->too_high = 1;
	b->probe_too_high = 1;
	b->probe_sample = 0; /* once a probe */
	if (!a->app_limited)
		b->inflight_longterm = fp_bbr3_max32(
			in_flight, (u32)((u64)fp_bbr3_target_inflight(b) * FP_BBR3_BETA / 100));
	if (b->phase == FP_BBR3_UP) {
		b->undo_phase = FP_BBR3_UP;
		fp_bbr3_start_down(b, a);
	}
}

FP_INLINE void fp_bbr3_save_cwnd(struct fp_bbr3 *b, u32 cwnd, u32 in_recovery)
{
	if (!in_recovery && b->phase != FP_BBR3_PROBE_RTT)
		b->prior_cwnd = cwnd;
	else
		b->prior_cwnd = fp_bbr3_max32(b->prior_cwnd, cwnd);
}

/* Startup is phase 0, so the number after the last phase means no phase to return to. */
FP_INLINE void fp_bbr3_save_model(struct fp_bbr3 *b)
{
	b->undo_phase = FP_BBR3_PHASES;
	b->undo_bw_shortterm = b->bw_shortterm;
	b->undo_inflight_shortterm = b->inflight_shortterm;
	b->undo_inflight_longterm = b->inflight_longterm;
}

/* Handles packets found lost since the last ACK. */
FP_FUNC u32 fp_bbr3_record_losses(struct fp_bbr3 *b FP_CC_ARG,
				  const struct fp_bbr3_ack *a FP_CC_ARG, u32 newly)
{
	if (!b->loss_in_round) {
		b->loss_round = a->delivered;
		fp_bbr3_save_cwnd(b, b->cwnd, a->in_recovery);
		fp_bbr3_save_model(b);
	}
	b->loss_in_round = 1;
	b->loss_events++;
	if (b->probe_sample && fp_bbr3_is_too_high(b, a))
		fp_bbr3_handle_too_high(b, a, fp_bbr3_inflight_at_loss(b, newly));
	return 0;
}

/* A whole round in recovery, with more than 2 % lost, in at least six places. */
FP_INLINE void fp_bbr3_check_startup_loss(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u32 enough = a->has_sack ? FP_BBR3_FULL_LOSS_COUNT : 1;

	if (b->phase != FP_BBR3_STARTUP || !b->loss_round_start)
		return;
	if (a->in_recovery && b->loss_events >= enough && fp_bbr3_is_too_high(b, a)) {
		b->too_high = 1;
		b->undo_phase = FP_BBR3_STARTUP;
		b->full_bw_now = 1;
		b->full_bw_reached = 1;
		b->inflight_longterm =
			fp_bbr3_max32(fp_bbr3_bdp(b, b->bw, 100), b->inflight_latest);
	}
	b->loss_events = 0;
}

FP_INLINE void fp_bbr3_check_drain(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	if (b->phase == FP_BBR3_STARTUP && b->full_bw_reached) {
		b->phase = FP_BBR3_DRAIN;
		b->drain_start_round = b->round_count;
	}
	if (b->phase == FP_BBR3_DRAIN &&
	    (a->in_flight <= fp_bbr3_inflight(b, b->bw, 100) ||
	     b->round_count - b->drain_start_round > FP_BBR3_DRAIN_ROUNDS))
		fp_bbr3_start_down(b, a);
}

FP_INLINE void fp_bbr3_grow_longterm(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u32 steps;

	if (!a->cwnd_limited || b->cwnd < b->inflight_longterm)
		return;
	b->probe_up_acked += a->acked;
	if (b->probe_up_acked >= b->probe_up_per_inc && b->probe_up_per_inc) {
		steps = b->probe_up_acked / b->probe_up_per_inc;
		b->probe_up_acked -= steps * b->probe_up_per_inc;
		b->inflight_longterm += steps;
	}
	if (b->round_start)
		fp_bbr3_raise_slope(b);
}

/* Updates the meaning of ACKs. Returns whether it chose the phase. */
FP_INLINE u32 fp_bbr3_adapt_longterm(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	if (b->acks == FP_BBR3_ACKS_STARTING && b->round_start)
		b->acks = FP_BBR3_ACKS_FEEDBACK;
	if (b->acks == FP_BBR3_ACKS_STOPPING && b->round_start) {
		b->probe_sample = 0;
		b->acks = FP_BBR3_ACKS_INIT;
		if (fp_bbr3_in_probe_bw(b) && !a->app_limited)
			fp_bbr3_advance_max_bw(b);
		if (fp_bbr3_in_probe_bw(b) && b->probe_precautionary && !b->probe_too_high) {
			fp_bbr3_start_refill(b, a);
			return 1;
		}
	}
	if (b->inflight_longterm == FP_BBR3_NONE32 || !a->sampled)
		return 0;
	if (fp_bbr3_is_too_high(b, a))
		return 0;
	b->inflight_longterm = fp_bbr3_max32(b->inflight_longterm, b->tx_in_flight);
	if (b->phase == FP_BBR3_UP)
		fp_bbr3_grow_longterm(b, a);
	return 0;
}

FP_INLINE u32 fp_bbr3_time_to_probe(const struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u32 rounds = fp_bbr3_min32(fp_bbr3_target_inflight(b), FP_BBR3_RENO_ROUNDS);

	return a->now_us > b->cycle_stamp + b->probe_wait || b->rounds_since_probe >= rounds;
}

FP_INLINE u32 fp_bbr3_time_to_go_down(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	if (b->probe_too_high && a->in_flight >= b->inflight_longterm) {
		b->probe_precautionary = 1;
		return 1;
	}
	if (a->cwnd_limited && b->cwnd >= b->inflight_longterm) {
		fp_bbr3_reset_full_bw(b, b->rate);
		return 0;
	}
	return b->full_bw_now;
}

FP_FUNC u32 fp_bbr3_update_cycle(struct fp_bbr3 *b FP_CC_ARG, const struct fp_bbr3_ack *a FP_CC_ARG)
{
	if (!b->full_bw_reached || fp_bbr3_adapt_longterm(b, a))
		return 0;
	switch (b->phase) {
	case FP_BBR3_DOWN:
	case FP_BBR3_CRUISE:
		if (fp_bbr3_time_to_probe(b, a))
			fp_bbr3_start_refill(b, a);
		else if (a->in_flight <= fp_bbr3_with_headroom(b) &&
			 a->in_flight <= fp_bbr3_inflight(b, b->max_bw, 100))
			b->phase = FP_BBR3_CRUISE;
		break;
	case FP_BBR3_REFILL:
		if (b->round_start) {
			b->probe_sample = 1;
			fp_bbr3_start_up(b, a);
		}
		break;
	case FP_BBR3_UP:
		if (fp_bbr3_time_to_go_down(b, a)) {
			b->probe_too_high = 0;
			fp_bbr3_start_down(b, a);
		}
		break;
	}
	return 0;
}

FP_INLINE u32 fp_bbr3_probe_rtt_cwnd(const struct fp_bbr3 *b)
{
	return fp_bbr3_max32(fp_bbr3_bdp(b, b->bw, FP_BBR3_PROBE_RTT_CWND), FP_BBR3_MIN_CWND);
}

FP_INLINE void fp_bbr3_exit_probe_rtt(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	b->probe_rtt_min_stamp = a->now_us;
	b->cwnd = fp_bbr3_max32(b->cwnd, b->prior_cwnd);
	fp_bbr3_reset_shortterm(b);
	if (b->full_bw_reached) {
		fp_bbr3_start_down(b, a);
		b->phase = FP_BBR3_CRUISE;
	} else {
		b->phase = FP_BBR3_STARTUP;
	}
}

FP_INLINE void fp_bbr3_check_probe_rtt(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	if (b->phase != FP_BBR3_PROBE_RTT && b->probe_rtt_expired && !b->idle_restart) {
		fp_bbr3_save_cwnd(b, b->cwnd, a->in_recovery);
		b->phase = FP_BBR3_PROBE_RTT;
		b->probe_rtt_done = 0;
		b->acks = FP_BBR3_ACKS_STOPPING;
		fp_bbr3_start_round(b, a);
	}
	if (a->sample)
		b->idle_restart = 0;
	if (b->phase != FP_BBR3_PROBE_RTT)
		return;
	/* Slow samples do not describe the path. */
	b->mark_app_limited = 1;
	if (!b->probe_rtt_done && a->in_flight <= fp_bbr3_probe_rtt_cwnd(b)) {
		b->probe_rtt_done = a->now_us + FP_BBR3_PROBE_RTT_HOLD_US;
		b->probe_rtt_round_done = 0;
		fp_bbr3_start_round(b, a);
	} else if (b->probe_rtt_done) {
		b->probe_rtt_round_done |= b->round_start;
		if (b->probe_rtt_round_done && a->now_us > b->probe_rtt_done)
			fp_bbr3_exit_probe_rtt(b, a);
	}
}

/* Startup ends, Drain begins and ends. */
FP_FUNC u32 fp_bbr3_update_start(struct fp_bbr3 *b FP_CC_ARG, const struct fp_bbr3_ack *a FP_CC_ARG)
{
	fp_bbr3_check_startup_loss(b, a);
	fp_bbr3_check_drain(b, a);
	return 0;
}

FP_INLINE void fp_bbr3_recovery_ends(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	if (b->was_in_recovery && !a->in_recovery)
		b->cwnd = fp_bbr3_max32(b->cwnd, b->prior_cwnd);
	b->was_in_recovery = a->in_recovery;
}

/* Updates the round-trip time and the need to probe it. Ends the signals of the round. */
FP_FUNC u32 fp_bbr3_update_rtt(struct fp_bbr3 *b FP_CC_ARG, const struct fp_bbr3_ack *a FP_CC_ARG)
{
	fp_bbr3_update_min_rtt(b, a);
	fp_bbr3_recovery_ends(b, a);
	fp_bbr3_check_probe_rtt(b, a);
	if (b->loss_round_start) {
		b->bw_latest = b->rate;
		b->inflight_latest = a->sample;
	}
	b->bw = fp_bbr3_min64(b->max_bw, b->bw_shortterm);
	return 0;
}

#endif /* FP_CC_PHASES_H */
