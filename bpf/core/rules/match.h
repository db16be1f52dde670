/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/match.h: does a packet match a rule.
 *
 * A usual packet passes the comparisons of words, and then the other tests in written order. An
 * irregular one, or one with unknown facts, passes the tests of the frame's header first and then
 * each match, as iptables does, because there the order decides whether the packet is dropped.
 */
#ifndef FP_RULES_MATCH_H
#define FP_RULES_MATCH_H

#include "tables.h"

FP_INLINE const struct fp_rules_compare FP_MEM *
fp_rules_compares(const struct fp_rules_record FP_MEM *record)
{
	return (const struct fp_rules_compare FP_MEM *)(record + 1);
}

FP_INLINE const struct fp_rules_test FP_MEM *
fp_rules_tests(const struct fp_rules_record FP_MEM *record)
{
	return (const struct fp_rules_test FP_MEM *)(fp_rules_compares(record) + record->words);
}

/* Tests that need no memory and no loop. */
FP_FUNC u32 fp_test_small(struct fp_rules_work FP_MEM *w FP_ARG,
			  const struct fp_rules_test FP_MEM *t FP_ARG)
{
	u32 not = t->flags & FP_TEST_NOT, word = t->word & 15;
	u64 unknown;

	switch (t->kind) {
	case FP_TEST_RANGE: {
		u32 shift = t->b & 63, width = t->b >> 8 & 63;
		u64 mask = (1ull << width) - 1;

		if (w->unknown[word] >> shift & mask)
			return fp_maybe(w, fp_reason_of(w, word, mask << shift));
		/* A reassembled packet of IPv6 may be longer than its 16 bits. */
		if (word == FP_W_META && shift == FP_META_LENGTH && w->length > 0xffff)
			return not;
		return fp_within((u32)(w->word[word] >> shift & mask), t->a & 0xffff, t->a >> 16) ^
		       not;
	}
	case FP_TEST_ANY_BITS:
		unknown = w->unknown[word] & t->b;
		if (unknown)
			return fp_maybe(w, fp_reason_of(w, word, unknown));
		return !!(w->word[word] & t->b) ^ not;
	case FP_TEST_RANDOM:
		if (!(w->known & FP_KNOWN_RANDOM))
			return fp_maybe(w, FP_UNKNOWN_RANDOM);
		return ((w->random & 0x7fffffff) < t->a) ^ not;
	case FP_TEST_UNKNOWN:
		return fp_maybe(w, t->a);
	case FP_TEST_TYPES:
		if (w->unknown[FP_W_L4])
			return fp_maybe(w, FP_UNKNOWN_CUT_BYTES);
		return (fp_within((u8)(w->word[FP_W_L4] >> 16), t->a & 0xff, t->a >> 8 & 0xff) &&
			fp_within((u8)(w->word[FP_W_L4] >> 24), t->a >> 16 & 0xff, t->a >> 24)) ^
		       not;
	case FP_TEST_DO_MARK:
		w->word[FP_W_MARK] = (w->word[FP_W_MARK] & ~(u64)(u32)t->b) ^ t->a;
		return FP_YES;
	case FP_TEST_DO_LOG:
		fp_rules_log(w, t);
		return FP_YES;
	}
	return FP_NO;
}

