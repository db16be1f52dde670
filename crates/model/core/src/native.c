/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * native.c: the native runtime of bpf/core, and the access of user space to a monitor's memory in any
 * mapping. Every function here is declared in ffi.rs; nothing else links to it.
 */
#include <stddef.h>
#include "rtt/layout.h"
#include "sched/meta.h"

u64 fp_native_bytes(const struct fp_config *config)
{
	struct fp_rtt r;

	memset(&r, 0, sizeof(r));
	return fp_layout_tables(&r, config);
}

void fp_native_format(struct fp_rtt *r, const struct fp_config *config)
{
	fp_format(r, config);
}

u64 fp_native_seed(const struct fp_rtt *r)
{
	return r->config.seed;
}

/* Processes a frame with the scratch of a CPU. Returns whether events wait in its ring. */
int fp_native_frame(struct fp_rtt *r, u32 cpu, const struct fp_frame *frame, const u8 *data,
		    u32 bytes)
{
	struct fp_work *w = fp_work_of(r, cpu);

	w->frame = *frame;
	w->head_bytes = bytes < FP_HEAD_BYTES ? bytes : FP_HEAD_BYTES;
	memcpy(w->head, data, w->head_bytes);
	fp_rtt_frame(r, w);
	return w->ring.head != w->ring.tail;
}

/* Ends what the reader reads at the position `tail`. Returns 0. */
static u32 fp_ring_read_to(struct fp_ring *ring, u64 tail)
{
	__atomic_store_n(&ring->tail, tail, __ATOMIC_RELEASE);
	return 0;
}

/*
 * Takes the next event of a CPU, unless it is later than `until`. Returns its bytes, 0 without one.
 * A ring that contradicts itself is emptied.
 */
u32 fp_native_event(struct fp_rtt *r, u32 cpu, u64 until, struct fp_flow_event *out)
{
	struct fp_ring *ring = &fp_work_of(r, cpu)->ring;
	u64 head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE), tail = ring->tail;
	u32 size = r->config.ring_bytes, at = (u32)tail & (size - 1), bytes;
	const struct fp_event *e = FP_AT(struct fp_event, r, ring->start + at);

	if (head == tail)
		return 0;
	if (head - tail > size)
		return fp_ring_read_to(ring, head);
	if (e->time == FP_RING_SKIP && e->number == FP_RING_SKIP) {
		tail += size - at;
		at = 0;
		e = FP_AT(struct fp_event, r, ring->start);
		if (head == tail)
			return fp_ring_read_to(ring, head);
	}
	if (at + sizeof(*e) > size)
		return fp_ring_read_to(ring, head);
	bytes = e->kind == FP_EVENT_SAMPLE ? sizeof(*e) : sizeof(*out);
	if (at + bytes > size)
		return fp_ring_read_to(ring, head);
	if (e->time > until)
		return 0;
	memcpy(out, e, bytes);
	fp_ring_read_to(ring, tail + fp_ring_space(bytes));
	return bytes;
}

/* The metadata of a frame for policies, with the class of one of its ends. */
int fp_native_look(struct fp_rtt *r, const struct fp_frame *frame, const u8 *data, u32 bytes,
		   u32 end, struct fp_meta *meta)
{
	struct fp_work *w = fp_work_of(r, 0);

	w->frame = *frame;
	w->head_bytes = bytes < FP_HEAD_BYTES ? bytes : FP_HEAD_BYTES;
	memcpy(w->head, data, w->head_bytes);
	return fp_parse_and_classify(r, w, meta, end);
}

/* For tests: the packet and the length of a frame, by both paths of the parser or only by one. */
int fp_native_parse(struct fp_rtt *r, const struct fp_frame *frame, const u8 *data, u32 bytes,
		    u32 path, u8 result[256])
{
	struct fp_work *w = fp_work_of(r, 0);
	int parsed;

	memset(&w->packet, 0, sizeof(w->packet));
	w->frame = *frame;
	w->head_bytes = bytes < FP_HEAD_BYTES ? bytes : FP_HEAD_BYTES;
	memcpy(w->head, data, w->head_bytes);
	if (path == 0)
		parsed = fp_parse(w);
	else
		parsed = path == 1 ? fp_parse_any(w) : fp_parse_usual_head(w);
	_Static_assert(sizeof(w->packet) + sizeof(u32) <= 256, "");
	memcpy(result, &w->packet, sizeof(w->packet));
	memcpy(result + sizeof(w->packet), &w->wire_bytes, sizeof(u32));
	return parsed;
}

