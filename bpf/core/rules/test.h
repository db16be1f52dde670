/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * rules/test.h: tests of a rule that are more than the comparison of words.
 *
 * Each returns FP_NO, FP_YES, FP_HOTDROP (the packet is dropped, and nothing counts), or FP_MAYBE
 * with the reason in w->argument: the answer depends on something that is not known.
 */
#ifndef FP_RULES_TEST_H
#define FP_RULES_TEST_H

#include "packet.h"

#define FP_NO	   0
#define FP_YES	   1
#define FP_HOTDROP 2
#define FP_MAYBE   3
#define FP_DOOMED                                                                                  \
	4 /* a negated match of a broken packet: it matches, and then the packet is dropped */

/* The data of a test. */
FP_INLINE const u64 FP_MEM *fp_test_data(const struct fp_rules_test FP_MEM *t)
{
	return (const u64 FP_MEM *)(t + 1);
}

/* Records that a test logged the packet; the first FP_RULES_LOGS have a place. */
FP_INLINE void fp_rules_log(struct fp_rules_work FP_MEM *w, const struct fp_rules_test FP_MEM *t)
{
	if (w->logged < FP_RULES_LOGS)
		w->log[w->logged & (FP_RULES_LOGS - 1)] = (u32)(u64)t;
	w->logged++;
}

FP_INLINE u32 fp_maybe(struct fp_rules_work FP_MEM *w, u32 reason)
{
	w->argument = reason;
	return FP_MAYBE;
}

FP_INLINE u32 fp_within(u32 number, u32 first, u32 last)
{
	return number >= first && number <= last;
}

/* The answer for a packet without the bytes that a match requires. */
FP_INLINE u32 fp_missing(struct fp_rules_work FP_MEM *w, u32 there)
{
	return there == FP_CUT_PACKET ? fp_maybe(w, FP_UNKNOWN_CUT_BYTES) : FP_HOTDROP;
}

/* The reason for an unknown connection. */
FP_INLINE u32 fp_no_connection(const struct fp_rules_work FP_MEM *w)
{
	return w->by_fact ? w->by_fact : FP_UNKNOWN_CONNECTION;
}

/* The reason for an unknown word. */
FP_INLINE u32 fp_reason_of(const struct fp_rules_work FP_MEM *w, u32 word, u64 bits)
{
	switch (word) {
	case FP_W_L4:
	case FP_W_ADDR:
	case FP_W_ADDR1:
	case FP_W_ADDR2:
	case FP_W_ADDR3:
	case FP_W_ARP:
		return FP_UNKNOWN_CUT_BYTES;
	case FP_W_META:
		return bits & 0xffffull << FP_META_TOS ? FP_UNKNOWN_CUT_BYTES : fp_no_connection(w);
	case FP_W_IN:
	case FP_W_IN1:
		return FP_UNKNOWN_INPUT;
	case FP_W_OUT:
	case FP_W_OUT1:
		return FP_UNKNOWN_OUTPUT;
	case FP_W_SMAC:
	case FP_W_DMAC:
		return bits >> 48 ? FP_UNKNOWN_CUT_BYTES : FP_UNKNOWN_LINK_LAYER;
	case FP_W_TYPE:
		if (bits >> 32)
			return FP_UNKNOWN_CONNECTIONS;
		return bits & 0xffff ? FP_UNKNOWN_SOURCE_TYPE : FP_UNKNOWN_DESTINATION_TYPE;
	case FP_W_MISC:
		if (bits >> 48)
			return FP_UNKNOWN_CUT_BYTES;
		return bits & 0xff ? FP_UNKNOWN_PACKET_TYPE : FP_UNKNOWN_REVERSE_PATH;
	}
	return fp_no_connection(w);
}

/* The state of a packet whose transport header a match requires: FP_YES if it is there. */
FP_FUNC u32 fp_rules_transport(struct fp_rules_work FP_MEM *w FP_ARG, u32 bytes)
{
	u32 there;

	if (w->fragment) {
		if (w->fragment == 1 && (u8)w->word[FP_W_L4] == FP_P_TCP && bytes != 4)
			return FP_HOTDROP;
		return FP_NO;
	}
	there = fp_rules_has(w, w->transport, bytes);
	return there == FP_THERE ? FP_YES : fp_missing(w, there);
}

