/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/evaluate.h: the tables of a hook with a packet.
 *
 *   fp_rules_evaluate()        all of them, in order
 *   fp_rules_evaluate_table()  one of them
 *   fp_rules_first()           one of them, if its first rules decide before the packet is read
 */
#ifndef FP_RULES_EVALUATE_H
#define FP_RULES_EVALUATE_H

#include "chain.h"

/* Hooks. */
#define FP_RULES_OUTPUT	     3
#define FP_RULES_POSTROUTING 4
/* Bits of --ctstate. */
#define FP_STATE_INVALID     1u
#define FP_STATE_NEW	     2u
#define FP_STATE_RELATED     4u
#define FP_STATE_ESTABLISHED 8u
#define FP_STATE_SNAT	     32u
#define FP_STATE_DNAT	     64u
/* A bit of --ctstatus. */
#define FP_STATUS_CONFIRMED 8u

FP_INLINE u32 fp_rules_no_state(const struct fp_rules_work FP_MEM *w)
{
	return w->unknown[FP_W_META] >> FP_META_STATE & 0xff;
}

/* The interface `lo`, with its end. */
#define FP_NAME_LO 0x6f6cull

/* FP_YES if a received packet may be a copy of a broadcast or multicast that this host sent. */
FP_INLINE int fp_rules_may_be_copy(const struct fp_rules_work FP_MEM *w)
{
	u32 type = (u8)w->word[FP_W_MISC];

	if (w->family == FP_FAMILY_IPV6 && !w->unknown[FP_W_ADDR2] &&
	    (w->word[FP_W_ADDR2] & 0xff) != 0xff)
		return 0;
	return (w->unknown[FP_W_MISC] & 0xff) || type == 1 || type == 2;
}

/*
 * A packet has no connection in table raw, which is INVALID. Returns the reason why it may have one, or
 * 0, or FP_EARLY if it has. A received one has that of its sender if it comes by `lo`, or is a copy that
 * this host sent; then it is confirmed. A sent one has it if the kernel made it as an answer to a
 * rejected packet: RELATED, or also INVALID.
 */
#define FP_EARLY ~0u
FP_INLINE u32 fp_rules_early(const struct fp_rules_work FP_MEM *w, u32 hook)
{
	u32 state = (u8)(w->word[FP_W_META] >> FP_META_STATE);
	u32 status = (u8)(w->word[FP_W_META] >> FP_META_STATUS);
	u32 confirmed = status & FP_STATUS_CONFIRMED;

	if (hook != 0)
		return fp_rules_no_state(w) || (state & ~(FP_STATE_NEW | FP_STATE_ESTABLISHED |
							  FP_STATE_SNAT | FP_STATE_DNAT))
			       ? FP_UNKNOWN_CONNECTION
			       : 0;
	if (fp_rules_no_state(w) || w->unknown[FP_W_META] >> FP_META_STATUS & FP_STATUS_CONFIRMED)
		confirmed = FP_STATUS_CONFIRMED;
	if (!fp_rules_no_state(w) &&
	    ((state & FP_STATE_INVALID) || ((state & FP_STATE_NEW) && !confirmed)))
		return 0;
	if (w->unknown[FP_W_IN])
		return FP_UNKNOWN_INPUT;
	if ((w->word[FP_W_IN] & 0xffffff) == FP_NAME_LO) {
		/* A new one that is not confirmed was not sent by this host. */
		return (state & FP_STATE_NEW) && (w->unknown[FP_W_META] >> FP_META_STATUS &
						  FP_STATUS_CONFIRMED)
			       ? FP_UNKNOWN_CONNECTION
			       : FP_EARLY;
	}
	if (!fp_rules_may_be_copy(w))
		return 0;
	return w->unknown[FP_W_MISC] & 0xff ? FP_UNKNOWN_PACKET_TYPE : FP_UNKNOWN_CONNECTION;
}

FP_INLINE void fp_rules_hide_connection(struct fp_rules_work FP_MEM *w, u32 hook)
{
	u32 early;

	if (w->known & FP_KNOWN_EARLY)
		return;
	early = fp_rules_early(w, hook);
	if (early == FP_EARLY)
		return;
	fp_rules_keep_connection(w);
	if (early) {
		w->by_fact = early;
		if (!(w->known & FP_KNOWN_NO_READS))
			w->slow = 1;
		w->unknown[FP_W_META] |= FP_META_CONNECTION;
		w->unknown[FP_W_MARK] = ~0xffffffffull;
		return;
	}
	fp_rules_put_connection(w, FP_STATE_INVALID << FP_META_STATE, 0);
}

