/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * item.h: the memory of PIFOs. A pool holds items, which the caller names by numbers from 1, and
 * PIFOs, also numbered from 1. An item is in at most one PIFO at a time.
 *
 *   +---------+--------+--------+-----+--------+--------+-----+----------------------------+
 *   | fp_pool | item 0 | item 1 | ... | pifo 0 | pifo 1 | ... | arrays, as each pifo needs |
 *   | header  | unused |        |     | unused |        |     | (heap, buckets, bitmaps)   |
 *   +---------+--------+--------+-----+--------+--------+-----+----------------------------+
 *
 * Everything is addressed by offsets from the header, so the same bytes are valid in an arena, in
 * its mapping and in plain memory.
 *
 * Invariant: with any bytes after the header, nothing outside them is accessed and every loop ends.
 * Numbers of items and PIFOs that are too large become 0, and positions in arrays become item 0.
 * Only fp_pool_format() writes the geometry in the header, and nothing here can reach it. If
 * another program formatted the memory, call fp_pool_sound() first (pool.h).
 *
 * Deliberately absent: locks. The caller ensures that one thread at a time works on a pool.
 */
#ifndef FP_ITEM_H
#define FP_ITEM_H

#include "../runtime.h"

#define FP_PIFO_MAGIC	0x4f464950u /* "PIFO" */
#define FP_PIFO_VERSION 4

/* Limits of one PIFO. */
#define FP_MAX_BUCKETS	     (1u << 20) /* FP_CFFS */
#define FP_MAX_BANDS	     64		/* FP_BANDS, FP_SP_PIFO */
#define FP_MAX_GRADIENT	     523	/* FP_GRADIENT: what 64 bits can weigh */
#define FP_MAX_AIFO_WINDOW   1024	/* FP_AIFO */
#define FP_AIFO_HEADROOM_ONE 256	/* the unit of headroom */
#define FP_POP_BATCH	     64		/* items of one fp_pifo_pop_batch() */
#define FP_NEVER	     (~0ull)	/* a time that never comes */

/* fp_pifo.first: the primary half is empty. Every pool has fewer words. */
#define FP_NO_LIST 0x7fffffffu
/* fp_pifo.first: not an FP_CFFS of one level. */
#define FP_NO_FIRST 0xffffffffu

enum fp_pifo_kind {
	FP_HEAP = 1,	 /* heap.h: exact for any ranks */
	FP_BANDS = 2,	 /* bands.h: strict priority, rank = band */
	FP_CFFS = 3,	 /* cffs.h: buckets in a moving window, O(1) */
	FP_GRADIENT = 4, /* gradient.h: the same, found by division */
	FP_SP_PIFO = 5,	 /* sp_pifo.h: approximate, a few FIFOs */
	FP_AIFO = 6,	 /* aifo.h: approximate, one FIFO and admission */
	FP_PIEO = 7,	 /* pieo.h: two PIFOs, eligible time and rank */
};

/* The result of a push when `capacity` items are queued. */
enum fp_when_full {
	FP_FULL_REFUSE = 0, /* tail drop: the new item */
	FP_FULL_PUSH_OUT =
		1, /* the item of largest rank, the latest of those; may be the new one */
};

/* The result for a rank outside the window (FP_CFFS, FP_GRADIENT) or above the last band. */
enum fp_outside {
	FP_OUTSIDE_CLAMP = 0, /* into the first or last bucket, by arrival */
	FP_OUTSIDE_DROP = 1,  /* FP_REFUSED_BELOW, FP_REFUSED_BEYOND */
	FP_OUTSIDE_ERROR = 2, /* FP_REFUSED_RANK: the configuration excludes it */
};

/* Why an item was refused. Each is counted. */
enum fp_refusal {
	FP_REFUSED_FULL = 1,
	FP_REFUSED_BELOW = 2,
	FP_REFUSED_BEYOND = 3,
	FP_REFUSED_ADMISSION = 4, /* by the quantile of FP_AIFO */
	FP_REFUSED_ITEM = 5, /* 0, out of range, already queued; of move and remove: not queued */
	FP_REFUSED_PIFO = 6, /* 0, out of range, or without this operation */
	FP_REFUSED_RANK = 7,
};

/* Written by the pool. `rank` and `seq` stay valid after the item left. */
struct fp_item {
	u64 rank;
	u64 seq;  /* order of equal ranks: by default of arrival, over all PIFOs of the pool */
	u32 next; /* in its list or run; free for the caller while the item is in no PIFO */
	u32 prev; /* the same; of the head of a list: undefined */
	u32 place; /* its list (of a window: its word after the header); heap.h: its run or position */
	u32 pifo; /* its PIFO, 0 none */
};

/* A FIFO of items, by their next and prev; empty if head is 0, whatever tail is. */
struct fp_list {
	u32 head;
	u32 tail;
};

/*
 * One PIFO. was_below and was_beyond count ranks outside (also of moves), with any result.
 */
