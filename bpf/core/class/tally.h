/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * tally.h: counts passing packets for the classes of both ends.
 *
 *   packet ── volume ─────────────────────────────────┐
 *   flow ── tally (which classes, what is untold) ────┤─> class counts (one set a class)
 *   sample ── leg ────────────────────────────────────┘
 *            └── cell (class, leg, bucket)                      emptied by each reading
 *   flow ── tally ── pair (class, remote prefix | host)         emptied by each reading
 *
 * A flow keeps the classes of its two ends in its tally, and looks them up again only when the
 * rules or the facts changed. The flow adds rare events (loss, peers) every FP_FLUSH_NS and at its
 * end, not with each packet.
 *
 * What every packet and sample counts for a class, each CPU has apart (struct fp_volume, two of struct
 * fp_leg_counts): no atomic additions, and no cache line that CPUs exchange. The reader adds them up.
 * All CPUs share the rest (atomic additions). Cells and pairs exist twice: user space swaps the halves with r->reading, waits until no
 * packet uses the old half, reads it and clears it. If no entry is free, the counts of the class
 * (unbinned) or a statistic (pairs_evicted) show it.
 */
#ifndef FP_TALLY_H
#define FP_TALLY_H

#include "classify.h"
#include "../rtt/flow.h"

#define FP_CELL_WAYS 8
#define FP_PAIR_WAYS 4
/* The maximum time for which a flow keeps pending counts while packets arrive. */
#define FP_FLUSH_NS 1000000000ull
/*
 * And how many: bytes and microseconds have 32 bits. One packet adds at most FP_FLUSH_MAX: an IP
 * packet with the headers of 65,535 segments, or a round-trip time.
 */
#define FP_FLUSH_MAX (1u << 30)
/* Buckets: 32 an octave, from 2^13 ns on (8 us) to 2^36 (69 s); relative error at most 1.6 %. */
#define FP_FIRST_OCTAVE 13
#define FP_LAST_OCTAVE	35
#define FP_BUCKETS	((FP_LAST_OCTAVE - FP_FIRST_OCTAVE + 1) * 32)

/* The median of a flow has parts of a bucket. */
#define FP_P50_SHIFT 3
/* Its first samples make steps of more than a bucket: 48 divided by their number. */
#define FP_LONG_STEPS 48
/* A run of samples on one side of the median makes longer steps from this length on, up to the maximum. */
#define FP_RUN_LONG 6
#define FP_RUN_MAX  12

enum fp_pair_kind {
	FP_PAIR_REMOTE = 1,
	FP_PAIR_LABEL = 2,
	FP_PAIR_TALKER = 3,
	FP_PAIR_UNMATCHED = 4,
};

/* Events of a flow, for the classes of its ends. */
enum fp_tally_flow {
	FP_TALLY_OPENED = 1,
	FP_TALLY_CLOSED,
	FP_TALLY_FAILED,
	FP_TALLY_ONE_SIDED,
};

/* Counts of one direction that flows add from time to time. */
struct fp_class_losses {
	u32 data_packets;
	u32 retransmitted_packets;
	u32 upstream_lost_packets;
	u32 spurious_packets;
	u32 reordered_packets;
};

/* Filters by class: with at least one such class, packets of other classes are excluded. */
#define FP_CLASS_ONLY 0x01
/* Its packets are excluded. */
#define FP_CLASS_EXCEPT 0x02

/* Counts of a class that all CPUs share: one cache line. Arrays: FP_UP, FP_DOWN. */
struct fp_class {
	u32 born;  /* generation of the rules that first used it; written by user space */
	u32 flags; /* FP_CLASS_*; written by user space */
	struct fp_class_losses losses[2];
	u32 flows_opened;
	u32 flows_closed;
	u32 handshakes_failed;
	u32 one_sided;
} __attribute__((aligned(64)));

/* Counts of a class with every packet, on each CPU. Arrays: FP_UP, FP_DOWN. */
struct fp_volume {
	u64 packets[2];
	u64 bytes[2];
	u64 unmeasured_bytes[2];
	u64 zero[2];
} __attribute__((aligned(64)));

