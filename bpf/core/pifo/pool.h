/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pool.h: size and format of a pool and its PIFOs, in plain memory and in an arena, by user space or
 * by a BPF program. In an arena, all pages must be there (arena.h), and the first page is left to
 * FP_ZERO of runtime.h.
 *
 *   struct fp_pool_config c = { .items = 1000, .pifos = 2, .array_bytes = fp_pifo_bytes(...) + ...
 * }; zeroed memory of fp_pool_bytes(&c) bytes, aligned to 64 fp_pool_format(pool, &c);
 *   fp_pifo_format(pool, 1, &config, pool->arrays);
 *   fp_pifo_format(pool, 2, &config, pool->arrays + fp_pifo_bytes(...));
 *
 * A pool may be at the start of a larger memory, whose other parts follow its bytes. Formatting
 * expects zeroed memory. Before a PIFO is formatted again, zero its arrays and remove its items.
 */
#ifndef FP_POOL_H
#define FP_POOL_H

#include "pieo.h"

#define FP_MAX_ITEMS (1u << 28)
#define FP_MAX_PIFOS (1u << 24)
/* FP_NO_LIST is the number of no word. */
#define FP_MAX_POOL_BYTES (8ull * FP_NO_LIST)

struct fp_pool_config {
	u32 items;	 /* 1 to FP_MAX_ITEMS */
	u32 pifos;	 /* 1 to FP_MAX_PIFOS */
	u64 array_bytes; /* the sum of fp_pifo_bytes() */
};

struct fp_pifo_config {
	u32 kind;     /* enum fp_pifo_kind */
	u32 capacity; /* maximum of items, from 1 */
	u32 buckets;  /* or bands, lists; FP_AIFO: stored ranks; others: 0 */
	u8 shift;     /* FP_CFFS, FP_GRADIENT: a bucket is 2^shift ranks wide, 0 to 63 */
	u8 full;      /* enum fp_when_full */
	u8 below;     /* enum fp_outside */
	u8 beyond;    /* enum fp_outside */
	u64 base;     /* FP_CFFS, FP_GRADIENT: start of the window, rounded down to a bucket */
	u32 headroom; /* FP_AIFO: less than FP_AIFO_HEADROOM_ONE */
	u32 wheel;    /* FP_PIEO: an FP_HEAP or window that was formatted before */
	u32 ready;    /* FP_PIEO: the same; clamps and does not push out */
	u32 each;     /* FP_SP_PIFO: maximum of items of one list, from 1 */
};

/* Why a configuration is refused. */
enum fp_invalid_field {
	FP_INVALID_KIND = 1,
	FP_INVALID_CAPACITY = 2,
	FP_INVALID_BUCKETS = 3,
	FP_INVALID_SHIFT = 4,
	FP_INVALID_POLICY = 5,
	FP_INVALID_NUMBER = 6, /* of items or PIFOs, or of this PIFO */
	FP_INVALID_SPACE = 7,  /* arrays outside the pool, or not at a multiple of 8 */
	FP_INVALID_PARTS = 8,  /* headroom; wheel or ready */
};

FP_INLINE u64 fp_pool_align(u64 bytes)
{
	return (bytes + 63) & ~63ull;
}

/* Where the arrays of PIFOs may begin. */
FP_INLINE u64 fp_pool_arrays(const struct fp_pool_config *config)
{
	return sizeof(struct fp_pool) +
	       fp_pool_align(((u64)config->items + 1) * sizeof(struct fp_item)) +
	       fp_pool_align(((u64)config->pifos + 1) * sizeof(struct fp_pifo));
}

/* Bytes of a pool with its arrays. */
FP_INLINE u64 fp_pool_bytes(const struct fp_pool_config *config)
{
	/* An array of one word at the end is read like an item, and as a whole index: 64 words. */
	return fp_pool_arrays(config) + fp_pool_align(config->array_bytes) + 1024;
}

/* fp_pool.capacity: words after the header with an item's space up to the end. */
FP_INLINE u64 fp_pool_words(u64 bytes)
{
	return (bytes - sizeof(struct fp_pool) - sizeof(struct fp_item)) / 8 + 1;
}

/* Words of a half's bitmaps below the top: ceil(N / 64), ceil of that / 64, ... up to 64. */
FP_INLINE u32 fp_bitmap_words(u32 buckets, u32 *levels, u32 level_at[2])
{
	u32 words = 0, wide = buckets;

	*levels = 0;
	do {
		wide = (wide + 63) / 64;
		if (*levels > 0 && *levels < 3)
			level_at[*levels - 1] = words;
		words += wide;
		(*levels)++;
	} while (wide > 64);
	return words;
}

