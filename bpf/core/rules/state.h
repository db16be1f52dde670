/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/state.h: tests with memory (limit, quota, nth packet), and look-ups in sets.
 *
 * The memory of a rule is a slot outside of its chain, so replacing a chain keeps it. A limit is
 * one word, the time at which its bucket will be full (the virtual scheduling algorithm of ITU-T
 * I.371), so one compare-and-swap updates it. It equals a bucket with `burst` packets that gains one
 * each `cost` nanoseconds.
 */
#ifndef FP_RULES_STATE_H
#define FP_RULES_STATE_H

#include "test.h"

#define FP_RULES_TRIES 64

FP_INLINE struct fp_rules_slot FP_MEM *fp_rules_slot(struct fp_rules FP_MEM *r, u32 slot)
{
	return FP_AT(struct fp_rules_slot, r, r->slots + (u64)slot * sizeof(struct fp_rules_slot));
}

FP_FUNC u32 fp_test_limit(struct fp_rules FP_MEM *r FP_ARG, struct fp_rules_work FP_MEM *w FP_ARG,
			  const struct fp_rules_test FP_MEM *t FP_ARG)
{
	struct fp_rules_slot FP_MEM *slot = fp_rules_slot(r, t->a);
	u64 cost = fp_test_data(t)[0], capacity = fp_test_data(t)[1], now = w->now;
	u32 i;

	fp_loop(i, FP_RULES_TRIES) {
		u64 full = *(volatile u64 FP_MEM *)&slot->value;
		u64 from = full > now ? full : now;

		if (from - now + cost > capacity)
			return FP_NO;
		if (fp_cas64(&slot->value, full, from + cost) == full)
			return FP_YES;
	}
	return FP_NO;
}

FP_FUNC u32 fp_test_quota(struct fp_rules FP_MEM *r FP_ARG, struct fp_rules_work FP_MEM *w FP_ARG,
			  const struct fp_rules_test FP_MEM *t FP_ARG)
{
	struct fp_rules_slot FP_MEM *slot = fp_rules_slot(r, t->a);
	u32 i, not = t->flags & FP_TEST_NOT;

	fp_loop(i, FP_RULES_TRIES) {
		u64 left = *(volatile u64 FP_MEM *)&slot->value;
		u32 fits = left >= w->length;

		/* After a packet that did not fit, no smaller one does. */
		if (fp_cas64(&slot->value, left, fits ? left - w->length : 0) == left)
			return fits ^ not;
	}
	return not;
}

FP_FUNC u32 fp_test_nth(struct fp_rules FP_MEM *r FP_ARG,
			const struct fp_rules_test FP_MEM *t FP_ARG)
{
	struct fp_rules_slot FP_MEM *slot = fp_rules_slot(r, t->a);
	u32 i, not = t->flags & FP_TEST_NOT;

	fp_loop(i, FP_RULES_TRIES) {
		u64 until = *(volatile u64 FP_MEM *)&slot->value;

		/* Packets until the next one that matches. */
		if (fp_cas64(&slot->value, until, until ? until - 1 : t->b - 1) == until)
			return !until ^ not;
	}
	return not;
}

/* The second word of a prefix of 64 bits and less is always 0. */
FP_INLINE u32 fp_hash_member(u64 seed, u64 a, u64 b, u32 port, u32 length)
{
	u64 sum = fp_mix64(seed ^ a);

	if (length > 64)
		sum = fp_mix64(sum ^ b);
	return (u32)fp_mix64(sum ^ ((u64)length << 32 | port));
}

#define FP_SET_PORTS  1u
#define FP_SET_IPV6   2u
#define FP_SET_LIST   4u
#define FP_SET_ENDS   8u
#define FP_SET_LEVELS 129
#define FP_SET_PROBES 64
#define FP_NOMATCH    256u

FP_INLINE u64 fp_prefix_mask(u32 bits)
{
	u64 mask = bits >= 64 ? ~0ull : bits ? ~(~0ull >> bits) : 0;

	return __builtin_bswap64(mask);
}

/* True for an entry that has ended: the kernel looks on as if it were not there. */
FP_INLINE int fp_set_over(u64 end, u64 now)
{
	return end && end < now;
}

