/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pool_audit.h: checks the invariants of a pool: geometry, counts, lists, heaps, bitmaps, sums.
 * Only for user space, for tests and for suspected corruption. Walks through everything: O(items +
 * buckets), with any memory. Reports the first flaw and changes nothing.
 */
#ifndef FP_POOL_AUDIT_H
#define FP_POOL_AUDIT_H

#include "pool.h"

enum fp_flaw {
	FP_FLAW_GEOMETRY = 1, /* the descriptor is not one that fp_pifo_format() writes */
	FP_FLAW_COUNT = 2,    /* differs from the items in lists or heap */
	FP_FLAW_RECORD = 3,   /* an item's pifo or place differs from its position */
	FP_FLAW_LINKS = 4,    /* prev or tail contradict next */
	FP_FLAW_ORDER = 5,    /* an item before its parent, or before the previous one of a run */
	FP_FLAW_INDEX = 6,    /* a bit, word or sum contradicts the lists */
	FP_FLAW_STRAY = 7,    /* an item is marked as in a PIFO, and is in none */
};

struct fp_audit {
	u32 flaw; /* enum fp_flaw, 0 none */
	u32 pifo;
	u32 item;
	u32 zero;
};

FP_INLINE int fp_flawed(struct fp_audit *audit, u32 flaw, u32 item)
{
	audit->flaw = flaw;
	audit->item = item;
	return 1;
}

static int fp_audit_geometry(struct fp_pool *pool, struct fp_pifo *p, struct fp_audit *audit)
{
	u32 levels = 0, at[2] = { 0, 0 }, stride;
	u32 buckets = p->kind == FP_AIFO ? p->window : p->buckets;
	u32 first = p->at[1] < p->at[0] ? p->at[1] : p->at[0];
	u64 bytes, begin = sizeof(*pool) + 8ull * first;

	if (!fp_buckets_fit(p->kind, buckets) || p->capacity > pool->items ||
	    p->count > p->capacity || p->shift > 63 || (p->kind == FP_AIFO && p->buckets != 1))
		return fp_flawed(audit, FP_FLAW_GEOMETRY, 0);
	bytes = fp_pifo_bytes(p->kind, p->capacity, buckets);
	if (begin < pool->arrays || begin > pool->bytes || bytes > pool->bytes - begin)
		return fp_flawed(audit, FP_FLAW_GEOMETRY, 0);
	stride = 0;
	if (p->kind == FP_CFFS)
		stride = buckets + fp_bitmap_words(p->buckets, &levels, at);
	if (p->kind == FP_GRADIENT)
		stride = buckets + 2;
	if (p->at[0] + p->at[1] - 2 * first != stride || p->levels != levels ||
	    p->level_at[0] != at[0] || p->level_at[1] != at[1])
		return fp_flawed(audit, FP_FLAW_GEOMETRY, 0);
	return 0;
}

/* Walks through one run and adds to `held`. */
static int fp_audit_run(struct fp_pool *pool, struct fp_pifo *p, u32 r, u64 *held,
			struct fp_audit *audit)
{
	struct fp_runs *runs = fp_runs_of(pool, p);
	u32 item = runs->list[r].head, before = 0;

	if (item && runs->first[r] != fp_item_at(pool, item)->rank)
		return fp_flawed(audit, FP_FLAW_INDEX, item);
	while (item) {
		struct fp_item *it = fp_item_at(pool, item);

		if (item > pool->items || it->pifo != audit->pifo || it->place != (FP_IN_RUN | r))
			return fp_flawed(audit, FP_FLAW_RECORD, item);
		if (before && it->prev != before)
			return fp_flawed(audit, FP_FLAW_LINKS, item);
		if (before && fp_before(it, fp_item_at(pool, before)))
			return fp_flawed(audit, FP_FLAW_ORDER, item);
		if (++*held > p->count)
			return fp_flawed(audit, FP_FLAW_COUNT, item);
		before = item;
		item = it->next;
	}
	if (before && runs->list[r].tail != before)
		return fp_flawed(audit, FP_FLAW_LINKS, before);
	if (before && runs->last[r] != fp_item_at(pool, before)->rank)
		return fp_flawed(audit, FP_FLAW_INDEX, before);
	return 0;
}