/* A count of round-trip times; 0 is empty. */
struct fp_cell {
	u64 key_count; /* slot, leg and bucket above, plus one; count below */
};

struct fp_pair_set {
	u32 lock;
	u32 zero;
};

struct fp_pair {
	u64 addr[2];  /* masked; of a label its number */
	u64 bytes[2]; /* FP_UP, FP_DOWN */
	u64 rtt_sum_ns;
	u32 slot;
	u32 kind_length; /* enum fp_pair_kind, prefix length (of 128) << 8; 0 empty */
	u32 samples;
	u32 max_rtt_us;
	u32 lost_packets;
	u32 zero;
};

FP_INLINE struct fp_class FP_MEM *fp_class_at(struct fp_rtt FP_MEM *r, u32 slot)
{
	if (slot >= r->config.slots)
		slot = FP_OTHER;
	return FP_AT(struct fp_class, r, r->classes + (u64)slot * sizeof(struct fp_class));
}

/* The entry of a class among those of a CPU. */
FP_INLINE u64 fp_cpu_entry(struct fp_rtt FP_MEM *r, u32 cpu, u32 slot)
{
	if (slot >= r->config.slots)
		slot = FP_OTHER;
	return (u64)cpu * r->config.slots + slot;
}

FP_INLINE struct fp_volume FP_MEM *fp_volume_at(struct fp_rtt FP_MEM *r, u32 cpu, u32 slot)
{
	return FP_AT(struct fp_volume, r,
		     r->volumes + fp_cpu_entry(r, cpu, slot) * sizeof(struct fp_volume));
}

/* Its two legs: FP_INSIDE, FP_OUTSIDE. */
FP_INLINE struct fp_leg_counts FP_MEM *fp_legs_at(struct fp_rtt FP_MEM *r, u32 cpu, u32 slot)
{
	return FP_AT(struct fp_leg_counts, r,
		     r->legs + fp_cpu_entry(r, cpu, slot) * (2 * sizeof(struct fp_leg_counts)));
}

/* ----- round-trip times ------------------------------------------------------------------- */

FP_INLINE u32 fp_bucket(u64 rtt)
{
	u32 octave = FP_FIRST_OCTAVE;
	u64 rest;

	if (rtt < 1ull << FP_FIRST_OCTAVE)
		rtt = 1ull << FP_FIRST_OCTAVE;
	if (rtt >> (FP_LAST_OCTAVE + 1))
		rtt = (1ull << (FP_LAST_OCTAVE + 1)) - 1;
	rest = rtt >> FP_FIRST_OCTAVE;
	if (rest >> 16) {
		octave += 16;
		rest >>= 16;
	}
	if (rest >> 8) {
		octave += 8;
		rest >>= 8;
	}
	if (rest >> 4) {
		octave += 4;
		rest >>= 4;
	}
	if (rest >> 2) {
		octave += 2;
		rest >>= 2;
	}
	octave += rest >> 1;
	return (octave - FP_FIRST_OCTAVE) * 32 + ((rtt >> (octave - 5)) & 31);
}

/* Counts one round-trip time in its cell. Returns -1 if none is free. */
FP_FUNC int fp_count_cell(struct fp_rtt FP_MEM *r FP_ARG, u32 slot, u32 leg_bucket)
{
	u64 key = ((u64)slot << 11 | leg_bucket) + 1;
	u32 set = (u32)fp_hash_1(&r->hash, key) & (r->config.cell_sets - 1), way;
	u64 at = r->cells[*(volatile u32 FP_MEM *)&r->reading & 1] +
		 (u64)set * FP_CELL_WAYS * sizeof(struct fp_cell);

	fp_loop(way, FP_CELL_WAYS) {
		u64 FP_MEM *cell = &FP_AT(struct fp_cell, r, at)[way].key_count;
		u64 there = *(volatile u64 FP_MEM *)cell;

		if (there == 0)
			there = fp_cas64(cell, 0, key << 32 | 1);
		if (there == 0)
			return 0;
		if (there >> 32 == key) {
			fp_add64(cell, 1);
			return 0;
		}
	}
	return -1;
}

