/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * model.h: the sender's model of its path: bandwidth, round-trip time, safe volume.
 *
 * draft-ietf-ccwg-bbr, "Updating Network Path Model Parameters". Pure: time and random numbers are
 * arguments.
 */
#ifndef FP_CC_MODEL_H
#define FP_CC_MODEL_H

#include "abi.h"

FP_INLINE u32 fp_bbr3_min32(u32 a, u32 b)
{
	return a < b ? a : b;
}

FP_INLINE u64 fp_bbr3_min64(u64 a, u64 b)
{
	return a < b ? a : b;
}

FP_INLINE u32 fp_bbr3_max32(u32 a, u32 b)
{
	return a > b ? a : b;
}

FP_INLINE u64 fp_bbr3_max64(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* Counters wrap: whether `a` is at `b` or after it. */
FP_INLINE u32 fp_bbr3_reached(u32 a, u32 b)
{
	return (s32)(a - b) >= 0;
}

/* True if the state is one of the four of ProbeBW. */
FP_INLINE u32 fp_bbr3_in_probe_bw(const struct fp_bbr3 *b)
{
	return b->phase >= FP_BBR3_DOWN && b->phase <= FP_BBR3_UP;
}

FP_INLINE u32 fp_bbr3_probing(const struct fp_bbr3 *b)
{
	return b->phase == FP_BBR3_STARTUP || b->phase == FP_BBR3_REFILL || b->phase == FP_BBR3_UP;
}

/* Packets delivered at `bw` in `us` microseconds, saturated above any window. */
FP_INLINE u32 fp_bbr3_volume(u64 bw, u64 us)
{
	u64 packets;

	/* 2^24 packets a microsecond and 2^40 us are beyond any path. */
	if (us >> 24)
		packets = (bw >> 8) * (us >> 8) >> (FP_BBR3_BW_SHIFT - 16);
	else
		packets = bw * us >> FP_BBR3_BW_SHIFT;
	return packets < (1u << 30) ? (u32)packets : 1u << 30;
}

/* The bandwidth-delay product times `gain` hundredths. */
FP_INLINE u32 fp_bbr3_bdp(const struct fp_bbr3 *b, u64 bw, u32 gain)
{
	if (b->min_rtt == FP_BBR3_NONE32)
		return b->initial_cwnd;
	return (u32)(((u64)fp_bbr3_volume(bw, b->min_rtt) * gain + 99) / 100);
}

/* At least the volume that offloads and delayed ACKs need (QuantizationBudget). */
FP_INLINE u32 fp_bbr3_budget(const struct fp_bbr3 *b, u32 volume)
{
	volume = fp_bbr3_max32(volume, 3 * b->quantum);
	volume = fp_bbr3_max32(volume, FP_BBR3_MIN_CWND);
	return b->phase == FP_BBR3_UP ? volume + 2 : volume;
}

FP_INLINE u32 fp_bbr3_inflight(const struct fp_bbr3 *b, u64 bw, u32 gain)
{
	return fp_bbr3_budget(b, fp_bbr3_bdp(b, bw, gain));
}

FP_INLINE u32 fp_bbr3_with_headroom(const struct fp_bbr3 *b)
{
	u32 volume = b->inflight_longterm;

	if (volume == FP_BBR3_NONE32)
		return volume;
	volume -= fp_bbr3_min32(volume, fp_bbr3_max32(1, (u64)volume * FP_BBR3_HEADROOM / 100));
	return fp_bbr3_max32(volume, FP_BBR3_MIN_CWND);
}

FP_INLINE u32 fp_bbr3_target_inflight(const struct fp_bbr3 *b)
{
	return fp_bbr3_min32(fp_bbr3_bdp(b, b->bw, 100), b->cwnd);
}

/* Records the volume in flight for packets that are sent from now on. */
FP_INLINE void fp_bbr3_record_sent(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	struct fp_bbr3_sent *last = &b->sent[b->sent_head & (FP_BBR3_SENT - 1)];
	u32 step = a->prior_in_flight / (FP_BBR3_SENT / 2);

	/* Packets sent since the last ACK are in flight before this one. */
	last->in_flight = fp_bbr3_max32(last->in_flight, a->prior_in_flight);
	if (a->delivered - last->delivered <= step)
		return;
	b->sent_head++;
	last = &b->sent[b->sent_head & (FP_BBR3_SENT - 1)];
	last->delivered = a->delivered;
	last->lost = a->lost;
	last->in_flight = a->in_flight;
}

/* Only this moment is recorded so far. */
FP_FUNC u32 fp_bbr3_forget_sent(struct fp_bbr3 *b FP_CC_ARG, const struct fp_bbr3_ack *a FP_CC_ARG)
{
	u32 i;

	for (i = 0; i < FP_BBR3_SENT; i++) {
		b->sent[i].delivered = a->delivered;
		b->sent[i].lost = a->lost;
		b->sent[i].in_flight = a->in_flight;
	}
	return 0;
}

/*
 * The record of the time when a packet was sent that found `delivered` packets delivered; the
 * oldest one if that is too long ago.
 */
FP_FUNC u32 fp_bbr3_sent_at(const struct fp_bbr3 *b FP_CC_ARG, u32 delivered)
{
	u32 place = b->sent_head;
	u32 back;

	for (back = 0; back < FP_BBR3_SENT - 1; back++) {
		if (fp_bbr3_reached(delivered, b->sent[place & (FP_BBR3_SENT - 1)].delivered))
			break;
		place--;
	}
	return place; /* not bounded here: the verifier requires it in the caller */
}

/* The information of this ACK about its packets. */
FP_FUNC u32 fp_bbr3_read_sample(struct fp_bbr3 *b FP_CC_ARG, const struct fp_bbr3_ack *a FP_CC_ARG)
{
	u64 sample = (u64)a->sample << FP_BBR3_BW_SHIFT;
	const struct fp_bbr3_sent *then;
	u32 place;

	b->rate = a->interval_us ? sample / a->interval_us : 0;
	fp_bbr3_record_sent(b, a);
	place = fp_bbr3_sent_at(b, a->sampled ? a->prior_delivered : a->delivered);
	then = &b->sent[place & (FP_BBR3_SENT - 1)];
	b->tx_in_flight = then->in_flight;
	b->lost_since = a->lost - then->lost;
	return 0;
}

FP_INLINE void fp_bbr3_update_round(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	b->round_start = a->sampled && fp_bbr3_reached(a->prior_delivered, b->next_round);
	if (!b->round_start)
		return;
	b->next_round = a->delivered;
	b->round_count++;
	b->rounds_since_probe++;
}

FP_INLINE void fp_bbr3_update_max_bw(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u64 rate = b->rate;

	fp_bbr3_update_round(b, a);
	if (!rate || (a->app_limited && rate < b->max_bw))
		return;
	b->max_bw_of[1] = fp_bbr3_max64(b->max_bw_of[1], rate);
	b->max_bw = fp_bbr3_max64(b->max_bw_of[0], b->max_bw_of[1]);
}

/* Starts another cycle and drops the one before the previous one. */
FP_INLINE void fp_bbr3_advance_max_bw(struct fp_bbr3 *b)
{
	if (!b->max_bw_of[1])
		return;
	b->max_bw_of[0] = b->max_bw_of[1];
	b->max_bw_of[1] = 0;
	b->max_bw = b->max_bw_of[0];
}

FP_INLINE void fp_bbr3_reset_signals(struct fp_bbr3 *b)
{
	b->loss_in_round = 0;
	b->bw_latest = 0;
	b->inflight_latest = 0;
}

FP_INLINE void fp_bbr3_reset_shortterm(struct fp_bbr3 *b)
{
	b->bw_shortterm = FP_BBR3_NONE64;
	b->inflight_shortterm = FP_BBR3_NONE32;
}

FP_INLINE void fp_bbr3_reset_full_bw(struct fp_bbr3 *b, u64 baseline)
{
	b->full_bw = baseline;
	b->full_bw_count = 0;
	b->full_bw_now = 0;
}

FP_INLINE void fp_bbr3_latest_signals(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	b->loss_round_start = 0;
	b->bw_latest = fp_bbr3_max64(b->bw_latest, b->rate);
	b->inflight_latest = fp_bbr3_max32(b->inflight_latest, a->sample);
	if (a->sampled && fp_bbr3_reached(a->prior_delivered, b->loss_round)) {
		b->loss_round = a->delivered;
		b->loss_round_start = 1;
	}
}

/* Once per round with loss, outside a probe: reduces to what arrived, at most by 30 %. */
FP_INLINE void fp_bbr3_adapt_shortterm(struct fp_bbr3 *b)
{
	if (fp_bbr3_probing(b) || !b->loss_in_round)
		return;
	if (b->bw_shortterm == FP_BBR3_NONE64)
		b->bw_shortterm = b->max_bw;
	if (b->inflight_shortterm == FP_BBR3_NONE32)
		b->inflight_shortterm = b->cwnd;
	b->bw_shortterm = fp_bbr3_max64(b->bw_latest, b->bw_shortterm * FP_BBR3_BETA / 100);
	b->inflight_shortterm = fp_bbr3_max32(
		b->inflight_latest, (u32)((u64)b->inflight_shortterm * FP_BBR3_BETA / 100));
}

/* Updates the excess of arrivals over the bandwidth, over ten rounds. */
FP_INLINE void fp_bbr3_update_aggregation(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u64 elapsed = a->now_us - b->extra_acked_start;
	u32 expected = fp_bbr3_volume(b->bw, fp_bbr3_min64(elapsed, FP_BBR3_MIN_RTT_US));
	u32 rounds = b->full_bw_reached ? FP_BBR3_EXTRA_ACKED_ROUNDS / 2 : 1;
	u32 extra;

	if (b->round_count - b->extra_acked_round >= rounds) {
		b->extra_acked_round = b->round_count;
		b->extra_acked_of[0] = b->extra_acked_of[1];
		b->extra_acked_of[1] = 0;
	}
	if (b->extra_acked_delivered <= expected) {
		b->extra_acked_delivered = 0;
		b->extra_acked_start = a->now_us;
		expected = 0;
	}
	b->extra_acked_delivered += a->acked;
	extra = b->extra_acked_delivered - fp_bbr3_min32(expected, b->extra_acked_delivered);
	extra = fp_bbr3_min32(extra, b->cwnd);
	b->extra_acked_of[1] = fp_bbr3_max32(b->extra_acked_of[1], extra);
}

/* Three rounds that the application did not limit, and rarely faster than before. */
FP_INLINE void fp_bbr3_check_full_bw(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	if (b->full_bw_now || !b->round_start || a->app_limited)
		return;
	if (b->rate * 100 >= b->full_bw * FP_BBR3_FULL_BW_GROWTH) {
		fp_bbr3_reset_full_bw(b, b->rate);
		return;
	}
	b->full_bw_count++;
	b->full_bw_now = b->full_bw_count >= FP_BBR3_FULL_BW_ROUNDS;
	if (b->full_bw_now)
		b->full_bw_reached = 1;
}

FP_INLINE void fp_bbr3_update_min_rtt(struct fp_bbr3 *b, const struct fp_bbr3_ack *a)
{
	u32 rtt = a->rtt_us;

	b->probe_rtt_expired = a->now_us > b->probe_rtt_min_stamp + FP_BBR3_PROBE_RTT_US;
	/* A delayed ACK does not measure the path if it would replace a smaller one. */
	if (rtt != FP_BBR3_NONE32 &&
	    (rtt < b->probe_rtt_min || (b->probe_rtt_expired && !a->ack_delayed))) {
		b->probe_rtt_min = rtt;
		b->probe_rtt_min_stamp = a->now_us;
	}
	if (b->probe_rtt_min < b->min_rtt || a->now_us > b->min_rtt_stamp + FP_BBR3_MIN_RTT_US) {
		b->min_rtt = fp_bbr3_max32(b->probe_rtt_min, 1);
		b->min_rtt_stamp = b->probe_rtt_min_stamp;
	}
}

/* Bandwidth, losses of the round, aggregation. */
FP_FUNC u32 fp_bbr3_update_model(struct fp_bbr3 *b FP_CC_ARG, const struct fp_bbr3_ack *a FP_CC_ARG)
{
	fp_bbr3_latest_signals(b, a);
	fp_bbr3_update_max_bw(b, a);
	if (b->loss_round_start) {
		fp_bbr3_adapt_shortterm(b);
		b->loss_in_round = 0;
	}
	fp_bbr3_update_aggregation(b, a);
	fp_bbr3_check_full_bw(b, a);
	return 0;
}

#endif /* FP_CC_MODEL_H */
