/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sample.h: from a matched pair to a sample: checked, counted, suppressed or reported.
 *
 * The side that answered is the measured host. The direction of the sample is that of the data.
 * Before the egress queue (tcx), the interval contains the router's own queue towards that host.
 * After it (a packet tap on the egress interface), it does not.
 */
#ifndef FP_SAMPLE_H
#define FP_SAMPLE_H

#include "../class/tally.h"
#include "ring.h"

FP_INLINE u8 fp_own_queue(const struct fp_work FP_MEM *w, u32 segment_flags)
{
	u32 data_direction = (segment_flags & FP_SEGMENT_DIRECTION) >> 4;

	if (data_direction == FP_DIRECTION_UNKNOWN)
		return FP_OWN_QUEUE_UNKNOWN;
	/*
	 * Observed at egress, after the queue: the queue is not included. Its ingress is before the
	 * queue.
	 */
	if (data_direction == FP_EGRESS && (segment_flags & FP_SEGMENT_QUEUE))
		return FP_OWN_QUEUE_OUT;
	(void)w;
	return FP_OWN_QUEUE_IN;
}

FP_INLINE void fp_count_sample(struct fp_work FP_MEM *w, u32 method)
{
	w->stats.samples[(method - 1) % FP_METHOD_COUNT]++;
}

/* Whether a sample of this leg may be reported at `now`. */
FP_INLINE int fp_may_report_sample(struct fp_rtt FP_MEM *r, struct fp_flow FP_MEM *f, u32 from,
				   u64 now)
{
	u64 gap = r->config.rate_limit;
	struct fp_rare FP_MEM *rare;

	if (r->config.rate_limit_rtts) {
		u64 rtts = (f->totals[from & 1].min * r->config.rate_limit_rtts) >> 8;

		if (rtts > gap)
			gap = rtts;
	}
	if (fp_likely(gap == 0))
		return 1;
	rare = fp_rare(r, f, from);
	if (rare->given && now - rare->given < gap)
		return 0;
	rare->given = now;
	return 1;
}

/* Takes a sample of the data of `f` from side `from`, completed by the current packet. */
FP_FUNC int fp_take_sample(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			   struct fp_flow FP_MEM *f FP_ARG)
{
	const struct fp_match FP_MEM *m = &w->match;
	u32 from = !w->packet.side;
	struct fp_totals FP_MEM *data = &f->totals[from & 1];
	u64 now = w->frame.now, rtt = now - m->time, at;
	struct fp_event FP_MEM *e;

	/*
	 * Its ingress is monitored too, perhaps with other addresses (NAT), and takes the sample.
	 */
	if (fp_unlikely(w->frame.flags & FP_FRAME_SEEN_BEFORE))
		return 0;
	if (fp_unlikely(now < m->time)) {
		w->stats.refused_clock++;
		return 0;
	}
	if (fp_unlikely(rtt > r->config.max_rtt)) {
		w->stats.refused_age++;
		return 0;
	}
	fp_count_sample(w, m->method);
	data->samples++;
	data->sampled_bytes += m->acked;
	if (m->method != FP_METHOD_ICMP)
		w->stats.tcp_bytes_sampled += m->acked;
	if (data->samples == 1 || rtt < data->min)
		data->min = rtt;
	if (r->config.slots)
		fp_tally_sample(r, w, f, rtt);
	if (r->config.quiet)
		return 0;
	if (!fp_may_report_sample(r, f, from, now)) {
		w->stats.samples_suppressed++;
		return 0;
	}
	at = fp_ring_place(r, w, sizeof(*e));
	if (fp_unlikely(!at))
		return 0;
	e = FP_AT(struct fp_event, r, at);
	e->time = now;
	e->number = w->frame.number;
	e->rtt = rtt;
	e->min = data->min;
	FP_COPY(&e->key, &f->key);
	e->flow = f->id;
	e->ifindex = w->frame.ifindex;
	e->towards = w->behind;
	e->seq = m->end;
	e->ack = w->packet.ack;
	e->acked_bytes = m->acked;
	e->kind = FP_EVENT_SAMPLE;
	e->method = m->method;
	e->side = w->packet.side;
	e->reason = 0;
	e->own_queue = fp_own_queue(w, m->flags);
	e->direction = w->frame.direction;
	e->seen = 3;
	FP_PUT(e->opened, 0);
	fp_ring_publish(w);
	return 0;
}

#endif /* FP_SAMPLE_H */
