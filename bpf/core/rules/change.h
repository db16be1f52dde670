/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/change.h: what the target of a rule changes: marks, the connection, fields of the header. The
 * words and the bytes of the packet change together, because matches read either.
 */
#ifndef FP_RULES_CHANGE_H
#define FP_RULES_CHANGE_H

#include "match.h"

FP_INLINE void fp_set_field(struct fp_rules_work FP_MEM *w, u32 word, u32 shift, u64 mask,
			    u64 value)
{
	w->word[word] = (w->word[word] & ~(mask << shift)) | (value & mask) << shift;
}

/* The bits of FP_W_META that belong to the connection. */
#define FP_META_CONNECTION (0xffffull | 0xffull << FP_META_REPLY)

/* Keeps the connection until table raw ends. */
FP_INLINE void fp_rules_keep_connection(struct fp_rules_work FP_MEM *w)
{
	w->hidden = 1;
	w->hidden_meta = w->word[FP_W_META] & FP_META_CONNECTION;
	w->hidden_mark = w->word[FP_W_MARK] & ~0xffffffffull;
	w->hidden_unknown = w->unknown[FP_W_META] & FP_META_CONNECTION;
	w->hidden_unknown_mark = w->unknown[FP_W_MARK];
}

/* Another connection of these bits, which are known. */
FP_INLINE void fp_rules_put_connection(struct fp_rules_work FP_MEM *w, u64 meta, u32 mark)
{
	w->word[FP_W_META] = (w->word[FP_W_META] & ~FP_META_CONNECTION) | meta;
	w->word[FP_W_MARK] = (u32)w->word[FP_W_MARK] | (u64)mark << 32;
	w->unknown[FP_W_META] &= ~FP_META_CONNECTION;
	w->unknown[FP_W_MARK] = 0;
}

/* True if the packet has neither a connection nor a template, and was not made untracked. */
FP_INLINE int fp_rules_is_new(const struct fp_rules_work FP_MEM *w)
{
	return !(w->unknown[FP_W_META] >> FP_META_STATE & 0xff) &&
	       (w->word[FP_W_META] >> FP_META_STATE & 1);
}

/* NOTRACK, which has no effect on a packet that has a connection or a template. */
FP_INLINE u32 fp_rules_untrack(struct fp_rules_work FP_MEM *w)
{
	if (w->unknown[FP_W_META] >> FP_META_STATE & 0xff)
		return fp_maybe(w, fp_no_connection(w));
	if (fp_rules_is_new(w)) {
		w->hidden = 0;
		fp_rules_put_connection(w, 16ull << FP_META_STATE, 0);
		w->changed |= FP_CHANGED_UNTRACKED;
	}
	return FP_YES;
}

/* CT with other options. The template looks like a new connection until connection tracking. */
FP_INLINE u32 fp_rules_template(struct fp_rules FP_MEM *r, struct fp_rules_work FP_MEM *w, u32 slot)
{
	if (w->unknown[FP_W_META] >> FP_META_STATE & 0xff)
		return fp_maybe(w, fp_no_connection(w));
	if (!fp_rules_is_new(w))
		return FP_YES;
	if (w->early)
		return fp_maybe(w, FP_UNKNOWN_TARGET);
	if (!w->hidden)
		fp_rules_keep_connection(w);
	w->template = slot + 1;
	fp_rules_put_connection(w, 2ull << FP_META_STATE | 8ull << FP_META_STATUS,
				(u32)fp_rules_slot(r, slot)->value);
	return FP_YES;
}

/* A word of the network header, at an even offset. IPv4: corrects its checksum (RFC 1624). */
FP_FUNC int fp_rules_put16(struct fp_rules_work FP_MEM *w FP_ARG, u32 at, u32 value)
{
	u32 before = fp_rules_u16(w, at), sum;

	w->head[at & (FP_RULES_HEAD - 1)] = (u8)(value >> 8);
	w->head[(at + 1) & (FP_RULES_HEAD - 1)] = (u8)value;
	if (w->family != FP_FAMILY_IPV4)
		return 0;
	sum = (u16)~fp_rules_u16(w, 10) + (u16)~before + (value & 0xffff);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16));
	w->head[10] = (u8)(sum >> 8);
	w->head[11] = (u8)sum;
	return 0;
}