void fp_native_hash_fill(struct fp_hash_keys *h, u64 seed)
{
	fp_hash_fill(h, seed);
}

u32 fp_native_meta_hash(const struct fp_hash_keys *h, const struct fp_meta *meta)
{
	return fp_meta_hash(h, meta);
}

/* For tests: the hash of a flow's identity, and that of one and of three words. */
u32 fp_native_hash_key(const struct fp_hash_keys *h, const struct fp_key *key)
{
	return fp_hash_key(h, key);
}

u64 fp_native_hash_1(const struct fp_hash_keys *h, u64 a)
{
	return fp_hash_1(h, a);
}

u64 fp_native_hash_3(const struct fp_hash_keys *h, u64 a, u64 b, u64 c)
{
	return fp_hash_3(h, a, b, c);
}

void fp_native_expire(struct fp_rtt *r, u64 now, u32 sets)
{
	struct fp_work *w = fp_work_of(r, 0);

	r->expire_now = now;
	r->expire_sets = sets;
	fp_rtt_expire(r, w);
}

/* Reports the open flows in one set of the flow table. */
static void fp_finish_set(struct fp_rtt *r, struct fp_work *w, u32 set, u64 now)
{
	struct fp_table t = fp_flow_table(r);
	struct fp_run_set_op *s = fp_set_at(r, &t, set);
	u32 way;

	for (way = 0; way < FP_WAYS; way++) {
		struct fp_flow *f = fp_flow_at(r, &t, set, way);

		if (!s->tag[way] || (f->flags & FP_FLOW_CLOSED))
			continue;
		if (f->flags & FP_FLOW_ANNOUNCED)
			fp_report_flow(r, w, f, FP_EVENT_ALIVE, FP_CLOSED_END, f->initiator, now);
		else
			fp_close_flow(r, w, f, FP_CLOSED_END, f->initiator, now);
	}
}

/* Continues from `*set` until the ring is full. Returns 1 after the whole table. */
int fp_native_finish(struct fp_rtt *r, u64 now, u32 *set)
{
	u32 a_set = (FP_WAYS + 1) * fp_ring_space(sizeof(struct fp_flow_event));
	struct fp_work *w = fp_work_of(r, 0);

	w->frame.number = 0;
	w->frame.ifindex = 0;
	w->image = r->image;
	for (; *set < r->config.flow_sets; (*set)++) {
		if (!fp_ring_fits(r, &w->ring, a_set))
			return 0;
		fp_finish_set(r, w, *set, now);
	}
	return 1;
}

/*
 * Used entries: flows, half-open flows, and chunks of the pool; then marks of refused flows, and the
 * minimum of used flows at a refusal. Walks through all tables.
 */
void fp_native_usage(struct fp_rtt *r, u64 used[5])
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
	used[3] = 0;
	for (t = 0; t < FP_REFUSED_MARKS; t++)
		used[3] += *FP_AT(u8, r, r->refused + t);
	used[4] = r->refused_at;
}

/* Chunks of one direction's list, or ~0 if the list contradicts itself. */
static u64 fp_held_by(struct fp_rtt *r, const struct fp_dir *d)
{
	const struct fp_segments *list = &d->segments;
	u32 index = list->head, last = 0, chunks = 0, places, in_chunks;

	for (; index && chunks <= r->config.chunks; index = fp_chunk(r, index)->next) {
		if (index > r->config.chunks || fp_chunk(r, index)->prev != last)
			return ~0ull;
		last = index;
		chunks++;
	}
	places = (chunks ? chunks - 1 : 0) * FP_CHUNK_SEGMENTS + list->tail_at;
	in_chunks = list->count ? list->count - 1u : 0;
	if (last != list->tail || list->tail_at > FP_CHUNK_SEGMENTS ||
	    list->count > r->config.max_segments)
		return ~0ull;
	/* Without segments in it, the last chunk stays with old places. */
	if (in_chunks ? places != list->head_at + in_chunks : chunks > 1)
		return ~0ull;
	return chunks + ((d->flags & FP_DIR_TROUBLE) != 0);
}

/* Chunks of flows, or ~0 if a list contradicts itself. Walks through everything; for tests. */
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

/* The slot of an interface; -1 if it is not monitored. */
int fp_native_count_interface(struct fp_rtt *r, u32 ifindex, u32 slot)
{
	u32 at = fp_watched(r, ifindex);

	if (at >= FP_MAX_WATCHED)
		return -1;
	r->interface_slots += (slot != FP_OTHER) - (r->watched_slot[at] != FP_OTHER);
	r->watched_slot[at] = slot;
	return 0;
}

