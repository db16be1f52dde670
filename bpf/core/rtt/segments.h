/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * segments.h: the outstanding segments of a direction, in chunks from one bounded pool.
 *
 * The newest segment of a direction is in its flow. Those before it are in sequence order in a doubly
 * linked list of chunks:
 *
 *        head                                   tail
 *   [ . . 2 3 4 ] <-> [ 5 6 7 8 9 ] <-> [ 10 11 . . . ]     newest: 12
 *         ^ head_at                            ^ tail_at
 *
 * Data appends, an ACK removes from the head, and Karn's rule cuts at the tail. Each segment enters
 * and leaves once, so all three are O(1) amortised. A flow with one segment outstanding, as most have,
 * uses no chunk. Chunk 0 is unused, and index 0 means "none". Free chunks are on FP_POOL_SHARDS
 * lock-free stacks (Treiber) with a tag against ABA.
 */
#ifndef FP_SEGMENTS_H
#define FP_SEGMENTS_H

#include "../work.h"

#define FP_CHUNK_SEGMENTS 5
#define FP_POOL_TRIES	  64
/* Of a direction: struct fp_segments has 16 bits for their number. */
#define FP_MAX_SEGMENTS 0xffff

/* Segment flags. */
#define FP_SEGMENT_TS	     0x01 /* tsval is valid */
#define FP_SEGMENT_SYN	     0x02 /* gives a handshake sample */
#define FP_SEGMENT_DEAD	     0x04 /* already answered, or ambiguous */
#define FP_SEGMENT_QUEUE     0x08 /* observed after the egress queue of its interface */
#define FP_SEGMENT_DIRECTION 0x30 /* enum fp_direction << 4 of its frame */

struct fp_segment {
	u64 time;
	u32 seq;
	u32 end;
	u32 tsval;
	u32 flags;
};

struct fp_chunk {
	u32 next;
	u32 prev;
	struct fp_segment segment[FP_CHUNK_SEGMENTS];
};

struct fp_segments {
	struct fp_segment newest; /* if count is not 0 */
	u32 head;
	u32 tail;
	u32 una;   /* data before it is acknowledged, if FP_DIR_ACKED */
	u16 count; /* with the newest */
	u8 head_at;
	u8 tail_at; /* one after the last; 0 only without chunks */
};

FP_INLINE struct fp_chunk FP_MEM *fp_chunk(struct fp_rtt FP_MEM *r, u32 index)
{
	return FP_AT(struct fp_chunk, r, r->chunks + (u64)index * sizeof(struct fp_chunk));
}

/* A chunk that was never used, so that the pool needs no initial list. 0 when none is left. */
FP_INLINE u32 fp_chunk_begin(struct fp_rtt FP_MEM *r)
{
	u32 begun;

	if (*(volatile u32 FP_MEM *)&r->chunks_begun >= r->config.chunks)
		return 0;
	begun = fp_fetch_add32(&r->chunks_begun, 1);
	return begun < r->config.chunks ? begun + 1 : 0;
}

/* Takes a free chunk. `near` selects the first stack to try. 0 when none is left. */
FP_FUNC u32 fp_chunk_take(struct fp_rtt FP_MEM *r FP_ARG, u32 near)
{
	u32 i, shard = near;

	fp_loop(i, FP_POOL_TRIES) {
		struct fp_pool_shard FP_MEM *pool = &r->pool[shard % FP_POOL_SHARDS];
		u64 top = *(volatile u64 FP_MEM *)&pool->top;
		u32 index = (u32)top;
		u64 next;

		if (index == 0) {
			index = shard == near ? fp_chunk_begin(r) : 0;
			if (index)
				return index;
			if (++shard - near >= FP_POOL_SHARDS)
				return 0;
			continue;
		}
		next = *(volatile u32 FP_MEM *)&fp_chunk(r, index)->next;
		next |= ((top >> 32) + 1) << 32;
		if (fp_cas64(&pool->top, top, next) == top) {
			fp_chunk(r, index)->next = 0;
			fp_chunk(r, index)->prev = 0;
			return index;
		}
	}
	return 0;
}

