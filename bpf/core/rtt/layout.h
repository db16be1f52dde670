/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * layout.h: size and format of the memory of a monitor, and its end. Only for user space, which
 * formats plain memory and the mapping of an arena in the same way.
 */
#ifndef FP_LAYOUT_H
#define FP_LAYOUT_H

#include "rtt.h"

FP_INLINE u64 fp_align(u64 bytes)
{
	return (bytes + 63) & ~63ull;
}

/* The tables for classes; empty without classes. */
static u64 fp_layout_classes(struct fp_rtt *r, const struct fp_config *config, u64 at)
{
	u32 half;

	if (!config->slots)
		return at;
	r->classes = at;
	at += fp_align((u64)config->slots * sizeof(struct fp_class));
	r->volumes = at;
	at += fp_align((u64)config->cpus * config->slots * sizeof(struct fp_volume));
	r->legs = at;
	at += fp_align((u64)config->cpus * config->slots * 2 * sizeof(struct fp_leg_counts));
	for (half = 0; half < 2; half++) {
		r->cells[half] = at;
		at += fp_align((u64)config->cell_sets * FP_CELL_WAYS * sizeof(struct fp_cell));
		r->pair_sets[half] = at;
		at += fp_align((u64)config->pair_sets * sizeof(struct fp_pair_set));
		r->pairs[half] = at;
		at += fp_align((u64)config->pair_sets * FP_PAIR_WAYS * sizeof(struct fp_pair));
	}
	for (half = 0; half < 2; half++) {
		r->images[half] = at;
		at += fp_align(config->image_bytes);
	}
	return at;
}

/* Writes the offsets into `r` and returns the size of all of it. */
static u64 fp_layout_tables(struct fp_rtt *r, const struct fp_config *config)
{
	u64 at = fp_align(sizeof(*r)), flows;

	r->work = at;
	at += fp_align((u64)config->cpus * sizeof(struct fp_work));
	r->rings = at;
	at += fp_align((u64)config->cpus * config->ring_bytes);
	r->half_sets = at;
	at += fp_align((u64)config->half_sets * sizeof(struct fp_run_set_op));
	r->flow_sets = at;
	at += fp_align((u64)config->flow_sets * sizeof(struct fp_run_set_op));
	flows = at;
	r->half_flows = at;
	at += fp_align((u64)config->half_sets * FP_WAYS * sizeof(struct fp_flow));
	r->flows = at;
	at += fp_align((u64)config->flow_sets * FP_WAYS * sizeof(struct fp_flow));
	r->rare = at - flows;
	at += r->rare;
	r->chunks = at;
	at += fp_align(((u64)config->chunks + 1) * sizeof(struct fp_chunk));
	r->refused = at;
	at += fp_align(FP_REFUSED_MARKS);
	at = fp_layout_classes(r, config, at);
	r->replay = at;
	r->bytes = at;
	return at;
}

/*
 * Formats zeroed memory of fp_layout_tables() bytes. Zero means empty, so only the header and the
 * places of the rings are written. In an arena, also touch every page: the kernel's side cannot
 * fault one in.
 */
static void fp_format(struct fp_rtt *r, const struct fp_config *config)
{
	u32 cpu;

	fp_layout_tables(r, config);
	for (cpu = 0; cpu < config->cpus; cpu++) {
		fp_work_of(r, cpu)->cpu = cpu;
		fp_work_of(r, cpu)->ring.start = r->rings + (u64)cpu * config->ring_bytes;
	}
	r->abi = FP_ABI_VERSION;
	r->config = *config;
	fp_hash_fill(&r->hash, config->seed);
	r->next_flow = 1;
	r->ready = 1;
}

#endif /* FP_LAYOUT_H */