/* A comparison with the protocol of a packet that has none, as its extension headers are broken. */
FP_INLINE u32 fp_rules_protocol(struct fp_rules_work FP_MEM *w, u64 mask)
{
	if (!(mask & (0xff | FP_L4_FAILED)) || !(w->word[FP_W_L4] & FP_L4_FAILED))
		return FP_YES;
	return w->unknown[FP_W_L4] ? fp_maybe(w, FP_UNKNOWN_CUT_BYTES) : FP_HOTDROP;
}

/*
 * One comparison of a packet that is irregular or has unknown facts. FP_W_L4 has two parts: that of
 * the frame's header (`header` 1), the protocol, and that of a match, which needs its bytes.
 */
FP_FUNC u32 fp_compare_slowly(struct fp_rules_work FP_MEM *w FP_ARG,
			      const struct fp_rules_compare FP_MEM *c FP_ARG, u32 shape, u32 header)
{
	u32 word = shape & 15, not = !!(shape & FP_SHAPE_NOT), state;
	u64 mask = c->mask, value, unknown;

	/* A bridge's match has no bytes whose absence drops the frame. */
	if (word == FP_W_L4 && w->family != FP_FAMILY_BRIDGE) {
		if (!header && (mask & FP_L4_NEEDS)) {
			state = fp_rules_transport(
				w,
				mask & FP_L4_HEADER ? fp_rules_header_bytes((u8)w->word[word]) : 4);
			if (state != FP_YES)
				return state;
		}
		if (mask & FP_L4_NEEDS)
			mask = header ? mask & (0xff | FP_L4_FRAGMENT)
				      : mask & ~(u64)(0xff | FP_L4_FRAGMENT | FP_L4_NEEDS);
		state = fp_rules_protocol(w, mask);
		if (state != FP_YES)
			return state;
	}
	value = c->value & (word == FP_W_L4 ? mask : ~0ull);
	unknown = mask & w->unknown[word];
	if ((w->word[word] & mask & ~unknown) != (value & ~unknown))
		return not;
	if (unknown)
		return fp_maybe(w, fp_reason_of(w, word, unknown));
	return !not;
}

/* Comparisons that all must hold, negated as a whole. */
FP_FUNC u32 fp_test_words(struct fp_rules_work FP_MEM *w FP_ARG,
			  const struct fp_rules_test FP_MEM *t FP_ARG)
{
	const struct fp_rules_compare FP_MEM *c =
		(const struct fp_rules_compare FP_MEM *)fp_test_data(t);
	volatile u32 FP_MEM *i = &w->step[1];
	u32 shape = t->a, not = t->flags & FP_TEST_NOT, maybe = 0, state;

	fp_loop(*i, FP_RULES_COMPARES) {
		u32 word = shape & 15;
		u64 unknown, mask;

		if (*i >= (u32)t->b)
			break;
		mask = c->mask;
		if (word == FP_W_L4 && (mask & FP_L4_NEEDS)) {
			state = fp_rules_transport(
				w,
				mask & FP_L4_HEADER ? fp_rules_header_bytes((u8)w->word[word]) : 4);
			if (state != FP_YES)
				return state;
		}
		if (word == FP_W_L4 && w->family != FP_FAMILY_BRIDGE) {
			state = fp_rules_protocol(w, mask);
			if (state != FP_YES)
				return state;
		}
		unknown = mask & w->unknown[word];
		if ((w->word[word] & mask & ~unknown) != (c->value & ~unknown))
			return not;
		if (unknown)
			maybe = fp_reason_of(w, word, unknown);
		shape >>= 5;
		c++;
	}
	if (maybe)
		return fp_maybe(w, maybe);
	return !not;
}

FP_FUNC u32 fp_test_ports(struct fp_rules_work FP_MEM *w FP_ARG,
			  const struct fp_rules_test FP_MEM *t FP_ARG)
{
	const u32 FP_MEM *range = (const u32 FP_MEM *)fp_test_data(t);
	u32 i, state = fp_rules_transport(w, 4);
	u32 source = (u16)(w->word[FP_W_L4] >> 16), destination = (u16)(w->word[FP_W_L4] >> 32);

	if (state != FP_YES)
		return state;
	fp_loop(i, 16) {
		u32 first = range[i] & 0xffff, last = range[i] >> 16;

		if (i >= t->a)
			break;
		if (((t->word & 1) && fp_within(source, first, last)) ||
		    ((t->word & 2) && fp_within(destination, first, last)))
			return FP_YES;
	}
	return FP_NO;
}

