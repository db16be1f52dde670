/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* scratches.h: the memory that one call of a policy may access (core/sched/scratch.h), one per CPU. */
#ifndef FP_SCRATCHES_H
#define FP_SCRATCHES_H

#include "kernel.h"
#include "../core/sched/scratch.h"

/* Key 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fp_scratch);
} scratches SEC(".maps");

static struct fp_scratch *fp_scratch_of_cpu(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&scratches, &key);
}

#endif /* FP_SCRATCHES_H */
