// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * rules.bpf.c: the kernel runtime of rules, without attaching: packets from the arena (tests,
 * benches).
 *
 *   rules_run    evaluates packets one by one, and writes the result of each
 *   rules_stream evaluates many short packets with one scratch (benches)
 */
#include "kernel.h"
#include "../core/rules/evaluate.h"

/* Offset of the input: libbpf may keep globals in the first page. */
#define FP_ARENA_START 4096ull

/* struct rules_run_input, struct fp_rules and its parts, scratch, packets. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* pages; set before loading */
	__ulong(map_extra, 2ull << 44);
} arena SEC(".maps");

/* The input of a run, written by user space. */
struct rules_run_input {
	u64 rules; /* offsets from the input */
	u64 works; /* one struct fp_rules_work for each packet */
	u32 count; /* of packets */
	u32 done;  /* written by the run: less than count if its time was up */
	u32 hook;
	u32 repeat; /* evaluations of each packet (benches) */
	u32 turn;   /* of the present packet */
	u32 pad;
	u64 heads; /* of rules_stream: FP_HEAD_BYTES of each packet */
	u64 zero;
};

#define FP_HEAD_BYTES 64

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("syscall")
int rules_run(void *ctx)
{
	struct rules_run_input FP_MEM *input;
	struct fp_rules FP_MEM *rules;

	asm volatile("" : : "r"(&arena));
	input = (struct rules_run_input FP_MEM *)FP_ARENA_START;
	rules = FP_AT(struct fp_rules, input, input->rules);
	/* Counters in memory: the verifier would follow each value of one in a register. */
	fp_loop(input->done, input->count) {
		struct fp_rules_work FP_MEM *w =
			FP_AT(struct fp_rules_work, input,
			      input->works + (u64)input->done * sizeof(struct fp_rules_work));

		if (!fp_rules_read(w)) {
			w->verdict = FP_ACT_NONE;
			continue;
		}
		fp_loop(input->turn, input->repeat)
			fp_rules_evaluate(rules, w, input->hook);
	}
	return 0;
}

SEC("syscall")
int rules_stream(void *ctx)
{
	struct rules_run_input FP_MEM *input;
	struct fp_rules_work FP_MEM *w;
	struct fp_rules FP_MEM *rules;
	u32 i;

	asm volatile("" : : "r"(&arena));
	input = (struct rules_run_input FP_MEM *)FP_ARENA_START;
	rules = FP_AT(struct fp_rules, input, input->rules);
	w = FP_AT(struct fp_rules_work, input, input->works);
	fp_loop(input->done, input->count) {
		const u64 FP_MEM *head =
			FP_AT(const u64, input, input->heads + (u64)input->done * FP_HEAD_BYTES);

		for (i = 0; i < FP_HEAD_BYTES / 8; i++)
			((volatile u64 FP_MEM *)w->head)[i] = head[i];
		w->word[FP_W_META] = input->turn;
		w->slow = 0;
		w->length = w->captured = input->repeat;
		if (fp_rules_read(w))
			fp_rules_evaluate(rules, w, input->hook);
	}
	return 0;
}
