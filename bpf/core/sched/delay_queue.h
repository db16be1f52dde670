/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/delay_queue.h: the path of a packet through the impairment of its leaf, before the leaf.
 *
 *   arrives --> loss --> lost
 *                 '----> delay queue: waits for its time --> leaf, as if it arrived then
 *
 * A delayed packet has a handle and a leaf, but counts nowhere: limits, queue lengths and sojourn
 * times begin when it is released. The number of handles limits the delay queue. Leaves may share
 * an impairment, which then numbers the packets of all of them.
 *
 * A GSO packet takes as many numbers as it has segments, and gets the outcome of its first. The
 * mean loss of packets on the wire is as configured, but losses are not independent. stats.gso_packets
 * counts GSO packets. Back ends that need exact loss pass packets as on the wire.
 */
#ifndef FP_DELAY_QUEUE_H
#define FP_DELAY_QUEUE_H

#include "call.h"
#include "outcome.h"

/* Maximum of packets released by one operation. The rest follow in the next operation. */
#define FP_DELAY_BATCH 4096
/* Maximum of outcomes that the release of one packet causes. */
#define FP_DELAY_OUTCOMES (FP_FAT_BATCH + 2)

FP_INLINE s64 fp_impair_word(struct fp_sched FP_MEM *s, u32 at, u32 index)
{
	u64 word = (u64)at - 1 + index;

	if (!at || word >= s->config.words)
		return 0;
	return *FP_AT(s64, s, s->words_at + 8 * word);
}

FP_INLINE int fp_is_delayed(struct fp_sched FP_MEM *s, u32 handle)
{
	return fp_slot_at(s, handle)->impaired & FP_IMPAIRED_DELAYED;
}

/*
 * The number of words that are not greater than `value`, among `count` sorted words `stride` apart.
 */
FP_FUNC u32 fp_count_up_to(struct fp_sched FP_MEM *s FP_ARG, u32 at, u32 stride, u32 count,
			   u64 value)
{
	u32 low = 0, high = count;
	u32 step;

	fp_loop(step, 32) {
		u32 middle = low + (high - low) / 2;

		if (low >= high)
			break;
		if ((u64)fp_impair_word(s, at, middle * stride) <= value)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The delay without jitter: fixed, or from the trace. */
FP_FUNC u64 fp_base_delay(struct fp_sched FP_MEM *s FP_ARG, u32 impair)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, impair);
	u64 at;
	u32 pairs;

	if (!im->config.delays || !im->config.delays_period)
		return im->config.delay;
	at = (s->now - im->state.began) % im->config.delays_period;
	pairs = fp_count_up_to(s, im->config.delays_at, 2, im->config.delays, at);
	return pairs ? (u64)fp_impair_word(s, im->config.delays_at, 2 * pairs - 1)
		     : im->config.delay;
}

FP_INLINE s64 fp_signed(u32 number)
{
	return (s32)fp_hide32(number);
}

/* A normally distributed number for packet s->number, correlated with the previous one. */
FP_FUNC s64 fp_draw_normal(struct fp_sched FP_MEM *s FP_ARG, u32 impair)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, impair);
	u64 draw = fp_draw(im->config.loss.seed, s->number, FP_FOR_DELAY);
	u32 part;
	u32 entry = fp_normal_entry(draw, &part);
	u32 at = im->config.normal_at;
	s64 z = fp_interpolate(fp_impair_word(s, at, entry), fp_impair_word(s, at, entry + 1),
			       part);

	if (draw >> 63)
		z = (s64)(0 - (u64)z);
	if (im->config.rho && im->state.has_z)
		z = fp_next_normal(fp_signed((u32)im->state.z), (s32)z,
				   fp_signed((u32)im->config.rho),
				   fp_signed((u32)im->config.fresh));
	FP_PUT(im->state.z, (s32)z);
	FP_PUT(im->state.has_z, 1);
	return fp_signed((u32)im->state.z);
}

