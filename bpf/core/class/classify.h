/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * classify.h: which class each end of a packet belongs to.
 *
 * The rules lie in an image that user space builds: one hash table of exact keys, and for each
 * family the prefix lengths that occur. The longest prefix is found by binary search over these
 * lengths (Waldvogel et al., Scalable High Speed IP Routing Lookups, SIGCOMM 1997): on the way to
 * a longer prefix markers stand in the table, each with the best match that is known there, so
 * that no step is ever taken back. There are two images; user space fills the one that no packet
 * uses and changes r->image, and each packet goes by one image from beginning to end.
 *
 * Where several rules match an end, the first of this order wins: mark, MAC, prefix, VLAN, DSCP,
 * interface (matches.h).
 *
 * What a host sends is counted where it enters the router, what it receives where it leaves: there
 * all is known of the host (interface, MAC, VLAN). That hook is called natural for that end. What
 * goes through without being seen where it leaves is counted for both ends where it enters.
 */
#ifndef FP_CLASSIFY_H
#define FP_CLASSIFY_H

#include "../work.h"
#include "matches.h"

#define FP_OTHER     0	 /* the slot of what no class matches */
#define FP_NO_SLOT   ~0u /* a marker below which no prefix matches */
#define FP_MAX_LEVEL 129
/* More steps than a binary search over FP_MAX_LEVEL lengths takes. */
#define FP_LEVEL_STEPS 9
/* The image's builder ensures that no key lies further from its place. */
#define FP_RULE_PROBES 16

enum fp_rule_kind {
	FP_RULE_V4 = 0, /* the first four are families: their rules have levels */
	FP_RULE_V6 = 1,
	FP_RULE_LABEL_V4 = 2,
	FP_RULE_LABEL_V6 = 3,
	FP_RULE_UPLINK = 9, /* hosts behind it are remote */
#define FP_RULE_(number, name, NAME, ...) FP_RULE_##NAME = number,
	FP_MATCHES(FP_RULE_)
};

#define FP_USES(kind) (1u << (kind))
/* What besides addresses can lead to a class. */
#define FP_USES_(number, ...) | FP_USES(number)
#define FP_USES_FACTS	      (0 FP_MATCHES(FP_USES_))
#define FP_USES_OF_INSIDE_(number, name, NAME, whom, ...)                                          \
	| (whom == FP_OF_INSIDE ? FP_USES(number) : 0)
/* Those that speak of the end inside. */
#define FP_USES_INSIDE (0 FP_MATCHES(FP_USES_OF_INSIDE_))

struct fp_rule {
	u64 key[2]; /* masked address in network order as loaded, or a number */
	u32 tag;    /* kind + 1, length of a prefix (of 128 bits) << 8; 0 empty */
	u32 value;  /* slot or label */
	u64 zero;
};

struct fp_level {
	u64 mask[2];
	u32 tag;
	u32 zero;
};

struct fp_image {
	u32 generation; /* never 0 */
	u32 uses;	/* FP_USES(kind) */
	u32 mask;	/* rules in the table, less one */
	u32 seed;
	u64 rules; /* offset of the table from this header */
	u32 levels[4];
	struct fp_level level[4][FP_MAX_LEVEL];
};

FP_INLINE struct fp_image FP_MEM *fp_image_at(struct fp_rtt FP_MEM *r, u32 which)
{
	return FP_AT(struct fp_image, r, r->images[which & 1]);
}

FP_INLINE u32 fp_hash_rule(u64 a, u64 b, u32 tag, u32 seed)
{
	u64 h = (a ^ ((u64)seed << 32 | tag)) * 0x9e3779b97f4a7c15ull;

	/* What tells addresses apart stands in the highest bits: it is folded down before. */
	h = (h ^ h >> 29) ^ b;
	h = (h ^ h >> 32) * 0x9e3779b97f4a7c15ull;
	return (u32)(h >> 32);
}

/* The value of a key; `absent` where it is not in the table. */
FP_INLINE u32 fp_find_rule(struct fp_image FP_MEM *image, u64 a, u64 b, u32 tag, u32 absent)
{
	u32 i, at = fp_hash_rule(a, b, tag, image->seed);

	fp_loop(i, FP_RULE_PROBES) {
		struct fp_rule FP_MEM *rule = FP_AT(struct fp_rule, image,
						    image->rules + (u64)((at + i) & image->mask) *
									   sizeof(struct fp_rule));

		if (!rule->tag)
			break;
		if (rule->tag == tag && rule->key[0] == a && rule->key[1] == b)
			return rule->value;
	}
	return absent;
}

FP_INLINE u32 fp_find_number(struct fp_image FP_MEM *image, u32 kind, u64 number)
{
	return fp_find_rule(image, number, 0, kind + 1, FP_OTHER);
}

#define FP_NOT_IN_TABLE (~0u - 1)

