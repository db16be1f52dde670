/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/service.h: the root sends by a trace of opportunities, like a radio link.
 *
 * Each opportunity carries FP_OPPORTUNITY bytes. Format and size are those of Mahimahi (Netravali
 * and others, USENIX ATC 2015). A packet leaves at the first opportunity that is left, and bytes
 * above its size are taken from the next ones. So a packet may leave a part of an opportunity
 * early, and the rate is exact. Unused opportunities are lost.
 *
 * The trace begins with the first operation, and repeats. Another trace begins with the next
 * operation, because its opportunities must not be counted against those of the previous one. Bytes
 * above the last opportunity stay owed.
 */
#ifndef FP_SERVICE_H
#define FP_SERVICE_H

#include "delay_queue.h"

/*
 * The first word of an impairment's configuration that belongs to the trace, as do all later ones.
 */
#define FP_TRACE_WORD (__builtin_offsetof(struct fp_impair_config, chances_at) / 8)

/* Starts another trace. A debt is less than a packet, so it may remain. */
FP_INLINE void fp_restart_service(struct fp_impair FP_MEM *im)
{
	FP_PUT(im->state.has_lap, 0);
	FP_PUT(im->state.lap, 0ull);
	FP_PUT(im->state.chances, 0ull);
	if (im->state.credit > 0)
		im->state.credit = 0;
}

/* Opportunities since the start of the trace, up to and including now. */
FP_FUNC u64 fp_opportunities_until_now(struct fp_sched FP_MEM *s FP_ARG)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, s->config.service);
	u64 since = s->now - im->state.lap;
	u64 period = im->config.chances_period;
	u32 here;

	if (!period)
		return 0;
	here = fp_count_up_to(s, im->config.chances_at, 1, im->config.chances, since % period);
	return since / period * im->config.chances + here;
}

/* Applies the opportunities of the time that passed to the packets that wait. */
FP_FUNC int fp_update_service(struct fp_sched FP_MEM *s FP_ARG)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, s->config.service);
	u64 chances, credit;

	if (!im->state.has_lap) {
		im->state.lap = s->now;
		FP_PUT(im->state.has_lap, 1);
	}
	chances = fp_opportunities_until_now(s);
	credit = (u64)im->state.credit + (chances - im->state.chances) * FP_OPPORTUNITY;
	im->state.chances = chances;
	if ((s64)credit > 0 && !fp_waiting(s, 1))
		credit = 0;
	im->state.credit = (s64)credit;
	return 0;
}

FP_INLINE int fp_service_permits(struct fp_sched FP_MEM *s)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, s->config.service);

	return im->state.credit > 0 || !im->config.chances || !im->config.chances_period;
}

FP_INLINE void fp_charge_service(struct fp_sched FP_MEM *s, u32 bytes)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, s->config.service);

	im->state.credit = (s64)((u64)im->state.credit - bytes);
}

/* The time at which the next packet may leave. */
FP_FUNC u64 fp_next_opportunity(struct fp_sched FP_MEM *s FP_ARG)
{
	struct fp_impair FP_MEM *im = fp_impair_at(s, s->config.service);
	u64 owed = 0 - (u64)im->state.credit;
	u64 number = im->state.chances + owed / FP_OPPORTUNITY;
	u32 chances = im->config.chances;

	if (!chances)
		return s->now;
	return im->state.lap + number / chances * im->config.chances_period +
	       (u64)fp_impair_word(s, im->config.chances_at, (u32)(number % chances));
}

#endif /* FP_SERVICE_H */
