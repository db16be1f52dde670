/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * codel.h: CoDel's decision about the packet at the head of a queue, for all policies that use
 * CoDel.
 *
 * If packets wait longer than `target` for a whole `interval`, the queue drops a packet, then
 * another after interval / sqrt(2), interval / sqrt(3) and so on, until packets wait less.
 * ECN-capable packets are marked instead.
 *
 * Source: RFC 8289 section 5. Its dequeue() takes packets in a loop. Here each packet is one
 * decision, and `after` stores where in that loop the last one was dropped. Deliberately absent:
 * the adaptive maxpacket_. `mtu` is a parameter.
 */
#ifndef FP_POLICY_CODEL_H
#define FP_POLICY_CODEL_H

#include <fairpath/policy.h>

/* The first parameters of a node whose policy runs CoDel. */
enum {
	CODEL_TARGET,
	CODEL_INTERVAL,
	CODEL_ECN,
	CODEL_CE_THRESHOLD,
	CODEL_MTU,
	CODEL_PARAMS,
};

#define CODEL_PARAM_BLOCK                                                                          \
	{ .name = "target",                                                                        \
	  .unit = "ns",                                                                            \
	  .about = "acceptable standing delay",                                                    \
	  .min = 1000,                                                                             \
	  .most = 1000000000,                                                                      \
	  .standard = 5000000 },                                                                   \
		{ .name = "interval",                                                              \
		  .unit = "ns",                                                                    \
		  .about = "time above target before dropping: about the longest RTT",             \
		  .min = 1000000,                                                                  \
		  .most = 4000000000,                                                              \
		  .standard = 100000000 },                                                         \
		{ .name = "ecn",                                                                   \
		  .about = "1: marks ECN-capable packets, 0: drops them",                          \
		  .most = 1,                                                                       \
		  .standard = 1 },                                                                 \
		{ .name = "ce_threshold",                                                          \
		  .unit = "ns",                                                                    \
		  .about = "marks every packet that waited longer, for DCTCP; 0: off",             \
		  .most = 1000000000 },                                                            \
		{ .name = "mtu",                                                                   \
		  .unit = "bytes",                                                                 \
		  .about = "no drop with at most this many bytes behind the first packet",         \
		  .min = 64,                                                                       \
		  .most = 65536,                                                                   \
		  .standard = 1514 }

/* Where in dequeue() of RFC 8289 the previous packet was dropped. */
enum {
	CODEL_NOT_DROPPED = 0,
	CODEL_ENTERED = 1, /* to enter the dropping state */
	CODEL_AGAIN = 2,   /* in it */
};

struct codel {
	u64 first_above; /* when the queue was above target for an interval; 0 below */
	u64 drop_next;
	u32 count; /* drops in this dropping state */
	u32 lastcount;
	u32 dropping;
	u32 after;
};

/* Steps of Newton's method for the square root of 64 bits, from a start within its half. */
#define CODEL_ROOT_ROUNDS 6

/* The root of `n`, rounded down. Newton's method from above; exact. */
FP_INLINE u64 codel_root(u64 n)
{
	u64 x;
	u32 i;

	if (n < 2)
		return n;
	x = shl(1, (65 - (u32)__builtin_clzll(n)) >> 1);
	for (i = 0; i < CODEL_ROOT_ROUNDS; i++)
		x = min(x, (x + div(n, x)) >> 1);
	return x;
}

/* RFC 8289 section 5.6: the next drop comes interval / sqrt(count) later. */
FP_INLINE u64 codel_law(const struct codel *q, const u64 *param, u64 since)
{
	return add(since, codel_root(div(param[CODEL_INTERVAL] * param[CODEL_INTERVAL], q->count)));
}

/* The queue is empty: it cannot be above target. */
FP_INLINE void codel_emptied(struct codel *q)
{
	q->first_above = 0;
	q->dropping = 0;
	q->after = CODEL_NOT_DROPPED;
}

/* Section 5.5, dodequeue(): whether packets have waited above target for an interval. */
FP_INLINE u32 codel_is_enabled(struct codel *q, const u64 *param, const struct fp_call *r,
			       u64 behind)
{
	if (r->sojourn < param[CODEL_TARGET] || behind <= param[CODEL_MTU]) {
		q->first_above = 0;
		return 0;
	}
	if (!q->first_above) {
		q->first_above = add(r->now, param[CODEL_INTERVAL]);
		return 0;
	}
	return r->now >= q->first_above;
}

FP_INLINE void codel_enter(struct codel *q, const u64 *param, u64 now)
{
	u32 delta = q->count - q->lastcount;

	/* A recent dropping state continues at its rate. */
	q->count = delta > 1 && sub(now, q->drop_next) < 16 * param[CODEL_INTERVAL] ? delta : 1;
	q->lastcount = q->count;
	q->drop_next = codel_law(q, param, now);
	q->dropping = 1;
}

/* SEND, SEND with MARK, or DROP for the packet at the head, with `behind` bytes behind it. */
FP_INLINE u32 codel_decide(struct codel *q, const u64 *param, const struct fp_meta *p,
			   const struct fp_call *r, u64 behind)
{
	u32 marks = p->ecn && param[CODEL_ECN];
	u32 early = p->ecn && param[CODEL_CE_THRESHOLD] && r->sojourn > param[CODEL_CE_THRESHOLD];
	u32 enabled = codel_is_enabled(q, param, r, behind);
	u32 send = early ? MARK : SEND;
	u32 after = q->after;

	q->after = CODEL_NOT_DROPPED;
	if (after == CODEL_ENTERED || (!enabled && !q->dropping))
		return send;
	if (!enabled) {
		q->dropping = 0;
		return send;
	}
	if (!q->dropping) {
		codel_enter(q, param, r->now);
		q->after = marks ? CODEL_NOT_DROPPED : CODEL_ENTERED;
		return marks ? MARK : DROP;
	}
	if (after == CODEL_AGAIN)
		q->drop_next = codel_law(q, param, q->drop_next);
	if (r->now < q->drop_next)
		return send;
	q->count++;
	if (marks) {
		q->drop_next = codel_law(q, param, q->drop_next);
		return MARK;
	}
	q->after = CODEL_AGAIN;
	return DROP;
}

#endif /* FP_POLICY_CODEL_H */
