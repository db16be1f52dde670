/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/call.h: calls of policies.
 *
 * Natively, a policy works on the memory of the scheduler. In the kernel, it works on copies in
 * per-CPU scratch, so that the verifier can bound every access.
 */
#ifndef FP_SCHED_CALL_H
#define FP_SCHED_CALL_H

#include "state.h"
#include "policies.h"
#ifdef __bpf__
#include "scratch.h"
#endif
#ifdef FP_WITH_SLOTS
#include "slots.h"
#endif

/* One case for each function that a policy has. */
#define FP_CALL_E(number, name)                                                                    \
	case (number) * 4 + FP_RANK_ENQUEUE:                                                       \
		return name##_rank_enqueue(FP_CALL_ARGS(name));
#define FP_CALL_D(number, name)                                                                    \
	case (number) * 4 + FP_RANK_DEQUEUE:                                                       \
		return name##_rank_dequeue(FP_CALL_ARGS(name));
#define FP_CALL_T(number, name)                                                                    \
	case (number) * 4 + FP_SEND_TIME:                                                          \
		return name##_send_time(FP_CALL_ARGS(name));
#define FP_CALL_P(number, name)                                                                    \
	case (number) * 4 + FP_ON_DROP:                                                            \
		return name##_on_drop(FP_CALL_ARGS(name));
#define FP_CALL_N(number, name)
#define FP_CALL_ALL(number, name, e, d, t, p)                                                      \
	FP_CALL_##e(number, name) FP_CALL_##d(number, name) FP_CALL_##t(number, name)              \
		FP_CALL_##p(number, name)

#define FP_HAS_E 1
#define FP_HAS_D 2
#define FP_HAS_T 4
#define FP_HAS_P 8
#define FP_HAS_N 0
#define FP_HAS_ALL(number, name, e, d, t, p)                                                       \
	case number:                                                                               \
		return FP_HAS_##e | FP_HAS_##d | FP_HAS_##t | FP_HAS_##p;

/* The functions of a policy, as bits of enum fp_function. */
FP_INLINE u32 fp_policy_functions(u32 policy)
{
	switch (policy) {
		FP_POLICIES(FP_HAS_ALL)
		FP_CUSTOM_POLICY(FP_HAS_ALL)
	}
	return 0;
}

#ifdef __bpf__

static struct fp_scratch *fp_scratch_of_cpu(void);

#define FP_OP_WORDS(to, from)                                                                      \
	do {                                                                                       \
		const u64 FP_MEM *from_ = (const u64 FP_MEM *)(from);                              \
		u64 *to_ = (u64 *)(to);                                                            \
		u32 word_;                                                                         \
		for (word_ = 0; word_ < sizeof(*(to)) / 8; word_++)                                \
			to_[word_] = from_[word_];                                                 \
	} while (0)

#define FP_OUTCOME_WORDS(to, from)                                                                 \
	do {                                                                                       \
		volatile u64 FP_MEM *to_ = (volatile u64 FP_MEM *)(to);                            \
		const u64 *from_ = (const u64 *)(from);                                            \
		u32 word_;                                                                         \
		for (word_ = 0; word_ < sizeof(*(from)) / 8; word_++)                              \
			to_[word_] = from_[word_];                                                 \
	} while (0)

#define FP_CALL_ARGS(name)                                                                         \
	&d->packet, (void *)d->flow, (void *)d->class, (void *)d->global, &d->call

FP_INLINE u64 fp_call_on_scratch(struct fp_scratch *d, u32 which)
{
	switch (which) {
		FP_POLICIES(FP_CALL_ALL)
		FP_CUSTOM_POLICY(FP_CALL_ALL)
	}
#ifdef FP_WITH_SLOTS
	if (which >= FP_CUSTOM * 4)
		return fp_call_slot(d, which / 4 - FP_CUSTOM, which & 3);
#endif
	return 0;
}

/*
 * The caller sets s->flow_at, s->handle and s->call. The policy of node `n` answers in s->call and in
 * the return value.
 */
FP_FUNC u64 fp_call_policy(struct fp_sched FP_MEM *s FP_ARG, struct fp_node FP_MEM *n FP_ARG,
			   u32 function)
{
	u32 policy = n->config.policy & (FP_POLICIES_MAX - 1);
	struct fp_scratch *d = fp_scratch_of_cpu();
	u64 answer;

	if (!d)
		return 0;
	FP_OP_WORDS(&d->packet, &fp_slot_at(s, s->handle)->meta);
	FP_OP_WORDS(&d->flow, FP_AT(u64, s, s->flow_at));
	FP_OP_WORDS(&d->class, n->class);
	FP_OP_WORDS(&d->global, s->global[policy]);
	FP_OP_WORDS(&d->call, &s->call);
	answer = fp_call_on_scratch(d, policy * 4 + function);
	FP_OUTCOME_WORDS(FP_AT(u64, s, s->flow_at), &d->flow);
	FP_OUTCOME_WORDS(n->class, &d->class);
	FP_OUTCOME_WORDS(s->global[policy], &d->global);
	FP_PUT(s->call.due, d->call.due);
	FP_PUT(s->call.verdict, d->call.verdict);
	return answer;
}

#else

/* A policy that is not compiled in: Rust runs its instructions. `which` is its number after FP_CUSTOM, times 4, plus the function. */
u64 fp_native_custom(u64 custom, u32 which, const struct fp_meta *packet, u64 *flow, u64 *class,
		     u64 *global, struct fp_call *call);

#define FP_CALL_ARGS(name)                                                                         \
	p, FP_AT(struct name##_flow, s, s->flow_at), (struct name##_class *)n->class,              \
		(struct name##_global *)s->global[number_of_##name], &s->call

#define FP_NUMBER_OF(number, name, e, d, t, p) number_of_##name = number,
enum { FP_POLICIES(FP_NUMBER_OF) };

static u64 fp_call_policy(struct fp_sched *s, struct fp_node *n, u32 function)
{
	const struct fp_meta *p = &fp_slot_at(s, s->handle)->meta;
	u32 policy = n->config.policy & (FP_POLICIES_MAX - 1);

	switch (policy * 4 + function) {
		FP_POLICIES(FP_CALL_ALL)
	}
	if (policy >= FP_CUSTOM)
		return fp_native_custom(s->custom, (policy - FP_CUSTOM) * 4 + function, p,
					FP_AT(u64, s, s->flow_at), n->class, s->global[policy],
					&s->call);
	return 0;
}

#endif

/* True if the policy of the node has the function. */
FP_INLINE int fp_policy_has(struct fp_node FP_MEM *n, u32 function)
{
	return n->functions >> function & 1;
}

/* The rank from the policy of the node, or `otherwise` if it has no such function. */
FP_INLINE u64 fp_call_policy_or(struct fp_sched FP_MEM *s, struct fp_node FP_MEM *n, u32 function,
				u64 otherwise)
{
	FP_PUT(s->call.due, FP_NEVER);
	FP_PUT(s->call.verdict, SEND);
	if (!fp_policy_has(n, function))
		return otherwise;
	return fp_call_policy(s, n, function);
}

#endif /* FP_SCHED_CALL_H */
