/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/impair.h: what an impairment is, and what one packet meets by it: pure functions of its
 * number, and of what the packets before it left behind.
 *
 *   packet n --> lost? --> copied? corrupted? --> ahead of others? --> delay --> order --> slot
 *                                                                        '--> burst release -->
 * time
 *
 * No floating point: user space lays tables of quantiles into words. A deviation from the mean is
 * looked up by a normal number z, so that correlated delays keep their distribution: z is rho times
 * the last one and a fresh part (a Gaussian copula), whatever the table says of it.
 *
 *   draw --normal table--> z --(rho)--> z' --table of deviations--> ns
 *
 * Source of what netem has, too: its semantics (sch_netem.c), but for the correlation, which mixes
 * uniform numbers there and keeps neither rate nor variance. Mirrored in Rust's sched/impair.rs.
 */
#ifndef FP_IMPAIR_H
#define FP_IMPAIR_H

#include "loss.h"

/* Parts that a table divides its range into; it has one entry more. */
#define FP_TABLE_PARTS 1024
/* z and rho: 1 is this. */
#define FP_Z_SHIFT 24
/* z of a table of deviations: from -8 to 8. */
#define FP_Z_MOST (8ll << FP_Z_SHIFT)
/* Bytes of an opportunity of a rate trace (Mahimahi: an MTU and the header of its tunnel). */
#define FP_OPPORTUNITY 1504

/* Of u64 words: FP_OP_IMPAIR sets one. "at": index of a word plus 1, 0 for none. */
struct fp_impair_config {
	struct fp_loss_config loss;
	u64 delay; /* ns */
	u64 copy;  /* chances as in loss.h */
	u64 corrupt;
	u64 ahead;	   /* of going ahead, without delay */
	u32 gap;	   /* packets that are delayed before one may go ahead, and itself */
	u32 free_order;	   /* 1: packets leave by their own delay, in whatever order that is */
	u32 normal_at;	   /* z of the upper half, then of its last part */
	u32 jitter_at;	   /* deviations in ns, signed, by z */
	s32 rho;	   /* of z to that of the packet before */
	s32 fresh;	   /* the square root of 1 - rho * rho */
	u32 delays_at;	   /* pairs of times and delays in ns, by time, the first at 0 */
	u32 delays;	   /* pairs */
	u64 delays_period; /* ns; they begin again */
	u64 slot_least;	   /* ns between slots */
	u32 slot_spread;   /* more of them, at most */
	u32 slot_packets;  /* of a slot, at most; 0 any number */
	u32 slot_bytes;	   /* the same; the last packet may be beyond */
	u32 overhead;	   /* bytes that each packet takes on the line besides its own */
	u32 cell_payload;  /* then it takes whole cells; 0 none */
	u32 cell_bytes;
	u64 release;	/* ns; packets leave together at its multiples. 0 none */
	u32 chances_at; /* times of opportunities in ns, in order; of the root's only */
	u32 chances;
	u64 chances_period;
};

#define FP_IMPAIR_WORDS (sizeof(struct fp_impair_config) / 8)

/* What the packets before left behind. */
struct fp_impair_state {
	struct fp_loss_state loss;
	u64 last;      /* when the one before leaves, where order is kept */
	u64 began;     /* when the first came; traces begin then */
	u64 opens;     /* the slot that is filled */
	u64 newest;    /* the latest arrival that left */
	s64 slot_left; /* bytes */
	u32 slot_room; /* packets */
	u32 slots;     /* so far */
	u32 delayed;   /* packets since one went ahead */
	s32 z;
	u32 has_z;
	u32 has_begun;
	u64 lap;     /* when the rate trace began */
	u64 chances; /* opportunities since then */
	s64 credit;  /* bytes that may leave; negative where a packet took more */
	u32 has_lap;
	u32 zero;
};

/* Sums since the start. Mirrored. */
struct fp_impair_stats {
	u64 packets; /* on the wire: a GSO packet is as many as its segments */
	u64 lost;    /* of them */
	u64 bursts;  /* runs of packets lost one after another */
	u64 supers;  /* GSO packets: they are lost whole, which no wire does */
	u64 copied;
	u64 corrupted;
	u64 ahead;    /* gone ahead as planned */
	u64 delayed;  /* waited at the delay queue */
	u64 asked_ns; /* sum of their delays */
	u64 held_ns;  /* sum of what order, slots and release made of them */
	u64 late_ns;  /* sum of what they were released late */
	u64 late_most_ns;
	u64 overtaken; /* released after one that came later */
	u64 zero;
};

struct fp_impair {
	struct fp_impair_config config;
	struct fp_impair_state state;
	struct fp_impair_stats stats;
};