struct fp_pifo {
	u8 kind;   /* enum fp_pifo_kind, 0 none */
	u8 full;   /* enum fp_when_full */
	u8 below;  /* enum fp_outside */
	u8 beyond; /* enum fp_outside */
	u8 shift;  /* a bucket is 2^shift ranks wide */
	u8 levels; /* of bitmaps below `top`: 1 to 3 */
	u8 zero[2];
	u32 capacity; /* maximum of items */
	u32 count;
	u32 buckets; /* of each half; lists of FP_BANDS, FP_SP_PIFO, FP_AIFO */
	u32 first;   /* FP_CFFS of one level: the first list of the primary half, counted as `at` */
	u32 at[2]; /* of a window, its halves; of others, twice the arrays: words after the header */
	u64 base;  /* first rank of the primary half; FP_AIFO: ranks so far; FP_PIEO: latest now */
	u64 top[2]; /* of each half: bit i <=> bucket, or word of the level below, is not empty */
	u64 popped;
	u64 pushed; /* FP_PIEO; of others, fp_pifo_pushed() */
	u64 removed;
	u64 moved;
	u64 pushed_out;
	u64 was_full; /* refusals for that reason */
	u64 was_below;
	u64 was_beyond;
	u64 not_admitted;
	u64 errors;	 /* FP_REFUSED_RANK */
	u64 rotations;	 /* swaps of the halves */
	u64 rebases;	 /* moves of an empty window */
	u64 searched;	 /* FP_GRADIENT: empty buckets that were checked */
	u32 level_at[2]; /* first word of the second and third level */
	u32 window;	 /* FP_AIFO: stored ranks */
	u32 headroom;	 /* FP_AIFO: k, in parts of FP_AIFO_HEADROOM_ONE */
	u32 wheel;	 /* FP_PIEO: the PIFO of items that are not yet eligible */
	u32 ready;	 /* FP_PIEO: the PIFO of eligible items */
	u32 each;	 /* FP_SP_PIFO: maximum of items of one list */
	u32 zero2;
};

struct fp_pool {
	u32 magic;    /* FP_PIFO_MAGIC */
	u32 version;  /* FP_PIFO_VERSION */
	u64 bytes;    /* all bytes, with arrays */
	u64 capacity; /* 64-bit words after the header where an fp_item can begin */
	u64 pifo_at;  /* offset of pifo 0 */
	u64 arrays;   /* offset of the space for arrays */
	u32 items;    /* the largest number */
	u32 pifos;
	u64 seq;	/* arrivals so far */
	u32 pushed_out; /* by the last push: the item that was pushed out, 0 none */
	u32 lock;	/* fp_pool_lock() */
	u64 bad_items;	/* FP_REFUSED_ITEM */
	u64 bad_pifos;	/* FP_REFUSED_PIFO */
	u64 broken;	/* inconsistencies found in the memory: another program wrote to it */
	u64 pad[5];
};

_Static_assert(sizeof(struct fp_item) == 32, "two to a cache line");
_Static_assert(sizeof(struct fp_pifo) == 192, "three cache lines");
_Static_assert(sizeof(struct fp_pool) == 128, "item 0 follows");

/*
 * Takes the lock of a pool for one of several callers. Returns 0 after FP_LOCK_TRIES attempts, which
 * the caller counts and tries again later: on the same CPU, the holder may be the program that this
 * one interrupted. Native pools have one caller.
 */
FP_INLINE int fp_pool_lock(struct fp_pool FP_MEM *pool)
{
	return fp_lock(&pool->lock);
}

FP_INLINE void fp_pool_unlock(struct fp_pool FP_MEM *pool)
{
	fp_unlock(&pool->lock);
}

/* The number of pushes. It is not a field, so that a push and a pop need one line of the PIFO. */
FP_INLINE u64 fp_pifo_pushed(const struct fp_pifo FP_MEM *p)
{
	return p->kind == FP_PIEO ? p->pushed : p->popped + p->removed + p->pushed_out + p->count;
}

/* `i` if the item exists, else 0. */
FP_INLINE u32 fp_item_bound(struct fp_pool FP_MEM *pool, u32 i)
{
	return i <= pool->items ? i : 0;
}

/* Item `i`, which exists. */
FP_INLINE struct fp_item FP_MEM *fp_item_known(struct fp_pool FP_MEM *pool, u32 i)
{
	return FP_AT(struct fp_item, pool,
		     sizeof(struct fp_pool) + (u64)i * sizeof(struct fp_item));
}

/* Item `i`; item 0 if it does not exist. O(1). */
FP_INLINE struct fp_item FP_MEM *fp_item_at(struct fp_pool FP_MEM *pool, u32 i)
{
	return fp_item_known(pool, fp_item_bound(pool, i));
}

/* PIFO `q`, which exists. */
FP_INLINE struct fp_pifo FP_MEM *fp_pifo_known(struct fp_pool FP_MEM *pool, u32 q)
{
	return FP_AT(struct fp_pifo, pool, pool->pifo_at + (u64)q * sizeof(struct fp_pifo));
}

