/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * native.c: the native home of bpf/core, and user space's hand on a monitor's memory wherever it
 * lies. Every function here is declared in ffi.rs; nothing else links to it.
 */
#include <stddef.h>
#include "layout.h"

/* Where fp_emit() writes: events one behind the other, each a struct fp_flow_event apart. */
struct fp_sink {
	u8 *events;
	u32 capacity; /* in events */
	u32 used;
};

static int fp_emit(struct fp_work *w, u32 bytes)
{
	struct fp_sink *sink = (struct fp_sink *)(size_t)w->sink;

	if (!sink || sink->used >= sink->capacity)
		return -1;
	memcpy(sink->events + (size_t)sink->used * sizeof(struct fp_flow_event), &w->event, bytes);
	sink->used++;
	return 0;
}

u64 fp_native_bytes(const struct fp_config *config)
{
	struct fp_rtt r;

	memset(&r, 0, sizeof(r));
	return fp_lay_out(&r, config);
}

void fp_native_format(struct fp_rtt *r, const struct fp_config *config)
{
	fp_format(r, config);
}

int fp_native_frame(struct fp_rtt *r, const struct fp_frame *frame, const u8 *data, u32 bytes,
		    struct fp_sink *sink)
{
	struct fp_work *w = fp_work_of(r, 0);

	w->frame = *frame;
	w->sink = (u64)(size_t)sink;
	w->head_bytes = bytes < FP_HEAD_BYTES ? bytes : FP_HEAD_BYTES;
	memcpy(w->head, data, w->head_bytes);
	return fp_rtt_frame(r, w, 1);
}

void fp_native_expire(struct fp_rtt *r, u64 now, u32 sets, struct fp_sink *sink)
{
	struct fp_work *w = fp_work_of(r, 0);

	w->sink = (u64)(size_t)sink;
	r->expire_now = now;
	r->expire_sets = sets;
	fp_rtt_expire(r, w);
}

/* Tells what is still open in one set of the flow table. */
static void fp_finish_set(struct fp_rtt *r, struct fp_work *w, u32 set, u64 now)
{
	struct fp_table t = fp_flow_table(r);
	struct fp_set *s = fp_set_at(r, &t, set);
	u32 way;

	for (way = 0; way < FP_WAYS; way++) {
		struct fp_flow *f = fp_flow_at(r, &t, set, way);

		if (!s->tag[way] || (f->flags & FP_FLOW_CLOSED))
			continue;
		if (f->flags & FP_FLOW_ANNOUNCED)
			fp_tell(r, w, f, FP_EVENT_ALIVE, FP_CLOSED_END, f->initiator, now);
		else
			fp_close(r, w, f, FP_CLOSED_END, f->initiator, now);
	}
}

/* Goes on from `*set` until the sink is full; 1 when the whole table was told. */
int fp_native_finish(struct fp_rtt *r, u64 now, u32 *set, struct fp_sink *sink)
{
	struct fp_work *w = fp_work_of(r, 0);

	w->sink = (u64)(size_t)sink;
	w->frame.number = 0;
	w->frame.ifindex = 0;
	for (; *set < r->config.flow_sets; (*set)++) {
		if (sink->used + FP_WAYS > sink->capacity)
			return 0;
		fp_finish_set(r, w, *set, now);
	}
	return 1;
}

/* Used places: flows, half-open flows, and chunks taken from the pool. Walks all tables. */
void fp_native_usage(struct fp_rtt *r, u64 used[3])
{
	struct fp_table table[2] = { fp_flow_table(r), fp_half_table(r) };
	u32 t, set, way, shard, index, free = 0, begun = r->chunks_begun;

	used[0] = used[1] = 0;
	for (t = 0; t < 2; t++) {
		for (set = 0; set <= table[t].mask; set++) {
			for (way = 0; way < FP_WAYS; way++)
				used[t] += fp_set_at(r, &table[t], set)->tag[way] != 0;
		}
	}
	for (shard = 0; shard < FP_POOL_SHARDS; shard++) {
		for (index = (u32)r->pool[shard].top; index && free <= r->config.chunks;
		     index = fp_chunk(r, index)->next)
			free++;
	}
	if (begun > r->config.chunks)
		begun = r->config.chunks;
	used[2] = free < begun ? begun - free : 0;
}