/* The byte with DSCP and ECN: the second one of IPv4, and across the first two of IPv6. */
FP_INLINE void fp_rules_set_tos(struct fp_rules_work FP_MEM *w, u32 before, u32 tos)
{
	u32 word = fp_rules_u16(w, 0);

	if (tos == before)
		return;
	fp_set_field(w, FP_W_META, FP_META_TOS, 0xff, tos);
	w->changed |= FP_CHANGED_TOS;
	if (w->family == FP_FAMILY_IPV4)
		fp_rules_put16(w, 0, (word & 0xff00) | tos);
	else
		fp_rules_put16(w, 0, (word & 0xf00f) | tos << 4);
}

FP_INLINE void fp_rules_set_ttl(struct fp_rules_work FP_MEM *w, u32 before, u32 ttl)
{
	if (ttl == before)
		return;
	fp_set_field(w, FP_W_META, FP_META_TTL, 0xff, ttl);
	w->changed |= FP_CHANGED_TTL;
	if (w->family == FP_FAMILY_IPV4)
		fp_rules_put16(w, 8, ttl << 8 | fp_rules_u8(w, 9));
	else
		fp_rules_put16(w, 6, fp_rules_u8(w, 6) << 8 | ttl);
}

/* MSS that a host has to expect without the option (RFC 1122, RFC 2460): the most that is added. */
#define FP_MSS_IPV4   536
#define FP_MSS_IPV6   1220
#define FP_MSS_OPTION 4

/* Adds the option in front of the others, to a header of `size` bytes without data behind it. */
FP_FUNC u32 fp_rules_add_mss(struct fp_rules_work FP_MEM *w FP_ARG, u32 limit, u32 size)
{
	u32 most = w->family == FP_FAMILY_IPV4 ? FP_MSS_IPV4 : FP_MSS_IPV6;
	u32 i, at = w->transport + 20, end = w->transport + size, total;

	if (w->length > end || size >= 60)
		return FP_YES;
	if (end + FP_MSS_OPTION > FP_RULES_HEAD)
		return fp_maybe(w, FP_UNKNOWN_CUT_BYTES);
	limit = limit < most ? limit : most;
	fp_loop(i, 40) {
		if (i + 20 >= size)
			break;
		w->head[(end - 1 - i + FP_MSS_OPTION) & (FP_RULES_HEAD - 1)] =
			fp_rules_u8(w, end - 1 - i);
	}
	w->mss_unknown |= FP_MSS_CHECKSUM;
	w->mss_limits |= FP_LIMITS_ADDED;
	FP_PUT(w->head[at & (FP_RULES_HEAD - 1)], 2);
	FP_PUT(w->head[(at + 1) & (FP_RULES_HEAD - 1)], FP_MSS_OPTION);
	FP_PUT(w->head[(at + 2) & (FP_RULES_HEAD - 1)], (u8)(limit >> 8));
	FP_PUT(w->head[(at + 3) & (FP_RULES_HEAD - 1)], (u8)limit);
	w->head[(w->transport + 12) & (FP_RULES_HEAD - 1)] += FP_MSS_OPTION << 2;
	w->length += FP_MSS_OPTION;
	w->captured += FP_MSS_OPTION;
	w->counted += FP_MSS_OPTION;
	total = w->length;
	fp_set_field(w, FP_W_META, FP_META_LENGTH, 0xffff, total);
	if (w->family == FP_FAMILY_IPV4)
		fp_rules_put16(w, 2, total);
	else
		fp_rules_put16(w, 4, total - 40);
	return FP_YES;
}

