/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * queues.bpf.c: everything that the installed headers offer, in a program outside the tree.
 * tests/headers.rs runs the programs and compares their results.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#include <bpf/bpf_helpers.h>
#include <fairpath/arena.h>
#include <fairpath/pieo.h>
#include <fairpath/pifo.h>
#include <fairpath/timer.h>

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

#define PAGES 32
#define ITEMS 100
/* PIFOs of the pool. */
#define FREE                                                                                       \
	1 /* numbers that stand for nothing: one band, so a stack of them in order of arrival */
#define QUEUE 2
#define GOLD  3 /* two queues that are items of ROOT */
#define REST  4
#define ROOT  5
#define WHEEL 6 /* the halves of TIMED */
#define READY 7
#define TIMED 8
#define PIFOS 8
/* Items of ROOT: the number of a queue plus this. */
#define QUEUE_ITEM 90

FP_ARENA(arena, PAGES);

char LICENSE[] SEC("license") = "GPL";

/* Results, which tests/headers.rs reads. */
struct values {
	u64 batch;  /* items of one call */
	u64 rounds; /* of shared() */
	u64 busy;   /* attempts that did not get the lock */
	u64 served; /* items of the timer */
	u64 last;   /* when the last one of these was served, and when it became eligible */
	u64 last_at;
	u64 early; /* items that were served before their time */
	u64 free;  /* items that wait */
	u64 queued;
} values;

FP_INLINE int add(u32 q, u32 kind, u32 capacity, u32 buckets, u64 *at)
{
	struct fp_pifo_config config = { .kind = kind, .capacity = capacity, .buckets = buckets };
	int invalid;

	if (kind == FP_PIEO) {
		config.wheel = WHEEL;
		config.ready = READY;
	}
	invalid = fp_pifo_format(FP_ARENA_POOL, q, &config, *at);
	*at += fp_pifo_bytes(kind, capacity, buckets);
	return invalid;
}

/* Formats the pool: as user space does, in BPF. */
SEC("syscall")
int begin(void *context)
{
	struct fp_pool_config config = { .items = ITEMS, .pifos = PIFOS };
	u64 at, heap = fp_pifo_bytes(FP_HEAP, ITEMS, 0);
	u32 i;

	FP_USE(arena);
	config.array_bytes =
		6 * heap + fp_pifo_bytes(FP_BANDS, ITEMS, 1) + fp_pifo_bytes(FP_PIEO, ITEMS, 0);
	if (fp_pool_bytes(&config) + 4 * FP_POP_BATCH > (PAGES - 1) * 4096)
		return 1;
	if (fp_arena_pages(arena, PAGES))
		return 2;
	if (fp_pool_format(FP_ARENA_POOL, &config))
		return 3;
	at = FP_ARENA_POOL->arrays;
	if (add(FREE, FP_BANDS, ITEMS, 1, &at) || add(QUEUE, FP_HEAP, ITEMS, 0, &at) ||
	    add(GOLD, FP_HEAP, ITEMS, 0, &at) || add(REST, FP_HEAP, ITEMS, 0, &at) ||
	    add(ROOT, FP_HEAP, ITEMS, 0, &at) || add(WHEEL, FP_HEAP, ITEMS, 0, &at) ||
	    add(READY, FP_HEAP, ITEMS, 0, &at) || add(TIMED, FP_PIEO, ITEMS, 0, &at))
		return 4;
	fp_loop(i, QUEUE_ITEM)
		fp_pifo_push(FP_ARENA_POOL, FREE, i + 1, 0);
	return 0;
}

/* Numbers from FREE, in the order of ranks; the first two by peeking, four by one call. */
SEC("syscall")
int order(void *context)
{
	/* In the arena, behind the pool. */
	u32 FP_MEM *out = FP_AT(u32, FP_ARENA_POOL, FP_ARENA_POOL->bytes);
	u32 i, left = 0, item;

	FP_USE(arena);
	fp_loop(i, 8) {
		item = fp_pifo_pop(FP_ARENA_POOL, FREE);
		if (fp_pifo_push(FP_ARENA_POOL, QUEUE, item, 0x35171924 >> (i * 4 & 31) & 15))
			return 0;
	}
	fp_loop(i, 2) {
		item = fp_pifo_peek(FP_ARENA_POOL, QUEUE);
		left = left << 4 | item;
		fp_pifo_remove(FP_ARENA_POOL, item);
		fp_pifo_push(FP_ARENA_POOL, FREE, item, 0);
	}
	values.batch = fp_pifo_pop_batch(FP_ARENA_POOL, QUEUE, out, 4);
	fp_loop(i, 4) {
		left = left << 4 | (out[i & 3] & 15);
		fp_pifo_push(FP_ARENA_POOL, FREE, out[i & 3], 0);
	}
	fp_loop(i, 2) {
		item = fp_pifo_pop(FP_ARENA_POOL, QUEUE);
		left = left << 4 | (item & 15);
		fp_pifo_push(FP_ARENA_POOL, FREE, item, 0);
	}
	return left;
}

