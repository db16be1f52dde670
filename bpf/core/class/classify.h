/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * classify.h: the class of each end of a packet.
 *
 * The rules are in an image that user space builds: one hash table of exact keys, and for each
 * family the prefix lengths that occur. A binary search over these lengths finds the longest prefix
 * (Waldvogel et al., Scalable High Speed IP Routing Lookups, SIGCOMM 1997). Markers on the path to
 * a longer prefix hold the best match so far, so the search never backtracks. There are two images:
 * user space fills the unused one and changes r->image. Each packet uses one image from start to
 * end.
 *
 * If several rules match an end, the first in this order wins: mark, MAC, prefix, VLAN, DSCP,
 * interface (matches.h).
 *
 * Packets of a host are counted where they enter the router, packets to a host where they leave:
 * there its interface, MAC address and VLAN are known. That hook is the natural one for that end.
 * Packets that pass without a hook at egress are counted for both ends at ingress.
 */
#ifndef FP_CLASSIFY_H
#define FP_CLASSIFY_H

#include "../work.h"
#include "matches.h"

#define FP_OTHER     0	 /* the slot of packets without a class */
#define FP_NO_SLOT   ~0u /* a marker without a matching prefix above it */
#define FP_MAX_LEVEL 129
/* More steps than a binary search over FP_MAX_LEVEL lengths needs. */
#define FP_LEVEL_STEPS 9
/* The builder of the image ensures that every key is within this distance of its position. */
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
/* Matches other than addresses. */
#define FP_USES_(number, ...) | FP_USES(number)
#define FP_USES_FACTS	      (0 FP_MATCHES(FP_USES_))
#define FP_USES_OF_INSIDE_(number, name, NAME, whom, ...)                                          \
	| (whom == FP_OF_INSIDE ? FP_USES(number) : 0)
/* Matches of the end inside. */
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

/*
 * Not hash.h: only the operator's rules are in the table, the builder tries seeds until each is near
 * its position, and a look-up ends after FP_RULE_PROBES. This hash distributes adjacent addresses
 * more evenly than random, so that the table stays small.
 */
FP_INLINE u32 fp_hash_rule(u64 a, u64 b, u32 tag, u32 seed)
{
	u64 h = (a ^ ((u64)seed << 32 | tag)) * 0x9e3779b97f4a7c15ull;

	/* The highest bits distinguish addresses, so they are folded down first. */
	h = (h ^ h >> 29) ^ b;
	h = (h ^ h >> 32) * 0x9e3779b97f4a7c15ull;
	return (u32)(h >> 32);
}

/* The value of a key, or `absent`. */
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

/* The value of the longest prefix of w->family that contains w->look, or FP_NO_SLOT. */
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

/* True if `side` is the end of marks and DSCPs: the one that is not behind an uplink. */
FP_INLINE int fp_is_inside(const struct fp_work FP_MEM *w, struct fp_image FP_MEM *image, u32 side)
{
	int sender = side == w->packet.side, uplink;

	if (w->frame.direction == FP_DIRECTION_UNKNOWN)
		return 0;
	uplink = fp_find_number(image, FP_RULE_UPLINK, w->frame.ifindex) != FP_OTHER;
	return w->frame.direction == FP_INGRESS ? sender != uplink : sender == uplink;
}

/* Looks up one match, unless an earlier line found a class. */
#define FP_LOOK_UP_(number, name, NAME, whom, condition, ...)                                      \
	if (!slot && (uses & FP_USES(number)) &&                                                   \
	    (whom == FP_OF_INSIDE ? inside                                                         \
	     : whom == FP_OF_LINK ? link                                                           \
				  : 1) &&                                                          \
	    (condition))                                                                           \
		slot = fp_find_number(image, number, fp_key_##name(w, sender));

/* The slot of the class of `side`. If `natural` is 0, only the address may be used. */
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

/* Sets w->natural[] for the sender and the receiver: true if this hook counts the end. */
FP_INLINE void fp_fill_natural(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w, u32 uses,
			       u32 sender)
{
	u32 only = r->watched_count <= 1;
	/* Netfilter sets the mark before the packet leaves. */
	u32 late = (uses & FP_USES(FP_RULE_MARK)) && !only;
	u32 of_sender = 1, of_receiver = 1;

	if (w->frame.direction == FP_INGRESS && !(w->frame.flags & FP_FRAME_THROUGH)) {
		of_sender = !late;
		of_receiver = only;
	} else if (w->frame.direction == FP_EGRESS && !(w->frame.flags & FP_FRAME_THROUGH)) {
		of_sender = late || !(w->frame.flags & FP_FRAME_SEEN_BEFORE);
	}
	w->natural[sender] = of_sender;
	w->natural[!sender] = of_receiver;
}

/* Everything except the address that selects the class of `side`, as a number that is not 0. */
FP_INLINE u32 fp_facts_of(const struct fp_rtt FP_MEM *r, const struct fp_work FP_MEM *w,
			  struct fp_image FP_MEM *image, u32 side)
{
	int sender = side == w->packet.side;
	u32 uses = image->uses;
	u64 a = w->frame.ifindex, b = 0;

#define FP_MIX_IF_USED_(number, name, ...)                                                         \
	if (uses & FP_USES(number))                                                                \
		FP_MIX_##name(a, b);
	FP_MATCHES(FP_MIX_IF_USED_)
	return (u32)fp_hash_3(&r->hash, a, b,
			      (u64)w->frame.rx_ifindex << 3 | w->frame.direction << 1 | sender) |
	       1;
}

/* Where classes are selected by more than addresses: by what, for each end that counts here. */
FP_FUNC int fp_fill_facts(struct fp_rtt FP_MEM *r FP_ARG, struct fp_work FP_MEM *w FP_ARG)
{
	struct fp_image FP_MEM *image = fp_image_at(r, w->image);

	w->facts[0] = w->natural[0] ? fp_facts_of(r, w, image, 0) : 0;
	w->facts[1] = w->natural[1] ? fp_facts_of(r, w, image, 1) : 0;
	return 0;
}

/*
 * Starts the classification of a packet: its image, and for each end whether it counts here and by
 * what.
 */
FP_INLINE void fp_classify_begin(struct fp_rtt FP_MEM *r, struct fp_work FP_MEM *w)
{
	u32 image = *(volatile u32 FP_MEM *)&r->image, uses = r->uses[image & 1];

	w->image = image;
	fp_fill_natural(r, w, uses, w->packet.side & 1);
	w->facts[0] = w->facts[1] = 1;
	if (uses & FP_USES_FACTS)
		fp_fill_facts(r, w);
	w->known = 0;
	w->measured = 0;
}

#endif /* FP_CLASSIFY_H */
