/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/early.h: drops a received packet in the driver, if table raw would drop it in PREROUTING.
 *
 * Such a packet is counted as there. All others are left to the hook, without an effect: those that
 * the stack would refuse or reassemble before, and those whose evaluation has another effect than
 * counters, or depends on chance.
 */
#ifndef FP_RULES_EARLY_H
#define FP_RULES_EARLY_H

#include "evaluate.h"

#define FP_HOOK_PREROUTING 0

/* The sum of a header of IPv4 as its checksum has it: ~0 of a right one. */
FP_FUNC u32 fp_rules_header_sum(struct fp_rules_work FP_MEM *w FP_ARG, u32 bytes)
{
	u32 i, sum = FP_ZERO;

	fp_loop(i, 30) {
		if (2 * i >= bytes)
			break;
		sum += fp_rules_u16(w, 2 * i);
	}
	sum = (sum & 0xffff) + (sum >> 16);
	return ((sum & 0xffff) + (sum >> 16)) & 0xffff;
}

/* True if the stack gives a packet of IPv4 to the hook as it is. */
FP_INLINE int fp_rules_reaches_ipv4(struct fp_rules_work FP_MEM *w, u32 length)
{
	u32 first = fp_rules_u8(w, 0), header = (first & 15) * 4, total = fp_rules_u16(w, 2);

	if (first >> 4 != 4 || header < 20 || w->captured < header || total < header ||
	    total > length)
		return 0;
	/* Fragments: more of them, or an offset. */
	if (fp_rules_u16(w, 6) & 0x3fff)
		return 0;
	return fp_rules_header_sum(w, header) == 0xffff;
}

FP_INLINE int fp_rules_is_loopback6(u64 high, u64 low)
{
	return !high && low == __builtin_bswap64(1);
}

FP_INLINE int fp_rules_reaches_ipv6(struct fp_rules_work FP_MEM *w, u32 length)
{
	u32 next = fp_rules_u8(w, 6), payload = fp_rules_u16(w, 4);
	u64 to = w->word[FP_W_ADDR2];

	if (fp_rules_u8(w, 0) >> 4 != 6 || payload + 40 > length || w->captured < 40)
		return 0;
	/* Fragments, and options of each hop. */
	if (fp_rules_is_extension(next))
		return 0;
	if ((w->word[FP_W_ADDR] & 0xff) == 0xff ||
	    fp_rules_is_loopback6(w->word[FP_W_ADDR], w->word[FP_W_ADDR1]) ||
	    fp_rules_is_loopback6(to, w->word[FP_W_ADDR3]))
		return 0;
	/* Multicast of scope 0 or 1 stays within a host. */
	return (to & 0xff) != 0xff || (to >> 8 & 15) > 1;
}

/* Another header of the same rules, at `q`, that counts nothing. */
FP_INLINE void fp_rules_quiet(const struct fp_rules FP_MEM *r, struct fp_rules FP_MEM *q)
{
	u64 distance = (u64)r - (u64)q;
	u32 i;

	q->image = r->image + distance;
	q->counters = r->counters + distance;
	q->slots = r->slots + distance;
	q->tables = r->tables + distance;
	q->stride = r->stride;
	q->mode = FP_COUNT_NONE;
	q->sample_every = r->sample_every;
	for (i = 0; i < sizeof(q->keys) / sizeof(u64); i++)
		((u64 FP_MEM *)&q->keys)[i] = ((const u64 FP_MEM *)&r->keys)[i];
}

/*
 * True if a packet that fp_rules_read() has read is dropped here; it is counted then. `length` is the
 * frame's, without its header. `q` is memory for another header of the rules.
 */
FP_INLINE int fp_rules_drop_early(struct fp_rules FP_MEM *r, struct fp_rules FP_MEM *q,
				  struct fp_rules_work FP_MEM *w, u32 length)
{
	u64 meta = w->word[FP_W_META], mark = w->word[FP_W_MARK];
	u32 verdict;

	fp_rules_quiet(r, q);
	FP_PUT(w->early, 1);
	FP_PUT(w->logged, 0);
	FP_PUT(w->changed, 0);
	verdict = fp_rules_evaluate_table(q, w, FP_HOOK_PREROUTING, FP_RULES_RAW);
	FP_PUT(w->early, 0);
	if (verdict != FP_ACT_DROP || w->logged || (w->changed & ~FP_CHANGED_UNTRACKED))
		return 0;
	if (w->family == FP_FAMILY_IPV4 ? !fp_rules_reaches_ipv4(w, length)
					: !fp_rules_reaches_ipv6(w, length))
		return 0;
	w->word[FP_W_META] = meta;
	w->word[FP_W_MARK] = mark;
	fp_rules_evaluate_table(r, w, FP_HOOK_PREROUTING, FP_RULES_RAW);
	return 1;
}

#endif /* FP_RULES_EARLY_H */