/* The longest prefix of w->family that w->look lies in: its value, FP_NO_SLOT without any. */
FP_FUNC u32 fp_match_prefix(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG)
{
	struct fp_image FP_MEM *image = fp_image_at(r, w->image);
	u32 i, family = w->family & 3;

	w->low = 0;
	w->high = image->levels[family];
	w->best = FP_NO_SLOT;
	fp_loop(i, FP_LEVEL_STEPS) {
		u32 middle = (w->low + w->high) >> 1, value;
		struct fp_level FP_MEM *level;

		if (w->low >= w->high || middle >= FP_MAX_LEVEL)
			break;
		level = &image->level[family][middle];
		value = fp_find_rule(image, w->look[0] & level->mask[0],
				     w->look[1] & level->mask[1], level->tag, FP_NOT_IN_TABLE);
		if (value == FP_NOT_IN_TABLE) {
			w->high = middle;
		} else {
			w->low = middle + 1;
			w->best = value;
		}
	}
	return w->best;
}

/* Is `side` the end that marks and DSCPs speak of: the one not behind an uplink? */
FP_INLINE int fp_is_inside(const struct fp_work FP_MEM *w, struct fp_image FP_MEM *image, u32 side)
{
	int sender = side == w->packet.side, uplink;

	if (w->frame.way == FP_WAY_UNKNOWN)
		return 0;
	uplink = fp_find_number(image, FP_RULE_UPLINK, w->frame.ifindex) != FP_OTHER;
	return w->frame.way == FP_WAY_IN ? sender != uplink : sender == uplink;
}

/* Looks one match up, unless a line before it has found a class. */
#define FP_LOOK_UP_(number, name, NAME, whom, condition, ...)                                      \
	if (!slot && (uses & FP_USES(number)) &&                                                   \
	    (whom == FP_OF_INSIDE ? inside                                                         \
	     : whom == FP_OF_LINK ? link                                                           \
				  : 1) &&                                                          \
	    (condition))                                                                           \
		slot = fp_find_number(image, number, fp_key_##name(w, sender));

/* The slot of the class of `side`; `natural` is 0 where only its address may be used. */
FP_FUNC u32 fp_class_of(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG, u32 side,
			u32 natural)
{
	struct fp_image FP_MEM *image = fp_image_at(r, w->image);
	u32 uses = natural ? image->uses : 0, slot = FP_OTHER;
	int sender = side == w->packet.side, link = fp_link_known(w, sender);
	int inside = (uses & FP_USES_INSIDE) && fp_is_inside(w, image, side);

	FP_MATCHES_FIRST(FP_LOOK_UP_)
	if (slot)
		return slot;
	w->family = w->packet.key.family == 4 ? FP_RULE_V4 : FP_RULE_V6;
	if (image->levels[w->family & 1]) {
		w->look[0] = w->packet.key.addr[side & 1][0];
		w->look[1] = w->packet.key.addr[side & 1][1];
		slot = fp_match_prefix(r, w);
		if (slot != FP_NO_SLOT)
			return slot;
		slot = FP_OTHER;
	}
	FP_MATCHES_LAST(FP_LOOK_UP_)
	return slot;
}

/* At which of its hooks is this end counted? */
FP_INLINE int fp_is_counted_here(struct fp_rtt FP_MEM *r, const struct fp_work FP_MEM *w, u32 uses,
				 int sender)
{
	/* Netfilter has set the mark only when the packet leaves. */
	int late = (uses & FP_USES(FP_RULE_MARK)) && r->watched_count > 1;

	if (w->frame.way == FP_WAY_UNKNOWN || (w->frame.flags & FP_FRAME_THROUGH))
		return 1;
	if (!sender)
		return w->frame.way == FP_WAY_OUT || r->watched_count <= 1;
	if (w->frame.way == FP_WAY_IN)
		return !late;
	return late || !(w->frame.flags & FP_FRAME_SEEN_BEFORE);
}

/* Everything but the address that leads to the class of `side`, as one number that is not 0. */
FP_INLINE u32 fp_facts_of(const struct fp_work FP_MEM *w, struct fp_image FP_MEM *image, u32 side)
{
	int sender = side == w->packet.side;
	u32 uses = image->uses;
	u64 a = w->frame.ifindex, b = 0;

#define FP_MIX_IF_USED_(number, name, ...)                                                         \
	if (uses & FP_USES(number))                                                                \
		FP_MIX_##name(a, b);
	FP_MATCHES(FP_MIX_IF_USED_)
	return fp_hash_rule(a, b, (w->frame.way << 1 | sender) + (w->frame.rx_ifindex << 3), 0) | 1;
}

/* Begins a packet's classification: which image, which ends are counted here, by which facts. */
FP_INLINE void fp_classify_begin(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w)
{
	struct fp_image FP_MEM *image;
	u32 sender = w->packet.side & 1, uses;

	w->image = *(volatile u32 FP_MEM *)&r->image;
	image = fp_image_at(r, w->image);
	uses = image->uses;
	w->natural[sender] = fp_is_counted_here(r, w, uses, 1);
	w->natural[!sender] = fp_is_counted_here(r, w, uses, 0);
	w->facts[0] = w->facts[1] = 1;
	if (uses & FP_USES_FACTS) {
		w->facts[0] = w->natural[0] ? fp_facts_of(w, image, 0) : 0;
		w->facts[1] = w->natural[1] ? fp_facts_of(w, image, 1) : 0;
	}
	w->known = 0;
	w->measured = 0;
}

#endif /* FP_CLASSIFY_H */