FP_INLINE void fp_count_leg(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, u32 slot, u32 leg,
			    u64 rtt, u32 bucket)
{
	struct fp_leg_counts FP_MEM *counts = &fp_legs_at(r, w->cpu, slot)[leg];

	counts->samples++;
	counts->sum_ns += rtt;
	if (fp_count_cell(r, slot, leg << 10 | bucket)) {
		counts->unbinned++;
		w->stats.samples_unbinned++;
	}
}

/*
 * Moves the estimate of a median by a step towards `bucket`, after Ma, Muthukrishnan and Sandler (Frugal
 * Streaming for Estimating Quantiles, 2013). Steps are long for the first samples, since the very first
 * one may be far away, and in a run of samples on the same side, so that the estimate follows a change.
 * The others are an eighth of a bucket. Runs on both sides are equally likely at the median: no bias.
 */
FP_INLINE void fp_estimate_median(struct fp_dir FP_MEM *d, u32 samples, u32 bucket)
{
	u32 at = bucket << FP_P50_SHIFT | 1 << (FP_P50_SHIFT - 1);
	u32 p50 = d->p50, above = at > p50 ? FP_DIR_ABOVE : 0, run = 0, step = 1;

	if (samples <= 1)
		p50 = at;
	if (at != p50 && above == (d->flags & FP_DIR_ABOVE))
		run = ((d->flags & FP_DIR_RUN) >> FP_DIR_RUN_SHIFT) + 1;
	if (run > FP_RUN_MAX)
		run = FP_RUN_MAX;
	d->flags = (d->flags & ~(FP_DIR_ABOVE | FP_DIR_RUN)) | above | run << FP_DIR_RUN_SHIFT;
	if (run >= FP_RUN_LONG)
		step = 1u << (run / 2 - (FP_RUN_LONG / 2 - 1));
	if (samples < FP_LONG_STEPS && samples * step < FP_LONG_STEPS << FP_P50_SHIFT)
		step = (FP_LONG_STEPS << FP_P50_SHIFT) / (samples ? samples : 1);
	if (at > p50)
		d->p50 = at - p50 > step ? p50 + step : at;
	else
		d->p50 = p50 - at > step ? p50 - step : at;
}

/* The slot of a monitored interface, FP_OTHER if it is not counted. */
FP_INLINE u32 fp_interface_slot(struct fp_rtt FP_MEM *r, u32 ifindex)
{
	u32 at;

	if (!r->interface_slots)
		return FP_OTHER;
	at = fp_watched(r, ifindex);
	return at < FP_MAX_WATCHED ? r->watched_slot[at] : FP_OTHER;
}

/* Counts a sample of the data that the other side of `f` sent to w->packet.side. */
FP_FUNC int fp_tally_sample(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			    struct fp_flow FP_MEM *f FP_ARG, u64 rtt)
{
	struct fp_tally FP_MEM *t = &fp_rare_of(r, f)->tally;
	u32 measured = w->packet.side & 1, other = !measured;
	u32 near = t->slot[measured], far = t->slot[other], bucket = fp_bucket(rtt);
	u64 us = rtt / 1000 < FP_FLUSH_MAX ? rtt / 1000 : FP_FLUSH_MAX;

	if (near)
		fp_count_leg(r, w, near, FP_INSIDE, rtt, bucket);
	if (far)
		fp_count_leg(r, w, far, FP_OUTSIDE, rtt, bucket);
	if (!near && !far)
		fp_count_leg(r, w, FP_OTHER, FP_INSIDE, rtt, bucket);
	near = fp_interface_slot(r, f->dir[measured].behind);
	if (near)
		fp_count_leg(r, w, near, FP_INSIDE, rtt, bucket);
	far = fp_interface_slot(r, f->dir[other].behind);
	if (far)
		fp_count_leg(r, w, far, FP_OUTSIDE, rtt, bucket);
	fp_estimate_median(&f->dir[other], f->totals[other].samples, bucket);
	t->samples[other]++;
	t->rtt_sum_us[other] += us;
	if (us > t->max_rtt_us[other])
		t->max_rtt_us[other] = us;
	return 0;
}

