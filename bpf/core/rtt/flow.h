/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * flow.h: a flow, and the two tables that hold flows: the flow table and the half-open table.
 *
 * Both are set-associative: a hash selects a set of FP_WAYS entries, with one lock and one cache
 * line of tags. An entry has two parts: four lines that every packet uses (struct fp_flow), and
 * elsewhere what few need (struct fp_flow_rare). A handshake is in the half-open table until its
 * third packet, so a SYN flood fills only that table. Lock order: flow set, then half-open set.
 *
 * Lookup only. flow_life.h has the start and end of a flow.
 */
#ifndef FP_FLOW_H
#define FP_FLOW_H

#include "segments.h"

/* Direction flags. */
#define FP_DIR_SEQ	0x01 /* next is valid */
#define FP_DIR_ACKED	0x02 /* una is valid */
#define FP_DIR_FIN	0x04
#define FP_DIR_SYN	0x08 /* began with a SYN */
#define FP_DIR_WINDOW_0 0x10 /* the receiver of this direction's data closed its window */
#define FP_DIR_MIDFLOW	0x20 /* began without a SYN: earlier data is unknown */
#define FP_DIR_SEEN	0x40
#define FP_DIR_TS	0x80  /* tsval is valid */
#define FP_DIR_TROUBLE	0x100 /* has a chunk of holes and retransmissions */
#define FP_DIR_ABOVE	0x200 /* its last sample was above p50 */
/* Its samples in a row on that side of p50, up to FP_RUN_MAX: 4 bits. */
#define FP_DIR_RUN_SHIFT 10
#define FP_DIR_RUN	 (0xf << FP_DIR_RUN_SHIFT)

/* Flow flags. */
#define FP_FLOW_SYN	  0x01 /* began with a SYN */
#define FP_FLOW_SYN_ACK	  0x02 /* a SYN-ACK was seen */
#define FP_FLOW_CLOSED	  0x04
#define FP_FLOW_REOPENING 0x08 /* the half-open table may hold the same 5-tuple */
#define FP_FLOW_ANNOUNCED 0x10 /* its opening was reported */

/* Holes and retransmissions of one direction: a separate chunk, allocated for the first one. */
#define FP_HOLE_MISSING	      0x100
#define FP_HOLE_RETRANSMITTED 0x200 /* a retransmission that its own TSval identifies */
#define FP_HOLE_AMBIGUOUS     0x400 /* a TSval that several copies carried */

/* The packets of one side, in one cache line. */
struct fp_dir {
	struct fp_segments segments;
	u64 point;  /* capture point where it is counted */
	u32 next;   /* highest sequence number seen, plus one */
	u32 behind; /* the interface towards its sender */
	u16 flags;  /* FP_DIR_* */
	u16 p50; /* estimated median RTT of this data in parts of a bucket, if samples and classes */
	u32 tsval; /* newest TSval sent, if FP_DIR_TS */
};

/* Counts of every packet of one side, except their number. */
struct fp_totals {
	u64 bytes;
	u64 sampled_bytes;
	u64 min; /* minimum RTT towards the receiver of this data, if samples */
	u32 samples;
	u32 data_packets;
};

/* State of one side that few packets change. */
struct fp_rare {
	u64 given; /* when a sample was last reported, with a rate limit */
	u64 retransmitted_bytes;
	u64 upstream_lost_bytes;
	u32 retransmitted_packets;
	u32 upstream_lost_packets;
	u32 spurious_packets;
	u32 reordered_packets;
	u32 unobserved_bytes;
	u32 packets_high; /* upper half of the number of packets */
	u32 trouble;	  /* chunk of holes and retransmissions, if FP_DIR_TROUBLE */
	u32 isn;	  /* initial sequence number, if FP_DIR_SYN */
};

/* Pending counts of a flow for the classes of its ends (tally.h), in one cache line. */
struct fp_tally {
	u64 context[2];	      /* by side: generation and facts for which its slot was found */
	u64 flushed;	      /* time of the last report */
	u32 slot[2];	      /* by side */
	u32 pending_bytes[2]; /* of IP, by sending side; pending, up to FP_FLUSH_MAX */
	u32 samples[2];	      /* of that side's data; pending, like the next two */
	u32 max_rtt_us[2];
	u32 rtt_sum_us[2];
};