/* A look-up of w->scratch (address in two words, port) in one set. */
FP_FUNC u32 fp_set_has(struct fp_rules_work FP_MEM *w FP_ARG,
		       const struct fp_rules_set FP_MEM *set FP_ARG)
{
	u32 i, k, port = (u32)w->scratch[2], ends = set->kind & FP_SET_ENDS;
	u32 bytes = ends ? sizeof(struct fp_rules_ending) : sizeof(struct fp_rules_member);

	fp_loop(i, FP_SET_LEVELS) {
		u32 length, at;
		u64 a, b;

		if (i >= set->levels)
			break;
		length = (u8)set->level[i];
		a = w->scratch[0] & fp_prefix_mask(length);
		b = length > 64 ? w->scratch[1] & fp_prefix_mask(length - 64) : 0;
		at = fp_hash_member(set->seed, a, b, port, length);
		fp_loop(k, FP_SET_PROBES) {
			const struct fp_rules_ending FP_MEM *e =
				FP_AT(const struct fp_rules_ending, set,
				      set->at + (u64)((at + k) & set->mask) * bytes);
			const struct fp_rules_member FP_MEM *m = &e->member;

			if (!m->level)
				break;
			if (m->key[0] == a && m->key[1] == b && m->port == port &&
			    (m->level & 255) == length + 1) {
				if (ends && fp_set_over(e->end, w->now))
					break;
				return m->level & FP_NOMATCH ? FP_NO : FP_YES;
			}
		}
	}
	return FP_NO;
}

/* Fills w->scratch for a look-up. FP_NO if the packet has no such field. */
FP_FUNC u32 fp_set_key(struct fp_rules_work FP_MEM *w FP_ARG, u32 kind, u32 dimensions)
{
	u64 both = w->word[FP_W_ADDR];
	u32 protocol = (u8)w->word[FP_W_L4], at = w->transport, bytes = 8, there;

	if (w->family == FP_FAMILY_IPV6) {
		w->scratch[0] = w->word[dimensions & 1 ? FP_W_ADDR2 : FP_W_ADDR];
		w->scratch[1] = w->word[dimensions & 1 ? FP_W_ADDR3 : FP_W_ADDR1];
	} else {
		w->scratch[0] = (u32)(dimensions & 1 ? both >> 32 : both);
		FP_PUT(w->scratch[1], 0);
	}
	FP_PUT(w->scratch[2], 0);
	if (!(kind & FP_SET_PORTS))
		return FP_YES;
	if (w->family == FP_FAMILY_IPV6) {
		/* As ipv6_skip_exthdr(). */
		u32 walk = fp_rules_walk(w, 256, 2);

		if (walk == FP_WALK_CUT)
			return fp_maybe(w, FP_UNKNOWN_CUT_BYTES);
		protocol = w->walk_next;
		at = w->walk_at;
		if (walk != FP_WALK_FOUND || w->walk_fragment || protocol == FP_P_NONE)
			return FP_NO;
	} else if (!protocol) {
		return FP_NO;
	}
	w->scratch[2] = protocol << 16;
	if (protocol == FP_P_TCP)
		bytes = 20;
	else if (protocol == FP_P_SCTP)
		bytes = 12;
	else if (protocol == FP_P_ICMPV6 && w->fragment)
		return FP_YES;
	else if (protocol != FP_P_UDP && protocol != FP_P_UDPLITE && protocol != FP_P_ICMP &&
		 protocol != FP_P_ICMPV6)
		return FP_YES;
	if (w->fragment)
		return FP_NO;
	there = fp_rules_has(w, at, bytes);
	if (there != FP_THERE)
		return there == FP_CUT_PACKET ? fp_maybe(w, FP_UNKNOWN_CUT_BYTES) : FP_NO;
	if ((dimensions & 2) && protocol != FP_P_ICMP && protocol != FP_P_ICMPV6)
		at += 2;
	w->scratch[2] |= fp_rules_u16(w, at);
	return FP_YES;
}