/* ----- peers ------------------------------------------------------------------------------ */

/* The entry of a pair in a locked set, after evicting a smaller one if needed. */
FP_INLINE u32 fp_pair_entry(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, u64 at, u32 slot,
			    u32 kind_length)
{
	u32 way, i;
	u64 min = ~0ull;
	volatile u64 FP_MEM *word;

	w->best = 0;
	fp_loop(way, FP_PAIR_WAYS) {
		struct fp_pair FP_MEM *p = &FP_AT(struct fp_pair, r, at)[way];
		u64 weight = p->kind_length ? p->bytes[0] + p->bytes[1] + 1 : 0;

		if (p->kind_length == kind_length && p->slot == slot && p->addr[0] == w->look[0] &&
		    p->addr[1] == w->look[1])
			return way;
		if (weight < min) {
			min = weight;
			w->best = way;
		}
	}
	if (min)
		w->stats.pairs_evicted++;
	way = w->best & (FP_PAIR_WAYS - 1);
	word = (volatile u64 FP_MEM *)&FP_AT(struct fp_pair, r, at)[way];
	for (i = 0; i < sizeof(struct fp_pair) / 8; i++)
		word[i] = 0;
	FP_AT(struct fp_pair, r, at)[way].addr[0] = w->look[0];
	FP_AT(struct fp_pair, r, at)[way].addr[1] = w->look[1];
	FP_AT(struct fp_pair, r, at)[way].slot = slot;
	FP_AT(struct fp_pair, r, at)[way].kind_length = kind_length;
	return way;
}

/* Adds w->peer to the pair of w->look. */
FP_FUNC int fp_pair_add(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 slot,
			u32 kind_length)
{
	u32 half = *(volatile u32 FP_MEM *)&r->reading & 1;
	u32 set = (u32)fp_hash_3(&r->hash, w->look[0], w->look[1], (u64)slot << 32 | kind_length) &
		  (r->config.pair_sets - 1);
	struct fp_pair_set FP_MEM *s =
		FP_AT(struct fp_pair_set, r, r->pair_sets[half] + (u64)set * sizeof(*s));
	u64 at = r->pairs[half] + (u64)set * FP_PAIR_WAYS * sizeof(struct fp_pair);
	struct fp_pair FP_MEM *p;
	u32 way;

	if (!fp_lock(&s->lock)) {
		w->stats.lock_failures++;
		return 0;
	}
	way = fp_pair_entry(r, w, at, slot, kind_length);
	p = &FP_AT(struct fp_pair, r, at)[way & (FP_PAIR_WAYS - 1)];
	p->bytes[FP_UP] += w->peer.bytes[FP_UP];
	p->bytes[FP_DOWN] += w->peer.bytes[FP_DOWN];
	p->samples += w->peer.samples;
	p->rtt_sum_ns += w->peer.rtt_sum_ns;
	p->lost_packets += w->peer.lost_packets;
	if (w->peer.max_rtt_us > p->max_rtt_us)
		p->max_rtt_us = w->peer.max_rtt_us;
	fp_unlock(&s->lock);
	return 0;
}

/* Masks w->look to the prefix length for remotes of this family. */
FP_INLINE u32 fp_mask_remote(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			     const struct fp_key FP_MEM *key)
{
	u32 bits = key->family == 4 ? 96 + r->config.remote_v4 : r->config.remote_v6;

	if (bits > 128)
		bits = 128;
	if (bits < 64)
		w->look[0] &= __builtin_bswap64(~(~0ull >> bits));
	if (bits <= 64)
		w->look[1] = 0;
	else if (bits < 128)
		w->look[1] &= __builtin_bswap64(~(~0ull >> (bits - 64)));
	return bits;
}

