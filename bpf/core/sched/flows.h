/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/flows.h: the flow of a packet, and the number of flows of its hosts that wait.
 *
 * Both tables are sets of eight entries, like those of CAKE: two flows share a queue only if eight
 * others of their set wait. Each leaf has one more entry of flows, which no other leaf may use: so a
 * packet is never dropped because other leaves have many flows. A flow keeps its state when its
 * queue is empty, until another flow needs the entry. Then the flow that was idle longest is
 * evicted (stats.state_lost counts it).
 */
#ifndef FP_SCHED_FLOWS_H
#define FP_SCHED_FLOWS_H

#include "outcome.h"

/* The set of a hash, as the number of the entry before its first. */
FP_INLINE u32 fp_set_of(u32 hash, u32 places)
{
	return (u32)((u64)hash * (places / FP_FLOW_WAYS) >> 32) * FP_FLOW_WAYS;
}

FP_INLINE void fp_begin_flow(struct fp_sched FP_MEM *s, u32 flow, u32 leaf, u32 hash)
{
	struct fp_fq FP_MEM *f = fp_fq_at(s, flow);
	u32 i;

	if (f->leaf)
		s->stats.state_lost++;
	FP_PUT(f->leaf, leaf);
	FP_PUT(f->hash, hash);
	FP_PUT(f->cost, FP_COST_ONE);
	for (i = 0; i < FP_STATE_WORDS; i++)
		FP_PUT(f->state[i], 0ull);
}

/* An idle flow may be evicted: it has no packets, and is neither in a queue nor in the shaper. */
FP_INLINE int fp_is_idle_flow(struct fp_sched FP_MEM *s, const struct fp_fq FP_MEM *f, u32 flow)
{
	return !f->packets && !fp_item_at(fp_pool_of(s), fp_flow_item(s, flow))->pifo;
}

FP_INLINE int fp_is_idle(struct fp_sched FP_MEM *s, u32 flow)
{
	return fp_is_idle_flow(s, fp_fq_at(s, flow), flow);
}

/*
 * The number of the flow; a new flow gets an entry: an idle one of its set, then that of its leaf. If
 * none is idle, it is another flow of the same leaf.
 */
FP_FUNC u32 fp_find_flow(struct fp_sched FP_MEM *s FP_ARG, u32 leaf, u32 hash)
{
	u32 mixed = (u32)fp_hash_1(&s->hash, (u64)leaf << 32 | hash);
	u32 first = fp_set_of(mixed, s->config.flows) + 1;
	u32 own = s->config.flows + leaf;
	u32 idle = 0, shared = 0;
	u64 oldest = FP_NEVER;
	u32 way;

	fp_loop(way, FP_FLOW_WAYS) {
		struct fp_fq FP_MEM *f = fp_fq_at(s, first + way);

		if (f->leaf == leaf && f->hash == hash) {
			f->used = s->arrived + 1;
			return first + way;
		}
		if (f->leaf == leaf && (!shared || way == (mixed & (FP_FLOW_WAYS - 1))))
			shared = first + way;
		if (f->used < oldest && fp_is_idle_flow(s, f, first + way)) {
			oldest = f->used;
			idle = first + way;
		}
	}
	/* A flow that began in the entry of its leaf stays there. */
	if (fp_fq_at(s, own)->leaf == leaf && fp_fq_at(s, own)->hash == hash) {
		fp_fq_at(s, own)->used = s->arrived + 1;
		return own;
	}
	if (!idle && !fp_is_idle(s, own)) {
		s->stats.shared++;
		return shared ? shared : own;
	}
	if (!idle)
		idle = own;
	fp_begin_flow(s, idle, leaf, hash);
	fp_fq_at(s, idle)->used = s->arrived + 1;
	return idle;
}

/*
 * The entry of the host. Two hosts share an entry if eight others of their set have flows that
 * wait.
 */
FP_FUNC u32 fp_find_host(struct fp_sched FP_MEM *s FP_ARG, u32 leaf,
			 const u8 FP_MEM *address FP_ARG)
{
	u32 tag =
		(u32)fp_hash_3(&s->hash, fp_load64_raw(address), fp_load64_raw(address + 8), leaf);
	u32 first = fp_set_of(tag, s->config.hosts) + 1;
	u32 idle = 0;
	u32 way;

	if (!s->config.hosts)
		return 0;
	fp_loop(way, FP_FLOW_WAYS) {
		struct fp_host FP_MEM *h = fp_host_at(s, first + way);

		if (h->flows && h->tag == tag)
			return first + way;
		if (!h->flows)
			idle = first + way;
	}
	if (!idle)
		return first + (tag & (FP_FLOW_WAYS - 1));
	FP_PUT(fp_host_at(s, idle)->tag, tag);
	return idle;
}