/* Chunks of one direction's list, or ~0 where the list contradicts itself. */
static u64 fp_held_by(struct fp_rtt *r, const struct fp_dir *d)
{
	u32 index = d->segments.head, last = 0, chunks = 0, places;

	for (; index && chunks <= r->config.chunks; index = fp_chunk(r, index)->next) {
		if (index > r->config.chunks || fp_chunk(r, index)->prev != last)
			return ~0ull;
		last = index;
		chunks++;
	}
	places = (chunks ? chunks - 1 : 0) * FP_CHUNK_SEGMENTS + d->segments.tail_at;
	if (last != d->segments.tail || places != d->segments.head_at + d->segments.count ||
	    d->segments.tail_at > FP_CHUNK_SEGMENTS || d->segments.count > r->config.max_segments)
		return ~0ull;
	return chunks + (d->trouble != 0);
}

/* Chunks that flows hold, or ~0 where a list contradicts itself. Walks everything; for tests. */
u64 fp_native_held(struct fp_rtt *r)
{
	struct fp_table table[2] = { fp_flow_table(r), fp_half_table(r) };
	u32 t, set, way, side;
	u64 held = 0, one;

	for (t = 0; t < 2; t++) {
		for (set = 0; set <= table[t].mask; set++) {
			for (way = 0; way < FP_WAYS * 2; way++) {
				struct fp_flow *f = fp_flow_at(r, &table[t], set, way / 2);

				side = way & 1;
				if (!fp_set_at(r, &table[t], set)->tag[way / 2])
					continue;
				one = fp_held_by(r, &f->dir[side]);
				if (one == ~0ull)
					return one;
				held += one;
			}
		}
	}
	return held;
}

void fp_native_stats(struct fp_rtt *r, struct fp_stats *sum)
{
	u64 *to = (u64 *)sum;
	u32 cpu, i;

	memset(sum, 0, sizeof(*sum));
	for (cpu = 0; cpu < r->config.cpus; cpu++) {
		const u64 *from = (const u64 *)&fp_work_of(r, cpu)->stats;

		for (i = 0; i < sizeof(*sum) / 8; i++)
			to[i] += from[i];
	}
}

/* 0, or -1 where no place near its slot is free. */
int fp_native_watch(struct fp_rtt *r, u32 ifindex, u32 watch)
{
	u32 i, slot = ifindex * 2654435761u, free = FP_MAX_WATCHED;

	for (i = 0; i < FP_WATCH_PROBES; i++) {
		u32 at = (slot + i) % FP_MAX_WATCHED, there = r->watched[at];

		if (there == ifindex) {
			if (!watch)
				r->watched[at] = ~0u;
			return 0;
		}
		if ((there == 0 || there == ~0u) && free == FP_MAX_WATCHED)
			free = at;
		if (there == 0)
			break;
	}
	if (!watch)
		return 0;
	if (free == FP_MAX_WATCHED)
		return -1;
	r->watched[free] = ifindex;
	return 0;
}

/* The layout test: sizes and offsets as this compiler sees them, in the order of ffi.rs. */
#define AT(type, member) (u32) offsetof(struct type, member)
const u32 fp_native_layout[] = {
	sizeof(struct fp_frame),
	sizeof(struct fp_key),
	sizeof(struct fp_config),
	sizeof(struct fp_counts),
	sizeof(struct fp_event),
	sizeof(struct fp_flow_event),
	sizeof(struct fp_stats),
	sizeof(struct fp_rtt),
	sizeof(struct fp_work),
	AT(fp_frame, segs),
	AT(fp_frame, way),
	AT(fp_key, port),
	AT(fp_config, mode),
	AT(fp_config, cpus),
	AT(fp_event, key),
	AT(fp_event, seq),
	AT(fp_event, kind),
	AT(fp_event, opened),
	AT(fp_flow_event, counts),
	AT(fp_flow_event, towards),
	AT(fp_counts, samples),
	AT(fp_stats, samples_seq),
	AT(fp_stats, tcp_bytes_sampled),
	AT(fp_rtt, replay),
	AT(fp_rtt, expire_cursor),
	AT(fp_rtt, replay_frames),
};
const u32 fp_native_layout_len = sizeof(fp_native_layout) / sizeof(fp_native_layout[0]);