/* Adds w->peer of the class of `side`: to the remote, and to its own host. */
FP_FUNC int fp_report_peers(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			    const struct fp_key FP_MEM *key FP_ARG, u32 slot_side)
{
	struct fp_image FP_MEM *image = fp_image_at(r, w->image);
	u32 side = slot_side & 1, slot = slot_side >> 1, label = FP_NO_SLOT, bits;

	if (!w->peer.bytes[FP_UP] && !w->peer.bytes[FP_DOWN] && !w->peer.lost_packets)
		return 0;
	if (slot == FP_OTHER) {
		/* Only if the end is behind a monitored interface: remotes would fill the table. */
		if (!w->peer.unmatched)
			return 0;
		w->look[0] = key->addr[side][0];
		w->look[1] = key->addr[side][1];
		bits = fp_mask_remote(r, w, key);
		return fp_pair_add(r, w, FP_OTHER, FP_PAIR_UNMATCHED | bits << 8);
	}
	w->look[0] = key->addr[side][0];
	w->look[1] = key->addr[side][1];
	fp_pair_add(r, w, slot, FP_PAIR_TALKER | 128 << 8);

	w->look[0] = key->addr[!side][0];
	w->look[1] = key->addr[!side][1];
	w->peer.samples = w->peer.far_samples;
	w->peer.rtt_sum_ns = w->peer.far_rtt_sum_ns;
	w->peer.max_rtt_us = w->peer.far_max_rtt_us;
	w->peer.lost_packets = w->peer.far_lost_packets;
	w->family = key->family == 4 ? FP_RULE_LABEL_V4 : FP_RULE_LABEL_V6;
	if (image->levels[w->family & 3])
		label = fp_match_prefix(r, w);
	if (label != FP_NO_SLOT) {
		w->look[0] = label;
		FP_PUT(w->look[1], 0);
		return fp_pair_add(r, w, slot, FP_PAIR_LABEL | 128 << 8);
	}
	bits = fp_mask_remote(r, w, key);
	return fp_pair_add(r, w, slot, FP_PAIR_REMOTE | bits << 8);
}

/* ----- flows ------------------------------------------------------------------------------- */

/* True if `slot` still belongs to the class for which `context` was found. */
FP_INLINE int fp_is_slot_current(struct fp_rtt FP_MEM *r, u32 slot, u64 context)
{
	return slot && (s32)((u32)(context >> 32) - fp_class_at(r, slot)->born) >= 0;
}

FP_INLINE u32 FP_MEM *fp_flow_count(struct fp_rtt FP_MEM *r, u32 slot, u32 what)
{
	struct fp_class FP_MEM *c = fp_class_at(r, slot);

	if (what == FP_TALLY_OPENED)
		return &c->flows_opened;
	if (what == FP_TALLY_CLOSED)
		return &c->flows_closed;
	if (what == FP_TALLY_FAILED)
		return &c->handshakes_failed;
	return &c->one_sided;
}

/* Counts the start or end of the flow once for each of its classes. */
FP_INLINE void fp_count_flow(struct fp_rtt FP_MEM *r, const struct fp_tally FP_MEM *t, u32 what)
{
	if (t->slot[0] || !t->slot[1])
		fp_add32(fp_flow_count(r, t->slot[0], what), 1);
	if (t->slot[1] && t->slot[1] != t->slot[0])
		fp_add32(fp_flow_count(r, t->slot[1], what), 1);
}

FP_FUNC int fp_tally_opened(struct fp_rtt FP_MEM *r FP_ARG, struct fp_flow FP_MEM *f FP_ARG)
{
	if (r->config.slots)
		fp_count_flow(r, &fp_rare_of(r, f)->tally, FP_TALLY_OPENED);
	return 0;
}

/* ----- counts that a flow adds from time to time ------------------------------------------ */

/* Adds to `field` of direction `way` of both classes: packets of side `from`. */
#define FP_REPORT(counts, field)                                                                   \
	do {                                                                                       \
		u32 more_ = (__typeof__(reported->field))(counts->field - reported->field);        \
		if (more_) {                                                                       \
			fp_add32(&up->field, more_);                                               \
			if (down != up)                                                            \
				fp_add32(&down->field, more_);                                     \
			reported->field = counts->field;                                           \
		}                                                                                  \
	} while (0)

