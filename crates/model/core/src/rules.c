/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * rules.c: the native runtime of rules. Every function here is declared in rules.rs; nothing else
 * links to it.
 */
#include <sys/mman.h>

#include "rules/early.h"

const u32 fp_native_rules_sizes[10] = {
	sizeof(struct fp_rules),	sizeof(struct fp_rules_image),
	sizeof(struct fp_rules_work),	FP_TEST_KINDS,
	sizeof(struct fp_rules_table),	sizeof(struct fp_rules_store),
	sizeof(struct fp_rules_kept),	sizeof(struct fp_rules_set),
	sizeof(struct fp_rules_member), sizeof(struct fp_rules_ending),
};

void fp_native_rules_seed(struct fp_rules *r, u64 seed)
{
	fp_hash_fill(&r->keys, seed);
}

u32 fp_native_rules_read(struct fp_rules_work *w)
{
	return (u32)fp_rules_read(w);
}

u32 fp_native_rules_evaluate(struct fp_rules *r, struct fp_rules_work *w, u32 hook)
{
	return fp_rules_evaluate(r, w, hook);
}

u32 fp_native_rules_drop_early(struct fp_rules *r, struct fp_rules *quiet, struct fp_rules_work *w,
			       u32 length)
{
	return (u32)fp_rules_drop_early(r, quiet, w, length);
}

u32 fp_native_rules_chain(struct fp_rules *r, struct fp_rules_work *w, u32 chain)
{
	fp_rules_sample(r, w);
	return fp_rules_chain(r, w, chain);
}

/* Advises huge pages: packets read the memory at random. A refusal costs time only. */
void fp_native_rules_advise(void *at, u64 bytes)
{
	u64 start = ((u64)at + 4095) & ~4095ull, end = ((u64)at + bytes) & ~4095ull;

	if (end > start)
		madvise((void *)start, end - start, MADV_HUGEPAGE);
}
