// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * limit.bpf.c: the kernel runtime of limits, without attaching: requests from the arena (tests, benches).
 *
 *   limit_run         makes requests one by one, for the CPUs that they name, and writes each answer
 *   limit_spin_cpu    charges the first limit again and again as one of several CPUs at once, for benches
 *   limit_spin_pool   charges the first request again and again, for benches; so does
 *   limit_spin_lock   a bucket with a spin lock, and
 *   limit_spin_empty  nothing
 */
#include "kernel.h"
#include "../core/limit/limit.h"

/* Offset of the input: libbpf may keep globals in the first page. */
#define FP_ARENA_START 4096ull

/* struct limit_run_input, struct fp_limits with its parts, requests. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

#define PACED 0xffffffffu

/* A request, and its answer. */
struct limit_op {
	u32 limit;
	u32 cpu;
	u32 bytes;
	u32 paid; /* 0: fp_limit_take(); PACED: fp_limit_pace(); else fp_limit_pay() with one byte less behind */
	u64 now;
	u64 answer;
};

/* The input of a run, written by user space. */
struct limit_run_input {
	u64 limits; /* offsets from the input */
	u64 ops;
	u32 count; /* of requests */
	u32 done;  /* written by the run: less than count if its time was up */
	u64 pad[5];
};

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("syscall")
int limit_run(void *ctx)
{
	struct limit_run_input FP_MEM *input;
	struct fp_limits FP_MEM *limits;

	asm volatile("" : : "r"(&arena));
	input = (struct limit_run_input FP_MEM *)FP_ARENA_START;
	limits = FP_AT(struct fp_limits, input, input->limits);
	/* A counter in memory: the verifier would follow each value of one in a register. */
	fp_loop(input->done, input->count) {
		struct limit_op FP_MEM *op =
			FP_AT(struct limit_op, input, input->ops + (u64)input->done * sizeof(*op));

		if (op->paid == PACED)
			op->answer = fp_limit_pace(limits, op->limit, op->cpu, op->bytes, op->now);
		else if (op->paid)
			op->answer = fp_limit_pay(fp_limit_at(limits, op->limit),
						  fp_limit_pool_at(limits, op->limit, op->cpu),
						  op->bytes, op->paid - 1, op->now);
		else
			op->answer = fp_limit_take(limits, op->limit, op->cpu, op->bytes, op->now);
	}
	return 0;
}

FP_INLINE struct limit_op FP_MEM *first_op(struct limit_run_input FP_MEM *input)
{
	return FP_AT(struct limit_op, input, input->ops);
}

SEC("syscall")
int limit_spin_empty(void *ctx)
{
	struct limit_run_input FP_MEM *input;

	asm volatile("" : : "r"(&arena));
	input = (struct limit_run_input FP_MEM *)FP_ARENA_START;
	fp_loop(input->done, input->count)
		asm volatile("");
	return 0;
}

SEC("syscall")
int limit_spin_pool(void *ctx)
{
	struct limit_run_input FP_MEM *input;
	struct fp_limits FP_MEM *limits;
	struct limit_op FP_MEM *op;

	asm volatile("" : : "r"(&arena));
	input = (struct limit_run_input FP_MEM *)FP_ARENA_START;
	limits = FP_AT(struct fp_limits, input, input->limits);
	op = first_op(input);
	fp_loop(input->done, input->count)
		fp_limit_pay(fp_limit_at(limits, 0), fp_limit_pool_at(limits, 0, 0), op->bytes, 1,
			     op->now);
	return 0;
}

/* The context of limit_spin_cpu. */
struct spin_context {
	u32 cpu;
	u32 count;
	u32 bytes;
	u32 pad;
	u64 now;
};

/* Requests of two CPUs are so far apart that they share no cache line. */
#define SPIN_APART 8

SEC("syscall")
int limit_spin_cpu(struct spin_context *context)
{
	struct limit_run_input FP_MEM *input;
	struct fp_limits FP_MEM *limits;
	struct limit_op FP_MEM *op;
	u32 cpu = context->cpu, count = context->count, bytes = context->bytes;
	u64 now = context->now;

	asm volatile("" : : "r"(&arena));
	input = (struct limit_run_input FP_MEM *)FP_ARENA_START;
	limits = FP_AT(struct fp_limits, input, input->limits);
	op = first_op(input) + (u64)cpu * SPIN_APART;
	/* Its answer counts, as `done` above. */
	fp_loop(op->answer, count)
		fp_limit_pay(fp_limit_at(limits, 0), fp_limit_pool_at(limits, 0, cpu), bytes, 1,
			     now);
	return 0;
}

struct bpf_spin_lock {
	u32 val;
};

/* A token bucket of all CPUs. */
struct locked {
	struct bpf_spin_lock lock;
	u64 tokens;
	u64 last;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct locked);
} bucket SEC(".maps");

SEC("syscall")
int limit_spin_lock(void *ctx)
{
	struct limit_run_input FP_MEM *input;
	struct limit_op FP_MEM *op;
	struct locked *b;
	u32 key = 0;

	asm volatile("" : : "r"(&arena));
	input = (struct limit_run_input FP_MEM *)FP_ARENA_START;
	op = first_op(input);
	b = bpf_map_lookup_elem(&bucket, &key);
	if (!b)
		return 0;
	fp_loop(input->done, input->count) {
		u64 now = op->now, bytes = op->bytes;

		bpf_spin_lock(&b->lock);
		b->tokens += (now - b->last) * 1250;
		b->last = now;
		if (b->tokens >= bytes)
			b->tokens -= bytes;
		else
			b->tokens = 1ull << 40;
		bpf_spin_unlock(&b->lock);
	}
	return 0;
}