/* After table raw, unless a rule of it decided about the connection. */
FP_INLINE void fp_rules_show_connection(struct fp_rules_work FP_MEM *w)
{
	if (!w->hidden)
		return;
	FP_PUT(w->hidden, 0);
	FP_PUT(w->by_fact, 0);
	FP_PUT(w->template, 0);
	w->word[FP_W_META] = (w->word[FP_W_META] & ~FP_META_CONNECTION) | w->hidden_meta;
	w->word[FP_W_MARK] = (w->word[FP_W_MARK] & 0xffffffffull) | w->hidden_mark;
	w->unknown[FP_W_META] = (w->unknown[FP_W_META] & ~FP_META_CONNECTION) | w->hidden_unknown;
	w->unknown[FP_W_MARK] = w->hidden_unknown_mark;
}

/* The first record of a chain. */
FP_INLINE const struct fp_rules_record FP_MEM *fp_rules_record(struct fp_rules FP_MEM *r,
							       u32 number)
{
	struct fp_rules_image FP_MEM *image = fp_rules_image(r);
	const u32 FP_MEM *chains = FP_AT(const u32, image, image->chain_at);

	return FP_AT(const struct fp_rules_record, image, chains[number]);
}

/* True if a chain has no rule and accepts. */
FP_INLINE int fp_rules_is_empty(struct fp_rules FP_MEM *r, u32 number)
{
	const struct fp_rules_record FP_MEM *first = fp_rules_record(r, number);

	return first->words == FP_RECORD_END && (first->action & 0xff) == FP_ACT_ACCEPT;
}

/* True if a packet may be of an expected connection, by its state. */
FP_INLINE int fp_rules_may_be_expected(const struct fp_rules_work FP_MEM *w)
{
	return fp_rules_no_state(w) || (w->word[FP_W_META] >> FP_META_STATE & FP_STATE_RELATED);
}

/* OUTPUT: FP_MAYBE if the packet has another destination after table nat. */
FP_INLINE u32 fp_rules_translated(struct fp_rules_work FP_MEM *w)
{
	u32 bits = w->word[FP_W_META] >> FP_META_STATE & (FP_STATE_SNAT | FP_STATE_DNAT);
	u32 reply = !!(w->word[FP_W_META] >> FP_META_REPLY & 0xff);

	if (fp_rules_no_state(w) || !bits)
		return FP_NO;
	if (w->unknown[FP_W_META] >> FP_META_REPLY & 0xff)
		return fp_maybe(w, fp_no_connection(w));
	return bits & (reply ? FP_STATE_SNAT : FP_STATE_DNAT) ? fp_maybe(w, FP_UNKNOWN_TRANSLATION)
							      : FP_NO;
}

FP_FUNC u32 fp_rules_is_icmp(struct fp_rules_work FP_MEM *w FP_ARG)
{
	u32 walk;

	if (w->family != FP_FAMILY_IPV6)
		return (u8)w->word[FP_W_L4] == FP_P_ICMP;
	walk = fp_rules_walk(w, 256, 2);
	if (walk == FP_WALK_CUT)
		return fp_maybe(w, FP_UNKNOWN_CUT_BYTES);
	return walk == FP_WALK_FOUND && !w->walk_fragment && w->walk_next == FP_P_ICMPV6;
}

/*
 * FP_YES if table nat runs: for a connection without a translation of this side, also a null one. So it
 * is a new one, and not yet confirmed. An ICMP error has the translation of the connection in it. A
 * RELATED reply is the kernel's answer to a rejected packet, which has met the destination's side; the
 * answer meets the source's side as it leaves. An expected connection may have the translations of its
 * master, also of a port only, which no bit of its state shows.
 */