struct fp_reported {
	u32 data_packets;
	u16 retransmitted_packets; /* the lower half: differences are small */
	u16 upstream_lost_packets;
	u16 spurious_packets;
	u16 reordered_packets;
};

/* Four cache lines: the flow, each of its sides, and totals. Arrays are by side. */
struct fp_flow {
	struct fp_key key;
	u64 last; /* time of its last packet */
	u32 id;
	u8 flags;	/* FP_FLOW_* */
	u8 initiator;	/* side */
	u8 reason;	/* enum fp_reason: how it was opened */
	u8 closer;	/* side that sent the first FIN */
	u32 packets[2]; /* lower half of the number of packets */
	struct fp_dir dir[2];
	struct fp_totals totals[2];
} __attribute__((aligned(64)));

/* The rest of a flow. Of the same size, so that one offset leads from a flow to its rest. */
struct fp_flow_rare {
	struct fp_tally tally;
	u64 opened;
	struct fp_reported reported[2]; /* of its counts: what the classes have */
	struct fp_rare side[2];
	u64 zero[6];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct fp_dir) == 64 && sizeof(struct fp_flow) == 256 &&
		       sizeof(struct fp_flow_rare) == sizeof(struct fp_flow),
	       "a flow is four lines and as many");

struct fp_run_set_op {
	u32 lock;
	u32 zero;
	u32 tag[FP_WAYS]; /* 0 free */
	u32 pad[6];
};

/* One of the two tables. */
struct fp_table {
	u64 sets;
	u64 flows;
	u32 mask;
	u32 half;
};

#define FP_NO_WAY FP_WAYS

FP_INLINE struct fp_table fp_flow_table(struct fp_rtt FP_MEM *r)
{
	struct fp_table t = { r->flow_sets, r->flows, r->config.flow_sets - 1, 0 };

	return t;
}

FP_INLINE struct fp_table fp_half_table(struct fp_rtt FP_MEM *r)
{
	struct fp_table t = { r->half_sets, r->half_flows, r->config.half_sets - 1, 1 };

	return t;
}

FP_INLINE struct fp_run_set_op FP_MEM *fp_set_at(struct fp_rtt FP_MEM *r, const struct fp_table *t,
						 u32 index)
{
	return FP_AT(struct fp_run_set_op, r, t->sets + (u64)index * sizeof(struct fp_run_set_op));
}

FP_INLINE struct fp_flow FP_MEM *fp_flow_at(struct fp_rtt FP_MEM *r, const struct fp_table *t,
					    u32 set, u32 way)
{
	return FP_AT(struct fp_flow, r,
		     t->flows + ((u64)set * FP_WAYS + way) * sizeof(struct fp_flow));
}

FP_INLINE struct fp_flow_rare FP_MEM *fp_rare_of(struct fp_rtt FP_MEM *r, struct fp_flow FP_MEM *f)
{
	return FP_AT(struct fp_flow_rare, f, r->rare);
}

FP_INLINE struct fp_rare FP_MEM *fp_rare(struct fp_rtt FP_MEM *r, struct fp_flow FP_MEM *f,
					 u32 side)
{
	return &fp_rare_of(r, f)->side[side & 1];
}

/* Ports, protocol and family as one word. */
FP_INLINE u64 fp_key_rest(const struct fp_key FP_MEM *key)
{
	return fp_load64_raw((const u8 FP_MEM *)key->port);
}

/* IPv4 has both addresses in one word. Families do not collide: the key has its family. */
FP_INLINE u32 fp_hash_key(const struct fp_hash_keys FP_MEM *h, const struct fp_key FP_MEM *key)
{
	if (fp_likely(key->family == 4))
		return (u32)fp_hash_2(h, key->addr[0][1] >> 32 | (key->addr[1][1] & ~0ull << 32),
				      fp_key_rest(key));
	return (u32)fp_hash_5(h, key->addr[0][0], key->addr[0][1], key->addr[1][0], key->addr[1][1],
			      fp_key_rest(key));
}

/*
 * Tag by all bits of the hash except the lowest; never 0. The set by as many of them as needed. The
 * way by the highest three: nearly all flows have that one, so that it is tried first, and its flow
 * can be loaded with its set.
 */
