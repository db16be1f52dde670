/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * layout.h: how big a monitor's memory is, and how it is laid out and ended. User space only: it
 * formats plain memory and the kernel's arena (through its mapping) alike.
 */
#ifndef FP_LAYOUT_H
#define FP_LAYOUT_H

#include "rtt.h"

#define FP_PAGE 4096

FP_INLINE u64 fp_align(u64 bytes)
{
	return (bytes + 63) & ~63ull;
}

/* Writes the offsets into `r` and returns the size of all of it. */
static u64 fp_lay_out(struct fp_rtt *r, const struct fp_config *config)
{
	u64 at = fp_align(sizeof(*r));

	r->work = at;
	at += fp_align((u64)config->cpus * sizeof(struct fp_work));
	r->half_sets = at;
	at += fp_align((u64)config->half_sets * sizeof(struct fp_set));
	r->half_flows = at;
	at += fp_align((u64)config->half_sets * FP_WAYS * sizeof(struct fp_flow));
	r->flow_sets = at;
	at += fp_align((u64)config->flow_sets * sizeof(struct fp_set));
	r->flows = at;
	at += fp_align((u64)config->flow_sets * FP_WAYS * sizeof(struct fp_flow));
	r->chunks = at;
	at += fp_align(((u64)config->chunks + 1) * sizeof(struct fp_chunk));
	r->replay = at;
	r->bytes = at;
	return at;
}

/* Formats zeroed memory of fp_lay_out() bytes. */
static void fp_format(struct fp_rtt *r, const struct fp_config *config)
{
	u64 at;
	u32 i;

	fp_lay_out(r, config);
	r->abi = FP_ABI_VERSION;
	r->config = *config;
	r->next_flow = 1;
	for (i = config->chunks; i > 0; i--)
		fp_chunk_give(r, i, i);
	/* Touch every page: the kernel's side of an arena cannot fault one in. */
	for (at = 0; at < r->bytes; at += FP_PAGE) {
		volatile u8 *page = (volatile u8 *)r + at;

		*page = *page;
	}
	r->ready = 1;
}

#endif /* FP_LAYOUT_H */
