/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/slots.h: custom policies of a program that is loaded before them.
 *
 * A program includes an empty function for each number of a custom policy, its slot. While it runs, user
 * space loads a policy, attaches it to the entry of a free slot (slot.bpf.c), and then activates a
 * plan that names its number. The policy works on the scratch of this CPU, and answers there. So the
 * kernel verifies a policy before anything that runs is changed.
 *
 * Replacing the function (freplace) would be simpler. But verifying such a replacement of a struct_ops
 * program crashes kernel 7.3: it looks for the return type of an operation that there is not.
 */
#ifndef FP_SCHED_SLOTS_H
#define FP_SCHED_SLOTS_H

#include "scratch.h"

/* Weak and not inline: clang must keep the call, its argument, and all that follows it. */
#define FP_SLOT(name)                                                                              \
	__attribute__((noinline, weak)) int name(u32 function)                                     \
	{                                                                                          \
		return (int)function;                                                              \
	}

FP_SLOT(slot0)
FP_SLOT(slot1)
FP_SLOT(slot2)
FP_SLOT(slot3)
FP_SLOT(slot4)
FP_SLOT(slot5)
FP_SLOT(slot6)
FP_SLOT(slot7)

/* The answer of the policy with the number FP_CUSTOM + `slot`: 0 if the slot is empty. */
FP_INLINE u64 fp_call_slot(struct fp_scratch *d, u32 slot, u32 function)
{
	d->answer = 0;
	switch (slot) {
	case 0:
		slot0(function);
		break;
	case 1:
		slot1(function);
		break;
	case 2:
		slot2(function);
		break;
	case 3:
		slot3(function);
		break;
	case 4:
		slot4(function);
		break;
	case 5:
		slot5(function);
		break;
	case 6:
		slot6(function);
		break;
	case 7:
		slot7(function);
		break;
	}
	return *(volatile u64 *)&d->answer;
}

#endif /* FP_SCHED_SLOTS_H */
