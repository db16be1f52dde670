/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * policy.h: the header for scheduling policies.
 *
 * A policy is one C file: a POLICY block that describes it, up to three structures of state, and up
 * to four functions. It gets one packet, the state of its flow (or child), of its node, and its
 * own. It accesses nothing else, calls nothing, and stores no pointer. Functions:
 *
 *   RANK_ENQUEUE  a packet came (r->backlogged is 1 if its flow waited already): returns the rank
 *                 of packet, flow or child. KEEP leaves a waiting flow at its rank. Also called for
 *                 a waiting child whose floor or ceiling changed, with an empty packet.
 *
 *   RANK_DEQUEUE  its packet is about to leave: returns the next rank of flow or child (KEEP: the
 *                 same). r->verdict is SEND (the default), DROP (drop this packet and try the
 *                 next) or LATER (wait at the new rank).
 *
 *   SEND_TIME  returns the earliest time to send, in ns of r->now, for a packet or child that
 *              becomes the next of its queue.
 *
 *   ON_DROP  a queued packet was dropped by another part of the scheduler (r->reason).
 *
 * In scope of each: p the packet, f the state of flow or child, c of the node, g of the policy, and
 * r, the call. A missing function means: rank 0, send at once, nothing.
 *
 * Only integers. Use div() and mod() for division and remainder, and shl() and shr() for shifts by
 * variables: BPF and C differ for zero divisors and wide shifts, and `fairpath sched check` refuses
 * the operators.
 */
#ifndef FP_POLICY_H
#define FP_POLICY_H

#include "policy_types.h"

/* One object holds all shipped policies, so each has its own names (sched/policy_begin.h). */
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
#define FP_MEMBER __attribute__((unused, btf_decl_tag("arg:nonnull")))
/* Weak, or clang omits arguments that a function does not use, which the verifier misses. */
#define FP_POLICY_FUNC __attribute__((noinline, weak))
#else
#define FP_MEMBER      __attribute__((unused))
#define FP_POLICY_FUNC static inline
#endif

#define POLICY                                                                                     \
	const struct fp_policy FP_OWN(policy) __attribute__((section(FP_POLICY_SECTION), used)) =

#define FP_POLICY_ARGS                                                                             \
	const struct fp_meta *p FP_MEMBER, struct flow *f FP_MEMBER, struct class *c FP_MEMBER,    \
		struct global *g FP_MEMBER, struct fp_call *r FP_MEMBER

#define RANK_ENQUEUE FP_POLICY_FUNC u64 FP_OWN(rank_enqueue)(FP_POLICY_ARGS)
#define RANK_DEQUEUE FP_POLICY_FUNC u64 FP_OWN(rank_dequeue)(FP_POLICY_ARGS)
#define SEND_TIME    FP_POLICY_FUNC u64 FP_OWN(send_time)(FP_POLICY_ARGS)
#define ON_DROP	     FP_POLICY_FUNC u64 FP_OWN(on_drop)(FP_POLICY_ARGS)

/* The sizes of its state, for the POLICY block. */
#define STATE                                                                                      \
	.version = FP_POLICY_VERSION, .flow_bytes = sizeof(struct flow),                           \
	.class_bytes = sizeof(struct class), .global_bytes = sizeof(struct global)

/* The operations on which BPF and C agree. They saturate instead of wrapping. */
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

/* Nanoseconds that `bytes` take at `rate` (ns a byte << FP_RATE_SHIFT: r->ceil, RATE parameters).
 */
FP_INLINE u64 time_at(u64 bytes, u64 rate)
{
	return bytes * rate >> FP_RATE_SHIFT;
}

/*
 * The increase of virtual time by `bytes`, for a flow or child whose byte costs `cost` (r->cost).
 * The unit is 1/64 of a byte at weight 1, so that a busy node at 10 Gbit/s needs seven years to
 * exhaust 64 bits.
 */
FP_INLINE u64 virtual_time(u64 bytes, u32 cost)
{
	return bytes * cost >> 8;
}

#endif /* FP_POLICY_H */
