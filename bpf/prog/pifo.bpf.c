// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * pifo.bpf.c: the kernel runtime of PIFOs, without attaching: operations from the arena (tests).
 *
 *   pool_replay  runs operations one by one and writes the result of each
 */
#include "kernel.h"
#include "../core/pifo/pool_ops.h"

/* Offset of the scratch, which the pool follows: libbpf may keep globals in the first page. */
#define FP_ARENA_START 4096ull

/* struct pool_run_input, the pool, operations. Written by the programs, read by both. */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

/* The input of a run, written by user space. */
struct pool_run_input {
	u64 pool; /* offsets from the scratch */
	u64 ops;
	u32 count; /* of operations */
	u32 done;  /* written by the run: less than count if its time was up */
	u64 pad[5];
};

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("syscall")
int pool_replay(void *ctx)
{
	struct pool_run_input FP_MEM *input;
	struct fp_pool FP_MEM *pool;
	u32 i;

	asm volatile("" : : "r"(&arena));
	input = (struct pool_run_input FP_MEM *)FP_ARENA_START;
	pool = FP_AT(struct fp_pool, input, input->pool);
	fp_loop(i, input->count) {
		fp_pool_run_op(pool, FP_AT(struct fp_pool_op, input,
					   input->ops + (u64)i * sizeof(struct fp_pool_op)));
		input->done = i + 1;
	}
	return 0;
}