/* PIFO `q`; PIFO 0, without a kind, if it does not exist. O(1). */
FP_INLINE struct fp_pifo FP_MEM *fp_pifo_at(struct fp_pool FP_MEM *pool, u32 q)
{
	return fp_pifo_known(pool, q <= pool->pifos ? q : 0);
}

/* Word `word` after the header, which is less than the pool's capacity. */
FP_INLINE u64 FP_MEM *fp_pool_word(struct fp_pool FP_MEM *pool, u64 word)
{
	return FP_AT(u64, pool, sizeof(struct fp_pool) + 8 * word);
}

/* Word `word` after the header, else that of item 0. Up to 32 bytes from there are in the pool. */
FP_INLINE u64 FP_MEM *fp_pool_bound(struct fp_pool FP_MEM *pool, u64 word)
{
	return fp_pool_word(pool, word < pool->capacity ? word : 0);
}

/* 64-bit word `word` of the arrays of a PIFO without halves. */
FP_INLINE u64 FP_MEM *fp_word_at(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p, u64 word)
{
	return fp_pool_bound(pool, p->at[0] + word);
}

FP_INLINE int fp_is_window(u32 kind)
{
	return kind == FP_CFFS || kind == FP_GRADIENT;
}

/* The list at `place` of a PIFO of this kind. */
FP_INLINE struct fp_list FP_MEM *fp_list_at(struct fp_pool FP_MEM *pool, struct fp_pifo FP_MEM *p,
					    u32 place, u32 kind)
{
	return (struct fp_list FP_MEM *)(fp_is_window(kind) ? fp_pool_bound(pool, place)
							    : fp_word_at(pool, p, place));
}

/*
 * 1 for 0, 0 otherwise, without a branch: BPF has only branches for it, and on hot paths both cases
 * are random.
 */
FP_INLINE u64 fp_is_zero(u64 x)
{
#ifdef __bpf__
	return ~(x | -x) >> 63;
#else
	return !x;
#endif
}

/* `x` if `yes` is 1, 0 if it is 0, also without a branch. */
FP_INLINE u32 fp_if(u64 yes, u32 x)
{
	return -(u32)yes & x;
}

/* Appends an item to a list. Returns 1 if the list was empty. */
FP_INLINE int fp_list_append(struct fp_pool FP_MEM *pool, struct fp_list FP_MEM *list, u32 item,
			     struct fp_item FP_MEM *it)
{
	u32 tail = list->tail, was_empty = !list->head;

	it->next = 0;
	it->prev = tail;
	list->tail = item;
	if (was_empty)
		list->head = item;
	else
		fp_item_at(pool, tail)->next = item;
	return was_empty;
}

/* Removes an item from its list. Returns 1 if the list is empty now. */
FP_INLINE int fp_list_unlink(struct fp_pool FP_MEM *pool, struct fp_list FP_MEM *list, u32 item,
			     struct fp_item FP_MEM *it)
{
	u32 next = it->next;

	if (list->head == item)
		list->head = next;
	else
		fp_item_at(pool, it->prev)->next = next;
	if (list->tail == item)
		list->tail = it->prev;
	else
		fp_item_at(pool, next)->prev = it->prev;
	return !list->head;
}

/* Guarded so that all runtimes agree: x / 0 is 0 in BPF and a trap elsewhere. */
FP_INLINE u64 fp_quotient(u64 x, u64 y)
{
	return y ? x / y : 0;
}

/* Guarded: BPF takes a shift modulo the width, C leaves it undefined. */
FP_INLINE u64 fp_bit(u32 i)
{
	return 1ull << (i & 63);
}

#ifdef __bpf__
/* The bit that a de Bruijn sequence shifts to its upper 6 bits: BPF has no instruction for it. */
static const u8 fp_lowest_bit[64] = {
	0,  1,	2,  7,	3,  13, 8,  19, 4,  25, 14, 28, 9,  34, 20, 40, 5,  17, 26, 38, 15, 46,
	29, 48, 10, 31, 35, 54, 21, 50, 41, 57, 63, 6,	12, 18, 24, 27, 33, 39, 16, 37, 45, 47,
	30, 53, 49, 56, 62, 11, 23, 32, 36, 44, 52, 55, 61, 22, 43, 51, 60, 42, 59, 58,
};
#endif

/* The lowest set bit; 0 for 0. */
FP_INLINE u32 fp_lowest(u64 word)
{
#ifdef __bpf__
	return fp_lowest_bit[(word & -word) * 0x0218a392cd3d5dbfull >> 58];
#else
	return word ? (u32)__builtin_ctzll(word) : 0;
#endif
}

/* The highest set bit; 0 for 0. */
FP_INLINE u32 fp_highest(u64 word)
{
	return word ? 63 - (u32)__builtin_clzll(word) : 0;
}

#endif /* FP_ITEM_H */