/* The counts of data from side `from`: up of its class, down of the other's. */
FP_FUNC int fp_report_counts(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			     struct fp_flow FP_MEM *f FP_ARG, u32 from)
{
	struct fp_tally FP_MEM *t = &fp_rare_of(r, f)->tally;
	struct fp_reported FP_MEM *reported = &fp_rare_of(r, f)->reported[from & 1];
	const struct fp_rare FP_MEM *c = fp_rare(r, f, from);
	const struct fp_totals FP_MEM *totals = &f->totals[from & 1];
	u32 mine = t->slot[from & 1], other = t->slot[!(from & 1)];
	struct fp_class_losses FP_MEM *up = &fp_class_at(r, mine)->losses[FP_UP];
	struct fp_class_losses FP_MEM *down = &fp_class_at(r, other)->losses[FP_DOWN];
	u32 again = (u16)(c->retransmitted_packets - reported->retransmitted_packets);
	u32 spurious = (u16)(c->spurious_packets - reported->spurious_packets);

	/* Downstream loss is towards the other side. Upstream loss is on the leg of the sender. */
	w->peer.lost_on[!(from & 1)] += again > spurious ? again - spurious : 0;
	w->peer.lost_on[from & 1] +=
		(u16)(c->upstream_lost_packets - reported->upstream_lost_packets);
	/* Only packets without a class at both ends are other. */
	if (mine == FP_OTHER && other != FP_OTHER)
		up = down;
	else if (other == FP_OTHER && mine != FP_OTHER)
		down = up;
	FP_REPORT(totals, data_packets);
	FP_REPORT(c, retransmitted_packets);
	FP_REPORT(c, upstream_lost_packets);
	FP_REPORT(c, spurious_packets);
	FP_REPORT(c, reordered_packets);
	return 0;
}

/* True if the end of `side` is behind a monitored interface, so that its subnet is needed. */
FP_INLINE u32 fp_is_local(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, u32 behind)
{
	if (fp_watched(r, behind) >= FP_MAX_WATCHED)
		return 0;
	return fp_find_number(fp_image_at(r, w->image), FP_RULE_UPLINK, behind) == FP_OTHER;
}

/* Clears slots that have another owner now. */
FP_INLINE void fp_clear_dead_slots(struct fp_rtt FP_MEM *r, struct fp_tally FP_MEM *t)
{
	u32 side;

	for (side = 0; side < 2; side++) {
		if (t->slot[side] && !fp_is_slot_current(r, t->slot[side], t->context[side]))
			FP_PUT(t->slot[side], FP_OTHER);
	}
}

/* The results of `side` for its peer. Samples of the other side's data belong to that leg. */
FP_FUNC int fp_fill_peer(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			 struct fp_flow FP_MEM *f FP_ARG, u32 side)
{
	struct fp_tally FP_MEM *t = &fp_rare_of(r, f)->tally;
	u32 mine = side & 1, other = !mine;

	w->peer.bytes[FP_UP] = t->pending_bytes[mine];
	w->peer.bytes[FP_DOWN] = t->pending_bytes[other];
	w->peer.samples = t->samples[other];
	w->peer.rtt_sum_ns = t->rtt_sum_us[other] * 1000ull;
	w->peer.max_rtt_us = t->max_rtt_us[other];
	w->peer.lost_packets = w->peer.lost_on[mine];
	w->peer.far_samples = t->samples[mine];
	w->peer.far_rtt_sum_ns = t->rtt_sum_us[mine] * 1000ull;
	w->peer.far_max_rtt_us = t->max_rtt_us[mine];
	w->peer.far_lost_packets = w->peer.lost_on[other];
	w->peer.unmatched = !t->slot[mine] && fp_is_local(r, w, f->dir[mine].behind);
	return t->slot[mine] << 1 | mine;
}

/* Called before a flow ends, perhaps long after its last packet. */
FP_FUNC int fp_tally_end(struct fp_rtt FP_MEM *r FP_ARG, struct fp_flow FP_MEM *f FP_ARG, u32 what)
{
	struct fp_tally FP_MEM *t = &fp_rare_of(r, f)->tally;

	fp_clear_dead_slots(r, t);
	fp_count_flow(r, t, what);
	return 0;
}