/* A range of addresses, in host order: first and last, each of two words (IPv4: one). */
FP_FUNC u32 fp_test_addresses(struct fp_rules_work FP_MEM *w FP_ARG,
			      const struct fp_rules_test FP_MEM *t FP_ARG)
{
	const u64 FP_MEM *data = fp_test_data(t);
	u64 high, low;

	if (w->family != FP_FAMILY_IPV6) {
		u64 both = w->word[FP_W_ADDR];

		low = fp_be32((u32)(t->word ? both >> 32 : both));
		return low >= data[0] && low <= data[1];
	}
	high = __builtin_bswap64(w->word[t->word ? FP_W_ADDR2 : FP_W_ADDR]);
	low = __builtin_bswap64(w->word[t->word ? FP_W_ADDR3 : FP_W_ADDR1]);
	if (high < data[0] || (high == data[0] && low < data[1]))
		return FP_NO;
	return high < data[2] || (high == data[2] && low <= data[3]);
}

#define FP_TCP_OPTIONS 40

/*
 * Walks the options of TCP to `kind`, and returns its offset in w->walk_at. FP_NO if the packet has
 * none.
 */
FP_FUNC u32 fp_tcp_option(struct fp_rules_work FP_MEM *w FP_ARG, u32 kind)
{
	u32 i, end, there;

	end = (fp_rules_u8(w, w->transport + 12) >> 4) * 4;
	if (end < 20)
		return FP_HOTDROP;
	there = fp_rules_has(w, w->transport, end);
	if (there != FP_THERE)
		return fp_missing(w, there);
	end += w->transport;
	w->walk_at = w->transport + 20;
	fp_loop(i, FP_TCP_OPTIONS) {
		u32 at = w->walk_at, option;

		if (at >= end)
			return FP_NO;
		option = fp_rules_u8(w, at);
		if (option == kind)
			return FP_YES;
		if (option < 2) {
			w->walk_at = at + 1;
		} else {
			u32 bytes = at + 1 < end ? fp_rules_u8(w, at + 1) : 1;

			w->walk_at = at + (bytes ? bytes : 1);
		}
	}
	return FP_NO;
}

FP_FUNC u32 fp_test_tcp_option(struct fp_rules_work FP_MEM *w FP_ARG, u32 kind)
{
	u32 state = fp_rules_transport(w, 20);

	return state == FP_YES ? fp_tcp_option(w, kind) : state;
}

/* The walk of xt_tcpmss differs from that of xt_tcp: a broken option drops the packet. */
FP_FUNC u32 fp_test_mss(struct fp_rules_work FP_MEM *w FP_ARG, u32 first, u32 last, u32 not)
{
	u32 i, end, there = fp_rules_has(w, w->transport, 20), at;

	if (w->mss_unknown & FP_MSS_PATH)
		return fp_maybe(w, FP_UNKNOWN_TARGET);
	if (there != FP_THERE)
		return fp_missing(w, there);
	end = (fp_rules_u8(w, w->transport + 12) >> 4) * 4;
	if (end < 20)
		return FP_HOTDROP;
	if (end == 20)
		return not;
	there = fp_rules_has(w, w->transport, end);
	if (there != FP_THERE)
		return fp_missing(w, there);
	end += w->transport;
	w->walk_at = w->transport + 20;
	fp_loop(i, FP_TCP_OPTIONS) {
		u32 option, bytes;

		at = w->walk_at;
		if (at >= end)
			break;
		option = fp_rules_u8(w, at);
		bytes = at + 1 < end ? fp_rules_u8(w, at + 1) : 0;
		if (option == 2 && end - at >= 4 && bytes == 4)
			return fp_within(fp_rules_u16(w, at + 2), first, last) ^ not;
		if (option < 2 || at + 1 >= end)
			w->walk_at = at + 1;
		else
			w->walk_at = at + (bytes ? bytes : 1);
	}
	return not;
}

