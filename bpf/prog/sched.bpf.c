// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * sched.bpf.c: the kernel runtime of the scheduler. Hooks, maps, nothing else.
 *
 *   sched_run   unattached: runs operations that lie in the arena, and writes outcomes beside them
 *
 * Compiled with -DFP_CUSTOM_FILE it holds a custom policy besides those that are shipped.
 */
#include "kernel.h"
#include "../core/sched/sched.h"

/* Where the scheduler begins: libbpf may keep globals in the first page. */
#define FP_ARENA_START 4096ull
/* Operations of one run: the kernel bounds its loops by time (a quarter of a second). */
#define FP_RUN_OPS 2048

/* Everything the scheduler knows; struct fp_sched first. Written by the programs, read by both. */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

/* What one call of a policy may touch: its copies, one for each CPU. Key 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fp_scratch);
} desks SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

static struct fp_scratch *fp_scratch_of_cpu(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&desks, &key);
}

/* The verifier ties a program to its arena by a reference to the map. */
FP_INLINE struct fp_sched FP_MEM *the_scheduler(void)
{
	u64 at = FP_ARENA_START;

	asm volatile("" : : "r"(&arena));
	/* Not a constant, or the address of each field is kept on the stack, all of which is
	 * needed. */
	asm volatile("" : "+r"(at));
	return (struct fp_sched FP_MEM *)at;
}

SEC("syscall")
int sched_run(void *ctx)
{
	u32 i;

	fp_loop(i, FP_RUN_OPS) {
		struct fp_sched FP_MEM *s = the_scheduler();

		if (s->op >= s->ops || !fp_has_outcome_capacity(s))
			break;
		fp_run_op(s, FP_AT(struct fp_op, s, s->ops_at + (u64)s->op * sizeof(struct fp_op)));
		s->op++;
	}
	return 0;
}