/* The offset of the MSS in a TCP header of `size` bytes, which are there; 0: it has no such option. */
FP_FUNC u32 fp_rules_mss_at(struct fp_rules_work FP_MEM *w FP_ARG, u32 size)
{
	u32 i;

	w->walk_at = 20;
	fp_loop(i, FP_TCP_OPTIONS) {
		u32 at = w->transport + w->walk_at, option, bytes;

		if (w->walk_at + FP_MSS_OPTION > size)
			break;
		option = fp_rules_u8(w, at);
		bytes = fp_rules_u8(w, at + 1);
		if (option == 2 && bytes == FP_MSS_OPTION)
			return at + 2;
		w->walk_at += option < 2 || !bytes ? 1 : bytes;
	}
	return 0;
}

/* Headers without options, which TCPMSS subtracts from the MTU of the path. */
#define FP_HEADERS_IPV4 40
#define FP_HEADERS_IPV6 60

/* The limit in bytes. FP_MSS_OF_PATH: it is not known; 0: it is too small for a packet. */
FP_INLINE u32 fp_rules_mss_limit(struct fp_rules_work FP_MEM *w, u32 limit)
{
	u32 headers = w->family == FP_FAMILY_IPV4 ? FP_HEADERS_IPV4 : FP_HEADERS_IPV6;

	if (limit != FP_MSS_OF_PATH || !w->path)
		return limit;
	if (w->path <= headers)
		return 0;
	limit = w->path - headers;
	return limit < 0xffff ? limit : 0xffff;
}

/* Keeps a limit for another place, at which the packet is changed. */
FP_INLINE void fp_rules_keep_limit(struct fp_rules_work FP_MEM *w, u32 limit)
{
	u32 limits = w->mss_limits;

	if (limit == FP_MSS_OF_PATH)
		w->mss_limits = limits | FP_LIMITS_PATH;
	else if (!(limits & FP_LIMITS_BYTES) || limit < (u16)limits)
		w->mss_limits = (limits & ~0xffffu) | FP_LIMITS_BYTES | limit;
}

/*
 * TCPMSS lowers the option, or adds it. FP_HOTDROP: the TCP header is broken or the path too narrow, and
 * the target drops the packet. `limit`: bytes, or FP_MSS_OF_PATH.
 */
FP_FUNC u32 fp_rules_set_mss(struct fp_rules_work FP_MEM *w FP_ARG, u32 limit)
{
	u32 at, size, there, bytes;

	if (w->fragment)
		return FP_YES;
	there = fp_rules_has(w, w->transport, 20);
	if (there != FP_THERE)
		return fp_missing(w, there);
	size = (fp_rules_u8(w, w->transport + 12) >> 4) * 4;
	if (size < 20)
		return FP_HOTDROP;
	there = fp_rules_has(w, w->transport, size);
	if (there != FP_THERE)
		return fp_missing(w, there);
	bytes = fp_rules_mss_limit(w, limit);
	if (!bytes && limit)
		return FP_HOTDROP;
	fp_rules_keep_limit(w, limit);
	w->mss = bytes;
	w->changed |= FP_CHANGED_MSS;
	if (bytes == FP_MSS_OF_PATH) {
		w->mss_unknown |= FP_MSS_PATH;
		bytes = 0;
	}
	at = fp_rules_mss_at(w, size);
	if (at) {
		if (fp_rules_u16(w, at) > bytes) {
			w->mss_unknown |= FP_MSS_CHECKSUM;
			w->head[at & (FP_RULES_HEAD - 1)] = (u8)(bytes >> 8);
			w->head[(at + 1) & (FP_RULES_HEAD - 1)] = (u8)bytes;
		}
		return FP_YES;
	}
	return fp_rules_add_mss(w, bytes, size);
}