/* ECN: a: 1 TCP's ECE is compared, 2 CWR, 4 the field of IP; b: their values, that of IP << 4. */
FP_FUNC u32 fp_test_ecn(struct fp_rules_work FP_MEM *w FP_ARG,
			const struct fp_rules_test FP_MEM *t FP_ARG)
{
	u32 flags, there, wanted = (u32)t->b;

	if ((t->a & 4) &&
	    ((((w->word[FP_W_META] >> FP_META_TOS) & 3) == (wanted >> 4)) == !!(t->b >> 32 & 4)))
		return FP_NO;
	if (!(t->a & 3))
		return FP_YES;
	there = fp_rules_has(w, w->transport, 20);
	if (there != FP_THERE)
		return there == FP_CUT_PACKET ? fp_maybe(w, FP_UNKNOWN_CUT_BYTES) : FP_NO;
	flags = fp_hide32(fp_rules_u8(w, w->transport + 13));
	if ((t->a & 1) && !(flags & 0x40) != !(wanted & 1))
		return FP_NO;
	if ((t->a & 2) && !(flags & 0x80) != !(wanted & 2))
		return FP_NO;
	return FP_YES;
}

/* The security parameter index of AH (word 4) and ESP (word 0). */
FP_FUNC u32 fp_test_spi(struct fp_rules_work FP_MEM *w FP_ARG,
			const struct fp_rules_test FP_MEM *t FP_ARG)
{
	u32 there, not = t->flags & FP_TEST_NOT;

	if (w->fragment)
		return FP_NO;
	there = fp_rules_has(w, w->transport, t->word ? 12 : 8);
	if (there != FP_THERE)
		return fp_missing(w, there);
	return fp_within(fp_rules_u32(w, w->transport + t->word), t->a, (u32)t->b) ^ not;
}

FP_FUNC u32 fp_test_dccp(struct fp_rules_work FP_MEM *w FP_ARG, u32 types, u32 not)
{
	u32 state = fp_rules_transport(w, 12);

	if (state != FP_YES)
		return state;
	return !!(types & 1u << (fp_rules_u8(w, w->transport + 8) >> 1 & 15)) ^ not;
}

#define FP_CHUNKS 128

/*
 * Chunks of SCTP. Data: four words of types as bits, then entries with flags: type | mask << 8 |
 * flags << 16.
 */
FP_FUNC u32 fp_test_chunks(struct fp_rules_work FP_MEM *w FP_ARG,
			   const struct fp_rules_test FP_MEM *t FP_ARG)
{
	const u64 FP_MEM *types = fp_test_data(t);
	const u32 FP_MEM *entries = (const u32 FP_MEM *)(types + 4);
	u32 i, k, state = fp_rules_transport(w, 12), not = t->flags & FP_TEST_NOT;
	u64 FP_MEM *seen = w->scratch;

	w->doomable = state == FP_YES;
	if (state != FP_YES)
		return state;
	FP_PUT(seen[0], types[0]);
	FP_PUT(seen[1], types[1]);
	FP_PUT(seen[2], types[2]);
	FP_PUT(seen[3], types[3]);
	w->walk_at = w->transport + 12;
	fp_loop(i, FP_CHUNKS) {
		u32 at = w->walk_at, type, flags, bytes, there, fits = 1;

		if (i && at >= w->length)
			break;
		there = fp_rules_has(w, at, 4);
		if (there == FP_CUT_PACKET)
			return fp_maybe(w, FP_UNKNOWN_CUT_BYTES);
		bytes = there == FP_THERE ? fp_rules_u16(w, at + 2) : 0;
		if (!bytes)
			return FP_HOTDROP;
		type = fp_rules_u8(w, at);
		flags = fp_rules_u8(w, at + 1);
		w->walk_at = at + ((bytes + 3) & ~3u);
		if (!(types[type >> 6] >> (type & 63) & 1)) {
			if (t->word == 2)
				return not;
			continue;
		}
		fp_loop(k, 32) {
			u32 entry = entries[k];

			if (k >= t->a)
				break;
			if ((entry & 0xff) == type) {
				fits = (flags & (entry >> 8 & 0xff)) == (entry >> 16 & 0xff);
				break;
			}
		}
		if (t->word == 0 && fits)
			return !not;
		if (t->word == 1 && fits)
			seen[type >> 6] &= ~(1ull << (type & 63));
		if (t->word == 2 && !fits)
			return not;
	}
	if (t->word == 1)
		return !(seen[0] | seen[1] | seen[2] | seen[3]) ^ not;
	return (t->word == 2) ^ not;
}