/* Bytes of the arrays of one PIFO, a multiple of 64; for FP_PIEO, capacity is the pool's items. */
FP_INLINE u64 fp_pifo_bytes(u32 kind, u32 capacity, u32 buckets)
{
	u32 levels, level_at[2];

	switch (kind) {
	case FP_HEAP:
		return fp_pool_align(8 * FP_HEAP_WORDS + (u64)capacity * sizeof(struct fp_entry));
	case FP_BANDS:
		return fp_pool_align((u64)buckets * 8);
	case FP_CFFS:
		return fp_pool_align(
			((u64)buckets * 2 + 2ull * fp_bitmap_words(buckets, &levels, level_at)) *
			8);
	case FP_GRADIENT:
		return fp_pool_align(((u64)buckets * 2 + 4) * 8);
	case FP_SP_PIFO:
		return fp_pool_align((u64)buckets * 24);
	case FP_AIFO:
		return fp_pool_align(((u64)buckets + 1) * 8);
	case FP_PIEO:
		return fp_pool_align(((u64)capacity + 1) * 8);
	}
	return 0;
}

/* True if a header that another program formatted describes `bytes` bytes. */
FP_INLINE int fp_pool_sound(const struct fp_pool FP_MEM *pool, u64 bytes)
{
	struct fp_pool_config config;

	if (bytes < sizeof(*pool) || pool->magic != FP_PIFO_MAGIC ||
	    pool->version != FP_PIFO_VERSION || pool->bytes > bytes)
		return 0;
	config.items = pool->items;
	config.pifos = pool->pifos;
	config.array_bytes = 0;
	return pool->items && pool->pifos && pool->items <= FP_MAX_ITEMS &&
	       pool->pifos <= FP_MAX_PIFOS && pool->arrays == fp_pool_arrays(&config) &&
	       pool->pifo_at == sizeof(*pool) + fp_pool_align(((u64)pool->items + 1) *
							      sizeof(struct fp_item)) &&
	       pool->bytes >= fp_pool_bytes(&config) && pool->bytes <= FP_MAX_POOL_BYTES &&
	       pool->capacity == fp_pool_words(pool->bytes);
}

FP_INLINE void fp_pool_clear(u64 FP_MEM *words, u64 bytes)
{
	u32 i;

	for (i = 0; i < bytes / 8; i++)
		FP_PUT(words[i], 0);
}

/* Formats zeroed memory of fp_pool_bytes(). Returns 0, or FP_INVALID_NUMBER. */
FP_INLINE int fp_pool_format(struct fp_pool FP_MEM *pool, const struct fp_pool_config *config)
{
	if (!config->items || !config->pifos || config->items > FP_MAX_ITEMS ||
	    config->pifos > FP_MAX_PIFOS || config->array_bytes > FP_MAX_POOL_BYTES ||
	    fp_pool_bytes(config) > FP_MAX_POOL_BYTES)
		return FP_INVALID_NUMBER;
	fp_pool_clear((u64 FP_MEM *)pool, sizeof(*pool));
	FP_PUT(pool->version, FP_PIFO_VERSION);
	FP_PUT(pool->bytes, fp_pool_bytes(config));
	FP_PUT(pool->capacity, fp_pool_words(pool->bytes));
	FP_PUT(pool->items, config->items);
	FP_PUT(pool->pifos, config->pifos);
	pool->pifo_at =
		sizeof(*pool) + fp_pool_align(((u64)config->items + 1) * sizeof(struct fp_item));
	FP_PUT(pool->arrays, fp_pool_arrays(config));
	FP_PUT(pool->magic, FP_PIFO_MAGIC);
	return 0;
}

/* True if a kind has this many buckets. */
FP_INLINE int fp_buckets_fit(u32 kind, u32 buckets)
{
	switch (kind) {
	case FP_HEAP:
	case FP_PIEO:
		return buckets == 0;
	case FP_BANDS:
	case FP_SP_PIFO:
		return buckets >= 1 && buckets <= FP_MAX_BANDS;
	case FP_CFFS:
		return buckets >= 1 && buckets <= FP_MAX_BUCKETS;
	case FP_GRADIENT:
		return buckets >= 1 && buckets <= FP_MAX_GRADIENT;
	case FP_AIFO:
		return buckets >= 1 && buckets <= FP_MAX_AIFO_WINDOW;
	}
	return 0;
}