FP_FUNC int fp_chunk_give(struct fp_rtt FP_MEM *r FP_ARG, u32 index, u32 near)
{
	struct fp_pool_shard FP_MEM *pool = &r->pool[near % FP_POOL_SHARDS];
	u32 i;

	fp_loop(i, FP_POOL_TRIES) {
		u64 top = *(volatile u64 FP_MEM *)&pool->top;

		*(volatile u32 FP_MEM *)&fp_chunk(r, index)->next = (u32)top;
		if (fp_cas64(&pool->top, top, (u64)index | ((top >> 32) + 1) << 32) == top)
			return 0;
	}
	return -1; /* the chunk stays unused until the monitor ends */
}

FP_INLINE struct fp_segment FP_MEM *fp_segments_first(struct fp_rtt FP_MEM *r,
						      struct fp_segments FP_MEM *list)
{
	if (list->count == 1)
		return &list->newest;
	return &fp_chunk(r, list->head)->segment[list->head_at];
}

/* Moves the newest segment to the last chunk. Returns 0 when the pool is exhausted. */
FP_FUNC int fp_segments_push(struct fp_rtt FP_MEM *r FP_ARG, struct fp_segments FP_MEM *list FP_ARG,
			     u32 near)
{
	if (list->count == 1 && list->tail) { /* the last chunk stays with its list */
		FP_PUT(list->head_at, 0);
		FP_PUT(list->tail_at, 0);
	} else if (!list->tail || list->tail_at == FP_CHUNK_SEGMENTS) {
		u32 index = fp_chunk_take(r, near);

		if (!index)
			return 0;
		if (list->tail) {
			fp_chunk(r, list->tail)->next = index;
			fp_chunk(r, index)->prev = list->tail;
		} else {
			list->head = index;
			list->head_at = 0;
		}
		list->tail = index;
		list->tail_at = 0;
	}
	FP_COPY(&fp_chunk(r, list->tail)->segment[list->tail_at], &list->newest);
	list->tail_at++;
	return 1;
}

/* The entry of another segment, or 0 when `limit` or the pool is exhausted. */
FP_INLINE struct fp_segment FP_MEM *
fp_segments_append(struct fp_rtt FP_MEM *r, struct fp_segments FP_MEM *list, u32 limit, u32 near)
{
	if (list->count >= limit || list->count >= FP_MAX_SEGMENTS)
		return 0;
	if (list->count && !fp_segments_push(r, list, near))
		return 0;
	list->count++;
	return &list->newest;
}

FP_INLINE void fp_segments_drop_first(struct fp_rtt FP_MEM *r, struct fp_segments FP_MEM *list,
				      u32 near)
{
	list->count--;
	if (!list->count)
		return;
	list->head_at++;
	if (list->head_at == FP_CHUNK_SEGMENTS && list->head != list->tail) {
		u32 old = list->head;

		list->head = fp_chunk(r, old)->next;
		list->head_at = 0;
		fp_chunk(r, list->head)->prev = 0;
		fp_chunk_give(r, old, near);
	}
}

FP_INLINE void fp_segments_drop_last(struct fp_rtt FP_MEM *r, struct fp_segments FP_MEM *list,
				     u32 near)
{
	list->count--;
	if (!list->count)
		return;
	list->tail_at--;
	FP_COPY(&list->newest, &fp_chunk(r, list->tail)->segment[list->tail_at]);
	if (list->tail_at == 0 && list->head != list->tail) {
		u32 old = list->tail;

		list->tail = fp_chunk(r, old)->prev;
		list->tail_at = FP_CHUNK_SEGMENTS;
		fp_chunk(r, list->tail)->next = 0;
		fp_chunk_give(r, old, near);
	}
}

/* Frees every chunk. O(chunks), bounded by max_segments. */
FP_FUNC int fp_segments_clear(struct fp_rtt FP_MEM *r FP_ARG,
			      struct fp_segments FP_MEM *list FP_ARG, u32 near)
{
	u32 index = list->head, i, chunks = r->config.chunks;

	fp_loop(i, chunks) {
		u32 next;

		if (!index)
			break;
		next = fp_chunk(r, index)->next;

		fp_chunk_give(r, index, near);
		index = next;
	}
	FP_PUT(list->head, 0);
	FP_PUT(list->tail, 0);
	FP_PUT(list->count, 0);
	FP_PUT(list->head_at, 0);
	FP_PUT(list->tail_at, 0);
	return 0;
}

#endif /* FP_SEGMENTS_H */