/* Checks of an IPv6 extension header. */
struct fp_rules_extension {
	u32 header; /* next-header number */
	u32 checks; /* FP_EXT_* */
	u32 first;  /* identification, SPI or segments left */
	u32 last;
	u32 bytes; /* of the header */
	u32 type;
	u32 options; /* number */
	u32 zero;
	u32 option[16]; /* type | (length + 1) << 8 */
};

#define FP_EXT_RANGE	 1u
#define FP_EXT_RANGE_NOT 2u
#define FP_EXT_BYTES	 4u
#define FP_EXT_BYTES_NOT 8u
#define FP_EXT_TYPE	 16u
#define FP_EXT_TYPE_NOT	 32u
#define FP_EXT_RESERVED	 64u
#define FP_EXT_FIRST	 128u
#define FP_EXT_MORE	 256u
#define FP_EXT_LAST	 512u
#define FP_EXT_OPTIONS	 1024u

/* Options of a hop-by-hop or destination header, in the order of the rule. */
FP_FUNC u32 fp_test_options(struct fp_rules_work FP_MEM *w FP_ARG,
			    const struct fp_rules_extension FP_MEM *e FP_ARG, u32 bytes, u32 ret)
{
	u32 i, there;

	w->walk_at += 2;
	w->walk_next = bytes - 2; /* what is left */
	w->walk_fragment = ret;
	fp_loop(i, 16) {
		u32 wanted, type, step = 1;

		if (i >= e->options)
			return w->walk_fragment;
		if (w->walk_next < 1)
			return FP_NO;
		there = fp_rules_has(w, w->walk_at, 1);
		if (there != FP_THERE)
			return there == FP_CUT_PACKET ? fp_maybe(w, FP_UNKNOWN_CUT_BYTES) : FP_NO;
		wanted = e->option[i];
		type = fp_rules_u8(w, w->walk_at);
		if (type != (wanted & 0xff))
			return FP_NO;
		w->walk_fragment = 1;
		if (type) {
			if (w->walk_next < 2)
				return FP_NO;
			there = fp_rules_has(w, w->walk_at + 1, 1);
			if (there != FP_THERE)
				return there == FP_CUT_PACKET ? fp_maybe(w, FP_UNKNOWN_CUT_BYTES)
							      : FP_NO;
			step = fp_rules_u8(w, w->walk_at + 1);
			/* The kernel has no number for length 255: it means any. */
			if ((wanted >> 8) && (wanted >> 8) != 256 && (wanted >> 8) != step + 1)
				return FP_NO;
			step += 2;
		}
		if ((w->walk_at + step > w->length || w->walk_next < step) && i + 1 < e->options)
			return FP_NO;
		w->walk_at += step;
		w->walk_next -= step;
	}
	return w->walk_fragment;
}

FP_FUNC u32 fp_test_extension(struct fp_rules_work FP_MEM *w FP_ARG,
			      const struct fp_rules_extension FP_MEM *e FP_ARG)
{
	u32 walk, at, bytes, there, number = 0, checks = e->checks, header = e->header;
	u32 size = header == FP_P_AH	     ? 12
		   : header == FP_P_FRAGMENT ? 8
		   : header == FP_P_ROUTING  ? 4
					     : 2;

	if (fp_rules_has(w, 0, 40) != FP_THERE)
		return FP_NO;
	walk = fp_rules_walk(w, header, 4);
	if (walk == FP_WALK_MISSING)
		return FP_NO;
	if (walk == FP_WALK_CUT)
		return fp_maybe(w, FP_UNKNOWN_CUT_BYTES);
	if (walk == FP_WALK_BROKEN)
		return FP_HOTDROP;
	at = w->walk_at;
	there = fp_rules_has(w, at, size);
	if (there != FP_THERE)
		return fp_missing(w, there);
	bytes = header == FP_P_AH ? (fp_rules_u8(w, at + 1) + 2) * 4
				  : (fp_rules_u8(w, at + 1) + 1) * 8;
	if (header == FP_P_FRAGMENT) {
		u32 offset = fp_rules_u16(w, at + 2);

		number = fp_rules_u32(w, at + 4);
		if ((checks & FP_EXT_RESERVED) && (fp_rules_u8(w, at + 1) || (offset & 6)))
			return FP_NO;
		if ((checks & FP_EXT_FIRST) && (offset & 0xfff8))
			return FP_NO;
		if ((checks & FP_EXT_MORE) && !(offset & 1))
			return FP_NO;
		if ((checks & FP_EXT_LAST) && (offset & 1))
			return FP_NO;
	} else if (w->length - at < bytes) {
		/* Since 2026 Linux drops a packet that ends in such a header. */
		return FP_HOTDROP;
	}
	if (header == FP_P_ROUTING) {
		number = fp_rules_u8(w, at + 3);
		if ((checks & FP_EXT_TYPE) &&
		    (fp_rules_u8(w, at + 2) == e->type) == !!(checks & FP_EXT_TYPE_NOT))
			return FP_NO;
		if (checks & FP_EXT_RESERVED) {
			there = fp_rules_has(w, at + 4, 4);
			if (there != FP_THERE)
				return fp_missing(w, there);
			if (fp_rules_u32(w, at + 4))
				return FP_NO;
		}
	}
	if (header == FP_P_AH) {
		number = fp_rules_u32(w, at + 4);
		if ((checks & FP_EXT_RESERVED) && fp_rules_u16(w, at + 2))
			return FP_NO;
	}
	if ((checks & FP_EXT_RANGE) &&
	    fp_within(number, e->first, e->last) == !!(checks & FP_EXT_RANGE_NOT))
		return FP_NO;
	if ((checks & FP_EXT_BYTES) && (bytes == e->bytes) == !!(checks & FP_EXT_BYTES_NOT))
		return FP_NO;
	if (checks & FP_EXT_OPTIONS)
		return fp_test_options(w, e, bytes, 1);
	return FP_YES;
}

