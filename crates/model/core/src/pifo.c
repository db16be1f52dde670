/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * pifo.c: the native runtime of queues, and the access of user space to a pool in any mapping. Every
 * function here is declared in pifo/ffi.rs; nothing else links to it.
 */
#include <stddef.h>
#include "pifo/pool_audit.h"
#include "pifo/pool_ops.h"

u64 fp_native_pool_bytes(const struct fp_pool_config *config)
{
	return fp_pool_bytes(config);
}

u64 fp_native_pool_arrays(const struct fp_pool_config *config)
{
	return fp_pool_arrays(config);
}

u64 fp_native_pifo_bytes(u32 kind, u32 capacity, u32 buckets)
{
	return fp_pifo_bytes(kind, capacity, buckets);
}

int fp_native_pool_format(struct fp_pool *pool, const struct fp_pool_config *config)
{
	return fp_pool_format(pool, config);
}

int fp_native_pifo_format(struct fp_pool *pool, u32 q, const struct fp_pifo_config *config, u64 at)
{
	return fp_pifo_format(pool, q, config, at);
}

int fp_native_pool_sound(const struct fp_pool *pool, u64 bytes)
{
	return fp_pool_sound(pool, bytes);
}

int fp_native_pool_audit(struct fp_pool *pool, struct fp_audit *audit)
{
	return fp_pool_audit(pool, audit);
}

void fp_native_pool_counts(struct fp_pool *pool, u64 counts[4])
{
	counts[0] = pool->seq;
	counts[1] = pool->bad_items;
	counts[2] = pool->bad_pifos;
	counts[3] = pool->broken;
}

u64 fp_native_pool_rank(struct fp_pool *pool, u32 item)
{
	return fp_item_at(pool, item)->rank;
}

void fp_native_pool_item(struct fp_pool *pool, u32 item, struct fp_item *out)
{
	*out = *fp_item_at(pool, item);
}

void fp_native_pool_pifo(struct fp_pool *pool, u32 q, struct fp_pifo *out)
{
	*out = *fp_pifo_at(pool, q);
}

void fp_native_pool_run(struct fp_pool *pool, struct fp_pool_op *ops, u64 count)
{
	u64 i;

	for (i = 0; i < count; i++)
		fp_pool_run_op(pool, &ops[i]);
}

/* Not inline, so that the common case saves no registers. */
static __attribute__((noinline)) u64 fp_native_put(struct fp_pool *pool, u32 q, u32 item, u64 rank,
						   u64 seq)
{
	u32 refused = fp_pifo_put(pool, q, item, rank, seq);

	return (u64)pool->pushed_out << 32 | refused;
}

/* Returns 0 or a refusal in the lower half, and the pushed-out item above. */
u64 fp_native_pifo_push(struct fp_pool *pool, u32 q, u32 item, u64 rank)
{
	u64 seq = ++pool->seq;

	if (fp_cffs_push_soon(pool, q, item, rank, seq))
		return 0;
	return fp_native_put(pool, q, item, rank, seq);
}

/* An item, or 0, and its rank, in registers. */
struct fp_native_popped {
	u64 item;
	u64 rank;
};

/* Not inline, for the same reason. */
static __attribute__((noinline)) struct fp_native_popped fp_native_take(struct fp_pool *pool, u32 q)
{
	u32 item = fp_pifo_pop(pool, q);

	return (struct fp_native_popped){ item, fp_item_at(pool, item)->rank };
}

struct fp_native_popped fp_native_pifo_pop(struct fp_pool *pool, u32 q)
{
	u32 item = fp_cffs_pop_soon(pool, q);

	if (!item)
		return fp_native_take(pool, q);
	return (struct fp_native_popped){ item, fp_item_known(pool, item)->rank };
}

u32 fp_native_pifo_peek(struct fp_pool *pool, u32 q)
{
	return fp_pifo_peek(pool, q);
}

u32 fp_native_pifo_last(struct fp_pool *pool, u32 q)
{
	return fp_pifo_last(pool, q);
}

u32 fp_native_pifo_pop_batch(struct fp_pool *pool, u32 q, u32 *out, u32 n)
{
	return fp_pifo_pop_batch(pool, q, out, n);
}

int fp_native_pifo_remove(struct fp_pool *pool, u32 item)
{
	return fp_pifo_remove(pool, item);
}

int fp_native_pifo_move(struct fp_pool *pool, u32 item, u64 rank)
{
	return fp_pifo_move(pool, item, rank);
}

u64 fp_native_pieo_push(struct fp_pool *pool, u32 q, u32 item, u64 eligible, u64 rank)
{
	u32 refused = fp_pieo_push(pool, q, item, eligible, rank);

	return (u64)pool->pushed_out << 32 | refused;
}

u32 fp_native_pieo_pop(struct fp_pool *pool, u32 q, u64 now)
{
	return fp_pieo_pop(pool, q, now);
}

u64 fp_native_pieo_next_event(struct fp_pool *pool, u32 q)
{
	return fp_pieo_next_event(pool, q);
}

/* The layout test: sizes, and offsets that Rust reads. */
const u32 fp_native_pool_layout[] = {
	sizeof(struct fp_pool),
	sizeof(struct fp_item),
	sizeof(struct fp_pifo),
	sizeof(struct fp_pool_config),
	sizeof(struct fp_pifo_config),
	sizeof(struct fp_pool_op),
	sizeof(struct fp_audit),
	offsetof(struct fp_pifo, base),
	offsetof(struct fp_pifo, pushed),
	offsetof(struct fp_pifo, rebases),
	offsetof(struct fp_pifo, ready),
	offsetof(struct fp_pifo_config, base),
	offsetof(struct fp_pool_op, extra),
};
const u32 fp_native_pool_layout_len = sizeof(fp_native_pool_layout) / sizeof(u32);