/* Tests of the transport header and of extension headers. */
FP_FUNC u32 fp_test_packet(struct fp_rules_work FP_MEM *w FP_ARG,
			   const struct fp_rules_test FP_MEM *t FP_ARG)
{
	u32 not = t->flags & FP_TEST_NOT, state;

	switch (t->kind) {
	case FP_TEST_TCP_OPTION:
		state = fp_test_tcp_option(w, t->a);
		return state < FP_HOTDROP ? state ^ not : state;
	case FP_TEST_TCP_MSS:
		return fp_test_mss(w, t->a & 0xffff, t->a >> 16, not);
	case FP_TEST_ECN:
		return fp_test_ecn(w, t);
	case FP_TEST_SPI:
		return fp_test_spi(w, t);
	case FP_TEST_DCCP:
		return fp_test_dccp(w, t->a, not);
	case FP_TEST_CHUNKS:
		state = fp_test_chunks(w, t);
		return state == FP_HOTDROP && not && w->doomable ? FP_DOOMED : state;
	case FP_TEST_EXTENSION:
		return fp_test_extension(w,
					 (const struct fp_rules_extension FP_MEM *)fp_test_data(t));
	case FP_TEST_HEADERS:
		return fp_test_headers(w, t->a, t->word, not);
	case FP_TEST_U32:
		return fp_test_u32(w, t);
	case FP_TEST_TIME:
		return fp_test_time(w, (const struct fp_rules_time FP_MEM *)fp_test_data(t));
	case FP_TEST_OWNER:
		return fp_test_owner(w, t);
	case FP_TEST_PHYSICAL:
		return fp_test_physical(w, t);
	case FP_TEST_ADDRTYPE:
		return fp_test_addrtype(w, t);
	}
	return FP_NO;
}

FP_INLINE u32 fp_rules_test(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w,
			    const struct fp_rules_test FP_MEM *t)
{
	u32 state;

	switch (t->kind) {
	case FP_TEST_WORDS:
		return fp_test_words(w, t);
	case FP_TEST_PORTS:
		state = fp_test_ports(w, t);
		/* A fragment has no ports: it does not match a negated list either. */
		return state < FP_HOTDROP && !w->fragment ? state ^ (t->flags & FP_TEST_NOT)
							  : state;
	case FP_TEST_ADDRESSES:
		return fp_test_addresses(w, t) ^ (t->flags & FP_TEST_NOT);
	case FP_TEST_LIMIT:
		return fp_test_limit(r, w, t);
	case FP_TEST_QUOTA:
		return fp_test_quota(r, w, t);
	case FP_TEST_NTH:
		return fp_test_nth(r, t);
	case FP_TEST_SET:
		return fp_test_set(r, w, t);
	case FP_TEST_RECENT:
		return fp_test_recent(r, w, t);
	case FP_TEST_HASHLIMIT:
		return fp_test_hashlimit(r, w, t);
	case FP_TEST_RANGE:
	case FP_TEST_ANY_BITS:
	case FP_TEST_RANDOM:
	case FP_TEST_UNKNOWN:
	case FP_TEST_NEVER:
	case FP_TEST_TYPES:
	case FP_TEST_DO_MARK:
	case FP_TEST_DO_LOG:
		return fp_test_small(w, t);
	case FP_TEST_AMONG:
		return fp_test_among(r, w, t);
	}
	return fp_test_packet(w, t);
}

/* True if the packet, of which the answer is unknown for this reason, may also be dropped. */
FP_INLINE int fp_may_drop(u32 reason)
{
	return reason == FP_UNKNOWN_MATCH || reason == FP_UNKNOWN_CUT_BYTES;
}

/* Most tests of a rule. */
#define FP_RULES_TESTS 128

/*
 * The tests after the comparisons of words: with `part` 0 all in order, 1 those of the frame's
 * header, 2 the others. An unknown answer waits for pure tests after it: one of them may decide.
 * FP_MAYBE: tests from one on were left, since it may drop the packet or has an effect.
 */
