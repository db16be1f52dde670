/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * wild.h: a policy that reacts to every word of its input, as `Wild` of
 * crates/model/core/tests/sched_oracle/policy.rs, which describes its behaviour.
 *
 * The test writes a POLICY block and some of the functions behind it.
 */
#include <fairpath/policy.h>

struct flow {
	u64 word[8];
};

struct class
{
	PARAMS;
	u64 word[8];
};

struct global {
	u64 word[8];
};

enum {
	WILD_RANK_ENQUEUE,
	WILD_RANK_DEQUEUE,
	WILD_SEND_TIME,
	WILD_ON_DROP,
};

#define WILD_MODES 4

FP_INLINE u64 wild_mix(u64 hash, u64 word)
{
	u64 x = (hash ^ word) + 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

FP_INLINE u64 wild_hash(u32 function, const struct fp_meta *p, struct flow *f, struct class *c,
			struct global *g, struct fp_call *r)
{
	u64 hash = function;
	u32 i;

#define WILD_REPORTED(word) hash = wild_mix(hash, word)
	WILD_REPORTED(r->now);
	WILD_REPORTED(r->rank);
	WILD_REPORTED(r->sojourn);
	WILD_REPORTED(r->floor);
	WILD_REPORTED(r->ceil);
	WILD_REPORTED(r->burst);
	WILD_REPORTED(r->next_hint);
	WILD_REPORTED(r->next_bytes);
	WILD_REPORTED(r->cost);
	WILD_REPORTED(r->packets);
	WILD_REPORTED(r->bytes);
	WILD_REPORTED(r->queue_packets);
	WILD_REPORTED(r->queue_bytes);
	WILD_REPORTED(r->hosts);
	WILD_REPORTED(r->backlogged);
	WILD_REPORTED(r->by_floor);
	WILD_REPORTED(r->reason);
	WILD_REPORTED(r->over);
	WILD_REPORTED(r->waiting);
	WILD_REPORTED(p->bytes);
	WILD_REPORTED(p->flow_hash);
	for (i = 0; i < 8; i++)
		WILD_REPORTED(f->word[i]);
	for (i = 0; i < FP_PARAMS; i++)
		WILD_REPORTED(c->param[i]);
	for (i = 0; i < 8; i++)
		WILD_REPORTED(c->word[i]);
	for (i = 0; i < 8; i++)
		WILD_REPORTED(g->word[i]);
#undef WILD_REPORTED
	return hash;
}

FP_INLINE u64 wild_verdict(u64 dice)
{
	switch (dice >> 16 & 15) {
	case 0:
		return DROP;
	case 1:
		return LATER;
	case 2:
		return MARK;
	case 3:
		return LINGER;
	case 4:
		return LINGER | MARK;
	case 5:
		return LATER | DROP;
	}
	return SEND;
}

FP_INLINE u64 wild_rank(u64 dice)
{
	switch (dice % 32) {
	case 0:
		return NEVER;
	case 1:
		return KEEP;
	case 2:
		return dice;
	}
	return dice >> 8 & 15;
}

FP_INLINE u64 wild_anything(u32 function, const struct fp_meta *p, struct flow *f, struct class *c,
			    struct global *g, struct fp_call *r)
{
	u64 hash = wild_hash(function, p, f, c, g, r);
	u64 dice = wild_mix(hash, 1);

	f->word[hash & 7] ^= hash >> 8;
	c->word[hash >> 3 & 7] ^= hash >> 9;
	g->word[hash >> 6 & 7] ^= hash >> 10;
	if (function == WILD_ON_DROP)
		return 0;
	if (function == WILD_SEND_TIME)
		return dice & 1 ? add(r->now, dice >> 8 & 1023) : 0;
	if (function == WILD_RANK_ENQUEUE)
		r->verdict = dice >> 16 & 15 ? SEND : DROP;
	else
		r->verdict = (u32)wild_verdict(dice);
	r->due = dice >> 20 & 1 ? r->now + (dice >> 24 & 255) : NEVER;
	return wild_rank(dice);
}

/* Strict priority. */
FP_INLINE u64 wild_priority(u32 function, const struct fp_meta *p)
{
	if (function == WILD_RANK_ENQUEUE)
		return 63 - (p->dscp & 63);
	return function == WILD_RANK_DEQUEUE ? KEEP : 0;
}

/* A token bucket. */
FP_INLINE u64 wild_bucket(u32 function, const struct fp_meta *p, struct class *c, struct fp_call *r)
{
	u64 at = max(c->word[0], r->now);

	if (function == WILD_RANK_DEQUEUE)
		return r->rank;
	if (function != WILD_SEND_TIME)
		return 0;
	c->word[0] = at + p->bytes;
	return at;
}

/* Flows that linger. */
FP_INLINE u64 wild_linger(u32 function, struct fp_call *r)
{
	if (function == WILD_RANK_DEQUEUE) {
		r->verdict = LINGER;
		return r->rank + 1;
	}
	return function == WILD_RANK_ENQUEUE && r->backlogged == 1 ? KEEP : 0;
}

FP_INLINE u64 wild(u32 function, const struct fp_meta *p, struct flow *f, struct class *c,
		   struct global *g, struct fp_call *r)
{
	switch (c->param[0] % WILD_MODES) {
	case 0:
		return wild_anything(function, p, f, c, g, r);
	case 1:
		return wild_priority(function, p);
	case 2:
		return wild_bucket(function, p, c, r);
	}
	return wild_linger(function, r);
}
