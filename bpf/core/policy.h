/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * policy.h: what the author of a scheduling policy includes, and all that he needs.
 *
 * A policy is one C file: a POLICY block that says what it is, up to three structures of state, and
 * up to four functions. It sees one packet, the state of its flow (or child), of its node, and its
 * own; it reaches nothing else, calls nothing, and keeps no pointer. Functions:
 *
 *   RANK_ENQUEUE  a packet came (r->backlogged tells whether its flow had others waiting):
 *                 the rank of packet, flow or child. KEEP leaves a waiting flow where it is.
 *   RANK_DEQUEUE  its packet is about to leave: the rank at which flow or child waits on (KEEP: where
 *                 it is). r->verdict says SEND (the default), DROP (this packet; the next is asked
 *                 for) or LATER (not yet: it waits at the new rank).
 *   SEND_TIME     not before this time, in ns of r->now. Called for a packet or child that becomes
 *                 the next of its queue.
 *   ON_DROP       a queued packet was dropped by somebody else (r->reason).
 *
 * In scope of each: p the packet, f the state of flow or child, c of the node, g of the policy, and
 * r, the call. A function that is not there: rank 0, send at once, nothing.
 *
 * Integers only. Division and remainder are div() and mod(), shifts by variables shl() and shr():
 * BPF and C disagree about zero divisors and wide shifts, and `fairpath sched check` refuses
 * the operators.
 */
#ifndef FP_POLICY_H
#define FP_POLICY_H

#include "sched/abi.h"

#define FP_POLICY_VERSION 1

/* What a call knows and what the policy answers. */
struct fp_call {
	/* in */
	u64 now;
	u64 rank;     /* at which flow or child waits; of a packet, at dequeue, its own */
	u64 sojourn;  /* dequeue: ns that the packet has waited */
	u64 floor;    /* of the child: ns a byte << FP_RATE_SHIFT; 0 none */
	u64 ceil;     /* likewise */
	u64 burst;    /* ns that the child may run ahead */
	u64 next_hint; /* dequeue: p->hint of the packet behind, of the same flow */
	u32 next_bytes; /* its length, 0 if there is none */
	u32 cost;     /* of a byte in virtual time: FP_COST_ONE over the weight of flow or child */
	u32 packets;  /* waiting in flow or leaf, the one in question included */
	u32 bytes;
	u32 queue_packets; /* waiting in the leaf */
	u32 queue_bytes;
	u32 hosts;	/* waiting flows of the busier of the packet's two hosts; at least 1 */
	u32 backlogged; /* enqueue: flow or child is waiting in the queue already */
	u32 by_floor;	/* dequeue: chosen because its floor was due */
	u32 reason;	/* ON_DROP: enum fp_drop */
	u32 over;	/* enum fp_over: of the queue */
	/* out */
	u64 due; /* from then on it goes before all ranks; NEVER (set before the call): by rank alone */
	u32 verdict;
};

enum {
	SEND = 0,
	DROP = 1,   /* RANK_ENQUEUE, RANK_DEQUEUE of a leaf: this packet */
	LATER = 2,  /* RANK_DEQUEUE over flows: not now, it waits on at the new rank */
	MARK = 4,   /* with SEND: set CE */
	LINGER = 8, /* with SEND: an emptied flow keeps its turn, at the new rank */
};

/* RANK_ENQUEUE: a waiting flow stays where it is. */
#define KEEP (~0ull - 1)
#define NEVER FP_NEVER

/* What the entries are that the policy ranks; and what it fits. */
#define PACKETS	   (1u << FP_OVER_PACKETS)
#define FLOWS	   (1u << FP_OVER_FLOWS)
#define CHILDREN   (1u << FP_OVER_CHILDREN)
#define REFERENCES (1u << FP_OVER_REFERENCES)

/* r->hosts is told only to policies that want it: it costs two lookups a packet. */
#define WANTS_HOSTS 1
/* Entries may be due (r->due): a second queue. Over children only. */
#define WANTS_DUE 2

/* A parameter: what `fairpath sched show` prints and `set` checks. */
struct fp_param {
	char name[24];
	char unit[16]; /* "ns", "bytes", "bps" (stored as ns a byte << FP_RATE_SHIFT), "packets", "" */
	char about[104];
	u64 least;
	u64 most;
	u64 standard;
};