FP_FUNC u32 fp_rules_meets_nat(struct fp_rules_work FP_MEM *w FP_ARG, u32 hook)
{
	u32 state = (u8)(w->word[FP_W_META] >> FP_META_STATE);
	u32 status = (u8)(w->word[FP_W_META] >> FP_META_STATUS), icmp;
	/* PREROUTING and OUTPUT translate the destination, INPUT and POSTROUTING the source. */
	u32 done = hook == 0 || hook == FP_RULES_OUTPUT ? FP_STATE_DNAT : FP_STATE_SNAT;
	u32 is_expected = 0;

	if (fp_rules_no_state(w))
		return fp_maybe(w, fp_no_connection(w));
	if (!(state & (FP_STATE_NEW | FP_STATE_RELATED)) || (state & done))
		return FP_NO;
	if (state & FP_STATE_RELATED) {
		icmp = fp_rules_is_icmp(w);
		if (icmp != FP_NO)
			return icmp == FP_YES ? FP_NO : icmp;
		if (state & (FP_STATE_SNAT | FP_STATE_DNAT))
			return fp_maybe(w, FP_UNKNOWN_TRANSLATION);
		if (w->unknown[FP_W_META] >> FP_META_REPLY & 0xff)
			return fp_maybe(w, fp_no_connection(w));
		is_expected = !(w->word[FP_W_META] >> FP_META_REPLY & 0xff);
		if (!is_expected && hook != FP_RULES_POSTROUTING)
			return FP_NO;
	}
	if (w->unknown[FP_W_META] >> FP_META_STATUS & FP_STATUS_CONFIRMED)
		return fp_maybe(w, fp_no_connection(w));
	if (status & FP_STATUS_CONFIRMED)
		return FP_NO;
	return is_expected ? fp_maybe(w, FP_UNKNOWN_TRANSLATION) : FP_YES;
}

/* The base chain of a table at a hook, or FP_RULES_NONE. */
FP_INLINE u32 fp_rules_entry_of(struct fp_rules FP_MEM *r, const struct fp_rules_work FP_MEM *w,
				u32 hook, u32 table)
{
	if (hook >= FP_RULES_HOOKS || table >= FP_RULES_TABLES)
		return FP_RULES_NONE;
	return fp_rules_image(r)->entry[w->family & 3][hook][table];
}

/* State of the tables of a hook, before the first. */
FP_INLINE void fp_rules_begin(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w)
{
	fp_rules_verdict(w, FP_ACT_ACCEPT, 0, FP_RULES_NONE);
	fp_rules_sample(r, w);
	w->doomed = 0;
	FP_PUT(w->hidden, 0);
	FP_PUT(w->by_fact, 0);
	FP_PUT(w->template, 0);
}

/* Runs the base chain with this number as that of a table at a hook. */
FP_INLINE u32 fp_rules_base_chain(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w,
				  u32 hook, u32 table, u32 number)
{
	u32 verdict;

	if (table == FP_RULES_RAW && w->family < FP_FAMILY_ARP)
		fp_rules_hide_connection(w, hook);
	verdict = fp_rules_chain(r, w, number);
	fp_rules_show_connection(w);
	return verdict;
}

/*
 * Runs one table, other than nat, at a hook. The caller has filled the packet by fp_rules_read(), as for
 * fp_rules_evaluate().
 */
FP_INLINE u32 fp_rules_evaluate_table(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w,
				      u32 hook, u32 table)
{
	u32 number = fp_rules_entry_of(r, w, hook, table);

	fp_rules_begin(r, w);
	if (number == FP_RULES_NONE)
		return FP_ACT_ACCEPT;
	w->table = table;
	return fp_rules_base_chain(r, w, hook, table, number);
}

/* Rules that fp_rules_first() tries. */
#define FP_RULES_FIRST 4

/* True if the bits of a word are no bytes of the packet: names of interfaces, states of the connection. */
FP_INLINE int fp_rules_is_outside(u32 word, u64 bits)
{
	return (word >= FP_W_IN && word <= FP_W_OUT1) ||
	       (word == FP_W_META && bits <= 0xffull << FP_META_STATE);
}

/*
 * The verdict of a table, other than raw and nat, by its first rules, if these read nothing but interfaces
 * and the state of the connection: most sets begin with rules that accept known connections. Of the packet,
 * only its length in w->counted is read, so this is also for one before fp_rules_read(). FP_ACT_NONE: rules
 * read more.
 */
