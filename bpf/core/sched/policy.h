/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * policy.h: what the author of a scheduling policy includes, and all that he needs.
 *
 * A policy is one C file: a POLICY block that says what it is, up to three structures of state, and
 * up to four functions. It sees one packet, the state of its flow (or child), of its node, and its
 * own; it reaches nothing else, calls nothing, and keeps no pointer. Functions:
 *
 *   RANK_ENQUEUE  a packet came (r->backlogged tells whether its flow was waiting already): the
 *                 rank of packet, flow or child. KEEP leaves a waiting flow where it is.
 *
 *   RANK_DEQUEUE  its packet is about to leave: the rank at which flow or child waits on (KEEP:
 *                 where it is). r->verdict says SEND (the standard), DROP (this packet; the next
 *                 is asked for) or LATER (not yet: it waits at the new rank).
 *
 *   SEND_TIME     not before this time, in ns of r->now; asked for a packet or child that becomes
 *                 the next of its queue.
 *
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

#include "policy_types.h"

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

/* Nanoseconds that `bytes` take at `rate` (ns a byte << FP_RATE_SHIFT: r->ceil, RATE parameters).
 */
FP_INLINE u64 time_at(u64 bytes, u64 rate)
{
	return bytes * rate >> FP_RATE_SHIFT;
}

/*
 * How far `bytes` move virtual time on, for a flow or child whose byte costs `cost` (r->cost): in
 * 64ths of a byte at weight 1, so that a node that never rests at 10 Gbit/s takes seven years to
 * the end of 64 bits.
 */
FP_INLINE u64 virtual_time(u64 bytes, u32 cost)
{
	return bytes * cost >> 8;
}

#endif /* FP_POLICY_H */