FP_INLINE u32 fp_tag(u32 hash)
{
	return hash | 1;
}

FP_INLINE u32 fp_set_of(u32 hash, u32 mask)
{
	return (hash >> 1) & mask;
}

FP_INLINE u32 fp_way_of(u32 hash)
{
	return hash >> 29;
}

FP_INLINE int fp_key_equal(const struct fp_key FP_MEM *a, const struct fp_key FP_MEM *b)
{
	/* One branch for all words. */
	return !((a->addr[0][0] ^ b->addr[0][0]) | (a->addr[0][1] ^ b->addr[0][1]) |
		 (a->addr[1][0] ^ b->addr[1][0]) | (a->addr[1][1] ^ b->addr[1][1]) |
		 (fp_key_rest(a) ^ fp_key_rest(b)));
}

/* The way of `key` in a locked set, or FP_NO_WAY. */
FP_INLINE u32 fp_find(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, const struct fp_table *t,
		      u32 set)
{
	struct fp_run_set_op FP_MEM *s = fp_set_at(r, t, set);
	u32 i, way = fp_way_of(w->hash), tag = fp_tag(w->hash);

	if (fp_likely(s->tag[way] == tag) &&
	    fp_likely(fp_key_equal(&fp_flow_at(r, t, set, way)->key, &w->packet.key)))
		return way;
	fp_loop(i, FP_WAYS - 1) {
		way = (way + 1) & (FP_WAYS - 1);
		if (s->tag[way] == tag &&
		    fp_key_equal(&fp_flow_at(r, t, set, way)->key, &w->packet.key))
			return way;
	}
	return FP_NO_WAY;
}

FP_INLINE int fp_side_seen(const struct fp_flow FP_MEM *f, u32 side)
{
	return (f->dir[side].flags & FP_DIR_SEEN) != 0;
}

/* A packet of `side` that counts at this hook. */
FP_INLINE void fp_count_packet(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w,
			       struct fp_flow FP_MEM *f, u32 side)
{
	u32 packets = w->packets, sum = f->packets[side & 1] + packets;

	f->last = w->frame.now;
	f->packets[side & 1] = sum;
	if (fp_unlikely(sum < packets))
		fp_rare(r, f, side)->packets_high++;
	f->totals[side & 1].bytes += w->packet.payload;
}

/* All counts of one side. */
FP_FUNC int fp_counts_of(struct fp_rtt FP_MEM *r FP_ARG, struct fp_flow FP_MEM *f FP_ARG,
			 struct fp_counts FP_MEM *c FP_ARG, u32 side)
{
	const struct fp_totals FP_MEM *t = &f->totals[side & 1];
	const struct fp_rare FP_MEM *rare = fp_rare(r, f, side);

	c->packets = (u64)rare->packets_high << 32 | f->packets[side & 1];
	c->bytes = t->bytes;
	c->retransmitted_bytes = rare->retransmitted_bytes;
	c->upstream_lost_bytes = rare->upstream_lost_bytes;
	c->sampled_bytes = t->sampled_bytes;
	c->retransmitted_packets = rare->retransmitted_packets;
	c->upstream_lost_packets = rare->upstream_lost_packets;
	c->spurious_packets = rare->spurious_packets;
	c->reordered_packets = rare->reordered_packets;
	c->unobserved_bytes = rare->unobserved_bytes;
	c->samples = t->samples;
	c->data_packets = t->data_packets;
	FP_PUT(c->zero, 0);
	return 0;
}

FP_INLINE u64 fp_idle(const struct fp_flow FP_MEM *f, u64 now)
{
	return now > f->last ? now - f->last : 0;
}

FP_INLINE int fp_flow_expired(struct fp_rtt FP_MEM *r, const struct fp_flow FP_MEM *f, int half,
			      u64 now)
{
	u64 idle = fp_idle(f, now);

	if (half)
		return idle > r->config.half_open_timeout;
	if (f->flags & FP_FLOW_CLOSED)
		return idle > r->config.closed_timeout;
	if (f->key.proto != 6)
		return idle > r->config.echo_timeout;
	return idle > r->config.flow_timeout;
}

#endif /* FP_FLOW_H */