FP_INLINE u32 fp_rules_first(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w, u32 hook,
			     u32 table)
{
	u32 number = fp_rules_entry_of(r, w, hook, table), i, word, action;
	const struct fp_rules_record FP_MEM *record;
	const struct fp_rules_compare FP_MEM *c;
	const struct fp_rules_test FP_MEM *t;

	if (fp_unlikely(number == FP_RULES_NONE || w->tracing || r->mode == FP_COUNT_SAMPLED))
		return FP_ACT_NONE;
	record = fp_rules_record(r, number);
	/* The rules of a run or a segment follow it. */
	if (fp_unlikely(record->words == FP_RECORD_RUN || record->words == FP_RECORD_LOOKUP))
		record++;
	fp_loop(i, FP_RULES_FIRST) {
		if (record->words)
			goto compare;
	tests:
		t = fp_rules_tests(record);
		word = t->word & 15;
		if (record->tests != 1)
			goto other_tests;
		if (t->kind != FP_TEST_ANY_BITS || !fp_rules_is_outside(word, t->b) ||
		    (w->unknown[word] & t->b))
			break;
		if (!(w->word[word] & t->b) == !(t->flags & FP_TEST_NOT))
			goto next;
	matches:
		action = record->action & 0xff;
		if (action != FP_ACT_ACCEPT && action != FP_ACT_DROP)
			break;
		w->table = table;
		w->evaluated += i + 1;
		fp_rules_count(r, w, record->id);
		return fp_rules_verdict(w, action, record->action >> 8, record->id);
	next:
		record = FP_AT(const struct fp_rules_record, record,
			       (u64)record->units *FP_RULES_UNIT);
	}
	return FP_ACT_NONE;

compare:
	c = fp_rules_compares(record);
	word = record->shape & 15;
	if (record->words > 1 || !fp_rules_is_outside(word, c->mask) ||
	    (w->unknown[word] & c->mask))
		return FP_ACT_NONE;
	if (((w->word[word] & c->mask) != c->value) != !!(record->shape & FP_SHAPE_NOT))
		goto next;
	goto tests;
other_tests:
	if (record->tests)
		return FP_ACT_NONE;
	goto matches;
}

/* The same in a function, where the time of a call does not count. */
FP_FUNC u32 fp_rules_try_first(struct fp_rules FP_MEM *r FP_ARG,
			       struct fp_rules_work FP_MEM *w FP_ARG, u32 hook, u32 table)
{
	return fp_rules_first(r, w, hook, table);
}

/* Runs all tables at a hook. */
FP_INLINE u32 fp_rules_evaluate(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w, u32 hook)
{
	struct fp_rules_image FP_MEM *image = fp_rules_image(r);
	volatile u32 FP_MEM *i = &w->step[3];
	u32 verdict = FP_ACT_ACCEPT, family = w->family & 3;

	if (hook >= FP_RULES_HOOKS)
		return FP_ACT_ACCEPT;
	fp_rules_begin(r, w);
	fp_loop(*i, FP_RULES_TABLES) {
		u32 number = image->entry[family][hook][*i], meets;
		int is_empty;

		/* Known bits count also without a table nat in this set. */
		if (*i == FP_RULES_NAT && hook == FP_RULES_OUTPUT && family < FP_FAMILY_ARP &&
		    fp_rules_translated(w) == FP_MAYBE)
			return fp_rules_verdict(w, FP_ACT_UNKNOWN, w->argument, FP_RULES_NONE);
		if (number == FP_RULES_NONE)
			continue;
		w->table = *i;
		if (image->nat[family][hook] >> *i & 1) {
			is_empty = fp_rules_is_empty(r, number);
			meets = fp_rules_meets_nat(w, hook);
			/*
			 * Of an empty chain, only the counter is not known then. But other tables of
			 * OUTPUT meet what an unknown or expected connection translates.
			 */
			if (meets == FP_MAYBE && is_empty &&
			    !(hook == FP_RULES_OUTPUT && fp_rules_may_be_expected(w)))
				continue;
			if (meets == FP_MAYBE)
				return fp_rules_verdict(w, FP_ACT_UNKNOWN, w->argument,
							FP_RULES_NONE);
			if (meets == FP_NO)
				continue;
			/* The verdict stays that of the rule before. */
			if (is_empty) {
				fp_rules_count(r, w, fp_rules_record(r, number)->id);
				fp_rules_note(w, fp_rules_record(r, number)->id);
				continue;
			}
		}
		verdict = *i == FP_RULES_RAW ? FP_ACT_NONE : fp_rules_try_first(r, w, hook, *i);
		if (verdict == FP_ACT_NONE)
			verdict = fp_rules_base_chain(r, w, hook, *i, number);
		if (verdict != FP_ACT_ACCEPT)
			break;
	}
	return verdict;
}

#endif /* FP_RULES_EVALUATE_H */