/* The queue that a policy wants unless the tree says otherwise (enum fp_pifo_kind). */
struct fp_policy_queue {
	u32 kind;
	u32 buckets;
	u32 shift;
	u32 full;
};

struct fp_policy {
	u32 version; /* FP_POLICY_VERSION */
	u32 over;    /* PACKETS, FLOWS ... that it can rank, the usual one in `usual` */
	u32 usual;   /* one of FP_OVER_* */
	u32 wants;   /* WANTS_* */
	u32 zero;
	u32 flow_bytes; /* of its state */
	u32 class_bytes;
	u32 global_bytes;
	char name[24];
	char about[160];
	char source[160]; /* paper or RFC */
	struct fp_policy_queue queue;
	struct fp_param params[FP_PARAMS];
};

/* A node's parameters begin its state: `struct class { PARAMS; ... };`, read as c->param[QUANTUM]. */
#define PARAMS u64 param[FP_PARAMS]

/* Shipped policies are many in one object: each has its own names (sched/policy_begin.h). */
#ifndef FP_POLICY_NAME
#define FP_POLICY_NAME custom
#endif
#define FP_PASTE_(a, b) a##_##b
#define FP_PASTE(a, b)	FP_PASTE_(a, b)
#define FP_OWN(name)	FP_PASTE(FP_POLICY_NAME, name)

#define flow   FP_OWN(flow)
#define class  FP_OWN(class)
#define global FP_OWN(global)

#define FP_POLICY_SECTION ".fairpath.policy"

#ifdef __bpf__
#define FP_MEMBER	  __attribute__((btf_decl_tag("arg:nonnull")))
#define FP_POLICY_FUNC	  __attribute__((noinline))
#else
#define FP_MEMBER
#define FP_POLICY_FUNC static inline
#endif

#define POLICY const struct fp_policy FP_OWN(policy) __attribute__((section(FP_POLICY_SECTION), used)) =

#define FP_POLICY_ARGS                                                                              \
	const struct fp_meta *p FP_MEMBER, struct flow *f FP_MEMBER, struct class *c FP_MEMBER,     \
		struct global *g FP_MEMBER, struct fp_call *r FP_MEMBER

#define RANK_ENQUEUE FP_POLICY_FUNC u64 FP_OWN(rank_enqueue)(FP_POLICY_ARGS)
#define RANK_DEQUEUE FP_POLICY_FUNC u64 FP_OWN(rank_dequeue)(FP_POLICY_ARGS)
#define SEND_TIME    FP_POLICY_FUNC u64 FP_OWN(send_time)(FP_POLICY_ARGS)
#define ON_DROP	     FP_POLICY_FUNC u64 FP_OWN(on_drop)(FP_POLICY_ARGS)

/* The sizes of its state, for the POLICY block. */
#define STATE                                                                                      \
	.version = FP_POLICY_VERSION, .flow_bytes = sizeof(struct flow),                            \
	.class_bytes = sizeof(struct class), .global_bytes = sizeof(struct global)

/* What BPF and C agree on, saturating where they would wrap. */
FP_INLINE u64 div(u64 a, u64 b)
{
	return b ? a / b : 0;
}

FP_INLINE u64 mod(u64 a, u64 b)
{
	return b ? a % b : 0;
}

FP_INLINE u64 shl(u64 a, u32 bits)
{
	return bits < 64 ? a << (bits & 63) : 0;
}

FP_INLINE u64 shr(u64 a, u32 bits)
{
	return bits < 64 ? a >> (bits & 63) : 0;
}

FP_INLINE u64 min(u64 a, u64 b)
{
	return a < b ? a : b;
}

FP_INLINE u64 max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* `a` + `b`, NEVER where that would wrap. */
FP_INLINE u64 add(u64 a, u64 b)
{
	return a + b < a ? NEVER : a + b;
}

/* `a` - `b`, 0 where that would wrap. */
FP_INLINE u64 sub(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

/* Nanoseconds that `bytes` take at `rate` (ns a byte << FP_RATE_SHIFT: r->ceil, RATE parameters). */
FP_INLINE u64 time_at(u64 bytes, u64 rate)
{
	return bytes * rate >> FP_RATE_SHIFT;
}

#endif /* FP_POLICY_H */