/* The set with a number. */
FP_INLINE const struct fp_rules_set FP_MEM *fp_set_at(struct fp_rules FP_MEM *r, u32 number)
{
	const struct fp_rules_image FP_MEM *image = FP_AT(const struct fp_rules_image, r, r->image);
	const u32 FP_MEM *table = FP_AT(const u32, image, image->set_at);

	return FP_AT(const struct fp_rules_set, image, table[number]);
}

/*
 * The packet in one set that is no list. Without a flag for each of its dimensions, or of the other
 * family, the kernel does not find it.
 */
FP_INLINE u32 fp_set_find(struct fp_rules_work FP_MEM *w, const struct fp_rules_set FP_MEM *set,
			  const struct fp_rules_test FP_MEM *t)
{
	u32 state;

	if (!(set->kind & FP_SET_IPV6) != (w->family != FP_FAMILY_IPV6) ||
	    ((set->kind & FP_SET_PORTS) && t->b < 2))
		return FP_NO;
	state = fp_set_key(w, set->kind, t->word);
	return state == FP_YES ? fp_set_has(w, set) : state;
}

FP_FUNC u32 fp_test_set(struct fp_rules FP_MEM *r FP_ARG, struct fp_rules_work FP_MEM *w FP_ARG,
			const struct fp_rules_test FP_MEM *t FP_ARG)
{
	const struct fp_rules_set FP_MEM *set = fp_set_at(r, t->a);
	volatile u32 FP_MEM *i = &w->step[1];
	u32 not = t->flags & FP_TEST_NOT, state, found = FP_NO;

	if (!(set->kind & FP_SET_LIST)) {
		state = fp_set_find(w, set, t);
		return state == FP_MAYBE ? state : state ^ not;
	}
	fp_loop(*i, FP_SET_LEVELS) {
		if (*i >= set->levels)
			break;
		if ((set->kind & FP_SET_ENDS) &&
		    fp_set_over(FP_AT(const u64, set, set->at)[*i], w->now))
			continue;
		state = fp_set_find(w, fp_set_at(r, set->level[*i]), t);
		if (state == FP_MAYBE)
			return state;
		if (state == FP_YES) {
			found = FP_YES;
			break;
		}
	}
	return found ^ not;
}

/*
 * The addresses of a frame in a list of a bridge: link-layer address in 48 bits, then IPv4 address
 * in 32, or none. A list member without IPv4 address is a prefix of 48 bits.
 */
FP_FUNC u32 fp_test_among(struct fp_rules FP_MEM *r FP_ARG, struct fp_rules_work FP_MEM *w FP_ARG,
			  const struct fp_rules_test FP_MEM *t FP_ARG)
{
	u32 type = (u32)(w->word[FP_W_MISC] >> 48), at = w->network, there = FP_THERE;
	u64 mac = w->word[t->word ? FP_W_DMAC : FP_W_SMAC] & 0xffffffffffffull, ip = 0;

	if (w->unknown[FP_W_MISC] >> 48)
		return fp_maybe(w, FP_UNKNOWN_CUT_BYTES);
	if (type == FP_TYPE_IPV4) {
		there = fp_rules_has(w, at, 20);
		if (there == FP_THERE)
			ip = fp_rules_u32_raw(w, at + (t->word ? 16 : 12));
	} else if (type == FP_TYPE_ARP) {
		there = fp_rules_has(w, at, 8);
		if (there == FP_THERE && fp_rules_u16(w, at + 4) != 0x0604)
			return FP_NO;
		at += t->word ? 24 : 14;
		if (there == FP_THERE)
			there = fp_rules_has(w, at, 4);
		if (there == FP_THERE)
			ip = fp_rules_u32_raw(w, at);
	}
	if (there != FP_THERE)
		return there == FP_CUT_PACKET ? fp_maybe(w, FP_UNKNOWN_CUT_BYTES) : FP_NO;
	w->scratch[0] = mac | ip << 48;
	w->scratch[1] = ip >> 16;
	FP_PUT(w->scratch[2], 0);
	return fp_set_has(w, fp_set_at(r, t->a)) ^ (t->flags & FP_TEST_NOT);
}

#endif /* FP_RULES_STATE_H */