/* Carries out limits that an evaluation elsewhere kept, in the packet as it was before. */
FP_FUNC u32 fp_rules_repeat_mss(struct fp_rules_work FP_MEM *w FP_ARG, u32 limits)
{
	u32 size, state = FP_YES;

	if (!(limits & FP_LIMITS_ADDED)) {
		if (fp_rules_has(w, w->transport, 20) != FP_THERE)
			return FP_YES;
		size = (fp_rules_u8(w, w->transport + 12) >> 4) * 4;
		/* A fragment may end with its header. */
		if (fp_rules_has(w, w->transport, size) != FP_THERE || !fp_rules_mss_at(w, size))
			return FP_YES;
	}
	if (limits & FP_LIMITS_BYTES)
		state = fp_rules_set_mss(w, (u16)limits);
	if (state == FP_YES && (limits & FP_LIMITS_PATH))
		state = fp_rules_set_mss(w, FP_MSS_OF_PATH);
	return state;
}

/* Carries out the change of a target. Later rules see it. FP_HOTDROP: it drops the packet. */
FP_FUNC u32 fp_rules_change(struct fp_rules FP_MEM *r FP_ARG, struct fp_rules_work FP_MEM *w FP_ARG,
			    const struct fp_rules_test FP_MEM *t FP_ARG)
{
	u32 mark = (u32)w->word[FP_W_MARK], connmark = (u32)(w->word[FP_W_MARK] >> 32);
	u32 tos = (u8)(w->word[FP_W_META] >> FP_META_TOS);
	u32 ttl = (u8)(w->word[FP_W_META] >> FP_META_TTL), to = ttl;

	/* Without a connection, its mark is neither read nor written. */
	if (t->kind >= FP_SET_CONNMARK && t->kind <= FP_RESTORE_CONNMARK) {
		if (!(w->unknown[FP_W_META] >> FP_META_STATE & 0xff) &&
		    (w->word[FP_W_META] >> FP_META_STATE & (1 | 16)))
			return FP_YES;
		if (w->unknown[FP_W_MARK])
			return fp_maybe(w, fp_no_connection(w));
	}
	switch (t->kind) {
	case FP_SET_MARK:
		mark = (mark & ~(u32)t->b) ^ t->a;
		break;
	case FP_SET_CONNMARK:
		connmark = (connmark & ~(u32)t->b) ^ t->a;
		break;
	case FP_SAVE_CONNMARK:
		connmark = (connmark & ~(u32)(t->b >> 32)) ^ (mark & (u32)t->b);
		break;
	case FP_RESTORE_CONNMARK:
		mark = (mark & ~(u32)t->b) ^ (connmark & (u32)(t->b >> 32));
		break;
	case FP_SET_PRIORITY:
		w->priority = t->a;
		w->changed |= FP_CHANGED_PRIORITY;
		break;
	case FP_SET_TOS:
		fp_rules_set_tos(w, tos, (u8)((tos & ~(u32)t->b) ^ t->a));
		return FP_YES;
	case FP_SET_DSCP:
		fp_rules_set_tos(w, tos, (tos & 3) | (t->a & 63) << 2);
		return FP_YES;
	case FP_SET_TTL:
		if (t->word == 0)
			to = t->a;
		else if (t->word == 1)
			to = ttl < t->a ? 0 : ttl - t->a;
		else
			to = ttl + t->a > 255 ? 255 : ttl + t->a;
		fp_rules_set_ttl(w, ttl, (u8)to);
		return FP_YES;
	case FP_SET_MSS:
		return fp_rules_set_mss(w, t->a);
	case FP_SET_UNTRACKED:
		return fp_rules_untrack(w);
	case FP_SET_TEMPLATE:
		return fp_rules_template(r, w, t->a);
	case FP_SET_LOGGED:
		fp_rules_log(w, t);
		return FP_YES;
	}
	if (connmark != (u32)(w->word[FP_W_MARK] >> 32)) {
		if (w->template)
			fp_rules_slot(r, w->template - 1)->value = connmark;
		else
			w->changed |= FP_CHANGED_CONNMARK;
	}
	w->word[FP_W_MARK] = mark | (u64)connmark << 32;
	return FP_YES;
}

#endif /* FP_RULES_CHANGE_H */
