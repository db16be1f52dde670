/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched/scratch.h: the memory that one call of a policy may access in the kernel: copies, one for each
 * CPU, provided by the program.
 */
#ifndef FP_SCHED_SCRATCH_H
#define FP_SCHED_SCRATCH_H

#include "policy_types.h"

struct fp_scratch {
	struct fp_meta packet;
	u64 flow[FP_STATE_WORDS];
	u64 class[FP_PARAMS + FP_STATE_WORDS];
	u64 global[FP_STATE_WORDS];
	struct fp_call call;
	u64 answer; /* of a policy in a slot */
};

#endif /* FP_SCHED_SCRATCH_H */
