/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/impair.h: the configuration of an impairment, and its effect on one packet: pure functions
 * of the packet's number and of the state that earlier packets left.
 *
 *   packet n --> lost? --> copied? corrupted? --> ahead of others? --> delay --> order --> slot
 *                                                                        '--> burst release -->
 * time
 *
 * No floating point: user space writes tables of quantiles into words. A normal number z selects
 * the deviation from the mean, so that correlated delays keep their distribution: z is rho times
 * the last z plus a fresh part (a Gaussian copula), for any table.
 *
 *   draw --normal table--> z --(rho)--> z' --table of deviations--> ns
 *
 * The semantics are those of netem (sch_netem.c), except the correlation: netem mixes uniform
 * numbers, which changes both rate and variance. Mirrored in sched/impair.rs of Rust.
 */
#ifndef FP_IMPAIR_H
#define FP_IMPAIR_H

#include "framing.h"
#include "loss.h"

/* Parts of a table's range. The table has one more entry. */
#define FP_TABLE_PARTS 1024
/* The value of 1 for z and rho. */
#define FP_Z_SHIFT 24
/* Range of z in a table of deviations: -8 to 8. */
#define FP_Z_MOST (8ll << FP_Z_SHIFT)
/* Bytes of one opportunity of a rate trace (Mahimahi: an MTU and the header of its tunnel). */
#define FP_OPPORTUNITY 1504

/*
 * Made of u64 words: FP_OP_IMPAIR sets one. A field `_at` is the index of a word plus 1, 0 for
 * none.
 */
struct fp_impair_config {
	struct fp_loss_config loss;
	u64 delay; /* ns */
	u64 copy;  /* chance of duplication, as in loss.h */
	u64 corrupt;
	u64 ahead;	/* chance of leaving without delay */
	u32 gap;	/* packets that are delayed before one may leave early, that one included */
	u32 free_order; /* 1: packets leave by their own delays, in any order */
	u32 normal_at;	/* z of the upper half, then of its last part */
	u32 jitter_at;	/* deviations in ns, signed, by z */
	s32 rho;	/* correlation of z with the previous z */
	s32 fresh;	/* the square root of 1 - rho * rho */
	u32 delays_at;	/* pairs of times and delays in ns, by time, the first at 0 */
	u32 delays;	/* pairs */
	u64 delays_period; /* ns; then they repeat */
	u64 slot_min;	   /* minimum ns between slots */
	u32 slot_spread;   /* maximum of ns added to it */
	u32 slot_packets;  /* maximum of packets in a slot; 0 any number */
	u32 slot_bytes;	   /* maximum of bytes, which the last packet may exceed; 0 any number */
	struct fp_framing framing; /* of the emulated link */
	u64 release;		   /* ns; packets leave together at its multiples. 0 none */
	u32 chances_at; /* times of opportunities in ns, in order; only of the root's impairment */
	u32 chances;
	u64 chances_period;
};

#define FP_IMPAIR_WORDS (sizeof(struct fp_impair_config) / 8)

/* State from the previous packets. */
struct fp_impair_state {
	struct fp_loss_state loss;
	u64 last;	   /* departure of the previous packet, where order is kept */
	u64 began;	   /* arrival of the first packet, when traces begin */
	u64 opens;	   /* the start of the current slot */
	u64 newest;	   /* the latest arrival that left */
	s64 slot_left;	   /* bytes left in it */
	u32 slot_capacity; /* packets left in it */
	u32 slots;	   /* so far */
	u32 delayed;	   /* packets since one left early */
	s32 z;
	u32 has_z;
	u32 has_begun;
	u64 lap;     /* start of the rate trace */
	u64 chances; /* opportunities since then */
	s64 credit;  /* bytes that may leave; negative after a larger packet */
	u32 has_lap;
	u32 zero;
};

/* Sums since the start. Mirrored in Rust. */
struct fp_impair_stats {
	u64 packets;	 /* on the wire: a GSO packet counts its segments */
	u64 lost;	 /* of them */
	u64 bursts;	 /* runs of consecutive losses */
	u64 gso_packets; /* GSO packets, which are lost whole */
	u64 copied;
	u64 corrupted;
	u64 ahead;	  /* left early, as configured */
	u64 delayed;	  /* passed the delay queue */
	u64 requested_ns; /* sum of configured delays */
	u64 held_ns;	  /* sum of delays after order, slots and release */
	u64 late_ns;	  /* sum of lateness at release */
	u64 late_most_ns;
	u64 reordered; /* released after a packet that arrived later */
	u64 zero;
};

struct fp_impair {
	struct fp_impair_config config;
	struct fp_impair_state state;
	struct fp_impair_stats stats;
};

/* Interpolates between two entries: `part` of 2^16. */
FP_INLINE s64 fp_interpolate(s64 a, s64 b, u32 part)
{
	s64 way = (s64)(((u64)b - (u64)a) * part) >> 16;

	return (s64)((u64)a + (u64)way);
}

/* The entry of the normal table before a draw, and the part of the distance to the next entry. */
FP_INLINE u32 fp_normal_entry(u64 draw, u32 *part)
{
	u64 half = draw & ~(1ull << 63);
	u32 entry = (u32)(half >> 53);

	/* The last part has a second table for extremes, which are rare but present. */
	if (entry == FP_TABLE_PARTS - 1) {
		*part = (u32)(half >> 27 & 0xffff);
		return FP_TABLE_PARTS + 1 + (u32)(half >> 43 & (FP_TABLE_PARTS - 1));
	}
	*part = (u32)(half >> 37 & 0xffff);
	return entry;
}

/* The next correlated normal number. */
FP_INLINE s64 fp_next_normal(s64 z, s64 fresh_z, s64 rho, s64 fresh)
{
	return (s64)((u64)(rho * z) + (u64)(fresh * fresh_z)) >> FP_Z_SHIFT;
}

/* The entry of a table of deviations for z. */
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

/* True if the packet leaves early. Counts those that do not. */
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

/* The time `by` after `at`, saturated. */
FP_INLINE u64 fp_time_after(u64 at, u64 by)
{
	return at + by < at || at + by == ~0ull ? ~0ull - 1 : at + by;
}

/* Starts a new slot, which opens a drawn time after `from`. */
FP_INLINE void fp_begin_slot(const struct fp_impair_config FP_MEM *c,
			     struct fp_impair_state FP_MEM *state, u64 from)
{
	u64 draw = fp_draw(c->loss.seed, state->slots, FP_FOR_SLOT) >> 32;

	state->slots++;
	state->opens = fp_time_after(from, c->slot_min + ((draw * c->slot_spread) >> 32));
	FP_PUT(state->slot_capacity, c->slot_packets ? c->slot_packets : ~0u);
	state->slot_left = c->slot_bytes ? (s64)c->slot_bytes : (s64)(~0ull >> 1);
}

/*
 * The departure of a packet that is due at `at`, where packets leave in slots. A slot that opened
 * before that time is over, and a full slot is followed by another. Packets come in the order of
 * due times.
 */
FP_INLINE u64 fp_time_in_slot(const struct fp_impair_config FP_MEM *c,
			      struct fp_impair_state FP_MEM *state, u64 at, u32 bytes)
{
	if (!c->slot_min && !c->slot_spread)
		return at;
	if (state->opens < at || !state->slots)
		fp_begin_slot(c, state, at);
	at = state->opens;
	state->slot_capacity--;
	state->slot_left = (s64)((u64)state->slot_left - bytes);
	if (!state->slot_capacity || state->slot_left <= 0)
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