/* The extension headers of a packet as bits, compared with those of a rule. */
FP_FUNC u32 fp_test_headers(struct fp_rules_work FP_MEM *w FP_ARG, u32 wanted, u32 soft, u32 not)
{
	u32 i, found = 0;

	if (fp_rules_has(w, 0, 40) != FP_THERE)
		return FP_NO;
	w->walk_at = 40;
	w->walk_next = fp_rules_u8(w, 6);
	fp_loop(i, FP_RULES_EXTENSIONS) {
		u32 next = w->walk_next, at = w->walk_at, bytes, there;

		if (!fp_rules_is_extension(next) && next != FP_P_ESP) {
			/* The protocol itself, which is not a header of the list. */
			found |= 1;
			break;
		}
		if (next == FP_P_NONE) {
			found |= 2;
			break;
		}
		if (w->length < at + 2)
			return FP_NO;
		if (next == FP_P_ESP) {
			found |= 4;
			break;
		}
		there = fp_rules_has(w, at, 2);
		if (there != FP_THERE)
			return fp_maybe(w, FP_UNKNOWN_CUT_BYTES);
		bytes = next == FP_P_FRAGMENT ? 8
			: next == FP_P_AH     ? (fp_rules_u8(w, at + 1) + 2) * 4
					      : (fp_rules_u8(w, at + 1) + 1) * 8;
		found |= next == FP_P_HOPOPTS	 ? 128
			 : next == FP_P_ROUTING	 ? 32
			 : next == FP_P_FRAGMENT ? 16
			 : next == FP_P_AH	 ? 8
						 : 64;
		w->walk_next = fp_rules_u8(w, at);
		w->walk_at = at + bytes;
		if (w->walk_at > w->length) {
			if (w->walk_next != FP_P_NONE && w->walk_next != FP_P_ESP)
				found |= 1;
			break;
		}
	}
	/* Negated, none of the headers may be there. */
	if (soft)
		return (found & wanted) == (not? 0 : wanted);
	return !!(found == wanted) ^ not;
}

/*
 * The program of u32: words of 32 bits. For each test: offset, steps, ranges, then steps as
 * (operation, number), ranges as (first, last). Ends with ~0. Offsets are from the network header.
 */
/* True if the word at `at` has bytes of a TCP checksum that is not known. */
FP_INLINE int fp_rules_is_changed(const struct fp_rules_work FP_MEM *w, u32 at)
{
	return (w->mss_unknown & FP_MSS_CHECKSUM) && at + 4 > w->transport + 16 &&
	       at < w->transport + 18;
}