/* The delay of packet s->number in ns. */
FP_FUNC u64 fp_packet_delay(struct fp_sched FP_MEM *s FP_ARG, u32 impair)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, impair);
	u64 delay = fp_base_delay(s, impair);
	u32 at = im->config.jitter_at;
	u32 part, entry;
	s64 deviation;

	if (!at)
		return delay;
	entry = fp_deviation_entry(fp_draw_normal(s, impair), &part);
	deviation = fp_interpolate(fp_impair_word(s, at, entry), fp_impair_word(s, at, entry + 1),
				   part);
	/* No packet leaves before it arrives. */
	if (deviation < 0 && delay < 0 - (u64)deviation)
		return 0;
	return delay + (u64)deviation;
}

/* Numbers the packet: sets s->number and s->lost. */
FP_FUNC int fp_number_packet(struct fp_sched FP_MEM *s FP_ARG, u32 impair, u32 segments)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, impair);
	u64 n = im->state.loss.packets;
	u32 lost = (u32)fp_loss_decide(&im->config.loss, &im->state.loss, n);
	u32 i;

	/* The other segments of a GSO packet advance the chain without an outcome. */
	fp_loop(i, segments - 1)
		fp_loss_decide(&im->config.loss, &im->state.loss, n + 1 + i);
	im->state.loss.packets = n + segments;
	im->stats.packets += segments;
	im->stats.gso_packets += segments > 1 ? 1 : 0;
	im->stats.lost += lost ? segments : 0;
	im->stats.bursts += lost && !im->state.loss.lost ? 1 : 0;
	FP_PUT(im->state.loss.lost, lost);
	s->number = n;
	FP_PUT(s->lost, lost);
	if (!im->state.has_begun) {
		im->state.began = s->now;
		FP_PUT(im->state.has_begun, 1);
	}
	return 0;
}

/* Decides duplication and corruption, and the bytes that the packet takes on the link. */
FP_FUNC int fp_duplicate_or_corrupt(struct fp_sched FP_MEM *s FP_ARG, u32 impair, u32 handle)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, impair);
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	u32 segments = p->meta.segments ? p->meta.segments : 1;
	u32 own = p->meta.bytes;
	u32 line = fp_link_bytes(&im->config.framing, own, segments);
	u64 seed = im->config.loss.seed;
	u64 n = s->number;
	u32 flags = 0;

	if (im->config.copy && fp_happens(fp_draw(seed, n, FP_FOR_COPY), im->config.copy)) {
		flags |= FP_OUTCOME_COPY;
		line *= 2;
		im->stats.copied++;
	}
	if (im->config.corrupt &&
	    fp_happens(fp_draw(seed, n, FP_FOR_CORRUPTION), im->config.corrupt)) {
		flags |= FP_OUTCOME_CORRUPT;
		FP_PUT(p->bit, (u32)((fp_draw(seed, n, FP_FOR_BIT) >> 32) * own * 8 >> 32));
		im->stats.corrupted++;
	}
	if (line < own || line - own > FP_IMPAIRED_MORE)
		line = own;
	FP_PUT(p->meta.bytes, line);
	FP_PUT(p->impaired, flags | (line - own) << 8);
	return 0;
}

/* The time at which packet s->number is released. */
FP_FUNC u64 fp_release_time(struct fp_sched FP_MEM *s FP_ARG, u32 impair, u32 bytes)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, impair);
	u64 delay = fp_packet_delay(s, impair);
	u64 at = fp_time_after(s->now, delay);

	if (fp_is_reordered_early(&im->config, &im->state, s->number)) {
		im->stats.ahead++;
		return s->now;
	}
	if (!im->config.free_order && at < im->state.last)
		at = im->state.last;
	at = fp_time_in_slot(&im->config, &im->state, at, bytes);
	at = fp_round_to_release(&im->config, at);
	if (!im->config.free_order)
		im->state.last = at;
	im->stats.requested_ns += delay;
	im->stats.held_ns += at - s->now;
	im->stats.delayed++;
	return at;
}