/* True if a PIFO can be part of an FP_PIEO. */
FP_INLINE int fp_part_fits(struct fp_pool FP_MEM *pool, u32 q, int ready)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);

	if (p->kind != FP_HEAP && !fp_is_window(p->kind))
		return 0;
	return !ready || (!p->below && !p->beyond && !p->full);
}

FP_INLINE int fp_pifo_invalid_field(struct fp_pool FP_MEM *pool, u32 q,
				    const struct fp_pifo_config *config, u64 at)
{
	u64 bytes = fp_pifo_bytes(config->kind, config->capacity, config->buckets);
	int pieo = config->kind == FP_PIEO;

	if (config->kind < FP_HEAP || config->kind > FP_PIEO)
		return FP_INVALID_KIND;
	if (!q || q > pool->pifos)
		return FP_INVALID_NUMBER;
	if (!config->capacity || config->capacity > pool->items ||
	    (pieo && config->capacity != pool->items) ||
	    (config->kind == FP_SP_PIFO && !config->each))
		return FP_INVALID_CAPACITY;
	if (!fp_buckets_fit(config->kind, config->buckets))
		return FP_INVALID_BUCKETS;
	if (config->shift > 63 || (config->shift && !fp_is_window(config->kind)))
		return FP_INVALID_SHIFT;
	if (config->full > FP_FULL_PUSH_OUT || config->below > FP_OUTSIDE_ERROR ||
	    config->beyond > FP_OUTSIDE_ERROR ||
	    (config->full && (config->kind > FP_GRADIENT || config->kind < FP_HEAP)))
		return FP_INVALID_POLICY;
	if (at % 8 || at < pool->arrays || at > pool->bytes || bytes > pool->bytes - at)
		return FP_INVALID_SPACE;
	if (config->headroom >= FP_AIFO_HEADROOM_ONE ||
	    (pieo && (config->wheel == config->ready || !fp_part_fits(pool, config->wheel, 0) ||
		      !fp_part_fits(pool, config->ready, 1))))
		return FP_INVALID_PARTS;
	return 0;
}

/*
 * Formats PIFO `q`. Its arrays of fp_pifo_bytes() zeroed bytes begin `at` bytes after the pool.
 * Returns 0, or enum fp_invalid_field.
 */
FP_INLINE int fp_pifo_format(struct fp_pool FP_MEM *pool, u32 q,
			     const struct fp_pifo_config *config, u64 at)
{
	struct fp_pifo FP_MEM *p = fp_pifo_at(pool, q);
	int invalid_field = fp_pifo_invalid_field(pool, q, config, at);
	u32 levels = 0, level_at[2] = { 0, 0 };

	if (invalid_field)
		return invalid_field;
	fp_pool_clear((u64 FP_MEM *)p, sizeof(*p));
	FP_PUT(p->capacity, config->capacity);
	FP_PUT(p->buckets, config->kind == FP_AIFO ? 1 : config->buckets);
	FP_PUT(p->shift, config->shift);
	FP_PUT(p->full, config->full);
	FP_PUT(p->below, config->below);
	FP_PUT(p->beyond, config->beyond);
	FP_PUT(p->at[0], (u32)((at - sizeof(*pool)) / 8));
	FP_PUT(p->base,
	       fp_is_window(config->kind) ? config->base >> config->shift << config->shift : 0);
	FP_PUT(p->at[1], p->at[0]);
	if (config->kind == FP_CFFS)
		p->at[1] += config->buckets + fp_bitmap_words(config->buckets, &levels, level_at);
	if (config->kind == FP_GRADIENT)
		p->at[1] += config->buckets + 2;
	FP_PUT(p->levels, (u8)levels);
	FP_PUT(p->first, levels == 1 ? FP_NO_LIST : FP_NO_FIRST);
	FP_PUT(p->level_at[0], level_at[0]);
	FP_PUT(p->level_at[1], level_at[1]);
	FP_PUT(p->window, config->kind == FP_AIFO ? config->buckets : 0);
	FP_PUT(p->headroom, config->headroom);
	FP_PUT(p->each, config->each);
	FP_PUT(p->wheel, config->wheel);
	FP_PUT(p->ready, config->ready);
	FP_PUT(p->kind, (u8)config->kind);
	return 0;
}

#endif /* FP_POOL_H */