/* Adds the pending counts of the flow to the classes of both ends, with the event of the flow. */
FP_FUNC int fp_tally_flush(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
			   struct fp_flow FP_MEM *f FP_ARG, u32 what)
{
	if (!r->config.slots)
		return 0;
	if (what)
		fp_tally_end(r, f, what);
	fp_rare_of(r, f)->tally.flushed = w->frame.now;
	FP_PUT(w->peer.lost_on[0], 0);
	FP_PUT(w->peer.lost_on[1], 0);
	fp_report_counts(r, w, f, 0);
	fp_report_counts(r, w, f, 1);
	fp_report_peers(r, w, &f->key, fp_fill_peer(r, w, f, 0));
	fp_report_peers(r, w, &f->key, fp_fill_peer(r, w, f, 1));
	for (what = 0; what < 2; what++) {
		struct fp_tally FP_MEM *t = &fp_rare_of(r, f)->tally;

		FP_PUT(t->samples[what], 0);
		FP_PUT(t->max_rtt_us[what], 0);
		FP_PUT(t->pending_bytes[what], 0);
		FP_PUT(t->rtt_sum_us[what], 0);
	}
	return 0;
}

/* ----- which classes a flow's ends belong to ----------------------------------------------- */

/* Moves an open flow from one class to another. */
FP_INLINE void fp_move_open_flow(struct fp_rtt FP_MEM *r, u32 from, u32 to, u32 partner)
{
	if (from && from != partner)
		fp_add32(&fp_class_at(r, from)->flows_closed, 1);
	if (to && to != partner)
		fp_add32(&fp_class_at(r, to)->flows_opened, 1);
}

/* Looks up the class of one end of a flow again. */
FP_FUNC int fp_tally_reclassify(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG,
				struct fp_flow FP_MEM *f FP_ARG, u32 side)
{
	struct fp_tally FP_MEM *t = &fp_rare_of(r, f)->tally;
	u32 s = side & 1, generation = r->generation[w->image & 1];
	u32 was = fp_is_slot_current(r, t->slot[s], t->context[s]) ? t->slot[s] : FP_OTHER;
	u32 is = fp_class_of(r, w, s, w->natural[s]);

	t->context[s] = (u64)generation << 32 | w->facts[s];
	t->slot[s] = is;
	if (was != is && (f->flags & FP_FLOW_ANNOUNCED) && !(f->flags & FP_FLOW_CLOSED))
		fp_move_open_flow(r, was, is, t->slot[!s]);
	return 0;
}

/* True if the classes of its ends include the current packet. */
FP_INLINE int fp_is_wanted(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w)
{
	u32 flags;

	if (!r->class_filters)
		return 1;
	flags = fp_class_at(r, w->slot[0])->flags | fp_class_at(r, w->slot[1])->flags;
	if (flags & FP_CLASS_EXCEPT)
		return 0;
	return !(r->class_filters & FP_CLASS_ONLY) || (flags & FP_CLASS_ONLY);
}

/*
 * The classes of both ends of the current packet, from the tally of its flow. 0 if it is excluded.
 */
FP_INLINE int fp_tally_packet(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			      struct fp_flow FP_MEM *f)
{
	struct fp_tally FP_MEM *t;
	u64 generation;
	u32 side;

	if (!r->config.slots)
		return 1;
	t = &fp_rare_of(r, f)->tally;
	generation = (u64)r->generation[w->image & 1] << 32;
	for (side = 0; side < 2; side++) {
		int current = t->context[side] >> 32 == generation >> 32;

		if (w->natural[side] ? t->context[side] != (generation | w->facts[side]) : !current)
			fp_tally_reclassify(r, w, f, side);
		w->slot[side] = t->slot[side];
	}
	w->known = 1;
	if (!fp_is_wanted(r, w))
		return 0;
	w->measured = (f->totals[0].samples | f->totals[1].samples) != 0;
	if (w->natural[w->packet.side & 1])
		t->pending_bytes[w->packet.side & 1] += w->packet.ip_bytes;
	return 1;
}