/* Between two entries of a table: `part` of 2^16 of the way. */
FP_INLINE s64 fp_interpolate(s64 a, s64 b, u32 part)
{
	s64 way = (s64)(((u64)b - (u64)a) * part) >> 16;

	return (s64)((u64)a + (u64)way);
}

/* Where a draw lies in the normal table: the entry before it, and the part of the way to the next.
 */
FP_INLINE u32 fp_normal_entry(u64 draw, u32 *part)
{
	u64 half = draw & ~(1ull << 63);
	u32 entry = (u32)(half >> 53);

	/* The last part has a separate table behind the first: extremes are rare, not missing. */
	if (entry == FP_TABLE_PARTS - 1) {
		*part = (u32)(half >> 27 & 0xffff);
		return FP_TABLE_PARTS + 1 + (u32)(half >> 43 & (FP_TABLE_PARTS - 1));
	}
	*part = (u32)(half >> 37 & 0xffff);
	return entry;
}

/* The next of correlated normal numbers. */
FP_INLINE s64 fp_next_normal(s64 z, s64 fresh_z, s64 rho, s64 fresh)
{
	return (s64)((u64)(rho * z) + (u64)(fresh * fresh_z)) >> FP_Z_SHIFT;
}

/* Where z lies in a table of deviations. */
FP_INLINE u32 fp_deviation_entry(s64 z, u32 *part)
{
	u64 from;

	if (z < -FP_Z_MOST)
		z = -FP_Z_MOST;
	if (z >= FP_Z_MOST)
		z = FP_Z_MOST - 1;
	from = (u64)(z + FP_Z_MOST);
	*part = (u32)(from >> 2 & 0xffff);
	return (u32)(from >> 18);
}

/* Bytes that a packet takes on the line. */
FP_INLINE u32 fp_link_bytes(const struct fp_impair_config FP_MEM *c, u32 bytes, u32 segments)
{
	u64 each;

	if (!c->overhead && !c->cell_payload)
		return bytes;
	if (!c->cell_payload)
		return bytes + c->overhead * segments;
	each = bytes / segments + c->overhead;
	each = (each + c->cell_payload - 1) / c->cell_payload * c->cell_bytes;
	return (u32)(each * segments);
}

/* Whether the packet goes ahead; counts those that do not. */
FP_INLINE int fp_is_reordered_early(const struct fp_impair_config FP_MEM *c,
				    struct fp_impair_state FP_MEM *state, u64 n)
{
	if (!c->ahead)
		return 0;
	if (state->delayed + 1ull >= c->gap &&
	    fp_happens(fp_draw(c->loss.seed, n, FP_FOR_AHEAD), c->ahead)) {
		FP_PUT(state->delayed, 0);
		return 1;
	}
	state->delayed++;
	return 0;
}

/* So much later, at most the last moment that there is. */
FP_INLINE u64 fp_time_after(u64 at, u64 by)
{
	return at + by < at || at + by == ~0ull ? ~0ull - 1 : at + by;
}

/* A slot that begins to be filled: it opens a drawn time after `from`. */
FP_INLINE void fp_begin_slot(const struct fp_impair_config FP_MEM *c,
			     struct fp_impair_state FP_MEM *state, u64 from)
{
	u64 draw = fp_draw(c->loss.seed, state->slots, FP_FOR_SLOT) >> 32;

	state->slots++;
	state->opens = fp_time_after(from, c->slot_least + ((draw * c->slot_spread) >> 32));
	FP_PUT(state->slot_room, c->slot_packets ? c->slot_packets : ~0u);
	state->slot_left = c->slot_bytes ? (s64)c->slot_bytes : (s64)(~0ull >> 1);
}

/*
 * When a packet that is due at `at` leaves, where packets leave in slots. A slot that opened before
 * it was due is over; one that is used up is followed by another. Packets come by due time.
 */
FP_INLINE u64 fp_time_in_slot(const struct fp_impair_config FP_MEM *c,
			      struct fp_impair_state FP_MEM *state, u64 at, u32 bytes)
{
	if (!c->slot_least && !c->slot_spread)
		return at;
	if (state->opens < at || !state->slots)
		fp_begin_slot(c, state, at);
	at = state->opens;
	state->slot_room--;
	state->slot_left = (s64)((u64)state->slot_left - bytes);
	if (!state->slot_room || state->slot_left <= 0)
		fp_begin_slot(c, state, at);
	return at;
}

/* The next multiple of the time between releases. */
FP_INLINE u64 fp_round_to_release(const struct fp_impair_config FP_MEM *c, u64 at)
{
	u64 over;

	if (!c->release)
		return at;
	over = at % c->release;
	return over ? fp_time_after(at, c->release - over) : at;
}

#endif /* FP_IMPAIR_H */