/* Returns 0, or -1 if no entry near its position is free. */
int fp_native_watch(struct fp_rtt *r, u32 ifindex, u32 watch)
{
	u32 i, free = FP_MAX_WATCHED;

	for (i = 0; i < FP_WATCH_PROBES; i++) {
		u32 at = fp_watch_place(ifindex, i), there = r->watched[at];

		if (there == ifindex) {
			if (!watch) {
				r->watched[at] = ~0u;
				r->interface_slots -= r->watched_slot[at] != FP_OTHER;
				r->watched_slot[at] = FP_OTHER;
				r->watched_count--;
			}
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
	r->watched_count++;
	return 0;
}

void fp_native_filters(struct fp_rtt *r, const struct fp_filter *filters, u32 count)
{
	u32 i, only = 0;

	r->filters = 0;
	for (i = 0; i < count && i < FP_MAX_FILTERS; i++) {
		r->filter[i] = filters[i];
		only |= !(filters[i].flags & FP_FILTER_EXCEPT);
	}
	r->filters_only = only;
	__atomic_store_n(&r->filters, i, __ATOMIC_RELEASE);
}

/* The memory of the unused image. */
u8 *fp_native_free_image(struct fp_rtt *r)
{
	return (u8 *)r + r->images[!(r->image & 1)];
}

/* The active image. */
u32 fp_native_image(const struct fp_rtt *r)
{
	return r->image & 1;
}

/* Activates the other image. */
void fp_native_turn_image(struct fp_rtt *r)
{
	u32 other = !(r->image & 1);

	r->uses[other] = fp_image_at(r, other)->uses;
	r->generation[other] = fp_image_at(r, other)->generation;
	__atomic_store_n(&r->image, other, __ATOMIC_SEQ_CST);
}

/* A slot gets another owner: results of older rules do not apply to it. */
void fp_native_begin_slot(struct fp_rtt *r, u32 slot, u32 generation)
{
	struct fp_class *c = fp_class_at(r, slot);
	u32 cpu;

	memset(c, 0, sizeof(*c));
	for (cpu = 0; cpu < r->config.cpus; cpu++) {
		memset(fp_volume_at(r, cpu, slot), 0, sizeof(struct fp_volume));
		memset(fp_legs_at(r, cpu, slot), 0, 2 * sizeof(struct fp_leg_counts));
	}
	c->born = generation;
}

/* Sets the class filters: flags are FP_CLASS_*. */
void fp_native_filter_class(struct fp_rtt *r, u32 slot, u32 flags)
{
	fp_class_at(r, slot)->flags = flags;
}

void fp_native_filter_classes(struct fp_rtt *r, u32 some)
{
	__atomic_store_n(&r->class_filters, some, __ATOMIC_RELEASE);
}

/* Adds what a CPU counted of a class. */
static void fp_add_counts(struct fp_rtt *r, u32 cpu, u32 slot, struct fp_class_counts *to)
{
	const struct fp_volume *volume = fp_volume_at(r, cpu, slot);
	const struct fp_leg_counts *leg = fp_legs_at(r, cpu, slot);
	u32 i;

	for (i = 0; i < 2; i++) {
		to->dir[i].packets += volume->packets[i];
		to->dir[i].bytes += volume->bytes[i];
		to->dir[i].unmeasured_bytes += volume->unmeasured_bytes[i];
		to->leg[i].samples += leg[i].samples;
		to->leg[i].unbinned += leg[i].unbinned;
		to->leg[i].sum_ns += leg[i].sum_ns;
	}
}

static void fp_read_class(const struct fp_class *c, struct fp_class_counts *to)
{
	u32 direction;

	memset(to, 0, sizeof(*to));
	for (direction = 0; direction < 2; direction++) {
		struct fp_dir_counts *d = &to->dir[direction];

		d->data_packets = c->losses[direction].data_packets;
		d->retransmitted_packets = c->losses[direction].retransmitted_packets;
		d->upstream_lost_packets = c->losses[direction].upstream_lost_packets;
		d->spurious_packets = c->losses[direction].spurious_packets;
		d->reordered_packets = c->losses[direction].reordered_packets;
	}
	to->flows_opened = c->flows_opened;
	to->flows_closed = c->flows_closed;
	to->handshakes_failed = c->handshakes_failed;
	to->one_sided = c->one_sided;
}

void fp_native_counts(struct fp_rtt *r, struct fp_class_counts *counts)
{
	u32 slot, cpu;

	for (slot = 0; slot < r->config.slots; slot++)
		fp_read_class(fp_class_at(r, slot), &counts[slot]);
	for (cpu = 0; cpu < r->config.cpus; cpu++) {
		for (slot = 0; slot < r->config.slots; slot++)
			fp_add_counts(r, cpu, slot, &counts[slot]);
	}
}

/* Switches cells and pairs to the other half. Returns the half to read. */
u32 fp_native_turn_reading(struct fp_rtt *r)
{
	u32 half = r->reading & 1;

	__atomic_store_n(&r->reading, !half, __ATOMIC_SEQ_CST);
	return half;
}

/* Takes up to `space` cells out of a half from `*at`. The last call returns 0. */
u32 fp_native_cells(struct fp_rtt *r, u32 half, u32 *at, u64 *out, u32 space)
{
	struct fp_cell *cells = (struct fp_cell *)((u8 *)r + r->cells[half & 1]);
	u32 all = r->config.cell_sets * FP_CELL_WAYS, used = 0;

	for (; *at < all && used < space; (*at)++) {
		if (!cells[*at].key_count)
			continue;
		out[used++] = cells[*at].key_count;
		cells[*at].key_count = 0;
	}
	return used;
}

u32 fp_native_pairs(struct fp_rtt *r, u32 half, u32 *at, struct fp_pair *out, u32 space)
{
	struct fp_pair *pairs = (struct fp_pair *)((u8 *)r + r->pairs[half & 1]);
	u32 all = r->config.pair_sets * FP_PAIR_WAYS, used = 0;

	for (; *at < all && used < space; (*at)++) {
		if (!pairs[*at].kind_length)
			continue;
		out[used++] = pairs[*at];
		memset(&pairs[*at], 0, sizeof(pairs[*at]));
	}
	return used;
}

/* An open flow for user space. */
struct fp_flow_view {
	struct fp_key key;
	u64 opened;
	u64 last;
	u64 min[2]; /* towards side N */
	struct fp_counts counts[2];
	u32 slot[2];
	u16 p50[2]; /* towards side N: bucket */
	u32 closed; /* it ended, and stays for late packets */
};

/* Flows of a class (all for ~0) from set `*at` of the table on, up to `space`. */
u32 fp_native_flows(struct fp_rtt *r, u32 slot, u32 *at, struct fp_flow_view *out, u32 space)
{
	struct fp_table t = fp_flow_table(r);
	u32 way, side, used = 0;

	for (; *at < r->config.flow_sets && used + FP_WAYS <= space; (*at)++) {
		for (way = 0; way < FP_WAYS; way++) {
			struct fp_flow *f = fp_flow_at(r, &t, *at, way);
			const struct fp_flow_rare *rare = fp_rare_of(r, f);
			const struct fp_tally *tally = &rare->tally;

			if (!fp_set_at(r, &t, *at)->tag[way])
				continue;
			if (slot != ~0u && tally->slot[0] != slot && tally->slot[1] != slot)
				continue;
			out[used].key = f->key;
			out[used].opened = rare->opened;
			out[used].last = f->last;
			out[used].closed = (f->flags & FP_FLOW_CLOSED) != 0;
			for (side = 0; side < 2; side++) {
				out[used].min[side] = f->totals[!side].min;
				out[used].p50[side] = f->dir[!side].p50 >> FP_P50_SHIFT;
				fp_counts_of(r, f, &out[used].counts[side], side);
				out[used].slot[side] = tally->slot[side];
			}
			used++;
		}
	}
	return used;
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
	AT(fp_frame, direction),
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
	sizeof(struct fp_class_counts),
	sizeof(struct fp_dir_counts),
	sizeof(struct fp_class),
	sizeof(struct fp_pair),
	AT(fp_work, ring),
	sizeof(struct fp_flow_view),
	sizeof(struct fp_filter),
	sizeof(struct fp_image),
	sizeof(struct fp_rule),
	AT(fp_class_counts, leg),
	AT(fp_class_counts, flows_opened),
	AT(fp_flow_view, counts),
	AT(fp_pair, samples),
	sizeof(struct fp_hash_keys),
};
const u32 fp_native_layout_len = sizeof(fp_native_layout) / sizeof(fp_native_layout[0]);