/* After the packet itself: adds the pending counts of the flow, if it is time. */
FP_INLINE void fp_tally_due(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			    struct fp_flow FP_MEM *f)
{
	const struct fp_tally FP_MEM *t = &fp_rare_of(r, f)->tally;
	u32 largest =
		t->pending_bytes[0] | t->pending_bytes[1] | t->rtt_sum_us[0] | t->rtt_sum_us[1];

	if (r->config.slots &&
	    (largest >= FP_FLUSH_MAX || w->frame.now - t->flushed >= FP_FLUSH_NS))
		fp_tally_flush(r, w, f, 0);
}

/* ----- volume ------------------------------------------------------------------------------ */

FP_INLINE void fp_count_volume(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, u32 slot, u32 way)
{
	struct fp_volume FP_MEM *c = fp_volume_at(r, w->cpu, slot);

	c->packets[way] += w->packets;
	c->bytes[way] += w->packet.ip_bytes;
	if (!w->measured)
		c->unmeasured_bytes[way] += w->packet.ip_bytes;
}

/* A packet without a flow: looks up its ends each time and adds its bytes to peers at once. */
FP_FUNC int fp_tally_without_flow(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG)
{
	u32 sender = w->packet.side & 1, side, other;

	for (side = 0; side < 2; side++)
		w->slot[side] = w->natural[side] ? fp_class_of(r, w, side, 1) : FP_OTHER;
	/* Whether it is other depends on both ends. */
	for (side = 0; side < 2; side++) {
		other = !side;
		if (!w->natural[side] && w->natural[other] && !w->slot[other])
			w->slot[side] = fp_class_of(r, w, side, 0);
	}
	w->known = 1;
	if (!fp_is_wanted(r, w))
		return 0;
	FP_PUT(w->peer.samples, 0);
	FP_PUT(w->peer.max_rtt_us, 0);
	FP_PUT(w->peer.lost_packets, 0);
	FP_PUT(w->peer.rtt_sum_ns, 0);
	FP_PUT(w->peer.far_samples, 0);
	FP_PUT(w->peer.far_max_rtt_us, 0);
	FP_PUT(w->peer.far_lost_packets, 0);
	FP_PUT(w->peer.far_rtt_sum_ns, 0);
	for (side = 0; side < 2; side++) {
		u32 behind = fp_reached_by(w, side == sender);

		if (!w->natural[side])
			continue;
		w->peer.bytes[FP_UP] = side == sender ? w->packet.ip_bytes : 0;
		w->peer.bytes[FP_DOWN] = side == sender ? 0 : w->packet.ip_bytes;
		w->peer.unmatched = !w->slot[side] && fp_is_local(r, w, behind);
		fp_report_peers(r, w, &w->packet.key, w->slot[side] << 1 | side);
	}
	return 0;
}

/* Counts the current packet for the ends that this hook counts. */
FP_FUNC int fp_tally_volume(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG)
{
	u32 sender = w->packet.side & 1, receiver = !sender, slot;

	if (!w->known)
		fp_tally_without_flow(r, w);
	if (!fp_is_wanted(r, w)) {
		w->stats.filtered++;
		return 0;
	}
	if (w->natural[sender] && (w->slot[sender] || !w->slot[receiver]))
		fp_count_volume(r, w, w->slot[sender], FP_UP);
	if (w->natural[receiver] && (w->slot[receiver] || !w->slot[sender]))
		fp_count_volume(r, w, w->slot[receiver], FP_DOWN);
	slot = w->frame.direction ? fp_interface_slot(r, w->frame.ifindex) : FP_OTHER;
	if (slot)
		fp_count_volume(r, w, slot, w->frame.direction == FP_INGRESS ? FP_UP : FP_DOWN);
	slot = w->frame.flags & FP_FRAME_THROUGH ? fp_interface_slot(r, w->frame.rx_ifindex)
						 : FP_OTHER;
	if (slot)
		fp_count_volume(r, w, slot, FP_DOWN);
	return 0;
}

#endif /* FP_TALLY_H */