FP_FUNC u32 fp_rules_all_tests(struct fp_rules FP_MEM *r FP_ARG,
			       struct fp_rules_work FP_MEM *w FP_ARG,
			       const struct fp_rules_record FP_MEM *record FP_ARG, u32 part)
{
	const struct fp_rules_test FP_MEM *t = fp_rules_tests(record);
	volatile u32 FP_MEM *i = &w->step[0];
	u32 state, maybe = w->waiting;

	fp_loop(*i, FP_RULES_TESTS) {
		if (*i >= record->tests || fp_hide32(t->kind) >= FP_SET_MARK)
			break;
		if (part && (part == 1) != !!(t->flags & FP_TEST_HEADER))
			goto next;
		if ((t->flags & FP_TEST_STATEFUL) && (maybe || w->early))
			return fp_maybe(w, w->waiting = maybe ? maybe : FP_UNKNOWN_TARGET);
		state = fp_rules_test(r, w, t);
		if (state == FP_MAYBE) {
			maybe = maybe ? maybe : w->argument;
			/* No later match counts then. */
			if (fp_may_drop(w->argument))
				return fp_maybe(w, w->waiting = maybe);
		} else if (state == FP_DOOMED) {
			/* It is read only if the match before is true. */
			if (maybe)
				return fp_maybe(w, w->waiting = maybe);
			w->doomed = 1;
		} else if (state != FP_YES) {
			if (w->doomed)
				return FP_HOTDROP;
			/* A packet that is perhaps dropped, after a match that is perhaps false. */
			if (state == FP_HOTDROP && maybe)
				return fp_maybe(w, w->waiting = maybe);
			return state;
		}
	next:
		t = (const struct fp_rules_test FP_MEM *)((const u8 FP_MEM *)t +
							  t->units * FP_RULES_UNIT);
	}
	w->waiting = maybe;
	return FP_YES;
}

/*
 * The comparisons of a slow packet. The first one that needs bytes of the transport header belongs
 * to the first match: comparisons before it and its own protocol are the first part (`header` 1),
 * the rest of it and those after it the second. FP_MAYBE: the packet may be dropped here.
 */
FP_FUNC u32 fp_compares_slowly(struct fp_rules_work FP_MEM *w FP_ARG,
			       const struct fp_rules_record FP_MEM *record FP_ARG, u32 header)
{
	const struct fp_rules_compare FP_MEM *c = fp_rules_compares(record);
	volatile u32 FP_MEM *i = &w->step[0];
	u32 state, shape = record->shape, passed = 0;

	fp_loop(*i, FP_RULES_COMPARES) {
		u32 pivot;

		if (*i >= record->words)
			break;
		pivot = !passed && (shape & 15) == FP_W_L4 && (c->mask & FP_L4_NEEDS);
		if (pivot || header != passed) {
			state = fp_compare_slowly(w, c, shape, header);
			if (state == FP_NO)
				return FP_NO;
			if (state == FP_MAYBE && !w->waiting)
				w->waiting = w->argument;
			/* The protocol is the last comparison of the header. */
			if (state == FP_HOTDROP || (state == FP_MAYBE && fp_may_drop(w->argument)))
				return state;
		}
		passed |= pivot;
		shape >>= 5;
		c++;
	}
	return FP_YES;
}

FP_FUNC u32 fp_rules_match_slowly(struct fp_rules FP_MEM *r FP_ARG,
				  struct fp_rules_work FP_MEM *w FP_ARG,
				  const struct fp_rules_record FP_MEM *record FP_ARG)
{
	u32 state, drops;

	w->waiting = 0;
	drops = fp_compares_slowly(w, record, 1);
	if (drops == FP_NO)
		return FP_NO;
	/* The protocol is the last part of the header that is compared. */
	state = fp_rules_all_tests(r, w, record, 1);
	if (state == FP_NO)
		return FP_NO;
	if (drops == FP_YES)
		drops = state;
	if (drops == FP_YES) {
		drops = fp_compares_slowly(w, record, 0);
		if (drops == FP_NO)
			return FP_NO;
	}
	if (drops != FP_YES)
		return w->waiting ? fp_maybe(w, w->waiting) : FP_HOTDROP;
	state = fp_rules_all_tests(r, w, record, 2);
	if (state != FP_YES)
		return state;
	return w->waiting ? fp_maybe(w, w->waiting) : FP_YES;
}

#endif /* FP_RULES_MATCH_H */
