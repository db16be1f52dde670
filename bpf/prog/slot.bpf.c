// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * slot.bpf.c: calls a custom policy at the entry of a slot of a loaded program (core/sched/slots.h).
 * Linked behind the object of the policy, whose functions come first. Those that it does not have
 * are the weak ones here, which nothing calls.
 */
#include "scratches.h"
#include <fairpath/policy.h>

#undef flow
#undef class
#undef global

struct custom_flow;
struct custom_class;
struct custom_global;

char _license[] SEC("license") = "Dual MIT/GPL";

#define FP_ARGS                                                                                    \
	const struct fp_meta *p FP_MEMBER, struct custom_flow *f FP_MEMBER,                        \
		struct custom_class *c FP_MEMBER, struct custom_global *g FP_MEMBER,               \
		struct fp_call *r FP_MEMBER

#define FP_NONE(function)                                                                          \
	__attribute__((noinline, weak)) u64 custom_##function(FP_ARGS)                             \
	{                                                                                          \
		return 0;                                                                          \
	}

FP_NONE(rank_enqueue)
FP_NONE(rank_dequeue)
FP_NONE(send_time)
FP_NONE(on_drop)

#define FP_ON_SCRATCH &d->packet, (void *)d->flow, (void *)d->class, (void *)d->global, &d->call

/* The scratch is that of the loaded program. Context: the argument of the slot, enum fp_function. */
SEC("slot")
int slot_call(u64 *ctx)
{
	struct fp_scratch *d = fp_scratch_of_cpu();

	if (!d)
		return 0;
	switch ((u32)ctx[0]) {
	case FP_RANK_ENQUEUE:
		d->answer = custom_rank_enqueue(FP_ON_SCRATCH);
		break;
	case FP_RANK_DEQUEUE:
		d->answer = custom_rank_dequeue(FP_ON_SCRATCH);
		break;
	case FP_SEND_TIME:
		d->answer = custom_send_time(FP_ON_SCRATCH);
		break;
	case FP_ON_DROP:
		d->answer = custom_on_drop(FP_ON_SCRATCH);
		break;
	}
	return 0;
}