static int fp_audit_heap(struct fp_pool *pool, struct fp_pifo *p, struct fp_audit *audit)
{
	u32 count = fp_runs_of(pool, p)->heap, pos, r;
	u64 held = count;

	if (count > p->count)
		return fp_flawed(audit, FP_FLAW_COUNT, 0);
	for (r = 0; r < FP_RUNS; r++) {
		if (fp_audit_run(pool, p, r, &held, audit))
			return 1;
	}
	for (pos = 0; pos < count; pos++) {
		u32 item = fp_heap_entry(pool, p, pos)->item;
		struct fp_item *it = fp_item_at(pool, item);

		if (!fp_item_bound(pool, item) || it->pifo != audit->pifo || it->place != pos)
			return fp_flawed(audit, FP_FLAW_RECORD, item);
		if (pos &&
		    fp_before(it, fp_item_at(pool, fp_heap_entry(pool, p, (pos - 1) / 4)->item)))
			return fp_flawed(audit, FP_FLAW_ORDER, item);
	}
	for (pos = 0; pos < count; pos++) {
		struct fp_entry *entry = fp_heap_entry(pool, p, pos);

		if (entry->rank != fp_item_at(pool, entry->item)->rank)
			return fp_flawed(audit, FP_FLAW_INDEX, entry->item);
	}
	return held != p->count ? fp_flawed(audit, FP_FLAW_COUNT, 0) : 0;
}

/* Walks through one list and adds to `held`. */
static int fp_audit_list(struct fp_pool *pool, struct fp_pifo *p, u32 place, u64 *held,
			 struct fp_audit *audit)
{
	struct fp_list *list = fp_list_at(pool, p, place, p->kind);
	u32 item = list->head, before = 0;

	while (item) {
		struct fp_item *it = fp_item_at(pool, item);

		if (item > pool->items || it->pifo != audit->pifo || it->place != place)
			return fp_flawed(audit, FP_FLAW_RECORD, item);
		if (before && it->prev != before)
			return fp_flawed(audit, FP_FLAW_LINKS, item);
		if (++*held > p->count)
			return fp_flawed(audit, FP_FLAW_COUNT, item);
		before = item;
		item = it->next;
	}
	if (before && list->tail != before)
		return fp_flawed(audit, FP_FLAW_LINKS, before);
	return 0;
}

/* Bit `i` of the words that begin at `word`. */
FP_INLINE int fp_index_has(struct fp_pool *pool, struct fp_pifo *p, u32 half, u64 word, u32 i)
{
	return (*fp_index_word(pool, p, half, word + i / 64) & fp_bit(i)) != 0;
}

/* Checks every bit of every level against the level below. */
static int fp_audit_bitmaps(struct fp_pool *pool, struct fp_pifo *p, u32 half,
			    struct fp_audit *audit)
{
	u64 at[4] = { 0, p->level_at[0], p->level_at[1], 0 }, top = 0;
	u32 level, i, wide = p->buckets;

	for (level = 0; level <= p->levels; level++) {
		for (i = 0; i < wide; i++) {
			int has, is;

			if (level)
				has = *fp_index_word(pool, p, half, at[level - 1] + i) != 0;
			else
				has = fp_list_at(pool, p, fp_window_at(p, half, i), FP_CFFS)
					      ->head != 0;
			if (level == p->levels) {
				top |= has ? fp_bit(i) : 0;
				continue;
			}
			is = fp_index_has(pool, p, half, at[level], i);
			if (has != is)
				return fp_flawed(audit, FP_FLAW_INDEX, i);
		}
		wide = (wide + 63) / 64;
	}
	return top == p->top[half] ? 0 : fp_flawed(audit, FP_FLAW_INDEX, 0);
}