/* A flow starts to wait: counts it for its hosts, separately for source and destination. */
FP_INLINE void fp_count_hosts(struct fp_sched FP_MEM *s, u32 flow, u32 handle)
{
	struct fp_fq FP_MEM *f = fp_fq_at(s, flow);
	struct fp_slot FP_MEM *p = fp_slot_at(s, handle);

	f->source = fp_find_host(s, f->leaf * 2, p->meta.source);
	fp_host_at(s, f->source)->flows++;
	f->destination = fp_find_host(s, f->leaf * 2 + 1, p->meta.destination);
	fp_host_at(s, f->destination)->flows++;
}

FP_INLINE void fp_uncount_hosts(struct fp_sched FP_MEM *s, u32 flow)
{
	struct fp_fq FP_MEM *f = fp_fq_at(s, flow);

	if (f->source && fp_host_at(s, f->source)->flows)
		fp_host_at(s, f->source)->flows--;
	if (f->destination && fp_host_at(s, f->destination)->flows)
		fp_host_at(s, f->destination)->flows--;
	FP_PUT(f->source, 0);
	FP_PUT(f->destination, 0);
}

FP_INLINE u32 fp_busier_host(struct fp_sched FP_MEM *s, const struct fp_fq FP_MEM *f)
{
	u32 a = f->source ? fp_host_at(s, f->source)->flows : 0;
	u32 b = f->destination ? fp_host_at(s, f->destination)->flows : 0;
	u32 most = a > b ? a : b;

	return most ? most : 1;
}

/*
 * The band of FP_FAT for this many bytes: two per octave, the largest amounts in the first bands.
 */
FP_INLINE u32 fp_fat_band(u32 bytes)
{
	u32 log = 31 - (u32)__builtin_clz(bytes | 1);
	u32 half = log ? bytes >> (log - 1) & 1 : 0;

	return FP_FAT_BANDS - 1 - (2 * log + half);
}

/*
 * Moves the flow to the band of its bytes. Only needed if a full scheduler drops from the fattest
 * flow.
 */
FP_FUNC int fp_update_fat_band(struct fp_sched FP_MEM *s FP_ARG, u32 flow)
{
	struct fp_pool FP_MEM *pool = fp_pool_of(s);
	struct fp_fq FP_MEM *f = fp_fq_at(s, flow);
	u32 item = fp_fat_item(s, flow);
	u32 band = fp_fat_band(f->bytes);

	if (!f->packets)
		fp_pifo_remove(pool, item);
	else if (!fp_item_at(pool, item)->pifo)
		fp_pifo_push(pool, FP_FAT, item, band);
	else if (fp_item_at(pool, item)->rank != band)
		fp_pifo_move(pool, item, band);
	return 0;
}

FP_INLINE void fp_append(struct fp_sched FP_MEM *s, struct fp_fq FP_MEM *f, u32 handle,
			 struct fp_slot FP_MEM *p)
{
	FP_PUT(p->next, 0);
	FP_PUT(p->prev, f->packets ? f->tail : 0);
	if (f->packets)
		FP_PUT(fp_slot_at(s, f->tail)->next, handle);
	else
		FP_PUT(f->head, handle);
	FP_PUT(f->tail, handle);
	f->packets++;
	f->bytes += p->meta.bytes;
}

FP_INLINE void fp_unlink(struct fp_sched FP_MEM *s, struct fp_fq FP_MEM *f,
			 struct fp_slot FP_MEM *p)
{
	if (p->prev)
		FP_PUT(fp_slot_at(s, p->prev)->next, p->next);
	else
		FP_PUT(f->head, p->next);
	if (p->next)
		FP_PUT(fp_slot_at(s, p->next)->prev, p->prev);
	else
		FP_PUT(f->tail, p->prev);
	f->packets--;
	f->bytes -= p->meta.bytes;
}

#endif /* FP_SCHED_FLOWS_H */