/* Counts a released packet: its lateness and its order. */
FP_FUNC int fp_count_release(struct fp_sched FP_MEM *s FP_ARG, u32 impair, u32 handle)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, impair);
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	u64 late = s->now > p->enqueued ? s->now - p->enqueued : 0;

	if (p->order < im->state.newest)
		im->stats.reordered++;
	else
		im->state.newest = p->order;
	im->stats.late_ns += late;
	if (late > im->stats.late_most_ns)
		im->stats.late_most_ns = late;
	return 0;
}

/* The time of the next release. */
FP_INLINE u64 fp_next_release(struct fp_sched FP_MEM *s)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 handle = fp_pifo_peek_as(pool, FP_DELAY_QUEUE, FP_HEAP);

	return handle ? fp_item_at(pool, handle)->rank : FP_NEVER;
}

/* Puts the packet into the delay queue until s->at. Returns 0, or the reason of a refusal. */
FP_FUNC int fp_push_delayed(struct fp_sched FP_MEM *s FP_ARG, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);
	int refused = fp_pifo_push_as(fp_pool_of(s), FP_DELAY_QUEUE, handle, s->at, FP_HEAP);

	if (refused)
		return refused;
	FP_PUT(p->impaired, p->impaired | FP_IMPAIRED_DELAYED);
	p->enqueued = s->at;
	s->delayed++;
	return 0;
}

/* Clears the mark of a packet that left the delay queue. */
FP_INLINE void fp_unmark_delayed(struct fp_sched FP_MEM *s, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);

	FP_PUT(p->impaired, p->impaired & ~FP_IMPAIRED_DELAYED);
	s->delayed--;
}

/*
 * Applies the impairment to a new packet; its number is in s->number. Returns 0, or 1 if the packet
 * is lost and its loss reported.
 */
FP_FUNC int fp_impair_packet(struct fp_sched FP_MEM *s FP_ARG, u32 impair, u32 handle)
{
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);

	fp_number_packet(s, impair, p->meta.segments ? p->meta.segments : 1);
	if (!s->lost)
		fp_duplicate_or_corrupt(s, impair, handle);
	fp_account_enqueued(s, p->leaf, p->meta.bytes);
	if (s->lost)
		fp_drop_packet(s, handle, FP_DROP_IMPAIRED);
	return (int)s->lost;
}

/* Returns 1 if the packet waits in the delay queue, 0 if it goes to its leaf now. */
FP_FUNC int fp_enter_delay_queue(struct fp_sched FP_MEM *s FP_ARG, u32 impair, u32 handle)
{
	s->at = fp_release_time(s, impair, fp_slot_at(s, handle)->meta.bytes);
	/*
	 * Due packets that still wait because outcomes are full keep their order: this one waits
	 * behind them.
	 */
	if (s->at > s->now || (s->delayed && fp_next_release(s) <= s->now))
		return !fp_push_delayed(s, handle);
	fp_count_release(s, impair, handle);
	return 0;
}

/*
 * Removes the first due packet from the delay queue and sets s->handle. Returns 0 if there is none.
 */
FP_FUNC int fp_pop_delayed(struct fp_sched FP_MEM *s FP_ARG)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	u32 handle = fp_pifo_peek_as(pool, FP_DELAY_QUEUE, FP_HEAP);
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);

	/* Reserves capacity for the outcomes of the operation itself. */
	if (!handle || fp_item_at(pool, handle)->rank > s->now ||
	    s->outcomes + FP_OUTCOMES_PER_OP + FP_DELAY_OUTCOMES > s->outcomes_most)
		return 0;
	fp_pifo_pop_as(pool, FP_DELAY_QUEUE, FP_HEAP);
	/* Corrupted memory. */
	if (handle > s->config.packets || !fp_is_delayed(s, handle)) {
		s->stats.dropped[FP_DROP_BROKEN]++;
		return 0;
	}
	fp_unmark_delayed(s, handle);
	fp_count_release(s, fp_node_at(s, p->leaf)->config.impair, handle);
	s->handle = handle;
	return 1;
}

#endif /* FP_DELAY_QUEUE_H */