FP_FUNC u32 fp_test_u32(struct fp_rules_work FP_MEM *w FP_ARG,
			const struct fp_rules_test FP_MEM *t FP_ARG)
{
	const u32 FP_MEM *program = (const u32 FP_MEM *)fp_test_data(t);
	volatile u32 FP_MEM *place = &w->walk_at, *base = &w->walk_next, *value = &w->walk_fragment;
	u32 i, k, there, not = t->flags & FP_TEST_NOT;

	if (w->mss_unknown & FP_MSS_PATH)
		return fp_maybe(w, FP_UNKNOWN_TARGET);
	*place = FP_ZERO;
	fp_loop(i, 10) {
		u32 at = *place, offset, steps, ranges, found = 0;

		if (i >= t->a)
			break;
		offset = program[at & 0xfff];
		steps = program[(at + 1) & 0xfff];
		ranges = program[(at + 2) & 0xfff];
		at += 3;
		*base = w->network;
		if (offset > 0xffff)
			return not;
		there = fp_rules_has(w, *base + offset, 4);
		if (there != FP_THERE)
			return there == FP_CUT_PACKET ? fp_maybe(w, FP_UNKNOWN_CUT_BYTES) : not;
		if (fp_rules_is_changed(w, *base + offset))
			return fp_maybe(w, FP_UNKNOWN_TARGET);
		*value = fp_rules_u32(w, *base + offset);
		fp_loop(k, 10) {
			u32 operation, number;

			if (k >= steps)
				break;
			operation = program[(at + 2 * k) & 0xfff];
			number = program[(at + 2 * k + 1) & 0xfff];
			if (operation == 0) {
				*value &= number;
			} else if (operation == 1) {
				*value = number > 31 ? 0 : *value << number;
			} else if (operation == 2) {
				*value = number > 31 ? 0 : *value >> number;
			} else {
				u64 sum = (u64)*base + *value;

				if (sum + 4 > w->length || sum > 0xffff || number > 0xffff)
					return not;
				*base = (u32)sum;
				there = fp_rules_has(w, *base + number, 4);
				if (there != FP_THERE)
					return there == FP_CUT_PACKET
						       ? fp_maybe(w, FP_UNKNOWN_CUT_BYTES)
						       : not;
				if (fp_rules_is_changed(w, *base + number))
					return fp_maybe(w, FP_UNKNOWN_TARGET);
				*value = fp_rules_u32(w, *base + number);
			}
		}
		at += 2 * steps;
		fp_loop(k, 10) {
			if (k >= ranges)
				break;
			found |= fp_within(*value, program[(at + 2 * k) & 0xfff],
					   program[(at + 2 * k + 1) & 0xfff]);
		}
		if (!found)
			return not;
		*place = at + 2 * ranges;
	}
	return !not;
}

/* Times of day, days and dates. */
struct fp_rules_time {
	u64 from; /* seconds since 1970 */
	u64 until;
	u32 start; /* of the day */
	u32 stop;
	u32 weekdays;  /* bit 1: Monday, 7: Sunday */
	u32 monthdays; /* bit n: day n */
	u32 contiguous;
	u32 local;
};

FP_FUNC u32 fp_test_time(struct fp_rules_work FP_MEM *w FP_ARG,
			 const struct fp_rules_time FP_MEM *t FP_ARG)
{
	u64 now = w->date + (t->local ? (u64)(s64)(s32)fp_hide32(w->local_offset) : 0), days;
	u32 of_day, weekday, shifted, of_era, year, of_year, day;

	if (!(w->known & FP_KNOWN_DATE))
		return fp_maybe(w, FP_UNKNOWN_DATE);
	if (now < t->from || now > t->until)
		return FP_NO;
	of_day = (u32)(now % 86400);
	if (t->start < t->stop) {
		if (of_day < t->start || of_day > t->stop)
			return FP_NO;
	} else {
		if (of_day < t->start && of_day > t->stop)
			return FP_NO;
		/* The night belongs to the day on which it began. */
		if (t->contiguous && of_day <= t->stop)
			now -= 86400;
	}
	days = now / 86400;
	weekday = (u32)((days + 3) % 7) + 1;
	if (!(t->weekdays >> weekday & 1))
		return FP_NO;
	/* Day of the month: Howard Hinnant, chrono-Compatible Low-Level Date Algorithms. */
	of_era = (u32)((days + 719468) % 146097);
	year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	of_year = of_era - (365 * year + year / 4 - year / 100);
	shifted = (5 * of_year + 2) / 153;
	day = of_year - (153 * shifted + 2) / 5 + 1;
	return t->monthdays >> day & 1;
}

