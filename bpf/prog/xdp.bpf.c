// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * xdp.bpf.c: the one XDP program of an interface. It runs stages, which are programs of several
 * owners:
 *
 *   impair  drops packets like a link with loss
 *   measure  reads only
 *   rules  drops what rules would drop
 *   forward  sends packets past the stack
 *
 * A stage is a map with one program, which is called if present. A verdict other than "pass" ends
 * the run. The kernel empties a map of programs when user space closes its last descriptor or pin,
 * so a stage ends with its owner in any case.
 *
 * When an owner joins, this program is loaded again and replaced in its link. The set of stages is
 * constant, so that absent stages cost nothing and the last one needs no return.
 *
 * Attached by crates/edge/bpf/src/stage.rs.
 */
#include "kernel.h"

/* A bit for each stage that may have a program; set before loading. */
const volatile u32 xdp_stages = 0;

enum stage {
	STAGE_IMPAIR,
	STAGE_MEASURE,
	STAGE_RULES,
	STAGE_FORWARD,
};

/* run_NAME() is global, so that the verifier assumes nothing about its verdict. */
#define STAGE(name)                                                                                \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY);                                             \
		__uint(max_entries, 1);                                                            \
		__type(key, u32);                                                                  \
		__type(value, u32);                                                                \
	} stage_##name SEC(".maps");                                                               \
	__attribute__((noinline)) int run_##name(struct xdp_md *ctx)                               \
	{                                                                                          \
		bpf_tail_call(ctx, &stage_##name, 0);                                              \
		return (int)fp_hide32(XDP_PASS);                                                   \
	}

STAGE(impair)
STAGE(measure)
STAGE(rules)
STAGE(forward)

char _license[] SEC("license") = "Dual MIT/GPL";

/* Ends the run after the last stage, or after a stage that does not pass. */
#define RUN(name, number)                                                                          \
	do {                                                                                       \
		if (xdp_stages >> (number) == 1) {                                                 \
			bpf_tail_call(ctx, &stage_##name, 0);                                      \
			return XDP_PASS;                                                           \
		}                                                                                  \
		if (xdp_stages & 1u << (number)) {                                                 \
			int verdict = run_##name(ctx);                                             \
                                                                                                   \
			if (verdict != XDP_PASS)                                                   \
				return verdict;                                                    \
		}                                                                                  \
	} while (0)

SEC("xdp.frags")
int fairpath_xdp(struct xdp_md *ctx)
{
	RUN(impair, STAGE_IMPAIR);
	RUN(measure, STAGE_MEASURE);
	RUN(rules, STAGE_RULES);
	RUN(forward, STAGE_FORWARD);
	return XDP_PASS;
}
