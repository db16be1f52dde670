/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ring.h: the events of one CPU, in a ring in the memory of the monitor.
 *
 *   start                                         start + config.ring_bytes
 *     | ....... | sample | opened | sample | ....... |
 *                ^ tail                     ^ head        bytes since the start, modulo the ring
 *
 * One writer, the owner of the scratch of this CPU, and one reader, in user space. Events are
 * written in place, and published by one store. They begin at cache lines. No event wraps: where
 * the rest of the ring is too small, time and number there are FP_RING_SKIP. A full ring drops the
 * event, and counts it.
 *
 * Deliberately absent: a wake-up of the reader (an interrupt to this CPU under a lock), and an order
 * between CPUs (the reader sorts by time).
 */
#ifndef FP_RING_H
#define FP_RING_H

#include "../work.h"

#define FP_RING_LINE 64
/* In place of time and number of an event. A capture may have this time, but no frame this number. */
#define FP_RING_SKIP (~0ull)

/* Bytes of the ring that an event of `bytes` uses. */
FP_INLINE u32 fp_ring_space(u32 bytes)
{
	return (bytes + FP_RING_LINE - 1) & ~(FP_RING_LINE - 1);
}

/* Whether `bytes` more fit. Looks where the reader is only if they did not fit before. */
FP_INLINE int fp_ring_fits(struct fp_rtt FP_MEM *r, struct fp_ring FP_MEM *ring, u64 bytes)
{
	if (fp_likely(ring->head + bytes - ring->seen <= r->config.ring_bytes))
		return 1;
	ring->seen = *(volatile u64 FP_MEM *)&ring->tail;
	return ring->head + bytes - ring->seen <= r->config.ring_bytes;
}

/* The offset of a place for an event of `bytes`, which fp_ring_publish() publishes; 0: dropped. */
FP_INLINE u64 fp_ring_place(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, u32 bytes)
{
	struct fp_ring FP_MEM *ring = &w->ring;
	u32 space = fp_ring_space(bytes), at = (u32)ring->head & (r->config.ring_bytes - 1);
	u32 rest = r->config.ring_bytes - at, skipped = space <= rest ? 0 : rest;

	if (fp_unlikely(!fp_ring_fits(r, ring, skipped + space))) {
		w->stats.events_lost++;
		return 0;
	}
	if (fp_unlikely(skipped)) {
		FP_PUT(FP_AT(struct fp_event, r, ring->start + at)->time, FP_RING_SKIP);
		FP_PUT(FP_AT(struct fp_event, r, ring->start + at)->number, FP_RING_SKIP);
		at = 0;
	}
	ring->next = ring->head + skipped + space;
	return ring->start + at;
}

FP_INLINE void fp_ring_publish(struct fp_work FP_MEM *w)
{
	fp_store_release64(&w->ring.head, w->ring.next);
}

#endif /* FP_RING_H */