static int fp_audit_sums(struct fp_pool *pool, struct fp_pifo *p, u32 half, struct fp_audit *audit)
{
	u64 a = 0, b = 0;
	u32 bucket;

	for (bucket = 0; bucket < p->buckets; bucket++) {
		u64 i = (u64)FP_GRADIENT_MIN + p->buckets - 1 - bucket;

		if (!fp_list_at(pool, p, fp_window_at(p, half, bucket), FP_GRADIENT)->head)
			continue;
		a += fp_gradient_weight((u32)i);
		b += i * fp_gradient_weight((u32)i);
	}
	if (a != *fp_index_word(pool, p, half, 0) || b != *fp_index_word(pool, p, half, 1) ||
	    p->top[half] != (a != 0))
		return fp_flawed(audit, FP_FLAW_INDEX, 0);
	return 0;
}

static int fp_audit_index(struct fp_pool *pool, struct fp_pifo *p, struct fp_audit *audit)
{
	u32 i, first = FP_NO_FIRST;
	u64 top = 0;

	if (p->kind == FP_CFFS) {
		if (fp_audit_bitmaps(pool, p, 0, audit) || fp_audit_bitmaps(pool, p, 1, audit))
			return 1;
		if (p->levels == 1)
			first = p->top[0] ? fp_window_at(p, 0, fp_cffs_first_flat(pool, p, 0))
					  : FP_NO_LIST;
		return p->first == first ? 0 : fp_flawed(audit, FP_FLAW_INDEX, 0);
	}
	if (p->kind == FP_GRADIENT)
		return fp_audit_sums(pool, p, 0, audit) || fp_audit_sums(pool, p, 1, audit);
	for (i = 0; i < p->buckets; i++)
		top |= fp_list_at(pool, p, i, p->kind)->head ? fp_bit(i) : 0;
	return top == p->top[0] ? 0 : fp_flawed(audit, FP_FLAW_INDEX, 0);
}

static int fp_audit_pifo(struct fp_pool *pool, u32 q, struct fp_audit *audit)
{
	struct fp_pifo *p = fp_pifo_at(pool, q);
	u32 lists = fp_is_window(p->kind) ? 2 * p->buckets : p->buckets, i, place;
	u64 held = 0, before;

	audit->pifo = q;
	if (!p->kind || p->kind == FP_PIEO)
		return 0;
	if (fp_audit_geometry(pool, p, audit))
		return 1;
	if (p->kind == FP_HEAP)
		return fp_audit_heap(pool, p, audit);
	for (i = 0; i < lists; i++) {
		place = i;
		if (fp_is_window(p->kind))
			place = fp_window_at(p, i >= p->buckets, i % p->buckets);
		before = held;
		if (fp_audit_list(pool, p, place, &held, audit))
			return 1;
		if (p->kind == FP_SP_PIFO && *fp_sp_held(pool, p, place) != held - before)
			return fp_flawed(audit, FP_FLAW_INDEX, place);
	}
	if (held != p->count)
		return fp_flawed(audit, FP_FLAW_COUNT, 0);
	return fp_audit_index(pool, p, audit);
}

/* Returns 0, or 1 with the first flaw in `audit`. The header is valid (fp_pool_sound). */
FP_FUNC int fp_pool_audit(struct fp_pool *pool, struct fp_audit *audit)
{
	u64 held = 0, queued = 0;
	u32 q, item;

	memset(audit, 0, sizeof(*audit));
	for (q = 1; q <= pool->pifos; q++) {
		if (fp_audit_pifo(pool, q, audit))
			return 1;
		held += fp_pifo_at(pool, q)->kind == FP_PIEO ? 0 : fp_pifo_at(pool, q)->count;
	}
	audit->pifo = 0;
	for (item = 1; item <= pool->items; item++)
		queued += fp_item_at(pool, item)->pifo != 0;
	/* The items in PIFOs were found there, each once. All others are strays. */
	return queued == held ? 0 : fp_flawed(audit, FP_FLAW_STRAY, 0);
}

#endif /* FP_POOL_AUDIT_H */