FP_FUNC u32 fp_test_owner(struct fp_rules_work FP_MEM *w FP_ARG,
			  const struct fp_rules_test FP_MEM *t FP_ARG)
{
	u32 id = t->word ? w->group : w->user, not = t->flags & FP_TEST_NOT;

	if (!(w->known & FP_KNOWN_OWNER))
		return fp_maybe(w, FP_UNKNOWN_OWNER);
	/* 2: only whether there is a socket. */
	if (t->word == 2)
		return !!(w->known & FP_KNOWN_OWNED) ^ not;
	if (!(w->known & FP_KNOWN_OWNED))
		return not;
	return fp_within(id, t->a, (u32)t->b) ^ not;
}

#define FP_TYPE_UNSPEC	  0x01u
#define FP_TYPE_UNICAST	  0x02u
#define FP_TYPE_MULTICAST 0x20u

/*
 * -m addrtype of IPv6, and of one interface. In IPv6 the address itself has some types, and all of
 * them must fit; of the others one, which routes decide. An address of another interface is unicast
 * in IPv4, so the type is known if that makes no difference.
 */
FP_FUNC u32 fp_test_addrtype(struct fp_rules_work FP_MEM *w FP_ARG,
			     const struct fp_rules_test FP_MEM *t FP_ARG)
{
	u32 not = t->flags & FP_TEST_NOT, limited = t->word & 2, wanted = t->a, holds;
	u32 destination = t->word & 1, shift = destination * 16;
	u32 types = (u32)(w->word[FP_W_TYPE] >> shift) & 0xffff;
	u32 unknown = (u32)(w->unknown[FP_W_TYPE] >> shift) & 0xffff;

	if (w->family == FP_FAMILY_IPV6) {
		u64 a = w->word[destination ? FP_W_ADDR2 : FP_W_ADDR];
		u64 b = w->word[destination ? FP_W_ADDR3 : FP_W_ADDR1];
		u32 multicast = (a & 0xff) == 0xff, zero = !(a | b);
		/* ::ffff:0:0/96 */
		u32 mapped = !a && (u32)b == 0xffff0000u;

		if (((wanted & FP_TYPE_MULTICAST) && !multicast) ||
		    ((wanted & FP_TYPE_UNICAST) && (multicast || zero || mapped)) ||
		    ((wanted & FP_TYPE_UNSPEC) && !zero))
			return FP_NO ^ not;
		wanted &= ~(FP_TYPE_MULTICAST | FP_TYPE_UNICAST | FP_TYPE_UNSPEC);
		if (!wanted)
			return FP_YES ^ not;
		unknown |= limited;
	}
	holds = !!(types & wanted);
	if (limited && !(types & (FP_TYPE_UNICAST | FP_TYPE_MULTICAST)) &&
	    holds != !!(wanted & FP_TYPE_UNICAST))
		unknown = 1;
	if (unknown)
		return fp_maybe(w,
				destination ? FP_UNKNOWN_DESTINATION_TYPE : FP_UNKNOWN_SOURCE_TYPE);
	return holds ^ not;
}

FP_FUNC u32 fp_test_physical(struct fp_rules_work FP_MEM *w FP_ARG,
			     const struct fp_rules_test FP_MEM *t FP_ARG)
{
	const u64 FP_MEM *data = fp_test_data(t);
	u32 at = t->word ? 2 : 0, not = t->flags & FP_TEST_NOT;

	if (!(w->known & FP_KNOWN_PHYSICAL))
		return fp_maybe(w, FP_UNKNOWN_PHYSICAL);
	/* Bridges: the device of a port. Without one the test is not made. */
	if (t->a == 4 && !w->physical[at])
		return FP_YES;
	/* a: 1 compare names, 2 only whether there is a port, 3 whether there is one to leave by. */
	if (t->a == 2)
		return !!w->physical[at] ^ not;
	if (t->a == 3)
		return !!w->physical[2] ^ not;
	if (!w->physical[0] && !w->physical[2])
		return not;
	/* A missing input port is no reason to fail, a missing output port is one, also if negated. */
	if (!w->physical[at])
		return t->a == 1 && !at;
	return ((w->physical[at] & data[0]) == data[1] &&
		(w->physical[at + 1] & data[2]) == data[3]) ^
	       not;
}

#endif /* FP_RULES_TEST_H */
