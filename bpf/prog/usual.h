/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * usual.h: parses usual packets (core/parse/usual.h) where they are, without a copy.
 */
#ifndef FP_PROG_USUAL_H
#define FP_PROG_USUAL_H

#include "head.h"
#include "../core/parse/usual.h"

/* Loads the first words of the linear part from the packet. Returns 0 if it has too few. */
FP_INLINE int load_usual(struct fp_usual *u, const u8 *data, const u8 *end)
{
	u32 i;

	FP_UNROLL
	for (i = 6; i < FP_USUAL_WORDS; i++)
		u->word[i] = 0;
	if (data + 54 > end)
		return 0;
	FP_UNROLL
	for (i = 0; i < 6; i++)
		u->word[i] = *(const u64 *)(data + 6 + 8 * i);
	u->bytes = 54;
	if (data + 66 > end)
		return 1;
	u->word[6] = *(const u64 *)(data + 54);
	u->word[7] = *(const u32 *)(data + 62);
	u->bytes = 66;
	if (data + 74 > end)
		return 1;
	u->word[7] = *(const u64 *)(data + 62);
	u->bytes = 74;
	if (data + 86 > end)
		return 1;
	u->word[8] = *(const u64 *)(data + 70);
	u->word[9] = *(const u64 *)(data + 78);
	u->bytes = 86;
	return 1;
}

/*
 * Parses a usual packet (parse/usual.h) in the linear part, without a copy of its headers except the
 * addresses of Ethernet, by which classes can be selected. Returns 0 for others. A function, so that
 * the words leave the stack before the packet is measured.
 */
static __attribute__((noinline)) int parse_usual(struct __sk_buff *skb, struct fp_work FP_MEM *w)
{
	const u8 *data = (const u8 *)(u64)skb->data, *end = (const u8 *)(u64)skb->data_end;
	struct fp_usual u;
	u32 at = 0;

	if (!load_usual(&u, data, end) || !fp_parse_usual(w, &u))
		return 0;
	COPY_PART(u32);
	COPY_PART(u16);
	COPY_PART(u64);
	return 1;
}

#endif /* FP_PROG_USUAL_H */
