// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * sched.bpf.c: the kernel runtime of the scheduler. Only hooks and maps.
 *
 *   sched_run  without attaching: runs operations from the arena, and writes their outcomes there
 *
 * Compiled with -DFP_CUSTOM_FILE, it includes a custom policy in addition to the shipped ones.
 */
#include "kernel.h"
#include "scratches.h"
#include "../core/sched/sched.h"

/* Offset of the scheduler: libbpf may keep globals in the first page. */
#define FP_ARENA_START 4096ull
/* Operations of one run. The kernel limits the time of its loops (a quarter of a second). */
#define FP_RUN_OPS 2048

/*
 * The memory of the scheduler; struct fp_sched first. Written by the programs, read by both sides.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

/* The verifier ties a program to its arena by a reference to the map. */
FP_INLINE struct fp_sched FP_MEM *the_scheduler(void)
{
	u64 at = FP_ARENA_START;

	asm volatile("" : : "r"(&arena));
	/*
	 * Not a constant: otherwise the address of each field is kept on the stack, which is full.
	 */
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