/* A PIFO of PIFOs: queues are items of ROOT, which takes turns by bytes sent. */
FP_INLINE void nest(u32 q, u32 rank)
{
	u32 item = fp_pifo_pop(FP_ARENA_POOL, FREE);

	fp_pifo_push(FP_ARENA_POOL, q, item, rank);
	fp_pifo_push(FP_ARENA_POOL, ROOT, QUEUE_ITEM + q, q == GOLD ? 10 : 30);
}

SEC("syscall")
int nested(void *context)
{
	u32 i, q, item, left = 0;

	FP_USE(arena);
	fp_loop(i, 4)
		nest(GOLD, 4 - i);
	fp_loop(i, 4)
		nest(REST, i);
	fp_loop(i, 8) {
		item = fp_pifo_pop(FP_ARENA_POOL, ROOT);
		q = item - QUEUE_ITEM;
		left = left << 4 | (q & 15);
		fp_pifo_push(FP_ARENA_POOL, FREE, fp_pifo_pop(FP_ARENA_POOL, q), 0);
		/* The next turn of the queue: three turns of GOLD for one of REST. */
		if (fp_pifo_peek(FP_ARENA_POOL, q))
			fp_pifo_push(FP_ARENA_POOL, ROOT, item,
				     fp_item_at(FP_ARENA_POOL, item)->rank + (q == GOLD ? 10 : 30));
	}
	return left;
}

/* One round of several callers at a time: a number changes hands under the lock. */
SEC("syscall")
int shared(void *context)
{
	u32 item;

	FP_USE(arena);
	if (!fp_pool_lock(FP_ARENA_POOL)) {
		__sync_fetch_and_add(&values.busy, 1);
		return 0;
	}
	item = fp_pifo_pop(FP_ARENA_POOL, FREE);
	fp_pifo_push(FP_ARENA_POOL, QUEUE, item, item);
	item = fp_pifo_pop(FP_ARENA_POOL, QUEUE);
	fp_pifo_push(FP_ARENA_POOL, FREE, item, 0);
	/* Not atomic: right only under the lock. */
	values.rounds++;
	fp_pool_unlock(FP_ARENA_POOL);
	return 0;
}

static int serve(void *map, u32 *key, void *value);

FP_TIMER(wake, serve);

/* Takes what is eligible, and arms the timer for the next. */
static int serve(void *map, u32 *key, void *value)
{
	u64 now = bpf_ktime_get_ns();
	u32 i, item;

	FP_USE(arena);
	if (!fp_pool_lock(FP_ARENA_POOL)) {
		values.busy++;
		wake_at(now + 10000);
		return 0;
	}
	fp_loop(i, ITEMS) {
		item = fp_pieo_pop(FP_ARENA_POOL, TIMED, now);
		if (!item)
			break;
		/* The rank is the time at which it became eligible. */
		if (fp_item_at(FP_ARENA_POOL, item)->rank > now)
			values.early++;
		values.served++;
		values.last = now;
		fp_pifo_push(FP_ARENA_POOL, FREE, item, 0);
	}
	wake_at(fp_pieo_next_event(FP_ARENA_POOL, TIMED));
	fp_pool_unlock(FP_ARENA_POOL);
	return 0;
}

/* Ten items that become eligible 2 ms apart, the last one pushed first. */
SEC("syscall")
int timed(void *context)
{
	u64 now = bpf_ktime_get_ns(), at;
	u32 i, item;

	FP_USE(arena);
	if (!fp_pool_lock(FP_ARENA_POOL))
		return 1;
	fp_loop(i, 10) {
		item = fp_pifo_pop(FP_ARENA_POOL, FREE);
		at = now + (10 - i) * 2000000ull;
		fp_pieo_push(FP_ARENA_POOL, TIMED, item, at, at);
	}
	values.last_at = now + 20000000;
	wake_at(fp_pieo_next_event(FP_ARENA_POOL, TIMED));
	fp_pool_unlock(FP_ARENA_POOL);
	return 0;
}

SEC("syscall")
int read_values(struct values *into)
{
	FP_USE(arena);
	values.free = fp_pifo_at(FP_ARENA_POOL, FREE)->count;
	values.queued = fp_pifo_at(FP_ARENA_POOL, QUEUE)->count;
	*into = values;
	return 0;
}
